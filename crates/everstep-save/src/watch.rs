//! Looking again and again, until there is something to see or time is up.

use std::time::Duration;

use everstep_repo::{Rendezvous, RepoError};
use everstep_store::World;

/// By how much a pause differs from what was asked for, so that a thousand ranks do not look all at once.
const JITTER: f64 = 0.25;

/// One wait.
pub(crate) struct Watch<'w> {
    world: &'w dyn World,
    rendezvous: &'w dyn Rendezvous,
    until: Duration,
    looks: u32,
    trouble: Option<RepoError>,
}

impl<'w> Watch<'w> {
    /// Looks until `until`, by the clock of `world`.
    pub(crate) fn new(world: &'w dyn World, rendezvous: &'w dyn Rendezvous, until: Duration) -> Self {
        Self { world, rendezvous, until, looks: 0, trouble: None }
    }

    /// Whether nothing was looked for in vain yet.
    pub(crate) fn is_first(&self) -> bool {
        self.looks == 0
    }

    /// Looks for the next thing: at once again, then less and less often.
    pub(crate) fn start_anew(&mut self) {
        self.looks = 0;
    }

    /// What was seen; `None` when only the store failed in a way that may pass.
    pub(crate) fn seen<T>(&mut self, looked: Result<T, RepoError>) -> Result<Option<T>, RepoError> {
        match looked {
            Ok(seen) => {
                self.trouble = None;
                Ok(Some(seen))
            }
            Err(RepoError::Store(error)) if error.is_transient() => {
                self.trouble = Some(error.into());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Waits before the next look; `false` when the last one was made.
    pub(crate) async fn again(&mut self) -> bool {
        self.looks = self.looks.saturating_add(1);
        let left = self.until.saturating_sub(self.world.elapsed());
        if left.is_zero() {
            return false;
        }
        let jitter = 1.0 + JITTER * (2.0 * self.world.random_fraction() - 1.0);
        self.world.sleep(self.rendezvous.pause(self.looks).mul_f64(jitter).min(left)).await;
        true
    }

    /// Why the last look saw nothing, for messages; empty when there was nothing to see.
    pub(crate) fn trouble(&self) -> String {
        self.trouble.as_ref().map(|error| format!(" (the last look failed: {error})")).unwrap_or_default()
    }
}
