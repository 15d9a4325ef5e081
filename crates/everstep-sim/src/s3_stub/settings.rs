//! What kind of S3 the stub is.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The stub's clock.
pub type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// What kind of S3 the stub is; the default is an honest one.
#[derive(Clone)]
pub struct StubSettings {
    /// Buckets that exist.
    pub buckets: Vec<String>,
    /// Access keys that are accepted, besides minted ones.
    pub access_keys: Vec<String>,
    /// The region that requests must be signed for, if it matters.
    pub region: Option<String>,
    /// Keys in one page of a listing.
    pub page_keys: usize,
    /// Refuses every checksum and trailer header, as some compatible stores do.
    pub refuse_checksums: bool,
    /// Refuses bodies that are not signed, as a bucket policy may.
    pub refuse_unsigned: bool,
    /// Ignores If-None-Match, as some compatible stores do.
    pub ignore_conditions: bool,
    /// Life of the keys that token services give.
    pub lifetime: Duration,
    /// Requests after which a minted key counts as expired, whatever the clock says.
    pub requests_per_key: Option<u32>,
    /// Knows no batch delete, as some compatible stores do not.
    pub no_batch_delete: bool,
    /// Refuses to delete keys that contain this, each with its own result in a batch.
    pub undeletable: Option<String>,
    /// Is Google's XML API instead: bearer tokens, `x-goog-if-generation-match`, entity tags, no batch delete.
    pub google: bool,
    /// Speaks TLS.
    pub tls: bool,
    /// The clock: for `Date`, the age of signatures, and expiry.
    pub clock: Clock,
}

impl Default for StubSettings {
    #[expect(clippy::disallowed_methods, reason = "the stub lives outside of any simulated world")]
    fn default() -> Self {
        Self {
            buckets: vec!["bucket".to_owned()],
            access_keys: vec!["AKIDSTUB".to_owned()],
            region: None,
            page_keys: 1000,
            refuse_checksums: false,
            refuse_unsigned: false,
            ignore_conditions: false,
            lifetime: Duration::from_secs(3600),
            requests_per_key: None,
            no_batch_delete: false,
            undeletable: None,
            google: false,
            tls: false,
            clock: Arc::new(SystemTime::now),
        }
    }
}

impl fmt::Debug for StubSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StubSettings").field("buckets", &self.buckets).finish_non_exhaustive()
    }
}
