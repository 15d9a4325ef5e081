//! The grid: how a tensor is cut into blocks, in its global coordinates, whatever its sharding; and how pieces that are
//! too small for a chunk of their own share one.

use crate::bounds::Bounds;
use crate::pattern::Pattern;
use crate::repository::Chunking;
use crate::row::ElementType;
use crate::{FormatError, limits};

/// The block size of one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid {
    block: Vec<u64>,
}

impl Grid {
    /// The grid of a tensor of `shape` and `element` under `chunking`: a block is the largest run of whole slices along
    /// the outermost possible dimension that keeps within the block's elements and bytes.
    pub fn new(shape: &[u64], element: &ElementType, chunking: &Chunking, name: &str) -> Self {
        let limit = block_elements(element, chunking, name);
        let block = match shape.split_last() {
            Some((last, _)) if element.bits() == Some(4) && last % 2 == 1 => odd_block(shape, limit),
            Some((last, outer)) if element.bits() == Some(4) => {
                let in_bytes = [outer, &[last / 2]].concat();
                let mut block = block_of(&in_bytes, (limit / 2).max(1));
                if let Some(last) = block.last_mut() {
                    *last *= 2;
                }
                block
            }
            _ => block_of(shape, limit),
        };
        Self { block }
    }

    /// Extent of a full block per dimension.
    pub fn block(&self) -> &[u64] {
        &self.block
    }

    /// The number of the block of a tensor of `shape` in which `offset` lies, counted in row-major order; modulo 2^64.
    pub fn block_number(&self, shape: &[u64], offset: &[u64]) -> u64 {
        (0..shape.len()).fold(0, |number: u64, d| {
            let block = self.block[d].max(1);
            number.wrapping_mul(shape[d].div_ceil(block)).wrapping_add(offset[d] / block)
        })
    }

    /// The blocks that `bounds` touches, each cut to `bounds`, in row-major order; nothing for an empty box. Time and
    /// memory go with the blocks touched, not with the tensor.
    pub fn pieces(&self, bounds: &Bounds) -> Vec<Bounds> {
        if bounds.is_empty() {
            return Vec::new();
        }
        let mut pieces = vec![Bounds::whole(&[])];
        for d in 0..bounds.rank() {
            let runs: Vec<(u64, u64)> = runs(bounds.offset[d], bounds.end(d), self.block[d].max(1)).collect();
            pieces = pieces.iter().flat_map(|piece| runs.iter().map(|run| extended(piece, *run))).collect();
        }
        pieces
    }
}

/// `[start, end)` cut at the multiples of `block`, as (offset, extent).
fn runs(start: u64, end: u64, block: u64) -> impl Iterator<Item = (u64, u64)> {
    let next = move |at: u64| (at / block).saturating_add(1).saturating_mul(block).min(end);
    std::iter::successors((start < end).then_some((start, next(start))), move |(_, stop)| {
        (*stop < end).then(|| (*stop, next(*stop)))
    })
    .map(|(from, to)| (from, to - from))
}

fn extended(piece: &Bounds, (offset, extent): (u64, u64)) -> Bounds {
    let mut longer = piece.clone();
    longer.offset.push(offset);
    longer.extent.push(extent);
    longer
}

/// Elements of a block at most: the repository's setting or its first matching override, within the byte limit.
fn block_elements(element: &ElementType, chunking: &Chunking, name: &str) -> u64 {
    let matching = |pattern: &str| Pattern::new(pattern).is_ok_and(|p| p.matches(name));
    let own = chunking.overrides.iter().find(|rule| matching(&rule.pattern)).map(|rule| rule.block_elements);
    let by_bytes = chunking.block_bytes.saturating_mul(8) / element.bits().unwrap_or(8);
    own.unwrap_or(chunking.block_elements).min(by_bytes).max(1)
}

fn block_of(shape: &[u64], limit: u64) -> Vec<u64> {
    let slice = |d: usize| shape[d + 1..].iter().fold(1u64, |product, &n| product.saturating_mul(n));
    let Some(d) = (0..shape.len()).find(|&d| slice(d) <= limit) else { return Vec::new() };
    let run = (limit / slice(d).max(1)).max(1).min(shape[d]);
    (0..shape.len())
        .map(|i| match i.cmp(&d) {
            std::cmp::Ordering::Less => 1,
            std::cmp::Ordering::Equal => run,
            std::cmp::Ordering::Greater => shape[i],
        })
        .collect()
}

/// Blocks of 4-bit elements whose last dimension is odd: rows then start in the middle of bytes, so the only safe cuts
/// are after an even number of whole slices of the outermost dimension.
fn odd_block(shape: &[u64], limit: u64) -> Vec<u64> {
    let slice = shape[1..].iter().fold(1u64, |product, &n| product.saturating_mul(n)).max(1);
    let run = (limit / slice / 2 * 2).max(2).min(shape[0]);
    [&[run], &shape[1..]].concat()
}

/// `Ok` when the bytes of `bounds` are whole bytes of the packed tensor: always for types of 8 bits or more. For 4-bit
/// types with an even last dimension, offset and extent in it must be even; with an odd one, the box must span all
/// dimensions but the first, start there at an even index, and end at an even one or at the tensor's end.
///
/// # Errors
/// [`FormatError::Invalid`] naming the box.
pub fn keeps_bytes_whole(shape: &[u64], element: &ElementType, bounds: &Bounds) -> Result<(), FormatError> {
    let Some(last) = shape.len().checked_sub(1) else { return Ok(()) };
    if element.bits() != Some(4) || bounds.is_empty() {
        return Ok(());
    }
    let even = |d: usize| {
        bounds.offset[d].is_multiple_of(2) && (bounds.end(d).is_multiple_of(2) || bounds.end(d) == shape[d])
    };
    let whole = |d: usize| bounds.offset[d] == 0 && bounds.extent[d] == shape[d];
    let sound = if shape[last].is_multiple_of(2) { even(last) } else { even(0) && (1..=last).all(whole) };
    if sound {
        return Ok(());
    }
    let rule =
        format!("4-bit elements are packed two to a byte: a box of shape {shape:?} must not split a byte");
    Err(FormatError::invalid("box", bounds.to_string(), rule))
}

/// Whether a shared chunk ends with the piece of `name`, after which it has `filled` bytes.
///
/// Pieces under [`limits::SHARED_PIECE_BYTES`] go one after another, in the order of index rows, into shared chunks. One
/// ends at [`limits::SHARED_CHUNK_BYTES`] at the latest, and from three quarters of that on at every name whose BLAKE3
/// begins with a byte below 64: so the cuts depend on the names nearby, and one new name does not move all later ones.
pub fn closes_shared_chunk(name: &str, filled: u64) -> bool {
    let calls_for_a_cut = || blake3::hash(name.as_bytes()).as_bytes()[0] < 64;
    filled >= limits::SHARED_CHUNK_BYTES
        || (filled >= limits::SHARED_CHUNK_BYTES / 4 * 3 && calls_for_a_cut())
}

#[cfg(test)]
mod tests;
