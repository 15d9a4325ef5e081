//! How much there is, and how much waits to be collected, without looking at packs.

use serde::Serialize;

use crate::candidates::Candidates;
use crate::learning::{Known, Outcome};
use crate::listing::Listing;

/// Counts over a repository.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Runs with an attempt, that of pins not counted.
    pub runs: u64,
    /// Checkpoints that count, pins not counted.
    pub checkpoints: u64,
    /// Pins.
    pub pins: u64,
    /// Checkpoints that have expired.
    pub expired: u64,
    /// Attempts that were aborted, fences included.
    pub aborted: u64,
    /// Attempts that are not decided, fences not counted.
    pub undecided: u64,
    /// Of these, such as the next collection would abort.
    pub idle: u64,
    /// Leases that have not ended.
    pub leases: u64,
    /// Dead attempts that the next collection looks at.
    pub waiting: u64,
    /// Dead attempts of which nothing is left.
    pub swept: u64,
}

impl Status {
    pub(crate) fn of(listing: &Listing, known: &Known, candidates: &Candidates) -> Self {
        let mut status = Self {
            leases: listing.leases.values().filter(|l| l.lease.is_some() && !l.ended).count() as u64,
            waiting: candidates.with_data().count() as u64,
            swept: candidates.skipped,
            ..Self::default()
        };
        let mut last = None;
        for (place, entry) in &listing.attempts {
            if !place.0.is_pins() && last != Some(&place.0) {
                status.runs += 1;
                last = Some(&place.0);
            }
            match known.outcome(place) {
                _ if entry.expired.is_some() => status.expired += 1,
                Some(Outcome::Committed(_)) if place.0.is_pins() => status.pins += 1,
                Some(Outcome::Committed(_)) => status.checkpoints += 1,
                Some(Outcome::Aborted(_)) => status.aborted += 1,
                None if known.is_fence(place) => {}
                None => status.undecided += 1,
            }
        }
        status
    }
}
