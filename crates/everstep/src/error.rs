//! The one public error: few kinds, each by what a caller would do about it.

use std::fmt;

use everstep_check::CheckError;
use everstep_format::FormatError;
use everstep_format::name::RunName;
use everstep_gc::GcError;
use everstep_repo::RepoError;
use everstep_restore::RestoreError;
use everstep_save::SaveError;
use everstep_store::{StoreError, StoreErrorKind};

/// What a caller can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Correct the call: a name, shape, option or address cannot be accepted.
    InvalidArgument,
    /// There is no repository, run, checkpoint or tensor of that name.
    NotFound,
    /// The attempt was never committed: choose another checkpoint.
    Incomplete,
    /// The checkpoint was expired by retention: choose another one.
    Expired,
    /// Stored bytes are not what they must be: choose another checkpoint and run `ckpt-inspect verify`.
    Corrupt,
    /// What is asked for does not fit what is stored (names, shapes, dtypes): correct the model or the selection.
    SchemaMismatch,
    /// Another job writes this run, or something is already there: stop, or take over deliberately.
    Conflict,
    /// A rank of the job failed or was not heard of in time, so nothing was saved: the message names it. Save again.
    RankFailed,
    /// The store gave no answer that can be trusted: the checkpoint may be committed. Ask again later; delete nothing.
    OutcomeUnknown,
    /// Make room.
    StorageFull,
    /// Credentials are missing, wrong or expired, or do not allow it.
    PermissionDenied,
    /// The store cannot be reached or keeps failing: try again later.
    Unreachable,
    /// Written by a newer Everstep: upgrade.
    UnsupportedVersion,
    /// Something in the store leads out of the repository, such as a link: nothing beyond it was opened.
    Untrusted,
    /// Reading the trainer's own memory or files failed.
    Source,
    /// The caller stopped it ([`crate::Cancel`]). A save that was stopped committed nothing; or, when it was in the middle of
    /// its commit, the next listing of the run shows whether it did.
    Interrupted,
}

impl ErrorKind {
    /// A stable name for scripts, e.g. `schema-mismatch`.
    pub fn name(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid-argument",
            Self::NotFound => "not-found",
            Self::Incomplete => "incomplete",
            Self::Expired => "expired",
            Self::Corrupt => "corrupt",
            Self::SchemaMismatch => "schema-mismatch",
            Self::Conflict => "conflict",
            Self::RankFailed => "rank-failed",
            Self::OutcomeUnknown => "outcome-unknown",
            Self::StorageFull => "storage-full",
            Self::PermissionDenied => "permission-denied",
            Self::Unreachable => "unreachable",
            Self::UnsupportedVersion => "unsupported-version",
            Self::Untrusted => "untrusted",
            Self::Source => "source",
            Self::Interrupted => "interrupted",
        }
    }
}

/// A failed call. The message names the object, what was expected and found, and what to do.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl Error {
    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    pub(crate) fn unknown_outcome(run: &RunName, cause: &StoreError) -> Self {
        let message =
            format!("it is unknown whether the rollback of run {run} was committed ({cause}); list the run");
        Self { kind: ErrorKind::OutcomeUnknown, source: message.into() }
    }

    pub(crate) fn interrupted() -> Self {
        let message = "stopped by the caller; of a save, nothing was committed, unless it was in the middle of its commit: \
                       the next listing of the run shows that";
        Self { kind: ErrorKind::Interrupted, source: message.into() }
    }

    pub(crate) fn is_interruption(&self) -> bool {
        self.kind == ErrorKind::Interrupted
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::InvalidArgument, source: message.into().into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.source()
    }
}

fn kind_of_store(kind: StoreErrorKind) -> ErrorKind {
    match kind {
        StoreErrorKind::NotFound => ErrorKind::NotFound,
        StoreErrorKind::Truncated | StoreErrorKind::TooLarge => ErrorKind::Corrupt,
        StoreErrorKind::Denied | StoreErrorKind::CredentialsExpired => ErrorKind::PermissionDenied,
        StoreErrorKind::Untrusted => ErrorKind::Untrusted,
        StoreErrorKind::Full => ErrorKind::StorageFull,
        StoreErrorKind::Invalid => ErrorKind::InvalidArgument,
        _ => ErrorKind::Unreachable,
    }
}

/// Of something a person gave.
fn kind_of_input(error: &FormatError) -> ErrorKind {
    match error {
        FormatError::Unsupported { .. } => ErrorKind::UnsupportedVersion,
        FormatError::Corrupt { .. } => ErrorKind::Corrupt,
        _ => ErrorKind::InvalidArgument,
    }
}

/// Of something that was stored.
fn kind_of_object(error: &FormatError) -> ErrorKind {
    match error {
        FormatError::Unsupported { .. } => ErrorKind::UnsupportedVersion,
        _ => ErrorKind::Corrupt,
    }
}

fn kind_of_repo(error: &RepoError) -> ErrorKind {
    match error {
        RepoError::Store(store) => kind_of_store(store.kind),
        RepoError::Meeting(_) => ErrorKind::Unreachable,
        RepoError::Object { source, .. } => kind_of_object(source),
        RepoError::Missing { .. } => ErrorKind::Corrupt,
        RepoError::Invalid(format) => kind_of_input(format),
        RepoError::NotFound(_) => ErrorKind::NotFound,
        RepoError::Incomplete { .. } => ErrorKind::Incomplete,
        RepoError::Expired { .. } => ErrorKind::Expired,
        RepoError::Conflict { .. } | RepoError::Refused(_) => ErrorKind::Conflict,
        RepoError::Unknown { .. } => ErrorKind::OutcomeUnknown,
        _ => ErrorKind::Unreachable,
    }
}

macro_rules! from_inner {
    ($inner:ty, $kind:expr) => {
        impl From<$inner> for Error {
            fn from(error: $inner) -> Self {
                let kind: fn(&$inner) -> ErrorKind = $kind;
                Self { kind: kind(&error), source: Box::new(error) }
            }
        }
    };
}

from_inner!(StoreError, |error| kind_of_store(error.kind));
from_inner!(FormatError, kind_of_input);
from_inner!(RepoError, kind_of_repo);
from_inner!(CheckError, |error| match error {
    CheckError::Repo(repo) => kind_of_repo(repo),
    _ => ErrorKind::Unreachable,
});
from_inner!(GcError, |error| match error {
    GcError::Repo(repo) => kind_of_repo(repo),
    GcError::UnknownRun(_) => ErrorKind::UnsupportedVersion,
    GcError::Changed => ErrorKind::Conflict,
    _ => ErrorKind::InvalidArgument,
});
from_inner!(SaveError, |error| match error {
    SaveError::Repo(repo) => kind_of_repo(repo),
    SaveError::Conflict(_) => ErrorKind::Conflict,
    SaveError::Unknown { .. } => ErrorKind::OutcomeUnknown,
    SaveError::Upload { cause, .. } => kind_of_store(cause.kind),
    SaveError::UploadsLost { .. } => ErrorKind::Unreachable,
    SaveError::Source { .. } => ErrorKind::Source,
    SaveError::Part { source, .. } => kind_of_repo(source),
    SaveError::RanksFailed { .. } | SaveError::NotCommitted { .. } | SaveError::LeaderSilent { .. } => {
        ErrorKind::RankFailed
    }
    _ => ErrorKind::InvalidArgument,
});
from_inner!(RestoreError, |error| match error {
    RestoreError::Repo(repo) => kind_of_repo(repo),
    RestoreError::Corrupt { .. } => ErrorKind::Corrupt,
    RestoreError::SchemaMismatch { .. } | RestoreError::World { .. } | RestoreError::WorldSize { .. } => {
        ErrorKind::SchemaMismatch
    }
    RestoreError::NotFound { .. } => ErrorKind::NotFound,
    RestoreError::UnknownDtype { .. } => ErrorKind::UnsupportedVersion,
    _ => ErrorKind::InvalidArgument,
});
