//! One row of the index: a piece of a tensor or object and where its bytes are.

use std::sync::Arc;

use rayon::prelude::*;

use crate::bounds::{Bounds, Dims};
use crate::codec::Codec;
use crate::dtype::Dtype;
use crate::id::{ChunkId, PackId};
use crate::key::PackAddress;
use crate::name::Rank;

/// Tensor or object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// An n-dimensional array.
    Tensor,
    /// Non-tensor state: a canonical value or opaque bytes, seen as a one-dimensional array of bytes.
    Object,
}

/// What the bytes of a named thing are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ElementType {
    /// Elements of a tensor.
    Dtype(Dtype),
    /// An object in the canonical encoding of [`crate::value`]; stored name `value`.
    Value,
    /// An object of opaque bytes; stored name `bytes`.
    Opaque,
    /// A name that this version does not know: can be listed, not loaded.
    Unknown(Arc<str>),
}

/// One piece. Rows are sorted by (name, rank, offset).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Fully qualified name (FQN).
    pub name: Arc<str>,
    /// Tensor or object.
    pub kind: Kind,
    /// Type of the elements.
    pub element: ElementType,
    /// Global shape; of an object, its length in bytes.
    pub shape: Dims,
    /// The box of this piece in global coordinates. Empty boxes appear only for tensors without elements.
    pub bounds: Bounds,
    /// The name whose storage this one shares in the trainer (a tie); its own rows are complete all the same.
    pub alias_of: Option<Arc<str>>,
    /// For rank-scoped state, the rank it belongs to.
    pub rank: Option<Rank>,
    /// Where the bytes are; `None` for a tensor or object without bytes.
    pub piece: Option<Piece>,
}

/// The bytes of one piece: a range of one chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The chunk.
    pub chunk: ChunkId,
    /// Where in the raw chunk the piece starts.
    pub chunk_offset: u64,
    /// Raw bytes of the whole chunk.
    pub raw_len: u64,
    /// Where the chunk is stored.
    pub location: Location,
}

/// Where a chunk is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Location {
    /// The pack: owner attempt, rank and id.
    pub pack: PackAddress,
    /// Bytes of the pack.
    pub pack_len: u64,
    /// Where the encoded chunk starts in the pack.
    pub pack_offset: u64,
    /// Encoded bytes.
    pub stored_len: u64,
    /// How it is encoded.
    pub codec: Codec,
}

impl ElementType {
    /// The stored name.
    pub fn name(&self) -> &str {
        match self {
            Self::Dtype(dtype) => dtype.name(),
            Self::Value => "value",
            Self::Opaque => "bytes",
            Self::Unknown(name) => name,
        }
    }

    /// From the stored name.
    pub fn from_name(name: &str) -> Self {
        match name {
            "value" => Self::Value,
            "bytes" => Self::Opaque,
            _ => name.parse().map_or_else(|_| Self::Unknown(name.into()), Self::Dtype),
        }
    }

    /// Bits of one element; `None` for an unknown type.
    pub fn bits(&self) -> Option<u64> {
        match self {
            Self::Dtype(dtype) => Some(dtype.bits()),
            Self::Value | Self::Opaque => Some(8),
            Self::Unknown(_) => None,
        }
    }

    /// Bytes of `elements` elements; `None` on overflow or for an unknown type.
    pub fn byte_len(&self, elements: u64) -> Option<u64> {
        match self {
            Self::Dtype(dtype) => dtype.byte_len(elements),
            Self::Value | Self::Opaque => Some(elements),
            Self::Unknown(_) => None,
        }
    }
}

impl Row {
    /// Raw bytes of this piece; `None` on overflow or for an unknown type.
    pub fn byte_len(&self) -> Option<u64> {
        self.element.byte_len(self.bounds.elements()?)
    }

    /// The order of rows in an index.
    pub fn sort_key(&self) -> (&str, Option<Rank>, &[u64]) {
        (&self.name, self.rank, &self.bounds.offset)
    }
}

impl AsRef<Row> for Row {
    fn as_ref(&self) -> &Row {
        self
    }
}

impl Location {
    /// The id of the pack.
    pub fn pack_id(&self) -> PackId {
        self.pack.pack
    }
}

/// The numbers of the rows whose chunk another row has, too, ascending and chunk by chunk. There are few as a rule, and
/// sorting a few bytes of every chunk's name finds them sooner than a table of millions of names would.
pub fn repeated_chunks(rows: &[Row]) -> Vec<Vec<usize>> {
    let chunk = |number: usize| rows[number].piece.as_ref().map(|piece| piece.chunk);
    let start = |ChunkId([a, b, c, d, e, f, g, h, ..]): ChunkId| u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    let mut starts: Vec<(u64, usize)> =
        (0..rows.len()).filter_map(|number| Some((start(chunk(number)?), number))).collect();
    starts.par_sort_unstable();
    let mut repeated = Vec::new();
    for alike in starts.chunk_by(|a, b| a.0 == b.0).filter(|alike| alike.len() > 1) {
        let mut numbers: Vec<usize> = alike.iter().map(|(_, number)| *number).collect();
        numbers.sort_by_key(|&number| chunk(number));
        let same = numbers.chunk_by(|&a, &b| chunk(a) == chunk(b));
        repeated.extend(same.filter(|same| same.len() > 1).map(<[usize]>::to_vec));
    }
    repeated
}

/// Pairs of rows that name one place of a pack, yet two chunks, ascending; one for each such place.
pub fn shared_places(rows: &[Row]) -> Vec<(usize, usize)> {
    let what = |number: usize| {
        let piece = rows[number].piece.as_ref();
        piece.map(|piece| ((piece.location.pack, piece.location.pack_offset), piece.chunk))
    };
    // A few bytes tell most places apart; those that they do not are compared whole.
    let mark = |piece: &Piece| {
        let PackId([a, b, c, d, e, f, g, h, ..]) = piece.location.pack.pack;
        u64::from_be_bytes([a, b, c, d, e, f, g, h]).wrapping_add(piece.location.pack_offset)
    };
    let marked = |(number, row): (usize, &Row)| Some((mark(row.piece.as_ref()?), number));
    let mut marks: Vec<(u64, usize)> = rows.iter().enumerate().filter_map(marked).collect();
    marks.par_sort_unstable();
    let mut shared = Vec::new();
    for alike in marks.chunk_by(|a, b| a.0 == b.0) {
        let first = what(alike[0].1);
        if alike.iter().all(|(_, number)| what(*number) == first) {
            continue;
        }
        let mut numbers: Vec<usize> = alike.iter().map(|(_, number)| *number).collect();
        numbers.sort_by_key(|&number| what(number));
        let place = |number: usize| what(number).map(|(place, _)| place);
        let same_place = numbers.chunk_by(|&a, &b| place(a) == place(b));
        let differ = |same: &[usize]| same.iter().find(|&&n| what(n) != what(same[0])).map(|&n| (same[0], n));
        shared.extend(same_place.filter_map(differ));
    }
    shared.sort_unstable();
    shared
}

#[cfg(test)]
mod tests;
