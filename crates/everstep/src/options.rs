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
}
