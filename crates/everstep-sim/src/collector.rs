//! An eager garbage collector for the simulation: G1 to G5 of the protocol in their plainest form, so that whatever the
//! writers' and readers' rules fail to protect is really gone. It knows few writers per attempt.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use everstep_format::FormatError;
use everstep_format::decision::{Abort, Decision, Manifest, Verdict};
use everstep_format::id::AttemptId;
use everstep_format::intent::{Intent, IntentKind, ParentRef};
use everstep_format::key::{Key, Prefix, StoredKind};
use everstep_format::lease::{Lease, LeaseEnd};
use everstep_format::name::{Ordinal, Rank, RunName};
use everstep_format::refs::Refs;
use everstep_store::{Span, Store, StoreError, StoreErrorKind, list_all};

/// Ranks that a simulated job has at most; a real collector lists the prefixes of 16.
const RANKS: std::ops::Range<u32> = 0..4;

/// Why a pass ended without deleting what it had found.
#[derive(Debug)]
pub enum Stopped {
    /// The store failed.
    Store(StoreError),
    /// Something could not be read.
    Format(FormatError),
    /// What must be there is not, or changed meanwhile: the next pass may succeed.
    Changed(&'static str),
}

impl From<StoreError> for Stopped {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<FormatError> for Stopped {
    fn from(error: FormatError) -> Self {
        Self::Format(error)
    }
}

type Place = (RunName, Ordinal);

/// Aborts undecided attempts whose intent is older than `age` (G0); their writers may well be alive.
///
/// # Errors
/// [`Stopped`].
pub async fn abort_idle(store: &dyn Store, now: SystemTime, age: Duration) -> Result<u32, Stopped> {
    let mut aborted = 0;
    for listed in list_all(store, &Prefix::runs()).await? {
        let Some(StoredKind::Intent(run, ordinal)) = listed.key.kind() else { continue };
        let idle = now.duration_since(listed.modified).unwrap_or_default();
        let place = (run, ordinal);
        let intent = read_intent(store, &place).await?;
        if idle < age || intent.kind == IntentKind::Fence || read_decision(store, &place).await?.is_some() {
            continue;
        }
        let abort = Abort { reason: "abandoned".to_owned(), detail: "idle".to_owned(), by: None };
        let body = Decision::abort(intent.attempt, abort).to_bytes(&place.0, ordinal)?;
        store.create(&Key::decision(&place.0, ordinal), body.into()).await?;
        aborted += 1;
    }
    Ok(aborted)
}

/// Ends leases that showed no life for their time to live (G0), by the store's clock.
///
/// # Errors
/// [`Stopped`].
pub async fn end_silent_leases(store: &dyn Store, now: SystemTime) -> Result<u32, Stopped> {
    let signs: BTreeMap<Key, SystemTime> =
        list_all(store, &Prefix::alive()).await?.into_iter().map(|sign| (sign.key, sign.modified)).collect();
    let mut ended = 0;
    for listed in list_all(store, &Prefix::leases()).await? {
        let Some(StoredKind::Lease(id)) = listed.key.kind() else { continue };
        let Some(lease) = read_lease(store, id).await? else { continue };
        let last = signs.get(&Key::alive(id)).map_or(listed.modified, |sign| listed.modified.max(*sign));
        let silent = now.duration_since(last).unwrap_or_default();
        if silent < Duration::from_secs(lease.ttl) || read(store, &Key::lease_end(id)).await?.is_some() {
            continue;
        }
        let end = LeaseEnd::new(id, "abandoned", String::new()).to_bytes()?;
        store.create(&Key::lease_end(id), end.into()).await?;
        ended += 1;
    }
    Ok(ended)
}

/// One pass; the number of objects deleted.
///
/// # Errors
/// [`Stopped`]: nothing was deleted, unless deleting itself failed.
pub async fn collect(store: &dyn Store) -> Result<usize, Stopped> {
    let dead = dead(store).await?;
    let mut marks = Marks::default();
    let mut saves = BTreeSet::new();
    for listed in list_all(store, &Prefix::runs()).await? {
        let Some(StoredKind::Intent(run, ordinal)) = listed.key.kind() else { continue };
        let place = (run, ordinal);
        let intent = read_intent(store, &place).await?;
        if intent.kind == IntentKind::Fence {
            continue;
        }
        saves.insert(intent.attempt);
        if !dead.contains(&intent.attempt) {
            marks.attempt(store, &place, &intent.parents).await?;
        }
    }
    let leases = list_all(store, &Prefix::leases()).await?;
    for lease in &leases {
        let Some(StoredKind::Lease(id)) = lease.key.kind() else { continue };
        marks.lease(store, id).await?;
    }
    let mut deleted = 0;
    for attempt in dead.intersection(&saves) {
        deleted += sweep(store, *attempt, &marks).await?;
    }
    Ok(deleted)
}

/// G1: aborted or expired.
async fn dead(store: &dyn Store) -> Result<BTreeSet<AttemptId>, Stopped> {
    let mut decided = BTreeMap::new();
    let mut expired = BTreeSet::new();
    for listed in list_all(store, &Prefix::runs()).await? {
        match listed.key.kind() {
            Some(StoredKind::Decision(run, ordinal)) => {
                let place = (run, ordinal);
                let decision =
                    read_decision(store, &place).await?.ok_or(Stopped::Changed("a decision vanished"))?;
                decided.insert(place, decision);
            }
            Some(StoredKind::Expired(run, ordinal)) => drop(expired.insert((run, ordinal))),
            _ => {}
        }
    }
    let is_dead = |(place, decision): &(Place, Decision)| {
        matches!(decision.verdict, Verdict::Abort(_)) || expired.contains(place)
    };
    Ok(decided.into_iter().filter(is_dead).map(|(_, decision)| decision.attempt).collect())
}

#[derive(Debug, Default)]
struct Marks {
    packs: BTreeSet<Key>,
    /// Attempts whose index an undecided child may still read.
    parents: BTreeSet<AttemptId>,
}

impl Marks {
    /// G3 for one attempt: first its parents' refs, then its decision.
    async fn attempt(
        &mut self,
        store: &dyn Store,
        place: &Place,
        parents: &[ParentRef],
    ) -> Result<(), Stopped> {
        let mut of_parents = BTreeSet::new();
        for parent in parents {
            of_parents.extend(parent_packs(store, parent).await?);
        }
        match read_decision(store, place).await?.map(|decision| decision.verdict) {
            None => {
                self.packs.extend(of_parents);
                self.parents.extend(parents.iter().map(|parent| parent.attempt));
            }
            Some(Verdict::Commit(manifest)) => match read_refs(store, &manifest).await? {
                Some(packs) => self.packs.extend(packs),
                // Gone by another pass, because it is expired by now: this pass knows too little.
                None => return Err(Stopped::Changed("the refs of a checkpoint vanished")),
            },
            Some(Verdict::Abort(_)) => {}
        }
        Ok(())
    }

    /// G3 for one lease: first its parent's refs, then its end.
    async fn lease(&mut self, store: &dyn Store, id: AttemptId) -> Result<(), Stopped> {
        let Some(lease) = read_lease(store, id).await? else { return Ok(()) };
        let packs = parent_packs(store, &lease.parent).await?;
        if read(store, &Key::lease_end(id)).await?.is_none() {
            self.packs.extend(packs);
            self.parents.insert(lease.parent.attempt);
        }
        Ok(())
    }
}

async fn parent_packs(store: &dyn Store, parent: &ParentRef) -> Result<Vec<Key>, Stopped> {
    let place = (parent.run.clone(), parent.ordinal);
    let Some(Verdict::Commit(manifest)) =
        read_decision(store, &place).await?.map(|decision| decision.verdict)
    else {
        return Ok(Vec::new());
    };
    if let Some(packs) = read_refs(store, &manifest).await? {
        return Ok(packs);
    }
    match read(store, &Key::expired(&place.0, place.1)).await? {
        Some(_) => Ok(Vec::new()),
        None => Err(Stopped::Changed("the refs of a parent vanished")),
    }
}

/// G4 and G5.
async fn sweep(store: &dyn Store, attempt: AttemptId, marks: &Marks) -> Result<usize, Stopped> {
    let mut doomed: Vec<Key> = Vec::new();
    for rank in RANKS {
        let packs = list_all(store, &Prefix::packs_of(attempt, Rank(rank))).await?;
        doomed.extend(packs.into_iter().map(|pack| pack.key));
    }
    doomed.retain(|pack| !marks.packs.contains(pack));
    if !marks.parents.contains(&attempt) {
        let tables = list_all(store, &Prefix::index_of(attempt)).await?;
        doomed.extend(tables.into_iter().map(|table| table.key));
    }
    if !doomed.is_empty() {
        store.delete(&doomed).await?;
    }
    Ok(doomed.len())
}

async fn read(store: &dyn Store, key: &Key) -> Result<Option<bytes::Bytes>, Stopped> {
    match store.get(key, Span::Whole).await {
        Ok(object) => Ok(Some(object.bytes)),
        Err(error) if error.kind == StoreErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn read_lease(store: &dyn Store, id: AttemptId) -> Result<Option<Lease>, Stopped> {
    let bytes = read(store, &Key::lease(id)).await?;
    Ok(bytes.map(|bytes| Lease::from_bytes(&bytes, id)).transpose()?)
}

async fn read_intent(store: &dyn Store, (run, ordinal): &Place) -> Result<Intent, Stopped> {
    let bytes =
        read(store, &Key::intent(run, *ordinal)).await?.ok_or(Stopped::Changed("an intent vanished"))?;
    Ok(Intent::from_bytes(&bytes, run, *ordinal)?)
}

async fn read_decision(store: &dyn Store, (run, ordinal): &Place) -> Result<Option<Decision>, Stopped> {
    let bytes = read(store, &Key::decision(run, *ordinal)).await?;
    Ok(bytes.map(|bytes| Decision::from_bytes(&bytes, run, *ordinal)).transpose()?)
}

async fn read_refs(store: &dyn Store, manifest: &Manifest) -> Result<Option<Vec<Key>>, Stopped> {
    let Some(bytes) = read(store, &Key::refs(manifest.attempt, manifest.refs.blake3)).await? else {
        return Ok(None);
    };
    let refs = Refs::from_bytes(&bytes, &manifest.refs)?;
    Ok(Some(refs.packs().iter().map(Key::pack).collect()))
}
