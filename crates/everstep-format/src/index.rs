//! The index: a parquet table of pieces, sorted by (name, rank, offset), read by row group.

use std::ops::Range;

use bytes::Bytes;

use crate::FormatError;
use crate::decision::IndexRef;
use crate::id::ContentHash;
use crate::row::Row;

/// An index as it is to be stored.
#[derive(Debug, Clone)]
pub struct EncodedIndex {
    /// The file.
    pub bytes: Bytes,
    /// What the manifest says of it.
    pub reference: IndexRef,
}

/// Writes `rows`, which must be sorted by [`Row::sort_key`].
///
/// # Errors
/// [`FormatError::Invalid`] when they are not sorted; [`FormatError::TooLarge`].
pub fn write(rows: &[Row]) -> Result<EncodedIndex, FormatError> {
    let _ = rows;
    unimplemented!()
}

/// Reads a whole index file, checking it against `reference` first.
///
/// # Errors
/// [`FormatError::Corrupt`] naming the part whose hash or contents are wrong.
pub fn read_all(bytes: &Bytes, reference: &IndexRef) -> Result<Vec<Row>, FormatError> {
    let _ = (bytes, reference);
    unimplemented!()
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
}

impl Footer {
    /// Reads the footer from `tail`, the bytes from `reference.footer_offset` to the end of the file.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`], [`FormatError::TooLarge`].
    pub fn parse(tail: &Bytes, reference: &IndexRef) -> Result<Self, FormatError> {
        let _ = (tail, reference);
        unimplemented!()
    }

    /// The row groups in order.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The indexes of the row groups that can hold rows of `name`.
    pub fn groups_of(&self, name: &str) -> Range<usize> {
        let _ = name;
        unimplemented!()
    }

    /// Reads row group `group` from its bytes.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`].
    pub fn read_group(&self, group: usize, bytes: &Bytes) -> Result<Vec<Row>, FormatError> {
        let _ = (group, bytes);
        unimplemented!()
    }
}
