//! The CPU pool on which hashing and encoding run.

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

/// A pool of threads, kept between saves.
#[derive(Debug)]
pub struct Engine {
    pool: ThreadPool,
}

impl Engine {
    /// A pool of `threads` threads; 0 means one per core.
    ///
    /// # Errors
    /// When the operating system starts no threads.
    pub fn new(threads: usize) -> Result<Self, ThreadPoolBuildError> {
        let named = |n| format!("everstep-cpu-{n}");
        Ok(Self { pool: ThreadPoolBuilder::new().num_threads(threads).thread_name(named).build()? })
    }

    /// The threads.
    pub fn pool(&self) -> &ThreadPool {
        &self.pool
    }
}

impl Default for Engine {
    /// One thread per core.
    ///
    /// # Panics
    /// When the operating system starts no threads; [`Engine::new`] reports that instead.
    fn default() -> Self {
        Self::new(0).expect("the operating system starts threads")
    }
}
