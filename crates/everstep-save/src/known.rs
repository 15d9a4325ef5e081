//! Chunks that confirmed parents have: what need not be stored again.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everstep_format::card::ParentIndex;
use everstep_format::id::{AttemptId, ChunkId};
use everstep_format::key::PackAddress;
use everstep_format::name::Rank;
use everstep_format::row::{Location, Piece, Row};
use everstep_format::{limits, pack};
use everstep_repo::IndexReader;
use everstep_store::Store;

use crate::SaveError;

/// Where a chunk is stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored {
    pub(crate) raw_len: u64,
    pub(crate) location: Location,
}

pub(crate) type Chunks = HashMap<ChunkId, Stored>;

/// The chunks of one checkpoint.
#[derive(Debug)]
struct Stock {
    chunks: Chunks,
    /// Whether these are all of them, or only those of one rank's share.
    complete: bool,
}

/// The chunks of recent checkpoints of one process, by the attempt that made the checkpoint. Never a source of truth
/// about what exists: only confirmed parents are looked up in it.
#[derive(Default)]
pub struct SaveCache(Mutex<Cached>);

#[derive(Default)]
struct Cached {
    checkpoints: HashMap<AttemptId, Arc<Stock>>,
    /// As whom this process wrote packs to which attempts, as far as its shares still use them.
    written: HashSet<(AttemptId, Rank)>,
    /// Indexes at hand that no save has asked for yet.
    indexes: Vec<IndexReader>,
}

impl SaveCache {
    fn cached(&self) -> MutexGuard<'_, Cached> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, attempt: AttemptId) -> Option<Arc<Stock>> {
        self.cached().checkpoints.get(&attempt).cloned()
    }

    /// Lets the next save that has the checkpoint of `index` as a parent look into this, which may have been read or
    /// handed on already, instead of reading it anew.
    pub fn take_index(&self, index: IndexReader) {
        let mut cached = self.cached();
        cached.indexes.retain(|other| other.place() != index.place());
        cached.indexes.push(index);
    }

    /// The index at `place`, if it was taken. It is given away: its chunks are kept from then on.
    fn index_of(&self, place: &ParentIndex) -> Option<IndexReader> {
        let mut cached = self.cached();
        let number = cached.indexes.iter().position(|index| index.place() == place)?;
        Some(cached.indexes.swap_remove(number))
    }

    /// Forgets all but `attempt`, whose chunks these are, and `kept`.
    pub(crate) fn keep(&self, attempt: AttemptId, chunks: Chunks, kept: &[AttemptId]) {
        let mut cached = self.cached();
        cached.checkpoints.retain(|known, _| kept.contains(known));
        cached.indexes.clear();
        cached.checkpoints.insert(attempt, Arc::new(Stock { chunks, complete: true }));
    }

    /// As [`SaveCache::keep`], of the chunks of the share that this process handed in as `rank`. If the attempt becomes
    /// a checkpoint, it has them all, though perhaps where another rank stored them.
    pub(crate) fn keep_share(&self, (attempt, rank): (AttemptId, Rank), chunks: Chunks, kept: &[AttemptId]) {
        let mut cached = self.cached();
        cached.checkpoints.retain(|known, _| kept.contains(known));
        cached.indexes.clear();
        let writers: HashSet<(AttemptId, Rank)> = chunks.values().map(Stored::writer).collect();
        cached.written.insert((attempt, rank));
        cached.written.retain(|writer| writers.contains(writer));
        cached.checkpoints.insert(attempt, Arc::new(Stock { chunks, complete: false }));
    }

    fn remember(&self, attempt: AttemptId, stock: &Arc<Stock>) {
        self.cached().checkpoints.insert(attempt, stock.clone());
    }

    /// Which of `parents` use so little of a pack that it is worth storing that anew. Of a pack that others wrote only
    /// who knows the whole checkpoint can tell.
    fn sparse_packs(&self, parents: &[Arc<Stock>]) -> HashSet<PackAddress> {
        let complete = parents.iter().all(|stock| stock.complete);
        let mut sparse = sparse_packs(parents);
        if !complete {
            let cached = self.cached();
            sparse.retain(|pack| cached.written.contains(&(pack.attempt, pack.rank)));
        }
        sparse
    }
}

impl fmt::Debug for SaveCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.cached().checkpoints.keys()).finish()
    }
}

impl Stored {
    fn writer(&self) -> (AttemptId, Rank) {
        (self.location.pack.attempt, self.location.pack.rank)
    }
}

/// The distinct chunks of `rows`.
pub(crate) fn chunks_of(rows: &[Row]) -> Chunks {
    let pieces = rows.iter().filter_map(|row| row.piece.as_ref());
    pieces.map(|piece| (piece.chunk, Stored { raw_len: piece.raw_len, location: piece.location })).collect()
}

/// The chunks of the confirmed parents, without those that are due to be stored again.
#[derive(Debug, Default)]
pub(crate) struct Known {
    parents: Vec<Arc<Stock>>,
    sparse: HashSet<PackAddress>,
}

impl Known {
    /// Reads the indexes of `confirmed`, or takes them from `cache`: only what is `whole`, or also shares.
    ///
    /// An index is read whole, even by a rank with few names: a chunk that a parent has is referenced whatever it is
    /// called there (renamed layers, equal tensors, pieces that share chunks with other neighbours than before), and of
    /// a pack only who knows all its users can say that it is sparse. That is once a session and parent, for a rank then
    /// knows what it wrote; and a rank that has the index already hands it on by [`SaveCache::take_index`].
    pub(crate) async fn read(
        store: &Arc<dyn Store>,
        confirmed: &[ParentIndex],
        (cache, whole): (&SaveCache, bool),
    ) -> Result<Self, SaveError> {
        let mut parents: Vec<Arc<Stock>> = Vec::with_capacity(confirmed.len());
        for place in confirmed {
            let attempt = place.parent.attempt;
            parents.push(match cache.get(attempt).filter(|stock| stock.complete || !whole) {
                Some(stock) => stock,
                None => {
                    let read_anew = || IndexReader::at(store.clone(), place.clone());
                    let rows = cache.index_of(place).unwrap_or_else(read_anew).all().await?;
                    let stock = Arc::new(Stock { chunks: chunks_of(&rows), complete: true });
                    cache.remember(attempt, &stock);
                    stock
                }
            });
        }
        let sparse = cache.sparse_packs(&parents);
        Ok(Self { parents, sparse })
    }

    /// Where a parent has `chunk`.
    pub(crate) fn find(&self, chunk: &ChunkId) -> Option<&Stored> {
        self.parents.iter().find_map(|stock| stock.chunks.get(chunk))
    }

    /// Where a parent has `chunk`, unless its pack is sparse.
    pub(crate) fn get(&self, chunk: &ChunkId) -> Option<&Stored> {
        let mut of_parents = self.parents.iter().filter_map(|stock| stock.chunks.get(chunk));
        of_parents.find(|stored| !self.sparse.contains(&stored.location.pack))
    }

    /// Whether a confirmed parent has the chunk of `piece` exactly there.
    pub(crate) fn confirms(&self, piece: &Piece) -> bool {
        let same = |stored: &Stored| stored.raw_len == piece.raw_len && stored.location == piece.location;
        self.parents.iter().any(|stock| stock.chunks.get(&piece.chunk).is_some_and(same))
    }
}

/// Packs of which the parents use less than half: what they still use is stored again, so that the pack can be collected
/// once these parents are gone. Compaction without a protocol.
fn sparse_packs(parents: &[Arc<Stock>]) -> HashSet<PackAddress> {
    let mut live: HashMap<PackAddress, (u64, u64)> = HashMap::new();
    for (number, stock) in parents.iter().enumerate() {
        for (chunk, stored) in &stock.chunks {
            let here = stored.location.pack;
            let counted =
                |earlier: &Arc<Stock>| earlier.chunks.get(chunk).is_some_and(|s| s.location.pack == here);
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
