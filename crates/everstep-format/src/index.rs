//! The index: a parquet table of pieces, sorted by (name, rank, offset), read by row group.
//!
//! ```text
//! PAR1 | row group | row group | ... | parquet metadata | its length | PAR1
//!      |<- 4       hashed one by one |<- footer_offset: hashed as a whole ->|
//! ```
//! The footer's key-value metadata has a directory of the row groups: first and last name, rows, range, BLAKE3. So trust
//! flows from the decision (hash of the footer) to the footer (hashes of the groups) to a group, in three reads.

use std::ops::Range;

use bytes::Bytes;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use serde::{Deserialize, Serialize};

use crate::decision::IndexRef;
use crate::id::ContentHash;
use crate::invariant::SoundRows;
use crate::row::Row;
use crate::{FormatError, invariant, limits};

mod columns;
mod decode;
mod encode;
mod footer;
mod metadata;
mod pages;
pub mod part;
mod thrift;

const MAGIC: &[u8; 4] = b"PAR1";

/// An index as it is to be stored.
#[derive(Debug, Clone)]
pub struct EncodedIndex {
    /// The file.
    pub bytes: Bytes,
    /// What the manifest says of it.
    pub reference: IndexRef,
}

/// Writes `rows`, on all threads of the current pool. Equal rows give equal bytes.
///
/// # Errors
/// [`FormatError::TooLarge`]; [`FormatError::Invalid`] should parquet refuse them.
pub fn write(rows: SoundRows<'_>) -> Result<EncodedIndex, FormatError> {
    encode::file(&rows, &encode::Table { schema: columns::schema(), batch: encode::batch })
}

/// Reads a whole index file, checking it against `reference` first.
///
/// # Errors
/// [`FormatError::Corrupt`] naming the part whose hash or contents are wrong.
pub fn read_all(bytes: &Bytes, reference: &IndexRef) -> Result<Vec<Row>, FormatError> {
    FormatError::within("index", bytes.len() as u64, limits::INDEX_BYTES)?;
    footer::expect_len("index", bytes, reference.len)?;
    footer::expect_hash("index", bytes, reference.blake3)?;
    if bytes.get(..MAGIC.len()) != Some(MAGIC) {
        return Err(FormatError::corrupt("index", 0, "PAR1", "other bytes"));
    }
    let footer = Footer::parse(&footer::slice(bytes, reference.footer_offset..reference.len)?, reference)?;
    let mut rows = Vec::new();
    for (number, group) in footer.groups().iter().enumerate() {
        rows.append(&mut footer.read_group(number, &footer::slice(bytes, group.range.clone())?)?);
    }
    invariant::rows_are_sorted(&rows)
        .map_err(|e| FormatError::corrupt("index", 0, "sorted rows", e.to_string()))?;
    Ok(rows)
}

/// One row group: the unit of trust and of lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Name of its first row.
    pub first_name: String,
    /// Name of its last row.
    pub last_name: String,
    /// Rows.
    pub rows: u64,
    /// Its bytes in the file.
    pub range: Range<u64>,
    /// BLAKE3 of those bytes.
    pub blake3: ContentHash,
}

/// A verified footer: finds the row groups of a name without reading the others.
#[derive(Debug, Clone)]
pub struct Footer {
    groups: Vec<Group>,
    metadata: ArrowReaderMetadata,
}

/// The directory of row groups, stored as JSON in the parquet metadata under [`Directory::KEY`].
#[derive(Serialize, Deserialize)]
struct Directory {
    version: u32,
    groups: Vec<Entry>,
}

/// What is read of a directory before anything else.
#[derive(Deserialize)]
struct Version {
    version: u64,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    first: String,
    last: String,
    rows: u64,
    start: u64,
    len: u64,
    blake3: ContentHash,
}

impl Directory {
    const KEY: &str = "everstep.index";
}

impl Footer {
    /// Reads the footer from `tail`, the bytes from `reference.footer_offset` to the end of the file.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`], [`FormatError::TooLarge`].
    pub fn parse(tail: &Bytes, reference: &IndexRef) -> Result<Self, FormatError> {
        let (groups, metadata) = footer::parse(tail, reference)?;
        Ok(Self { groups, metadata })
    }

    /// The row groups in order.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The indexes of the row groups that can hold rows of `name`.
    pub fn groups_of(&self, name: &str) -> Range<usize> {
        let start = self.groups.partition_point(|group| group.last_name.as_str() < name);
        let end = self.groups.partition_point(|group| group.first_name.as_str() <= name);
        start..end.max(start)
    }

    /// Reads row group `group` from its bytes.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`].
    pub fn read_group(&self, group: usize, bytes: &Bytes) -> Result<Vec<Row>, FormatError> {
        let source = self.source(group, bytes)?;
        let rows = source.rows()?;
        let entry = source.group;
        let names = (rows.first().map(|row| &*row.name), rows.last().map(|row| &*row.name));
        let expected = (Some(entry.first_name.as_str()), Some(entry.last_name.as_str()));
        if names == expected && rows.len() as u64 == entry.rows {
            return Ok(rows);
        }
        let expected = format!("{} rows from {:?} to {:?}", entry.rows, entry.first_name, entry.last_name);
        let found = format!("{} rows from {:?} to {:?}", rows.len(), names.0, names.1);
        Err(FormatError::corrupt("index row group", entry.range.start, expected, found))
    }

    /// Reads the rows of one name from row group `group`; faster than [`Footer::read_group`] for one tensor.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`].
    pub fn read_named(&self, group: usize, bytes: &Bytes, name: &str) -> Result<Vec<Row>, FormatError> {
        self.source(group, bytes)?.rows_named(name)
    }

    /// Row group `group`, if `bytes` are its bytes.
    fn source<'a>(&'a self, group: usize, bytes: &'a Bytes) -> Result<decode::Source<'a>, FormatError> {
        let Some(entry) = self.groups.get(group) else {
            let found = format!("row group {group} of {}", self.groups.len());
            return Err(FormatError::invalid("row group", found, "a row group of this index"));
        };
        footer::expect_len("index row group", bytes, entry.range.end - entry.range.start)?;
        footer::expect_hash("index row group", bytes, entry.blake3)?;
        Ok(decode::Source { metadata: &self.metadata, number: group, group: entry, bytes })
    }
}

#[cfg(test)]
mod tests;
