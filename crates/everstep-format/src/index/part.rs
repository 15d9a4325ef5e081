//! A part: the rows of one writer of an attempt, handed to its leader. An index file with one column more.
//!
//! A part has what its writer knows of the whole: pieces that it stored, and pieces that it only hashed because another
//! rank, which holds a replica of the same box, stores them. Hashes of the pieces' own bytes make replicas comparable
//! even where small pieces share a chunk.

use arrow_array::RecordBatch;
use bytes::Bytes;
use parquet::errors::ParquetError;

use super::encode::{self, Table};
use super::{Footer, MAGIC, columns, decode, footer};
use crate::id::{ChunkId, ContentHash};
use crate::row::Row;
use crate::{FormatError, invariant, limits};

/// One row of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartRow {
    /// As it will stand in the index; without a piece where another rank stores the box.
    pub row: Row,
    /// BLAKE3 of the piece's own bytes, where `row.piece` does not say it: for a piece that is not all of its chunk, and
    /// for one that this rank does not store.
    pub own: Option<ChunkId>,
}

/// Which bytes a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartRef {
    /// BLAKE3 of the file; a part of its name.
    pub blake3: ContentHash,
    /// Bytes of the file.
    pub len: u64,
}

impl PartRow {
    /// BLAKE3 of the bytes of this piece alone; `None` for a box without elements.
    pub fn hash(&self) -> Option<ChunkId> {
        self.own.or_else(|| Some(self.row.piece.as_ref()?.chunk))
    }
}

impl AsRef<Row> for PartRow {
    fn as_ref(&self) -> &Row {
        &self.row
    }
}

/// Writes `rows`, which must be sorted by [`Row::sort_key`]. Equal rows give equal bytes.
///
/// # Errors
/// [`FormatError::Invalid`] when one breaks a rule, naming it; [`FormatError::TooLarge`].
pub fn write(rows: &[PartRow]) -> Result<(Bytes, PartRef), FormatError> {
    invariant::rows_are_sorted(rows)?;
    rows.iter().try_for_each(check)?;
    let file = encode::file(rows, &Table { schema: columns::part_schema(), batch })?;
    let reference = PartRef { blake3: file.reference.blake3, len: file.reference.len };
    Ok((file.bytes, reference))
}

/// Reads a part, checking its hash before anything else.
///
/// # Errors
/// [`FormatError::Corrupt`], [`FormatError::TooLarge`].
pub fn read(bytes: &Bytes, expected: &PartRef) -> Result<Vec<PartRow>, FormatError> {
    FormatError::within("part", bytes.len() as u64, limits::INDEX_BYTES)?;
    footer::expect_len("part", bytes, expected.len)?;
    footer::expect_hash("part", bytes, expected.blake3)?;
    if bytes.get(..MAGIC.len()) != Some(MAGIC) {
        return Err(FormatError::corrupt("part", 0, "PAR1", "other bytes"));
    }
    let offset = encode::footer_offset(bytes);
    let tail = footer::slice(bytes, offset..expected.len)?;
    FormatError::within("footer of a part", tail.len() as u64, limits::INDEX_FOOTER_BYTES)?;
    let (groups, metadata) = footer::parse_verified(&tail, offset)?;
    let footer = Footer { groups, metadata };
    let mut rows = Vec::new();
    for (number, group) in footer.groups().iter().enumerate() {
        let source_bytes = footer::slice(bytes, group.range.clone())?;
        footer.source(number, &source_bytes)?.add_part_rows(&mut rows)?;
    }
    invariant::rows_are_sorted(&rows)
        .and_then(|()| rows.iter().try_for_each(check))
        .map_err(decode::as_corrupt)?;
    Ok(rows)
}

fn check(row: &PartRow) -> Result<(), FormatError> {
    invariant::part_row_is_sound(&row.row, row.own)
}

fn batch(rows: &[PartRow]) -> Result<RecordBatch, ParquetError> {
    let mut columns = encode::row_columns(rows)?;
    columns.push(encode::bytes(rows.iter().map(|row| row.own.map(|own| own.0)), 32)?);
    Ok(RecordBatch::try_new(columns::part_schema(), columns)?)
}

#[cfg(test)]
mod tests;
