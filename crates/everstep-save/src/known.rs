//! Chunks that confirmed parents have: what need not be stored again.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use everstep_format::id::{AttemptId, ChunkId};
use everstep_format::key::PackAddress;
use everstep_format::row::{Location, Piece, Row};
use everstep_format::{limits, pack};
use everstep_repo::{Checkpoint, IndexReader};
use everstep_store::Store;

use crate::SaveError;

/// Where a chunk is stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored {
    pub(crate) raw_len: u64,
    pub(crate) location: Location,
}

pub(crate) type Chunks = HashMap<ChunkId, Stored>;

/// The chunks of recent checkpoints of one process, by the attempt that made the checkpoint. Never a source of truth
/// about what exists: only confirmed parents are looked up in it.
#[derive(Default)]
pub struct SaveCache {
    checkpoints: Mutex<HashMap<AttemptId, Arc<Chunks>>>,
}

impl SaveCache {
    fn get(&self, attempt: AttemptId) -> Option<Arc<Chunks>> {
        self.checkpoints.lock().unwrap_or_else(PoisonError::into_inner).get(&attempt).cloned()
    }

    /// Forgets all but `attempt`, whose chunks these are, and `kept`.
    pub(crate) fn keep(&self, attempt: AttemptId, chunks: Chunks, kept: &[AttemptId]) {
        let mut checkpoints = self.checkpoints.lock().unwrap_or_else(PoisonError::into_inner);
        checkpoints.retain(|known, _| kept.contains(known));
        checkpoints.insert(attempt, Arc::new(chunks));
    }

    fn remember(&self, attempt: AttemptId, chunks: &Arc<Chunks>) {
        self.checkpoints.lock().unwrap_or_else(PoisonError::into_inner).insert(attempt, chunks.clone());
    }
}

impl fmt::Debug for SaveCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checkpoints = self.checkpoints.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_list().entries(checkpoints.keys()).finish()
    }
}

/// The distinct chunks of `rows`.
pub(crate) fn chunks_of(rows: &[Row]) -> Chunks {
    rows.iter()
        .filter_map(|row| row.piece.as_ref())
        .map(|piece| (piece.chunk, Stored { raw_len: piece.raw_len, location: piece.location }))
        .collect()
}

/// The chunks of the confirmed parents, without those that are due to be stored again.
#[derive(Debug, Default)]
pub(crate) struct Known {
    parents: Vec<Arc<Chunks>>,
    sparse: HashSet<PackAddress>,
}

impl Known {
    /// Reads the indexes of `confirmed`, or takes them from `cache`.
    pub(crate) async fn read(
        store: &Arc<dyn Store>,
        confirmed: &[Checkpoint],
        cache: &SaveCache,
    ) -> Result<Self, SaveError> {
        let mut parents: Vec<Arc<Chunks>> = Vec::with_capacity(confirmed.len());
        for parent in confirmed {
            let attempt = parent.manifest.attempt;
            parents.push(match cache.get(attempt) {
                Some(chunks) => chunks,
                None => {
                    let rows = IndexReader::new(store.clone(), parent.clone()).all().await?;
                    let chunks = Arc::new(chunks_of(&rows));
                    cache.remember(attempt, &chunks);
                    chunks
                }
            });
        }
        let sparse = sparse_packs(&parents);
        Ok(Self { parents, sparse })
    }

    /// Where a parent has `chunk`, unless its pack is sparse.
    pub(crate) fn get(&self, chunk: &ChunkId) -> Option<&Stored> {
        let mut of_parents = self.parents.iter().filter_map(|chunks| chunks.get(chunk));
        of_parents.find(|stored| !self.sparse.contains(&stored.location.pack))
    }

    /// Whether a confirmed parent has the chunk of `piece` exactly there.
    pub(crate) fn confirms(&self, piece: &Piece) -> bool {
        let same = |stored: &Stored| stored.raw_len == piece.raw_len && stored.location == piece.location;
        self.parents.iter().any(|chunks| chunks.get(&piece.chunk).is_some_and(same))
    }
}

/// Packs of which the parents use less than half: what they still use is stored again, so that the pack can be collected
/// once these parents are gone. Compaction without a protocol.
fn sparse_packs(parents: &[Arc<Chunks>]) -> HashSet<PackAddress> {
    let mut live: HashMap<PackAddress, (u64, u64)> = HashMap::new();
    for (number, chunks) in parents.iter().enumerate() {
        for (chunk, stored) in chunks.iter() {
            let here = stored.location.pack;
            let counted = |earlier: &Arc<Chunks>| earlier.get(chunk).is_some_and(|s| s.location.pack == here);
            if !parents[..number].iter().any(counted) {
                let (used, _) =
                    live.entry(here).or_insert((pack::HEADER_BYTES as u64, stored.location.pack_len));
                *used += share(stored.location.stored_len);
            }
        }
    }
    live.into_iter().filter(|(_, (used, len))| used.saturating_mul(2) < *len).map(|(pack, _)| pack).collect()
}

/// Bytes of a pack that a chunk of `stored_len` accounts for: with its table row and alignment, or packs full of tiny
/// chunks would look sparse from the first day.
pub(crate) fn share(stored_len: u64) -> u64 {
    stored_len.next_multiple_of(limits::PACK_ALIGNMENT) + pack::ROW_BYTES as u64
}

#[cfg(test)]
mod tests;
