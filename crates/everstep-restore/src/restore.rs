//! Filling many boxes of memory at once.

use crate::error::RestoreError;
use crate::plan::Wish;
use crate::reader::Pull;
use crate::{CheckpointReader, RestoreOptions, RestoreReport, Target, Tools, schema};

/// Fills every target from the checkpoint of `reader`. Targets may overlap each other in the tensor, never in memory; a
/// chunk that several need is read and decoded once.
///
/// # Errors
/// [`RestoreError::SchemaMismatch`], [`RestoreError::UnknownDtype`], [`RestoreError::Invalid`] before anything is
/// touched; [`RestoreError::Corrupt`] and [`RestoreError::Repo`] at any time: what the targets hold then is unspecified
/// and must not be used.
pub async fn restore(
    reader: &CheckpointReader,
    targets: Vec<Target<'_>>,
    options: &RestoreOptions,
    tools: &Tools<'_>,
) -> Result<RestoreReport, RestoreError> {
    let rows = reader.rows().await?;
    let found = schema::compare(&rows, &targets, options)?;
    let mut wishes = Vec::with_capacity(targets.len());
    let mut buffers = Vec::with_capacity(targets.len());
    for (target, rows) in targets.into_iter().zip(found.rows) {
        if let Some(rows) = rows {
            wishes.push(Wish { rows, bounds: target.bounds });
            buffers.push(target.into);
        }
    }
    let plan = reader.plan(&wishes, tools)?;
    let pull = Pull { plan: &plan, verify: options.verify, tools };
    reader.pull(pull, buffers).await?;
    Ok(RestoreReport {
        tensors: wishes.len() as u64,
        bytes: plan.bytes,
        chunks: plan.chunks.len() as u64,
        requests: plan.reads.len() as u64,
        missing: found.missing,
        unexpected: found.unexpected,
    })
}
