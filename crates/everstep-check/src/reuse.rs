//! I5: a chunk of another attempt lies exactly where the index of a parent has it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use everstep_format::feature::Operation;
use everstep_format::id::{AttemptId, ChunkId};
use everstep_format::intent::ParentRef;
use everstep_format::row::{Location, Row};
use everstep_repo::{Checkpoint, RepoError, Repository};

use crate::CheckError;
use crate::contents::{self, Contents};
use crate::report::Finding;

/// Indexes that are remembered: a checkpoint's parents are mostly the ones judged just before it.
const REMEMBERED: usize = 4;

/// Where an index has its chunks.
type Places = HashMap<ChunkId, (u64, Location)>;

/// The indexes of parents, read once where they were not judged just before.
#[derive(Debug, Default)]
pub(crate) struct Parents {
    /// Of attempts, the last ones at the end; `None` where the index cannot be read.
    indexes: VecDeque<(AttemptId, Option<Arc<Places>>)>,
}

impl Parents {
    /// Judges the chunks that `contents` reuses, and remembers where it has all of its own.
    pub(crate) async fn judge(
        &mut self,
        repository: &Repository,
        contents: &Contents,
    ) -> Result<Option<Finding>, CheckError> {
        let Some(rows) = &contents.rows else { return Ok(None) };
        let manifest = contents.checkpoint.manifest.as_ref();
        let mut reused: Places = places(rows);
        self.remember(manifest.attempt, Some(Arc::new(reused.clone())));
        reused.retain(|_, (_, location)| location.pack.attempt != manifest.attempt);
        for parent in &manifest.parents {
            if reused.is_empty() {
                return Ok(None);
            }
            // A parent that cannot be read has a finding of its own, or has expired.
            let Some(theirs) = self.places_of(repository, parent).await? else { return Ok(None) };
            reused.retain(|chunk, place| theirs.get(chunk) != Some(place));
        }
        let Some(chunk) = reused.keys().min() else { return Ok(None) };
        let finding =
            Finding::damage(contents.checkpoint.index_key(), "it refers to chunks that no parent has there");
        let found = format!("{} other chunks, such as {chunk}", reused.len());
        let advice =
            "garbage collection does not spare them for this checkpoint: copy it elsewhere, and report this";
        Ok(Some(
            finding
                .expect("chunks of this attempt, or where a parent's index has them", found)
                .advise(advice),
        ))
    }

    async fn places_of(
        &mut self,
        repository: &Repository,
        parent: &ParentRef,
    ) -> Result<Option<Arc<Places>>, CheckError> {
        if let Some((_, known)) = self.indexes.iter().find(|(attempt, _)| *attempt == parent.attempt) {
            return Ok(known.clone());
        }
        let rows = match repository.decision(&parent.run, parent.ordinal, Operation::Read).await {
            Ok(decided) => match decided.and_then(|decided| decided.committed()) {
                Some(checkpoint) if checkpoint.manifest.attempt == parent.attempt => {
                    rows_of(repository, checkpoint).await?
                }
                _ => None,
            },
            Err(RepoError::Store(error)) => return Err(RepoError::Store(error).into()),
            Err(_) => None,
        };
        let places = rows.map(|rows| Arc::new(places(&rows)));
        self.remember(parent.attempt, places.clone());
        Ok(places)
    }

    fn remember(&mut self, attempt: AttemptId, places: Option<Arc<Places>>) {
        if self.indexes.len() >= REMEMBERED {
            self.indexes.pop_front();
        }
        self.indexes.push_back((attempt, places));
    }
}

async fn rows_of(repository: &Repository, parent: Checkpoint) -> Result<Option<Vec<Row>>, CheckError> {
    let fetched = contents::fetch(repository.store().as_ref(), parent).await?;
    Ok(contents::rows(fetched))
}

fn places(rows: &[Row]) -> Places {
    let pieces = rows.iter().filter_map(|row| row.piece.as_ref());
    pieces.map(|piece| (piece.chunk, (piece.raw_len, piece.location))).collect()
}
