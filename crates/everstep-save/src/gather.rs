//! The bytes of pieces: a slice where they lie together, a copy where they do not.

use std::sync::{Mutex, PoisonError};

use everstep_format::bounds::Bounds;

use crate::SaveError;
use crate::check::shown;
use crate::item::Part;
use crate::plan::{Plan, PlannedChunk};
use crate::state::Source;

/// Buffers below this are cheaper to allocate than to keep.
const KEPT_BYTES: usize = 64 << 10;

/// The raw bytes of a chunk.
#[derive(Debug)]
pub(crate) enum Raw<'a> {
    /// Where the caller has them.
    Borrowed(&'a [u8]),
    /// The first `len` bytes of a buffer that [`Scratch`] takes back.
    Copied { buffer: Vec<u8>, len: usize },
}

impl Raw<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Copied { buffer, len } => &buffer[..*len],
        }
    }
}

/// Buffers for chunks whose bytes do not lie together. Kept from wave to wave: fresh memory costs more than hashing.
#[derive(Debug)]
pub(crate) struct Scratch {
    kept: Mutex<Kept>,
    limit: usize,
}

#[derive(Debug, Default)]
struct Kept {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Scratch {
    /// Keeps at most `limit` bytes of unused buffers.
    pub(crate) fn new(limit: u64) -> Self {
        Self { kept: Mutex::default(), limit: usize::try_from(limit).unwrap_or(usize::MAX) }
    }

    fn take(&self, len: usize) -> Vec<u8> {
        if len < KEPT_BYTES {
            return vec![0; len];
        }
        let kept = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            let buffer = kept.buffers.pop();
            kept.bytes -= buffer.as_ref().map_or(0, Vec::len);
            buffer
        };
        match kept {
            Some(buffer) if buffer.len() >= len && buffer.len() / 2 <= len => buffer,
            _ => vec![0; len],
        }
    }

    /// Takes the buffer of `raw` back.
    pub(crate) fn give_back(&self, raw: Raw<'_>) {
        let Raw::Copied { buffer, .. } = raw else { return };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if buffer.len() >= KEPT_BYTES && kept.bytes + buffer.len() <= self.limit {
            kept.bytes += buffer.len();
            kept.buffers.push(buffer);
        }
    }
}

/// Whether loading `chunk` will copy.
pub(crate) fn copies(plan: &Plan<'_>, chunk: &PlannedChunk) -> bool {
    match plan.members(chunk) {
        [row] => {
            let part = &plan.parts[plan.origins[*row].part];
            matches!(part.source, Source::Reader(_)) || Runs::new(&plan.rows[*row].bounds, part).count > 1
        }
        _ => true,
    }
}

/// The raw bytes of `chunk`.
pub(crate) fn load<'a>(
    plan: &Plan<'a>,
    chunk: &PlannedChunk,
    scratch: &Scratch,
) -> Result<Raw<'a>, SaveError> {
    let members = plan.members(chunk);
    if let [row] = members
        && let Some(bytes) = borrow(&plan.parts[plan.origins[*row].part], &plan.rows[*row].bounds)
    {
        return Ok(Raw::Borrowed(bytes));
    }
    let len = usize::try_from(chunk.raw_len).expect("a chunk fits memory");
    let mut buffer = scratch.take(len);
    let mut filled = 0;
    for &row in members {
        let part = &plan.parts[plan.origins[row].part];
        filled += copy(part, &plan.rows[row].bounds, &mut buffer[filled..len])?;
    }
    Ok(Raw::Copied { buffer, len })
}

/// The bytes of `piece` where they lie together in memory.
pub(crate) fn borrow<'a>(part: &Part<'a>, piece: &Bounds) -> Option<&'a [u8]> {
    let Source::Memory(bytes) = part.source else { return None };
    let runs = Runs::new(piece, part);
    (runs.count == 1).then(|| &bytes[runs.start(piece, part, &[])..][..runs.bytes])
}

/// Copies the bytes of `piece` to the start of `into`; how many they are.
pub(crate) fn copy(part: &Part<'_>, piece: &Bounds, into: &mut [u8]) -> Result<usize, SaveError> {
    let runs = Runs::new(piece, part);
    let mut at = vec![0; runs.outer];
    let mut filled = 0;
    for _ in 0..runs.count {
        copy_run(part, runs.start(piece, part, &at), &mut into[filled..filled + runs.bytes])?;
        filled += runs.bytes;
        advance(&mut at, &piece.extent);
    }
    Ok(filled)
}

fn copy_run(part: &Part<'_>, start: usize, into: &mut [u8]) -> Result<(), SaveError> {
    match part.source {
        Source::Memory(bytes) => into.copy_from_slice(&bytes[start..start + into.len()]),
        Source::Reader(reader) => reader.read_at(start as u64, into).map_err(|source| SaveError::Source {
            tensor: shown(part.name),
            offset: start as u64,
            source,
        })?,
    }
    Ok(())
}

/// The next position in row-major order.
fn advance(at: &mut [u64], extent: &[u64]) {
    for d in (0..at.len()).rev() {
        at[d] += 1;
        if at[d] < extent[d] {
            return;
        }
        at[d] = 0;
    }
}

/// How the bytes of a piece lie in its part: `count` runs of `bytes` bytes, one per position of the `outer` dimensions.
struct Runs {
    outer: usize,
    count: u64,
    bytes: usize,
}

impl Runs {
    fn new(piece: &Bounds, part: &Part<'_>) -> Self {
        let mut outer = piece.rank();
        let mut elements = 1;
        while outer > 0 {
            outer -= 1;
            elements *= piece.extent[outer];
            if piece.extent[outer] != part.bounds.extent[outer] {
                break;
            }
        }
        let bytes = (elements * part.bits).div_ceil(8);
        Self {
            outer,
            count: piece.extent[..outer].iter().product(),
            bytes: usize::try_from(bytes).expect("a chunk fits memory"),
        }
    }

    /// Byte offset of the run at position `at` of the outer dimensions (nothing: the first).
    fn start(&self, piece: &Bounds, part: &Part<'_>, at: &[u64]) -> usize {
        let element = (0..piece.rank()).fold(0, |sum, d| {
            let index = piece.offset[d] - part.bounds.offset[d] + at.get(d).copied().unwrap_or(0);
            sum * part.bounds.extent[d] + index
        });
        usize::try_from(element * part.bits / 8).expect("the source is in memory or a file of that length")
    }
}

#[cfg(test)]
mod tests;
