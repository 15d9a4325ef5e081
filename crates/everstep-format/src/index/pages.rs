//! A look at the page headers of a row group before the parquet decoder allocates what they declare.
//!
//! Page headers are Thrift structs in the compact protocol. Only three fields matter here: the sizes and the number of
//! values; everything else is skipped.

use bytes::Bytes;
use parquet::file::metadata::RowGroupMetaData;

use super::Group;
use super::footer::column_range;
use crate::{FormatError, limits};

/// Pages of all columns together stay within [`limits::INDEX_GROUP_RAW_BYTES`], and each column has no more values than
/// its rows can have.
pub(super) fn check(row_group: &RowGroupMetaData, group: &Group, bytes: &Bytes) -> Result<(), FormatError> {
    let mut raw_bytes = 0u64;
    for column in row_group.columns() {
        let range = column_range(column).ok_or_else(|| bad("a column range"))?;
        let within = |at: u64| usize::try_from(at.checked_sub(group.range.start)?).ok();
        let (Some(start), Some(end)) = (within(range.start), within(range.end)) else {
            return Err(bad("a column outside of its row group"));
        };
        let mut cursor = Cursor { bytes: bytes.get(start..end).ok_or_else(|| bad("a column past the end"))? };
        let mut values = 0u64;
        while !cursor.bytes.is_empty() {
            let page = page(&mut cursor).ok_or_else(|| bad("a damaged page header"))?;
            raw_bytes = raw_bytes.saturating_add(page.raw_bytes);
            values = values.saturating_add(page.values);
        }
        FormatError::within("raw bytes of a row group", raw_bytes, limits::INDEX_GROUP_RAW_BYTES)?;
        let most = group.rows.saturating_mul(limits::DIMENSIONS as u64);
        FormatError::within("values of an index column", values, most)?;
    }
    Ok(())
}

struct Page {
    raw_bytes: u64,
    values: u64,
}

/// Reads one page header and steps over its data.
fn page(cursor: &mut Cursor<'_>) -> Option<Page> {
    let mut found = Page { raw_bytes: 0, values: 0 };
    let mut stored = None;
    let mut last = 0;
    while let Some((id, kind)) = cursor.field(&mut last)? {
        match (id, kind) {
            (2, I32) => found.raw_bytes = u64::try_from(cursor.zigzag()?).ok()?,
            (3, I32) => stored = usize::try_from(cursor.zigzag()?).ok(),
            // Data pages count; a dictionary's values are bounded by its bytes.
            (5 | 8, STRUCT) => found.values = cursor.first_number()?,
            _ => cursor.skip(kind, 0)?,
        }
    }
    cursor.take(stored?)?;
    Some(found)
}

const I32: u8 = 5;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;
/// Deeper than any page header nests.
const DEPTH: u8 = 8;

/// Reads the Thrift compact protocol; `None` at the first thing that is not it.
struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.bytes.split_at_checked(n)?;
        self.bytes = rest;
        Some(head)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// The next field's id and type; `Some(None)` at the end of the struct.
    fn field(&mut self, last: &mut i64) -> Option<Option<(i64, u8)>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Some(None);
        }
        let delta = i64::from(byte >> 4);
        *last = if delta == 0 { self.zigzag()? } else { last.checked_add(delta)? };
        Some(Some((*last, byte & 0x0f)))
    }

    /// Field 1 of a struct, which is a number; the rest of it is skipped.
    fn first_number(&mut self) -> Option<u64> {
        let mut last = 0;
        let mut number = None;
        while let Some((id, kind)) = self.field(&mut last)? {
            match (id, kind) {
                (1, I32) => number = u64::try_from(self.zigzag()?).ok(),
                _ => self.skip(kind, 1)?,
            }
        }
        number
    }

    fn skip(&mut self, kind: u8, depth: u8) -> Option<()> {
        if depth > DEPTH {
            return None;
        }
        match kind {
            1 | 2 => Some(()),
            3 => self.take(1).map(drop),
            4..=6 => self.varint().map(drop),
            7 => self.take(8).map(drop),
            BINARY => {
                let len = usize::try_from(self.varint()?).ok()?;
                self.take(len).map(drop)
            }
            LIST | SET => self.skip_list(depth),
            STRUCT => {
                let mut last = 0;
                while let Some((_, kind)) = self.field(&mut last)? {
                    self.skip(kind, depth + 1)?;
                }
                Some(())
            }
            // Maps and unknown types: no page header has them.
            MAP.. | 0 => None,
        }
    }

    fn skip_list(&mut self, depth: u8) -> Option<()> {
        let head = self.byte()?;
        let len = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        // In a list, a boolean takes a byte; every element takes at least one, which bounds the loop.
        for _ in 0..len {
            match head & 0x0f {
                1 | 2 => self.take(1).map(drop)?,
                kind => self.skip(kind, depth + 1)?,
            }
        }
        Some(())
    }
}

fn bad(found: &str) -> FormatError {
    FormatError::corrupt("index row group", 0, "sound parquet pages", found)
}
