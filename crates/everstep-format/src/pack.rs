//! Packs: header, chunk table, payloads; the unit of storage.

use bytes::Bytes;

use crate::FormatError;
use crate::codec::{Codec, Encoded};
use crate::id::{AttemptId, ChunkId, PackId};
use crate::key::PackAddress;
use crate::name::Rank;
use crate::row::Location;

/// A chunk on its way into a pack.
#[derive(Debug, Clone)]
pub struct PackChunk {
    /// Its id.
    pub chunk: ChunkId,
    /// Raw bytes.
    pub raw_len: u64,
    /// Its encoded form.
    pub encoded: Encoded,
}

/// A finished pack.
#[derive(Debug, Clone)]
pub struct BuiltPack {
    /// Where it belongs.
    pub address: PackAddress,
    /// Its bytes, in segments that follow each other (header and table, payload, padding, payload, ...).
    pub segments: Vec<Bytes>,
    /// Its length.
    pub len: u64,
    /// Its chunks in order, with their locations.
    pub chunks: Vec<(ChunkId, u64, Location)>,
}

/// Lays `chunks` out as a pack of `attempt` and `rank`.
///
/// # Errors
/// [`FormatError::TooLarge`] beyond [`crate::limits::PACK_BYTES`] or [`crate::limits::PACK_CHUNKS`].
pub fn build(attempt: AttemptId, rank: Rank, chunks: Vec<PackChunk>) -> Result<BuiltPack, FormatError> {
    let _ = (attempt, rank, chunks);
    unimplemented!()
}

/// One row of a pack's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableRow {
    /// BLAKE3 of the raw bytes.
    pub chunk: ChunkId,
    /// Encoding.
    pub codec: Codec,
    /// Raw bytes.
    pub raw_len: u64,
    /// Encoded bytes.
    pub stored_len: u64,
    /// Where the encoded bytes start in the pack.
    pub offset: u64,
    /// CRC-32C of the encoded bytes.
    pub crc32c: u32,
}

/// A pack's header and table, checked against its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackTable {
    /// Where it belongs.
    pub address: PackAddress,
    /// Its length.
    pub len: u64,
    /// Its chunks.
    pub rows: Vec<TableRow>,
}

/// Bytes from the start of a pack that hold header and table, told from its first bytes (at least 64).
///
/// # Errors
/// [`FormatError::Corrupt`], [`FormatError::Unsupported`], [`FormatError::TooLarge`].
pub fn table_len(first: &[u8]) -> Result<u64, FormatError> {
    let _ = first;
    unimplemented!()
}

impl PackTable {
    /// Reads header and table from `prefix` and checks them against `id`, the pack's key.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] for anything that is not exactly what an encoder writes.
    pub fn parse(prefix: &[u8], id: PackId) -> Result<Self, FormatError> {
        let _ = (prefix, id);
        unimplemented!()
    }
}
