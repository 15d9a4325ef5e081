//! What to check, with which means.

use std::fmt;

use everstep_repo::{Checkpoint, RepoError};
use everstep_store::StoreError;

/// How far the walk goes.
#[derive(Debug, Clone, Default)]
pub struct CheckOptions {
    /// Fetch, decode and hash every chunk, not only the tables of packs.
    pub deep: bool,
    /// Only this checkpoint: its objects, not the rest of the repository.
    pub only: Option<Checkpoint>,
}

/// Bounds on memory and requests.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Bytes that may be requested or waiting to be judged at one time; a single larger object still goes alone.
    pub bytes_in_flight: u64,
    /// Reads in flight at one time.
    pub reads: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { bytes_in_flight: 256 << 20, reads: 16 }
    }
}

/// The means of a check.
#[derive(Clone, Copy)]
pub struct Tools<'a> {
    /// Where chunks are decoded and hashed. The calling task waits for it, batch by batch.
    pub pool: &'a rayon::ThreadPool,
    /// Bounds.
    pub settings: &'a Settings,
    /// Told what goes on; `&()` tells nobody.
    pub progress: &'a dyn Progress,
}

impl fmt::Debug for Tools<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tools").field("settings", self.settings).finish_non_exhaustive()
    }
}

/// Is told what goes on; called from the checking task.
pub trait Progress: Send + Sync {
    /// So many bytes of packs more are to be read.
    fn planned(&self, bytes: u64) {
        let _ = bytes;
    }

    /// So many bytes of packs more are judged.
    fn checked(&self, bytes: u64) {
        let _ = bytes;
    }
}

impl Progress for () {}

/// The walk itself could not go on.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The store could not be read.
    #[error(transparent)]
    Repo(#[from] RepoError),
}

impl From<StoreError> for CheckError {
    fn from(error: StoreError) -> Self {
        Self::Repo(RepoError::Store(error))
    }
}
