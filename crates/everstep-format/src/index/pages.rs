//! A look at the page headers of a row group before the parquet decoder allocates what they declare. Only four fields
//! matter here: the sizes, the number of values and their encoding; everything else is skipped.

use bytes::Bytes;
use parquet::file::metadata::RowGroupMetaData;

use super::Group;
use super::footer::column_range;
use super::thrift::{Cursor, I32, STRUCT};
use crate::{FormatError, limits};

/// PLAIN, PLAIN_DICTIONARY, RLE, DELTA_BINARY_PACKED, RLE_DICTIONARY. Of others, DELTA_BYTE_ARRAY makes gigabytes of text
/// of a small page.
const ENCODINGS: [u64; 5] = [0, 2, 3, 5, 8];

/// Pages of all columns together stay within [`limits::INDEX_GROUP_RAW_BYTES`], and each column has no more values than
/// its rows can have.
pub(super) fn check(row_group: &RowGroupMetaData, group: &Group, bytes: &Bytes) -> Result<(), FormatError> {
    let mut raw_bytes = 0u64;
    let most = group.rows.saturating_mul(limits::DIMENSIONS as u64);
    for column in row_group.columns() {
        let range = column_range(column).ok_or_else(|| bad("a column range"))?;
        let within = |at: u64| usize::try_from(at.checked_sub(group.range.start)?).ok();
        let (Some(start), Some(end)) = (within(range.start), within(range.end)) else {
            return Err(bad("a column outside of its row group"));
        };
        let mut cursor = Cursor::new(bytes.get(start..end).ok_or_else(|| bad("a column past the end"))?);
        let mut values = 0u64;
        while !cursor.is_at_end() {
            let page = page(&mut cursor).ok_or_else(|| bad("a damaged page header"))?;
            if !ENCODINGS.contains(&page.encoding) {
                return Err(bad(&format!("a page in encoding {}", page.encoding)));
            }
            raw_bytes = raw_bytes.saturating_add(page.raw_bytes);
            if page.is_dictionary {
                FormatError::within("values of a dictionary", page.values, most)?;
            } else {
                values = values.saturating_add(page.values);
            }
        }
        FormatError::within("raw bytes of a row group", raw_bytes, limits::INDEX_GROUP_RAW_BYTES)?;
        FormatError::within("values of an index column", values, most)?;
    }
    Ok(())
}

struct Page {
    raw_bytes: u64,
    values: u64,
    encoding: u64,
    is_dictionary: bool,
}

/// Reads one page header and steps over its data.
fn page(cursor: &mut Cursor<'_>) -> Option<Page> {
    let mut found = Page { raw_bytes: 0, values: 0, encoding: u64::MAX, is_dictionary: false };
    let mut stored = None;
    let mut last = 0;
    while let Some((id, kind)) = cursor.field(&mut last)? {
        match (id, kind) {
            (2, I32) => found.raw_bytes = u64::try_from(cursor.zigzag()?).ok()?,
            (3, I32) => stored = usize::try_from(cursor.zigzag()?).ok(),
            (5 | 7 | 8, STRUCT) => {
                let numbers = cursor.first_numbers()?;
                found.values = numbers[1]?;
                found.is_dictionary = id == 7;
                found.encoding = numbers[if id == 8 { 4 } else { 2 }]?;
            }
            _ => cursor.skip(kind, 0)?,
        }
    }
    cursor.take(stored?)?;
    Some(found)
}

fn bad(found: &str) -> FormatError {
    FormatError::corrupt("index row group", 0, "sound parquet pages", found)
}
