//! A read-only walk that judges every invariant of a repository. Used by `ckpt-inspect verify` and by the tests.
//!
//! [`check`] never stops at the first damage: whatever is wrong becomes a [`Finding`] that names the object, the tensors
//! and the checkpoints it hurts, and what to do. Only a store that cannot be read ends the walk.

mod options;
mod report;

pub use options::{CheckError, CheckOptions, Progress, Settings, Tools};
pub use report::{Counts, Finding, Hurt, Report, Severity};

/// Walks `repository` and judges it.
///
/// # Errors
/// [`CheckError::Repo`] when the store cannot be read; damage is in the report.
pub async fn check(
    repository: &everstep_repo::Repository,
    options: &CheckOptions,
    tools: &Tools<'_>,
) -> Result<Report, CheckError> {
    let _ = (repository, options, tools);
    unimplemented!()
}
