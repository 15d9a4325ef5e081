//! What listings show: of runs, of leases, of signs of life.

use std::collections::BTreeMap;
use std::time::SystemTime;

use everstep_format::id::AttemptId;
use everstep_format::key::{Key, Prefix, StoredKind};
use everstep_format::name::{Ordinal, RunName};
use everstep_repo::Repository;
use everstep_store::{Listed, Store};

use crate::GcError;

/// Ordinals that a listing may lack: it is not one moment, so that an intent may be missed while a later one is shown.
const HOLES: u64 = 1024;

/// Where an attempt stands.
pub(crate) type Place = (RunName, Ordinal);

/// The objects of one ordinal, by when they were written.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Entry {
    pub(crate) intent: Option<SystemTime>,
    pub(crate) decision: Option<SystemTime>,
    pub(crate) expired: Option<SystemTime>,
    pub(crate) swept: bool,
}

impl Entry {
    /// Since when the attempt is decided, or expired.
    pub(crate) fn since(&self) -> Option<SystemTime> {
        self.decision.max(self.expired)
    }
}

/// The objects of one lease.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LeaseEntry {
    pub(crate) lease: Option<SystemTime>,
    pub(crate) ended: bool,
}

/// Every attempt and every lease.
#[derive(Debug, Clone, Default)]
pub(crate) struct Listing {
    pub(crate) attempts: BTreeMap<Place, Entry>,
    pub(crate) leases: BTreeMap<AttemptId, LeaseEntry>,
}

impl Listing {
    /// Lists the runs, then the leases.
    pub(crate) async fn read(repository: &Repository) -> Result<Self, GcError> {
        let store = repository.store().as_ref();
        let mut listing = Self::default();
        each(store, &Prefix::runs(), |object| listing.add_attempt(object)).await?;
        each(store, &Prefix::leases(), |object| {
            listing.add_lease(&object);
            Ok(())
        })
        .await?;
        listing.fill_holes()?;
        Ok(listing)
    }

    /// Lists `run` and the pins, which may be of it.
    pub(crate) async fn of_run(repository: &Repository, run: &RunName) -> Result<Self, GcError> {
        let store = repository.store().as_ref();
        let mut listing = Self::default();
        for run in [run, &RunName::pins()] {
            each(store, &Prefix::run(run), |object| listing.add_attempt(object)).await?;
        }
        listing.fill_holes()?;
        Ok(listing)
    }

    /// Adds the marks of earlier passes.
    pub(crate) async fn read_swept(&mut self, repository: &Repository) -> Result<(), GcError> {
        let add = |object: Listed| {
            if let Some(StoredKind::Swept(run, ordinal)) = object.key.kind()
                && let Some(entry) = self.attempts.get_mut(&(run, ordinal))
            {
                entry.swept = true;
            }
            Ok(())
        };
        each(repository.store().as_ref(), &Prefix::swept(), add).await
    }

    fn add_attempt(&mut self, object: Listed) -> Result<(), GcError> {
        let Some(kind) = object.key.kind() else {
            let unknown = object.key.unknown_reserved_run();
            return unknown.map_or(Ok(()), |run| Err(GcError::UnknownRun(run.to_owned())));
        };
        let written = Some(object.modified);
        match kind {
            StoredKind::Intent(run, ordinal) => self.entry(run, ordinal).intent = written,
            StoredKind::Decision(run, ordinal) => self.entry(run, ordinal).decision = written,
            StoredKind::Expired(run, ordinal) => self.entry(run, ordinal).expired = written,
            _ => {}
        }
        Ok(())
    }

    fn entry(&mut self, run: RunName, ordinal: Ordinal) -> &mut Entry {
        self.attempts.entry((run, ordinal)).or_default()
    }

    fn add_lease(&mut self, object: &Listed) {
        match object.key.kind() {
            Some(StoredKind::Lease(id)) => self.leases.entry(id).or_default().lease = Some(object.modified),
            Some(StoredKind::LeaseEnd(id)) => self.leases.entry(id).or_default().ended = true,
            _ => {}
        }
    }

    /// Ordinals are dense and intents are never deleted, so whatever was skipped is asked for by name.
    fn fill_holes(&mut self) -> Result<(), GcError> {
        let mut holes: Vec<Place> = Vec::new();
        let mut expected: Option<Place> = None;
        for (run, ordinal) in self.attempts.keys() {
            let from = match &expected {
                Some((of, next)) if of == run => *next,
                _ => Ordinal::FIRST,
            };
            if ordinal.0 - from.0 > HOLES {
                return Err(GcError::missing(Key::intent(run, from), "a later ordinal was claimed"));
            }
            holes.extend((from.0..ordinal.0).map(|missing| (run.clone(), Ordinal(missing))));
            expected = Some((run.clone(), Ordinal(ordinal.0 + 1)));
        }
        self.attempts.extend(holes.into_iter().map(|place| (place, Entry::default())));
        Ok(())
    }
}

/// Hands every object below `prefix` on, page by page.
pub(crate) async fn each(
    store: &dyn Store,
    prefix: &Prefix,
    mut take: impl FnMut(Listed) -> Result<(), GcError>,
) -> Result<(), GcError> {
    let mut token = None;
    loop {
        let page = store.list(prefix, token).await?;
        page.objects.into_iter().try_for_each(&mut take)?;
        match page.next {
            None => return Ok(()),
            next => token = next,
        }
    }
}
