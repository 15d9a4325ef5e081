//! Settings of an open repository.

use everstep_store::StoreOptions;

/// How a repository is reached and how much of the machine it may use.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Credentials, endpoint, retries, network file systems.
    pub store: StoreOptions,
    /// Bytes in flight, pack size, parallel uploads.
    pub save: everstep_save::Settings,
    /// Bytes in flight, parallel reads.
    pub restore: everstep_restore::Settings,
    /// Bytes in flight, parallel reads of a check.
    pub check: everstep_check::Settings,
    /// CPU threads for hashing and coding; `None`: one per core.
    pub threads: Option<usize>,
    /// The same for calls made by [`crate::in_background`].
    pub background: Background,
}

/// The CPU threads for work that nobody waits for: they run beside a training.
#[derive(Debug, Clone, Copy)]
pub struct Background {
    /// CPU threads; `None`: as many as [`Options::threads`].
    pub threads: Option<usize>,
    /// How far they give way to other threads of the machine, 0 (not at all) to 19. On Linux only.
    pub nice: u8,
}

impl Default for Background {
    fn default() -> Self {
        Self { threads: None, nice: 10 }
    }
}
