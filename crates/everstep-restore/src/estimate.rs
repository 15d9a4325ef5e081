//! What loading would read, without reading any of it.

use everstep_format::bounds::Bounds;

use crate::entry::rows_of;
use crate::plan::Wish;
use crate::{CheckpointReader, RestoreError, Tools};

/// What it takes to load some boxes, beside the index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Bytes of the boxes.
    pub raw_bytes: u64,
    /// Bytes read from packs.
    pub stored_bytes: u64,
    /// Distinct chunks.
    pub chunks: u64,
    /// Ranged reads of packs.
    pub requests: u64,
}

impl CheckpointReader {
    /// What loading `boxes`, each of a tensor in its global coordinates, would read. Reads the whole index, once.
    ///
    /// # Errors
    /// [`RestoreError::NotFound`], [`RestoreError::Invalid`], [`RestoreError::Repo`].
    pub async fn estimate(
        &self,
        boxes: &[(String, Bounds)],
        tools: &Tools<'_>,
    ) -> Result<Estimate, RestoreError> {
        let rows = self.rows().await?;
        let mut wishes = Vec::with_capacity(boxes.len());
        for (name, bounds) in boxes {
            let rows = rows_of(&rows, name);
            let Some(first) = rows.first() else { return Err(self.not_found(name).await?) };
            let invalid = |e: everstep_format::FormatError| RestoreError::Invalid {
                name: name.clone(),
                problem: e.to_string(),
            };
            bounds.check_inside(&first.shape).map_err(invalid)?;
            wishes.push(Wish { rows, bounds: bounds.clone() });
        }
        let plan = self.plan(&wishes, tools)?;
        Ok(Estimate {
            raw_bytes: plan.bytes,
            stored_bytes: plan.reads.iter().map(|read| read.len).sum(),
            chunks: plan.chunks.len() as u64,
            requests: plan.reads.len() as u64,
        })
    }
}
