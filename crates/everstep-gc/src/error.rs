//! Why a pass stopped. Nothing was deleted then, unless the sweep had begun.

use everstep_format::FormatError;
use everstep_format::key::Key;
use everstep_repo::RepoError;
use everstep_store::StoreError;

/// A pass, plan or policy that cannot go on.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum GcError {
    /// The store failed, or something cannot be read or understood.
    #[error(transparent)]
    Repo(#[from] RepoError),
    /// The policy is not one.
    #[error("{0}")]
    Policy(String),
    /// The plan is not one, or is of another repository.
    #[error("{0}")]
    Plan(String),
    /// A run that only a later version knows.
    #[error(
        "there is a run {0}, which a later version keeps something in; nothing was deleted. Upgrade Everstep"
    )]
    UnknownRun(String),
    /// Others collected at the same time.
    #[error(
        "others expired and collected the same checkpoints meanwhile; nothing was deleted here. Try again later"
    )]
    Changed,
}

impl From<StoreError> for GcError {
    fn from(error: StoreError) -> Self {
        Self::Repo(error.into())
    }
}

impl GcError {
    /// An object that is not what it must be.
    pub(crate) fn object(key: Key) -> impl FnOnce(FormatError) -> Self {
        move |source| Self::Repo(RepoError::Object { key, source })
    }

    /// An object that must be there.
    pub(crate) fn missing(key: Key, because: &str) -> Self {
        Self::Repo(RepoError::Missing { key, because: because.to_owned() })
    }
}
