//! What is known of attempts and leases. Intents, decisions and leases never change, so that nothing is read twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use everstep_format::FormatError;
use everstep_format::feature::Operation;
use everstep_format::id::AttemptId;
use everstep_format::intent::{Intent, IntentKind};
use everstep_format::key::Key;
use everstep_format::lease::Lease;
use everstep_format::limits;
use everstep_repo::{Checkpoint, Decided, Fate, RepoError, Repository};
use everstep_store::{Span, StoreErrorKind};
use futures::{StreamExt, TryStreamExt, stream};

use crate::GcError;
use crate::listing::{Entry, Listing, Place};

/// A decision, as far as it matters here.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    Aborted(AttemptId),
    Committed(Checkpoint),
}

impl Outcome {
    pub(crate) fn of(decided: &Decided) -> Self {
        match &decided.fate {
            Fate::Commit(manifest) => Self::Committed(Checkpoint { manifest: manifest.clone() }),
            Fate::Abort(_) => Self::Aborted(decided.attempt),
        }
    }

    pub(crate) fn attempt(&self) -> AttemptId {
        match self {
            Self::Aborted(attempt) => *attempt,
            Self::Committed(checkpoint) => checkpoint.manifest.attempt,
        }
    }
}

/// Everything that was read so far.
#[derive(Debug, Default)]
pub(crate) struct Known {
    intents: BTreeMap<Place, Arc<Intent>>,
    outcomes: BTreeMap<Place, Outcome>,
    leases: BTreeMap<AttemptId, Arc<Lease>>,
}

/// How attempts are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading<'r> {
    pub(crate) repository: &'r Repository,
    /// Requests in flight.
    pub(crate) in_flight: usize,
}

impl Known {
    pub(crate) fn intent(&self, place: &Place) -> Option<&Arc<Intent>> {
        self.intents.get(place)
    }

    pub(crate) fn outcome(&self, place: &Place) -> Option<&Outcome> {
        self.outcomes.get(place)
    }

    pub(crate) fn lease(&self, id: AttemptId) -> Option<&Arc<Lease>> {
        self.leases.get(&id)
    }

    /// Remembers a decision that this collector made.
    pub(crate) fn note(&mut self, place: Place, outcome: Outcome) {
        self.outcomes.insert(place, outcome);
    }

    /// The attempt at `place`, by whatever of it was read.
    pub(crate) fn attempt(&self, place: &Place) -> Option<AttemptId> {
        let intent = self.intents.get(place).map(|intent| intent.attempt);
        intent.or_else(|| self.outcomes.get(place).map(Outcome::attempt))
    }

    pub(crate) fn is_fence(&self, place: &Place) -> bool {
        self.intents.get(place).is_some_and(|intent| intent.kind == IntentKind::Fence)
    }

    /// G1, after the listing: reads every decision and intent that `listing` shows, but those of attempts that are surely
    /// dead and of which nothing was left long ago.
    pub(crate) async fn learn(&mut self, listing: &Listing, reading: Reading<'_>) -> Result<(), GcError> {
        let gone = |entry: &Entry| entry.swept && entry.expired.is_some();
        let decided = |(place, entry): &(&Place, &Entry)| {
            entry.decision.is_some() && !gone(entry) && !self.outcomes.contains_key(*place)
        };
        let places: Vec<Place> = listing.attempts.iter().filter(decided).map(|(p, _)| p.clone()).collect();
        let read = read_all(places, reading, |place| read_decision(reading.repository, place)).await?;
        self.outcomes.extend(read);
        let claimed = |(place, entry): &(&Place, &Entry)| {
            let aborted = matches!(self.outcomes.get(*place), Some(Outcome::Aborted(_)));
            !(gone(entry) || entry.swept && aborted || self.intents.contains_key(*place))
        };
        let places: Vec<Place> = listing.attempts.iter().filter(claimed).map(|(p, _)| p.clone()).collect();
        let read = read_all(places, reading, |place| read_intent(reading.repository, place)).await?;
        self.intents.extend(read);
        self.judge()
    }

    /// Reads the leases of `listing` that have not ended. One that has vanished had.
    pub(crate) async fn learn_leases(
        &mut self,
        listing: &Listing,
        reading: Reading<'_>,
    ) -> Result<(), GcError> {
        let open = listing.leases.iter().filter(|(_, lease)| lease.lease.is_some() && !lease.ended);
        let ids: Vec<AttemptId> =
            open.map(|(id, _)| *id).filter(|id| !self.leases.contains_key(id)).collect();
        let read = |id| async move { Ok::<_, GcError>((id, read_lease(reading.repository, id).await?)) };
        let mut read = stream::iter(ids).map(read).buffer_unordered(reading.in_flight);
        while let Some((id, lease)) = read.try_next().await? {
            self.leases.extend(lease.map(|lease| (id, lease)));
        }
        Ok(())
    }

    /// What is deleted is found by the attempt alone: each must be claimed once, and decided as what it is.
    fn judge(&self) -> Result<(), GcError> {
        let mut seen = BTreeSet::new();
        for (place, intent) in &self.intents {
            if !seen.insert(intent.attempt) {
                return Err(strange(place, "an attempt of its own", intent.attempt));
            }
            if let Some(outcome) = self.outcomes.get(place).filter(|o| o.attempt() != intent.attempt) {
                return Err(strange(place, &format!("a decision of {}", intent.attempt), outcome.attempt()));
            }
            let committed = matches!(self.outcomes.get(place), Some(Outcome::Committed(_)));
            if committed && intent.kind == IntentKind::Fence {
                return Err(strange(place, "an ABORT, for it is a fence", intent.attempt));
            }
        }
        Ok(())
    }
}

fn strange((run, ordinal): &Place, expected: &str, found: AttemptId) -> GcError {
    let error = FormatError::corrupt("attempt", 0, expected, format!("attempt {found}"));
    GcError::object(Key::decision(run, *ordinal))(error)
}

async fn read_all<T, F>(
    places: Vec<Place>,
    reading: Reading<'_>,
    read: impl Fn(Place) -> F,
) -> Result<Vec<(Place, T)>, GcError>
where
    F: Future<Output = Result<(Place, T), GcError>>,
{
    stream::iter(places).map(read).buffer_unordered(reading.in_flight.max(1)).try_collect().await
}

async fn read_decision(repository: &Repository, place: Place) -> Result<(Place, Outcome), GcError> {
    let (run, ordinal) = &place;
    let decided = repository.decision(run, *ordinal, Operation::Gc).await?;
    let missing = || GcError::missing(Key::decision(run, *ordinal), "a listing showed it");
    let outcome = Outcome::of(&*decided.ok_or_else(missing)?);
    Ok((place, outcome))
}

async fn read_intent(repository: &Repository, place: Place) -> Result<(Place, Arc<Intent>), GcError> {
    let (run, ordinal) = &place;
    let intent = repository.intent(run, *ordinal, Operation::Gc).await?;
    let missing = || {
        let because = "it, its decision or a later ordinal was listed, and intents are never deleted";
        GcError::missing(Key::intent(run, *ordinal), because)
    };
    let intent = Arc::new(intent.ok_or_else(missing)?);
    Ok((place, intent))
}

async fn read_lease(repository: &Repository, id: AttemptId) -> Result<Option<Arc<Lease>>, GcError> {
    let key = Key::lease(id);
    let bytes = match repository.store().get(&key, Span::AtMost(limits::JSON_BYTES)).await {
        Ok(object) => object.bytes,
        Err(error) if error.kind == StoreErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let lease = Lease::from_bytes(&bytes, id).and_then(|lease| {
        lease.requires.check(Operation::Gc)?;
        Ok(lease)
    });
    Ok(Some(Arc::new(lease.map_err(GcError::object(key))?)))
}

/// `Ok` when this version may expire and collect in the repository at all.
pub(crate) fn check_features(repository: &Repository) -> Result<(), GcError> {
    let requires = &repository.config().requires;
    Ok(requires.check(Operation::Gc).map_err(RepoError::object(Key::repository()))?)
}
