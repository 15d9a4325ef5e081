//! CPU work from an async task.

use everstep_format::codec::Encoder;
use rayon::ThreadPool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs `work` on `pool` and waits. On a multi-threaded runtime, the tasks queued on this worker move to another one
/// meanwhile, so that uploads go on.
pub(crate) fn run<R: Send>(pool: &ThreadPool, work: impl FnOnce() -> R + Send) -> R {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(|| pool.install(work)),
        _ => pool.install(work),
    }
}

/// One encoder per thread of the pool.
#[derive(Debug)]
pub(crate) struct Encoders(Vec<Mutex<Encoder>>);

impl Encoders {
    pub(crate) fn new(pool: &ThreadPool) -> Self {
        Self((0..pool.current_num_threads().max(1)).map(|_| Mutex::default()).collect())
    }

    /// The encoder of the current thread.
    pub(crate) fn own(&self) -> MutexGuard<'_, Encoder> {
        let thread = rayon::current_thread_index().unwrap_or(0) % self.0.len();
        self.0[thread].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
