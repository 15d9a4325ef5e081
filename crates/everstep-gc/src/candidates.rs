//! G1: who is dead, and of these whose remains this pass looks for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use everstep_format::id::AttemptId;

use crate::learning::{Known, Outcome};
use crate::listing::{Entry, Listing, Place};
use crate::settings::Settings;

/// A dead attempt.
#[derive(Debug, Clone)]
pub(crate) struct Dead {
    pub(crate) place: Place,
    /// Writers that it had at most; `None` if nobody knows.
    pub(crate) world_size: Option<u32>,
    /// Since when; `None` when it is this pass that let it die, or would.
    pub(crate) since: Option<SystemTime>,
    /// Fences have no data.
    pub(crate) is_fence: bool,
}

/// The dead of a repository, as far as they were read.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    /// Every attempt that is known to be dead.
    pub(crate) dead: BTreeSet<AttemptId>,
    /// Those of this shard whose remains are to be looked for.
    pub(crate) attempts: BTreeMap<AttemptId, Dead>,
    /// Dead attempts that are skipped.
    pub(crate) skipped: u64,
}

impl Candidates {
    /// The attempts of `listing` that are aborted or expired; `killed` are those that this pass let die.
    pub(crate) fn of(
        listing: &Listing,
        known: &Known,
        killed: &BTreeSet<Place>,
        settings: &Settings,
    ) -> Self {
        let mut candidates = Self::default();
        for (place, entry) in &listing.attempts {
            let aborted = matches!(known.outcome(place), Some(Outcome::Aborted(_)));
            if !(aborted || entry.expired.is_some() || killed.contains(place)) {
                continue;
            }
            let Some(attempt) = known.attempt(place) else {
                // Expired and swept, so that nothing of it was read.
                candidates.skipped += 1;
                continue;
            };
            candidates.dead.insert(attempt);
            if entry.swept && !settings.thorough {
                candidates.skipped += 1;
            } else if settings.shard.has(attempt) {
                candidates.attempts.insert(attempt, dead(place, entry, known));
            }
        }
        candidates
    }

    /// Those that may have left something.
    pub(crate) fn with_data(&self) -> impl Iterator<Item = (AttemptId, &Dead)> {
        self.attempts.iter().filter(|(_, dead)| !dead.is_fence).map(|(attempt, dead)| (*attempt, dead))
    }

    pub(crate) fn has(&self, attempt: AttemptId) -> bool {
        self.attempts.contains_key(&attempt)
    }
}

fn dead(place: &Place, entry: &Entry, known: &Known) -> Dead {
    let intent = known.intent(place);
    Dead {
        place: place.clone(),
        world_size: intent.map(|intent| intent.world_size),
        since: entry.since(),
        is_fence: known.is_fence(place),
    }
}
