//! The simulated door for time, randomness and background tasks.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use everstep_store::World;
use futures::future::BoxFuture;
use rand::Rng;

use crate::executor::{Process, Room};

/// Wall-clock seconds at which every simulation begins.
const EPOCH_SECONDS: u64 = 1_800_000_000;

/// The world as one simulated process sees it.
#[derive(Debug, Clone)]
pub struct SimWorld {
    room: Room,
    process: Process,
}

impl SimWorld {
    /// The world of `process`.
    pub fn new(room: &Room, process: Process) -> Self {
        Self { room: room.clone(), process }
    }
}

/// Wall-clock time after `elapsed` of a simulation.
pub fn wall_clock(elapsed: Duration) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(EPOCH_SECONDS) + elapsed
}

#[async_trait]
impl World for SimWorld {
    fn now(&self) -> SystemTime {
        wall_clock(self.room.now())
    }

    fn elapsed(&self) -> Duration {
        self.room.now()
    }

    async fn sleep(&self, time: Duration) {
        self.room.sleep(time).await;
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.room.draw(|rng| rng.fill_bytes(bytes));
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.room.spawn(self.process, task);
    }
}
