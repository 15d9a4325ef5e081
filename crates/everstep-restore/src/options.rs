//! What a caller says: which boxes into which memory, how strictly, with which means.

use std::fmt;

use everstep_format::bounds::Bounds;
use everstep_format::dtype::Dtype;

use crate::Selection;

/// One box of one stored tensor, wanted in the caller's memory.
pub struct Target<'a> {
    /// Name of the stored tensor.
    pub name: String,
    /// Element type that the caller expects; nothing is ever cast.
    pub dtype: Dtype,
    /// Global shape that the caller expects.
    pub shape: Vec<u64>,
    /// The box wanted, in global coordinates.
    pub bounds: Bounds,
    /// Where it goes: exactly the bytes of the box, row-major, little-endian. Unspecified after an error, but untouched
    /// after [`crate::RestoreError::SchemaMismatch`] and every other error that shows before the first read.
    pub into: &'a mut [u8],
}

impl fmt::Debug for Target<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, dtype, shape, bounds, into } = self;
        write!(f, "Target({name:?} {dtype} {shape:?}, {bounds}, {} bytes)", into.len())
    }
}

/// How strictly targets and stored tensors must agree. Types and shapes of what is restored must always agree.
#[derive(Debug, Clone)]
pub struct RestoreOptions {
    /// Refuse when a target is not stored, or when a stored tensor within `scope` is not asked for. Otherwise both are
    /// only reported.
    pub strict: bool,
    /// Which stored tensors count as expected.
    pub scope: Selection,
    /// Check every chunk against its BLAKE3.
    pub verify: bool,
}

impl Default for RestoreOptions {
    fn default() -> Self {
        Self { strict: true, scope: Selection::all(), verify: true }
    }
}

/// Bounds on memory and requests.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Bytes that may be requested or waiting to be decoded at one time, also at most the larger of 64 MiB and a twentieth of
    /// what is read; a single larger read still goes alone.
    pub bytes_in_flight: u64,
    /// Reads in flight at one time.
    pub reads: usize,
    /// Chunks of one pack with at most so many unwanted bytes between them are read together.
    pub coalesce_gap: u64,
    /// Bytes beyond which reads are not joined.
    pub coalesce_max: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { bytes_in_flight: 256 << 20, reads: 16, coalesce_gap: 64 << 10, coalesce_max: 16 << 20 }
    }
}

/// The means of a restore.
#[derive(Clone, Copy)]
pub struct Tools<'a> {
    /// Where chunks are decoded and hashed. The calling task waits for it, batch by batch.
    pub pool: &'a rayon::ThreadPool,
    /// Bounds.
    pub settings: &'a Settings,
    /// Told what goes on; `&()` tells nobody.
    pub progress: &'a dyn Progress,
}

impl fmt::Debug for Tools<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tools").field("settings", self.settings).finish_non_exhaustive()
    }
}

/// Is told what goes on; called from any thread.
pub trait Progress: Send + Sync {
    /// So many raw bytes more are to be placed.
    fn planned(&self, raw_bytes: u64) {
        let _ = raw_bytes;
    }

    /// So many raw bytes more are verified and placed.
    fn placed(&self, raw_bytes: u64) {
        let _ = raw_bytes;
    }
}

impl Progress for () {}

/// What was restored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestoreReport {
    /// Targets filled.
    pub tensors: u64,
    /// Raw bytes placed.
    pub bytes: u64,
    /// Distinct chunks decoded.
    pub chunks: u64,
    /// Ranged reads of packs.
    pub requests: u64,
    /// Targets that are not stored, sorted; only when not strict.
    pub missing: Vec<String>,
    /// Stored tensors within scope that no target asked for, sorted; only when not strict.
    pub unexpected: Vec<String>,
}
