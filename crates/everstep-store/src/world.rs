//! The one door for time, randomness and background tasks, so that a simulation can stand behind it.

use std::fmt;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use futures::future::BoxFuture;

/// Time, randomness, tasks.
#[async_trait]
pub trait World: fmt::Debug + Send + Sync + 'static {
    /// Wall-clock time; informational only.
    fn now(&self) -> SystemTime;

    /// Time since some fixed moment; for deadlines.
    fn elapsed(&self) -> Duration;

    /// Waits.
    async fn sleep(&self, time: Duration);

    /// Fills `bytes` with randomness.
    fn fill_random(&self, bytes: &mut [u8]);

    /// Runs `task` in the background, until it ends or the process does.
    fn spawn(&self, task: BoxFuture<'static, ()>);
}

impl dyn World {
    /// 128 random bits.
    pub fn random_id(&self) -> [u8; 16] {
        let mut id = [0; 16];
        self.fill_random(&mut id);
        id
    }

    /// A random number in `0..1`, for jitter.
    pub fn random_fraction(&self) -> f64 {
        let mut bytes = [0; 4];
        self.fill_random(&mut bytes);
        f64::from(u32::from_le_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
    }
}

/// The real world: system clock, operating system randomness, tokio tasks.
#[derive(Debug)]
pub struct SystemWorld {
    started: Instant,
}

#[expect(clippy::disallowed_methods, reason = "this is the door")]
impl SystemWorld {
    /// The real world.
    pub fn new() -> Self {
        Self { started: Instant::now() }
    }
}

impl Default for SystemWorld {
    fn default() -> Self {
        Self::new()
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the door")]
#[async_trait]
impl World for SystemWorld {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the operating system gives randomness");
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
}
