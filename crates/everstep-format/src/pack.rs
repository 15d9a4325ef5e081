//! Packs: header, chunk table, payloads; the unit of storage.
//!
//! The layout leaves no freedom: the table fixes where every payload lies, the pack's id fixes the table. So
//! two encoders make the same bytes of the same chunks, and a retried upload writes what the first one wrote.

#[cfg(test)]
mod tests;

use bytes::Bytes;

use crate::codec::{Codec, Encoded};
use crate::id::{AttemptId, ChunkId, PackId};
use crate::key::PackAddress;
use crate::limits::{CHUNK_RAW_BYTES, CHUNK_STORED_BYTES, PACK_ALIGNMENT, PACK_BYTES, PACK_CHUNKS};
use crate::name::Rank;
use crate::row::Location;
use crate::{FormatError, repository};

/// First bytes of every pack.
pub const MAGIC: [u8; 8] = *b"EVSTPACK";
/// Bytes of the header.
pub const HEADER_BYTES: usize = 64;
/// Bytes of one row of the table.
pub const ROW_BYTES: usize = 64;

/// A payload shorter than this is copied next to its neighbours rather than made a segment of its own.
const OWN_SEGMENT_BYTES: usize = 64 * 1024;

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
    /// Its chunks in order, with their raw lengths and locations.
    pub chunks: Vec<(ChunkId, u64, Location)>,
}

/// One row of a pack's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableRow {
    /// BLAKE3 of the raw bytes.
    pub chunk: ChunkId,
    /// Encoding.
    pub codec: Codec,
    /// Bytes per element where the encoding has elements (planes: 2, 4 or 8), else 0.
    pub element_width: u8,
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
    /// Its chunks, in the order of their payloads.
    pub rows: Vec<TableRow>,
}

/// Lays `chunks` out as a pack of `attempt` and `rank`. Large payloads are moved, not copied.
///
/// # Errors
/// [`FormatError::TooLarge`] beyond [`PACK_BYTES`] or [`PACK_CHUNKS`]; [`FormatError::Invalid`] for no chunks
/// or for an empty one.
pub fn build(attempt: AttemptId, rank: Rank, chunks: Vec<PackChunk>) -> Result<BuiltPack, FormatError> {
    let rows = lay_out(&chunks)?;
    let header = Header { chunks: rows.len() as u64, rank, attempt, pack_len: end_of(&rows) };
    FormatError::within("pack length", header.pack_len, PACK_BYTES)?;
    let front = encode_front(&header, &rows)?;
    let address = PackAddress { attempt, rank, pack: PackId(*blake3::hash(&front).as_bytes()) };
    let segments = assemble(front, &rows, chunks.into_iter().map(|chunk| chunk.encoded.bytes));
    let chunks =
        rows.iter().map(|row| (row.chunk, row.raw_len, row.location(address, header.pack_len))).collect();
    Ok(BuiltPack { address, segments, len: header.pack_len, chunks })
}

fn lay_out(chunks: &[PackChunk]) -> Result<Vec<TableRow>, FormatError> {
    let count = chunks.len() as u64;
    if count == 0 {
        return Err(FormatError::invalid("pack", "no chunks", "a pack holds at least one chunk"));
    }
    FormatError::within("chunks of a pack", count, PACK_CHUNKS)?;
    let mut offset = front_len(count);
    chunks
        .iter()
        .map(|chunk| {
            let row = describe(chunk, offset)?;
            offset = aligned(row.offset + row.stored_len);
            Ok(row)
        })
        .collect()
}

fn describe(chunk: &PackChunk, offset: u64) -> Result<TableRow, FormatError> {
    let Encoded { codec, bytes } = &chunk.encoded;
    let element_width = match codec {
        Codec::Planes => bytes.first().copied().unwrap_or_default(),
        Codec::Raw | Codec::Zstd => 0,
    };
    let row = TableRow {
        chunk: chunk.chunk,
        codec: *codec,
        element_width,
        raw_len: chunk.raw_len,
        stored_len: bytes.len() as u64,
        offset,
        crc32c: crc32c::crc32c(bytes),
    };
    match row.contradiction() {
        None => FormatError::within("stored bytes of a chunk", row.stored_len, CHUNK_STORED_BYTES)
            .and_then(|()| FormatError::within("raw bytes of a chunk", row.raw_len, CHUNK_RAW_BYTES))
            .map(|()| row),
        Some((expected, found)) => Err(FormatError::invalid("encoded chunk", found, expected)),
    }
}

/// The segments of a pack: `front`, then the payloads at their offsets with zeros between.
fn assemble(front: Vec<u8>, rows: &[TableRow], payloads: impl Iterator<Item = Vec<u8>>) -> Vec<Bytes> {
    let mut segments = Vec::new();
    let mut open = front;
    let mut closed_len = 0;
    for (row, payload) in rows.iter().zip(payloads) {
        let padding = row.offset - closed_len - open.len() as u64;
        open.extend((0..padding).map(|_| 0));
        if payload.len() < OWN_SEGMENT_BYTES {
            open.extend_from_slice(&payload);
            continue;
        }
        closed_len = row.offset + row.stored_len;
        segments.push(Bytes::from(std::mem::take(&mut open)));
        segments.push(Bytes::from(payload));
    }
    if !open.is_empty() {
        segments.push(Bytes::from(open));
    }
    segments.retain(|segment| !segment.is_empty());
    segments
}

/// The fields of the header.
#[derive(Debug)]
struct Header {
    chunks: u64,
    rank: Rank,
    attempt: AttemptId,
    pack_len: u64,
}

fn encode_front(header: &Header, rows: &[TableRow]) -> Result<Vec<u8>, FormatError> {
    let too_many =
        || FormatError::TooLarge { what: "chunks of a pack", limit: PACK_CHUNKS, found: header.chunks };
    let count = u32::try_from(header.chunks).map_err(|_| too_many())?;
    let mut front = Vec::with_capacity(HEADER_BYTES + rows.len() * ROW_BYTES);
    front.extend_from_slice(&MAGIC);
    for field in [version(), 64, 64, 0] {
        front.extend_from_slice(&field.to_le_bytes());
    }
    front.extend_from_slice(&count.to_le_bytes());
    front.extend_from_slice(&header.rank.0.to_le_bytes());
    front.extend_from_slice(&header.attempt.0);
    front.extend_from_slice(&header.pack_len.to_le_bytes());
    front.extend_from_slice(&[0; 16]);
    rows.iter().for_each(|row| row.encode(&mut front));
    Ok(front)
}

/// The format version as packs carry it.
fn version() -> u16 {
    u16::try_from(repository::FORMAT_VERSION).expect("format versions are small")
}

/// Bytes of header and table.
fn front_len(chunks: u64) -> u64 {
    HEADER_BYTES as u64 + chunks * ROW_BYTES as u64
}

fn aligned(offset: u64) -> u64 {
    offset.next_multiple_of(PACK_ALIGNMENT)
}

fn end_of(rows: &[TableRow]) -> u64 {
    rows.last().map_or(0, |row| row.offset + row.stored_len)
}

/// Bytes from the start of a pack that hold header and table, told from its first bytes (at least 64).
///
/// # Errors
/// [`FormatError::Corrupt`], [`FormatError::Unsupported`], [`FormatError::TooLarge`].
pub fn table_len(first: &[u8]) -> Result<u64, FormatError> {
    Header::parse(first).map(|header| front_len(header.chunks))
}

impl Header {
    fn parse(first: &[u8]) -> Result<Self, FormatError> {
        let bytes: &[u8; HEADER_BYTES] = first.first_chunk().ok_or_else(|| {
            bad_header(0, format!("{HEADER_BYTES} bytes"), format!("{} bytes", first.len()))
        })?;
        if bytes[..8] != MAGIC {
            return Err(bad_header(0, "the magic EVSTPACK", format!("{:02x?}", &bytes[..8])));
        }
        repository::check_version(u16_at(bytes, 8).into())?;
        for (offset, expected) in [(10, 64), (12, 64), (14, 0)] {
            let found = u16_at(bytes, offset);
            if found != expected {
                return Err(bad_header(offset as u64, expected.to_string(), found.to_string()));
            }
        }
        if bytes[48..].iter().any(|byte| *byte != 0) {
            return Err(bad_header(48, "16 reserved zeros", format!("{:02x?}", &bytes[48..])));
        }
        Self::limited(bytes)
    }

    fn limited(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FormatError> {
        let chunks = u64::from(u32_at(bytes, 16));
        if chunks == 0 {
            return Err(bad_header(16, "at least one chunk", "none"));
        }
        FormatError::within("chunks of a pack", chunks, PACK_CHUNKS)?;
        let pack_len = u64_at(bytes, 40);
        FormatError::within("pack length", pack_len, PACK_BYTES)?;
        Ok(Self { chunks, rank: Rank(u32_at(bytes, 20)), attempt: AttemptId(array_at(bytes, 24)), pack_len })
    }
}

impl PackTable {
    /// Reads header and table from `prefix` (bytes after the table are ignored) and checks them against `id`,
    /// the last part of the pack's key.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] for anything that is not exactly what an encoder writes;
    /// [`FormatError::Unsupported`] for another version, codec or base; [`FormatError::TooLarge`] beyond a
    /// limit.
    pub fn parse(prefix: &[u8], id: PackId) -> Result<Self, FormatError> {
        let header = Header::parse(prefix)?;
        let wanted = front_len(header.chunks);
        let front = usize::try_from(wanted).ok().and_then(|len| prefix.get(..len)).ok_or_else(|| {
            bad_table(prefix.len() as u64, format!("{wanted} bytes"), format!("{} bytes", prefix.len()))
        })?;
        let actual = PackId(*blake3::hash(front).as_bytes());
        if actual != id {
            return Err(bad_table(
                0,
                format!("header and table with BLAKE3 {id}"),
                format!("BLAKE3 {actual}"),
            ));
        }
        let rows = parse_rows(&front[HEADER_BYTES..], &header)?;
        let address = PackAddress { attempt: header.attempt, rank: header.rank, pack: id };
        Ok(Self { address, len: header.pack_len, rows })
    }

    /// Checks that the pack lies where its header says: `key` is the address that its key spells.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] when it was copied from elsewhere.
    pub fn check_address(&self, key: &PackAddress) -> Result<(), FormatError> {
        if self.address == *key {
            return Ok(());
        }
        let owner = |address: &PackAddress| format!("attempt {}, rank {}", address.attempt, address.rank);
        Err(bad_header(20, owner(key), owner(&self.address)))
    }

    /// Checks a whole `pack`: its length, the zeros between the payloads, and every payload's checksum. Raw
    /// bytes are not looked at: decode and hash them for that.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] at the first byte or chunk that is wrong.
    pub fn check_pack(&self, pack: &[u8]) -> Result<(), FormatError> {
        if pack.len() as u64 != self.len {
            let (expected, found) = (format!("{} bytes", self.len), format!("{} bytes", pack.len()));
            return Err(FormatError::corrupt("pack", 0, expected, found));
        }
        let mut end = front_len(self.rows.len() as u64);
        for row in &self.rows {
            let padding = range(pack, end, row.offset);
            if padding.iter().any(|byte| *byte != 0) {
                return Err(FormatError::corrupt("pack", end, "zeros up to the next payload", "other bytes"));
            }
            end = row.offset + row.stored_len;
            row.check_payload(range(pack, row.offset, end))?;
        }
        Ok(())
    }
}

/// The bytes of a pack from `start` up to `end`; empty beyond its end.
fn range(pack: &[u8], start: u64, end: u64) -> &[u8] {
    let bounds = usize::try_from(start).ok().zip(usize::try_from(end).ok());
    bounds.and_then(|(start, end)| pack.get(start..end)).unwrap_or_default()
}

fn parse_rows(table: &[u8], header: &Header) -> Result<Vec<TableRow>, FormatError> {
    let mut rows = Vec::with_capacity(table.len() / ROW_BYTES);
    let mut next = front_len(header.chunks);
    for (number, bytes) in table.as_chunks::<ROW_BYTES>().0.iter().enumerate() {
        let at = front_len(number as u64);
        let row = TableRow::parse(bytes, at)?;
        if row.offset != next {
            return Err(bad_table(at + 56, format!("offset {next}"), format!("offset {}", row.offset)));
        }
        next = aligned(row.offset + row.stored_len);
        rows.push(row);
    }
    match end_of(&rows) {
        end if end == header.pack_len => Ok(rows),
        end => Err(bad_header(
            40,
            format!("pack length {end}, the end of the last payload"),
            header.pack_len.to_string(),
        )),
    }
}

impl TableRow {
    /// Checks the encoded bytes of this row's chunk: length, CRC-32C and the element width they start with.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] naming the chunk.
    pub fn check_payload(&self, stored: &[u8]) -> Result<(), FormatError> {
        let bad = |expected: String, found: String| {
            Err(FormatError::corrupt(
                "chunk payload",
                self.offset,
                format!("{expected} of chunk {}", self.chunk),
                found,
            ))
        };
        if stored.len() as u64 != self.stored_len {
            return bad(format!("{} bytes", self.stored_len), format!("{} bytes", stored.len()));
        }
        let found = crc32c::crc32c(stored);
        if found != self.crc32c {
            return bad(format!("CRC-32C {:08x}", self.crc32c), format!("{found:08x}"));
        }
        match stored.first() {
            Some(width) if self.codec == Codec::Planes && *width != self.element_width => {
                bad(format!("element width {}", self.element_width), width.to_string())
            }
            _ => Ok(()),
        }
    }

    /// Where this row's chunk is stored, in a pack of `pack_len` bytes at `pack`.
    pub fn location(&self, pack: PackAddress, pack_len: u64) -> Location {
        Location { pack, pack_len, pack_offset: self.offset, stored_len: self.stored_len, codec: self.codec }
    }

    fn encode(&self, table: &mut Vec<u8>) {
        table.extend_from_slice(&self.chunk.0);
        table.extend_from_slice(&[self.codec.id(), self.element_width, 0, 0]);
        table.extend_from_slice(&self.crc32c.to_le_bytes());
        for field in [self.raw_len, self.stored_len, self.offset] {
            table.extend_from_slice(&field.to_le_bytes());
        }
    }

    /// Reads the row at offset `at` of the pack. Its place is judged by the caller.
    fn parse(bytes: &[u8; ROW_BYTES], at: u64) -> Result<Self, FormatError> {
        let base = u16_at(bytes, 34);
        if base != 0 {
            let supported = "0 (no base)".to_owned();
            return Err(FormatError::Unsupported {
                what: "base of a chunk",
                found: base.to_string(),
                supported,
            });
        }
        let row = Self {
            chunk: ChunkId(array_at(bytes, 0)),
            codec: Codec::from_id(bytes[32])?,
            element_width: bytes[33],
            crc32c: u32_at(bytes, 36),
            raw_len: u64_at(bytes, 40),
            stored_len: u64_at(bytes, 48),
            offset: u64_at(bytes, 56),
        };
        FormatError::within("raw bytes of a chunk", row.raw_len, CHUNK_RAW_BYTES)?;
        FormatError::within("stored bytes of a chunk", row.stored_len, CHUNK_STORED_BYTES)?;
        match row.contradiction() {
            None => Ok(row),
            Some((expected, found)) => Err(bad_table(at, expected, found)),
        }
    }

    /// What of this row cannot be, whatever its payload: (expected, found).
    fn contradiction(&self) -> Option<(String, String)> {
        let Self { codec, raw_len, stored_len, .. } = self;
        let width = u64::from(self.element_width);
        if *raw_len == 0 || *stored_len == 0 {
            return Some((
                "a chunk of some bytes".to_owned(),
                format!("{raw_len} raw and {stored_len} stored bytes"),
            ));
        }
        let fits = match codec {
            Codec::Raw => width == 0 && raw_len == stored_len,
            Codec::Zstd => width == 0,
            Codec::Planes => matches!(width, 2 | 4 | 8) && raw_len.is_multiple_of(width),
        };
        let found =
            format!("codec {}, width {width}, {raw_len} raw and {stored_len} stored bytes", codec.id());
        (!fits).then(|| ("a codec that fits element width and lengths".to_owned(), found))
    }
}

fn bad_header(offset: u64, expected: impl Into<String>, found: impl Into<String>) -> FormatError {
    FormatError::corrupt("pack header", offset, expected, found)
}

fn bad_table(offset: u64, expected: impl Into<String>, found: impl Into<String>) -> FormatError {
    FormatError::corrupt("pack table", offset, expected, found)
}

/// The `N` bytes at `at`, which every caller has within the fixed size of header or row.
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}
