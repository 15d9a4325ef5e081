//! How a save is asked for and what it reports.

use std::sync::Arc;

use everstep_format::decision::Totals;
use everstep_format::limits;
use everstep_format::name::Step;
use everstep_repo::{Checkpoint, Parents};
use everstep_store::Counts;
use rayon::ThreadPool;

use crate::group::Group;
use crate::known::SaveCache;
use crate::phases::{LateRank, Phases};

/// What is saved under which step, and against which parents.
#[derive(Debug, Clone)]
pub struct SaveOptions {
    /// Training step.
    pub step: Step,
    /// Checkpoints to deduplicate against.
    pub parents: Parents,
    /// The user's metadata, up to [`limits::METADATA_BYTES`] as JSON.
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// The ranks that save together; this one leads.
    pub group: Group,
    /// Where the store's requests are counted, for the statistics.
    pub counts: Option<Arc<Counts>>,
}

impl SaveOptions {
    /// A save at `step` against the latest checkpoint, by one process, without metadata.
    pub fn at(step: u64) -> Self {
        let (parents, metadata) = (Parents::Latest, serde_json::Map::new());
        Self { step: Step(step), parents, metadata, group: Group::alone(), counts: None }
    }

    /// Step and ranks, as [`crate::let_go`] needs them.
    pub fn occasion(&self) -> (Step, Group) {
        (self.step, self.group.clone())
    }
}

/// Limits of memory and concurrency, and how chunks are packed.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Bytes at most that are gathered, encoded, waiting or being uploaded; also at most the larger of 64 MiB and a twentieth
    /// of the state. Raised to what one pack and one chunk of the state need, when it is less.
    pub bytes_in_flight: u64,
    /// Packs being uploaded at once.
    pub uploads: usize,
    /// Encoded bytes at which a pack of small chunks is closed, at most [`limits::PACK_BYTES`] less one small chunk.
    pub pack_target: u64,
    /// Whether chunks are compressed where that pays.
    pub compress: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            bytes_in_flight: 256 << 20,
            uploads: 16,
            pack_target: limits::PACK_TARGET_BYTES,
            compress: true,
        }
    }
}

/// What a save works with.
#[derive(Clone, Copy)]
pub struct Tools<'a> {
    /// Threads for hashing and encoding.
    pub pool: &'a ThreadPool,
    /// Limits.
    pub settings: &'a Settings,
    /// Who is told how far it is; `&()` for nobody.
    pub progress: &'a dyn Progress,
    /// The chunks of recent checkpoints, so that a save need not read back the index that the one before wrote. Keep
    /// one beside the session.
    pub cache: &'a SaveCache,
}

/// Hears how far a save is. Called from the saving task.
pub trait Progress: Send + Sync {
    /// Raw bytes of the whole state, once.
    fn planned(&self, raw_bytes: u64) {
        let _ = raw_bytes;
    }

    /// So many more raw bytes were hashed and found known, or encoded.
    fn processed(&self, raw_bytes: u64) {
        let _ = raw_bytes;
    }

    /// So many more bytes of packs were stored.
    fn uploaded(&self, bytes: u64) {
        let _ = bytes;
    }
}

impl Progress for () {}

/// What a save did, all ranks together.
#[derive(Debug, Clone)]
pub struct SaveReport {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// Named tensors.
    pub tensors: u64,
    /// Named objects, each rank's counted.
    pub objects: u64,
    /// Raw bytes of all tensors and objects.
    pub raw_bytes: u64,
    /// Distinct chunks stored by this save.
    pub chunks_uploaded: u64,
    /// Distinct chunks referenced where a parent has them.
    pub chunks_reused: u64,
    /// Raw bytes of the chunks stored.
    pub new_raw_bytes: u64,
    /// Raw bytes of the chunks referenced.
    pub reused_raw_bytes: u64,
    /// Bytes of the packs written that the checkpoint uses. Ranks that met the same new chunk each wrote it; then one of
    /// these packs may be of no use.
    pub bytes_uploaded: u64,
    /// Packs written that the checkpoint uses.
    pub packs: u64,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// Where the leader's time went.
    pub phases: Phases,
    /// The ranks that were last, the last one first; empty for one that saves alone.
    pub slowest: Vec<LateRank>,
}

impl SaveReport {
    /// What the sums of `checkpoint` say; the rest is 0.
    pub(crate) fn of(checkpoint: Checkpoint, totals: &Totals) -> Self {
        Self {
            checkpoint,
            tensors: totals.tensors,
            objects: totals.objects,
            raw_bytes: totals.raw_bytes,
            chunks_uploaded: totals.chunks_new,
            chunks_reused: totals.chunks - totals.chunks_new,
            new_raw_bytes: totals.new_raw_bytes,
            reused_raw_bytes: totals.reused_raw_bytes,
            bytes_uploaded: 0,
            packs: 0,
            index_bytes: 0,
            phases: Phases::default(),
            slowest: Vec::new(),
        }
    }
}
