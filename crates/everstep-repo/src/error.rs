//! What can go wrong in the protocol.

use everstep_format::FormatError;
use everstep_format::key::Key;
use everstep_format::name::{Ordinal, RunName};
use everstep_store::{StoreError, StoreErrorKind};

/// A failed protocol step.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RepoError {
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
    /// An object is not what it must be.
    #[error("{key}: {source}")]
    Object {
        /// The object.
        key: Key,
        /// What is wrong.
        source: FormatError,
    },
    /// An object that must be there is not.
    #[error("{key} is missing, although {because}; run `ckpt-inspect verify`")]
    Missing {
        /// The object.
        key: Key,
        /// Why it must be there.
        because: String,
    },
    /// A name, shape or setting that cannot be accepted.
    #[error(transparent)]
    Invalid(#[from] FormatError),
    /// There is no repository, run or checkpoint of that name.
    #[error("{0} not found")]
    NotFound(String),
    /// The attempt exists but was never committed.
    #[error("attempt {ordinal} of run {run} is not a checkpoint: {why}")]
    Incomplete {
        /// Run.
        run: RunName,
        /// Ordinal.
        ordinal: Ordinal,
        /// Undecided or aborted, and by whom.
        why: String,
    },
    /// The checkpoint has been expired.
    #[error("checkpoint {ordinal} of run {run} has expired")]
    Expired {
        /// Run.
        run: RunName,
        /// Ordinal.
        ordinal: Ordinal,
    },
    /// Somebody else writes this run.
    #[error("conflict on run {run}: {why}")]
    Conflict {
        /// Run.
        run: RunName,
        /// By whom, since when, what to do.
        why: String,
    },
    /// It is not known whether an attempt was committed.
    #[error(
        "it is unknown whether attempt {ordinal} of run {run} was committed ({cause}); nothing was deleted. Once the \
         store answers again, `ckpt-inspect resolve {run}@ordinal={ordinal}` tells"
    )]
    Unknown {
        /// Run.
        run: RunName,
        /// Ordinal.
        ordinal: Ordinal,
        /// The store's last answer.
        cause: StoreError,
    },
    /// What carries messages between the ranks of a job failed.
    #[error("the ranks of the job cannot reach each other: {0}")]
    Meeting(String),
    /// The store's create is not atomic, or a repository is already there, or an option is missing.
    #[error("{0}")]
    Refused(String),
}

/// An object beyond the limit of its kind is damage like any other: its bytes are not what they must be. So is a link in the
/// place of an object, or of a folder that is listed: nobody follows it.
impl From<StoreError> for RepoError {
    fn from(error: StoreError) -> Self {
        match Key::listed(error.key.trim_end_matches('/')) {
            Some(key) if error.kind == StoreErrorKind::TooLarge => {
                let source =
                    FormatError::corrupt("object", 0, "no more bytes than its kind has", error.detail);
                Self::Object { key, source }
            }
            Some(key) if error.kind == StoreErrorKind::Untrusted => {
                let source =
                    FormatError::corrupt("object", 0, "a plain file: no link is followed", error.detail);
                Self::Object { key, source }
            }
            _ => Self::Store(error),
        }
    }
}

impl RepoError {
    /// Whether a newer version wrote what was met.
    pub fn is_unsupported(&self) -> bool {
        matches!(
            self,
            Self::Object { source: FormatError::Unsupported { .. }, .. }
                | Self::Invalid(FormatError::Unsupported { .. })
        )
    }

    /// Names the object in which a format error was found.
    pub fn object(key: Key) -> impl FnOnce(FormatError) -> Self {
        move |source| Self::Object { key, source }
    }
}
