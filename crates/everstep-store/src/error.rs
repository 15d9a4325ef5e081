//! What can go wrong outside, by what a caller can do about it.

use std::fmt;
use std::time::Duration;

/// Kinds of failure, by what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// No object (or bucket, or directory) of that name.
    NotFound,
    /// The object is shorter than the range asked for, or the body ended early for good.
    Truncated,
    /// The object is larger than what is read of its kind can be; its bytes were not read.
    TooLarge,
    /// Credentials are missing, wrong, or do not allow it.
    Denied,
    /// Credentials have expired and their provider gave no new ones.
    CredentialsExpired,
    /// The store could not be reached, or did not answer in time.
    Unreachable,
    /// The store asks to slow down.
    Throttled,
    /// The store answered with a failure of its own (5xx), or not in its protocol.
    Server,
    /// No space left.
    Full,
    /// The request or setting is not acceptable; repeating it will not help.
    Invalid,
    /// Following the name would leave the repository (a symbolic link, a device).
    Untrusted,
}

/// A failed store call: which object, which operation, what happened, how often it was tried.
#[derive(Debug, Clone)]
pub struct StoreError {
    /// The kind.
    pub kind: StoreErrorKind,
    /// "get", "put", "create", "list", "delete", "sync", "open".
    pub operation: &'static str,
    /// The key or prefix, or the address of the store.
    pub key: String,
    /// What happened, in words, with status codes and paths; never a secret.
    pub detail: String,
    /// Times it was tried.
    pub attempts: u32,
    /// Time from the first try to the last answer.
    pub elapsed: Duration,
}

impl StoreError {
    /// A failure of one try.
    pub fn new(
        kind: StoreErrorKind,
        operation: &'static str,
        key: impl fmt::Display,
        detail: impl Into<String>,
    ) -> Self {
        let key = key.to_string();
        Self { kind, operation, key, detail: detail.into(), attempts: 1, elapsed: Duration::ZERO }
    }

    /// Whether trying again may help.
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Unreachable | StoreErrorKind::Throttled | StoreErrorKind::Server)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} failed: {}", self.operation, self.key, self.detail)?;
        if self.attempts > 1 {
            write!(f, " (tried {} times in {:.1} s)", self.attempts, self.elapsed.as_secs_f64())?;
        }
        Ok(())
    }
}

impl std::error::Error for StoreError {}
