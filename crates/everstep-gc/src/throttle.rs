//! No more deletes per second than somebody allowed.

use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use everstep_store::World;

/// Keys of one request.
const BATCH: u32 = 1000;

/// Spreads deletes over time; shared by all who delete.
#[derive(Debug)]
pub(crate) struct Throttle {
    per_second: Option<NonZeroU32>,
    /// When the next batch may go.
    next: Mutex<Duration>,
}

impl Throttle {
    pub(crate) fn new(per_second: Option<NonZeroU32>) -> Self {
        Self { per_second, next: Mutex::default() }
    }

    /// Keys that may go in one request.
    pub(crate) fn batch(&self) -> usize {
        let batch = self.per_second.map_or(BATCH, |rate| rate.get().min(BATCH));
        usize::try_from(batch).unwrap_or(1)
    }

    /// Waits until so many objects may be deleted.
    pub(crate) async fn admit(&self, world: &dyn World, objects: usize) {
        let Some(rate) = self.per_second else { return };
        let takes = Duration::from_secs_f64(
            f64::from(u32::try_from(objects).unwrap_or(u32::MAX)) / f64::from(rate.get()),
        );
        let wait = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let now = world.elapsed();
            let turn = now.max(*next);
            *next = turn.saturating_add(takes);
            turn.saturating_sub(now)
        };
        if !wait.is_zero() {
            world.sleep(wait).await;
        }
    }
}
