//! G3: which packs of the dead are still used, and by whom.

use std::collections::{BTreeSet, HashMap, HashSet};

use everstep_format::FormatError;
use everstep_format::feature::Operation;
use everstep_format::id::AttemptId;
use everstep_format::intent::ParentRef;
use everstep_format::key::{Key, PackAddress};
use everstep_format::limits;
use everstep_repo::{Checkpoint, RepoError, Repository};
use everstep_store::{Span, StoreErrorKind};
use futures::{StreamExt, TryStreamExt, stream};

use crate::GcError;
use crate::candidates::Candidates;
use crate::learning::{Known, Outcome, Reading};
use crate::listing::{Listing, Place};

/// Bytes of refs that are in memory at one time; a larger list still goes alone.
const REFS_IN_FLIGHT: u64 = 256 << 20;

/// A pack within its attempt in 64 bits. Two that coincide keep each other, which loses nothing but space.
pub(crate) fn print_of(pack: &PackAddress) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = pack.pack.0;
    // Ranks that store the same pack store two objects.
    u64::from_le_bytes([a, b, c, d, e, f, g, h]) ^ u64::from(pack.rank.0).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Packs of one attempt.
type Prints = HashSet<u64>;

/// What must stay.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    packs: HashMap<AttemptId, Prints>,
    /// Attempts whose index somebody may still read.
    parents: BTreeSet<AttemptId>,
    /// In a plan: the last of the checkpoints to be expired that uses a pack.
    users: HashMap<AttemptId, HashMap<u64, AttemptId>>,
}

/// What one attempt or lease marks.
#[derive(Debug, Default)]
struct Marked {
    packs: Vec<(AttemptId, u64)>,
    parents: Vec<AttemptId>,
}

/// A look at everything that may use something of the dead.
pub(crate) struct Marking<'m> {
    pub(crate) reading: Reading<'m>,
    pub(crate) candidates: &'m Candidates,
    pub(crate) known: &'m Known,
    /// Leases that a plan would end.
    pub(crate) ended: &'m BTreeSet<AttemptId>,
}

impl Marks {
    pub(crate) fn has(&self, pack: &PackAddress) -> bool {
        self.packs.get(&pack.attempt).is_some_and(|prints| prints.contains(&print_of(pack)))
    }

    pub(crate) fn is_parent(&self, attempt: AttemptId) -> bool {
        self.parents.contains(&attempt)
    }

    /// The checkpoint whose expiry frees `pack`.
    pub(crate) fn user_of(&self, pack: &PackAddress) -> Option<AttemptId> {
        self.users.get(&pack.attempt)?.get(&print_of(pack)).copied()
    }

    fn add(&mut self, marked: Marked) {
        for (attempt, print) in marked.packs {
            self.packs.entry(attempt).or_default().insert(print);
        }
        self.parents.extend(marked.parents);
    }
}

impl Marking<'_> {
    /// G3 over what was listed after the dead were known (G2).
    pub(crate) async fn mark(&self, listing: &Listing) -> Result<Marks, GcError> {
        let mut marks = Marks::default();
        let largest = self.largest_refs(listing).max(1);
        let fit = usize::try_from(REFS_IN_FLIGHT / largest).unwrap_or(usize::MAX);
        let width = fit.clamp(1, self.reading.in_flight.max(1));
        let places: Vec<Place> =
            listing.attempts.keys().filter(|place| self.may_use(place)).cloned().collect();
        let mut marked = stream::iter(places).map(|place| self.attempt(place)).buffer_unordered(width);
        while let Some(marked) = marked.try_next().await? {
            marks.add(marked);
        }
        let open = listing.leases.iter().filter(|(_, lease)| lease.lease.is_some() && !lease.ended);
        let ids: Vec<AttemptId> = open.map(|(id, _)| *id).collect();
        let mut marked = stream::iter(ids).map(|id| self.lease(id)).buffer_unordered(width);
        while let Some(marked) = marked.try_next().await? {
            marks.add(marked);
        }
        Ok(marks)
    }

    /// In a plan: who of `doomed`, in the order in which they would go, uses which pack last.
    pub(crate) async fn blame(&self, doomed: &[Checkpoint], marks: &mut Marks) -> Result<(), GcError> {
        for checkpoint in doomed {
            let packs = self.refs(checkpoint).await?;
            for (owner, print) in packs {
                marks.users.entry(owner).or_default().insert(print, checkpoint.manifest.attempt);
            }
        }
        Ok(())
    }

    fn largest_refs(&self, listing: &Listing) -> u64 {
        let lengths = listing.attempts.keys().filter_map(|place| match self.known.outcome(place)? {
            Outcome::Committed(checkpoint) if self.touches(checkpoint) => Some(checkpoint.manifest.refs.len),
            _ => None,
        });
        lengths.max().unwrap_or(0)
    }

    /// Whether the refs of `checkpoint` can have anything of the candidates.
    fn touches(&self, checkpoint: &Checkpoint) -> bool {
        checkpoint.manifest.owners.iter().any(|owner| self.candidates.has(*owner))
    }

    /// Whether the attempt at `place` may keep something; the dead and fences do not, nor does what expired and was not read
    /// again because nothing was left of it.
    fn may_use(&self, place: &Place) -> bool {
        let attempt = self.known.attempt(place);
        attempt.is_some_and(|attempt| !self.candidates.dead.contains(&attempt)) && !self.known.is_fence(place)
    }

    async fn attempt(&self, place: Place) -> Result<Marked, GcError> {
        match self.known.outcome(&place) {
            // Decisions never change, so its parents do not matter any more.
            Some(outcome) => self.decided(outcome).await,
            None => self.undecided(&place).await,
        }
    }

    async fn decided(&self, outcome: &Outcome) -> Result<Marked, GcError> {
        match outcome {
            Outcome::Aborted(_) => Ok(Marked::default()),
            Outcome::Committed(checkpoint) => match self.refs_touched(checkpoint).await {
                // Another pass took them, so it has expired by now: this one knows too little.
                Err(GcError::Repo(RepoError::Expired { .. })) => Err(GcError::Changed),
                packs => Ok(Marked { packs: packs?, parents: Vec::new() }),
            },
        }
    }

    /// First the refs of its parents, then its decision: in this order, or another pass could strip a parent in between.
    async fn undecided(&self, place: &Place) -> Result<Marked, GcError> {
        let (run, ordinal) = place;
        let intent = self.known.intent(place).ok_or_else(|| {
            GcError::missing(Key::intent(run, *ordinal), "it has no decision, and intents are never deleted")
        })?;
        let mut marked = Marked::default();
        for parent in &intent.parents {
            marked.packs.extend(self.parent(parent).await?);
            marked.parents.push(parent.attempt);
        }
        match self.reading.repository.decision(run, *ordinal, Operation::Gc).await? {
            None => Ok(marked),
            Some(decided) if decided.attempt == intent.attempt => self.decided(&Outcome::of(&decided)).await,
            Some(decided) => Err(other_attempt(place, intent.attempt, decided.attempt)),
        }
    }

    /// First the refs of its parent, then its end.
    async fn lease(&self, id: AttemptId) -> Result<Marked, GcError> {
        // One that had vanished when it was to be read had ended.
        let Some(lease) = self.known.lease(id).filter(|_| !self.ended.contains(&id)) else {
            return Ok(Marked::default());
        };
        let packs = self.parent(&lease.parent).await?;
        match self.reading.repository.store().get(&Key::lease_end(id), Span::AtMost(limits::JSON_BYTES)).await
        {
            Err(error) if error.kind == StoreErrorKind::NotFound => {
                Ok(Marked { packs, parents: vec![lease.parent.attempt] })
            }
            // Its presence decides.
            Err(error) if error.kind == StoreErrorKind::TooLarge => Ok(Marked::default()),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(Marked::default()),
        }
    }

    /// What a parent's refs have of the candidates. Refs that are gone pin nothing if the parent has expired.
    async fn parent(&self, parent: &ParentRef) -> Result<Vec<(AttemptId, u64)>, GcError> {
        let repository: &Repository = self.reading.repository;
        let place = (parent.run.clone(), parent.ordinal);
        let Some(decided) = repository.decision(&place.0, place.1, Operation::Gc).await? else {
            return Ok(Vec::new());
        };
        if decided.attempt != parent.attempt {
            return Err(other_attempt(&place, parent.attempt, decided.attempt));
        }
        let Some(checkpoint) = decided.committed() else { return Ok(Vec::new()) };
        match self.refs_touched(&checkpoint).await {
            // They may just have been written.
            Err(GcError::Repo(RepoError::Missing { .. })) => match self.refs_touched(&checkpoint).await {
                Err(GcError::Repo(RepoError::Expired { .. })) => Ok(Vec::new()),
                again => again,
            },
            Err(GcError::Repo(RepoError::Expired { .. })) => Ok(Vec::new()),
            packs => packs,
        }
    }

    async fn refs_touched(&self, checkpoint: &Checkpoint) -> Result<Vec<(AttemptId, u64)>, GcError> {
        if self.touches(checkpoint) { self.refs(checkpoint).await } else { Ok(Vec::new()) }
    }

    /// What the refs of `checkpoint` have of the candidates. Refs that are missing are explained by its marker, read now.
    async fn refs(&self, checkpoint: &Checkpoint) -> Result<Vec<(AttemptId, u64)>, GcError> {
        let refs = self.reading.repository.refs(checkpoint).await?;
        let touched = refs.packs().iter().filter(|pack| self.candidates.has(pack.attempt));
        Ok(touched.map(|pack| (pack.attempt, print_of(pack))).collect())
    }
}

fn other_attempt((run, ordinal): &Place, expected: AttemptId, found: AttemptId) -> GcError {
    let error =
        FormatError::corrupt("decision", 0, format!("attempt {expected}"), format!("attempt {found}"));
    GcError::object(Key::decision(run, *ordinal))(error)
}
