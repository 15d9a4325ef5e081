//! A committed checkpoint and its index, read along the chain of trust: decision, footer, row group.

use std::sync::Arc;

use everstep_format::decision::Manifest;
use everstep_format::intent::ParentRef;
use everstep_format::row::Row;
use everstep_store::Store;

use crate::RepoError;

/// A checkpoint that was read as COMMIT and not expired.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// What it says of itself.
    pub manifest: Arc<Manifest>,
}

impl Checkpoint {
    /// How an intent names it.
    pub fn as_parent(&self) -> ParentRef {
        let Manifest { run, ordinal, attempt, .. } = self.manifest.as_ref();
        ParentRef { run: run.clone(), ordinal: *ordinal, attempt: *attempt }
    }
}

/// Reads rows of one checkpoint's index.
#[derive(Debug, Clone)]
pub struct IndexReader {
    store: Arc<dyn Store>,
    checkpoint: Checkpoint,
}

impl IndexReader {
    /// A reader of `checkpoint`'s index.
    pub fn new(store: Arc<dyn Store>, checkpoint: Checkpoint) -> Self {
        Self { store, checkpoint }
    }

    /// All rows, sorted.
    ///
    /// # Errors
    /// [`RepoError::Object`] naming the index when a hash is wrong; [`RepoError::Missing`]; [`RepoError::Expired`].
    pub async fn all(&self) -> Result<Vec<Row>, RepoError> {
        let _ = (&self.store, &self.checkpoint);
        unimplemented!()
    }

    /// The rows of one name, by at most two ranged reads (footer, row group; one if the index is small).
    ///
    /// # Errors
    /// As [`IndexReader::all`]. An unknown name gives no rows.
    pub async fn named(&self, name: &str) -> Result<Vec<Row>, RepoError> {
        let _ = name;
        unimplemented!()
    }
}
