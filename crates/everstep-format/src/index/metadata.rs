//! A look at parquet metadata before its library takes memory for what they claim, or stack for a schema that nests.

use super::thrift::{Cursor, I32, LIST, STRUCT};
use crate::{FormatError, limits};

/// Lists keep to limits: schema elements and their children, row groups, columns, and everything else.
pub(super) fn check(metadata: &[u8]) -> Result<(), FormatError> {
    let mut cursor = Cursor::new(metadata);
    let mut last = 0;
    while let Some((id, kind)) = cursor.field(&mut last).ok_or_else(damaged)? {
        match (id, kind) {
            (2, LIST) => schema(&mut cursor)?,
            (4, LIST) => row_groups(&mut cursor)?,
            _ => cursor.skip(kind, 0).ok_or_else(damaged)?,
        }
    }
    Ok(())
}

/// A list of structs, at most `most`; how many.
fn structs(cursor: &mut Cursor<'_>, what: &'static str, most: u64) -> Result<u64, FormatError> {
    let (kind, len) = cursor.list().ok_or_else(damaged)?;
    FormatError::within(what, len, most)?;
    if kind == STRUCT || len == 0 { Ok(len) } else { Err(damaged()) }
}

fn schema(cursor: &mut Cursor<'_>) -> Result<(), FormatError> {
    let elements = structs(cursor, "columns of an index", limits::INDEX_COLUMNS)?;
    for _ in 0..elements {
        let mut last = 0;
        while let Some((id, kind)) = cursor.field(&mut last).ok_or_else(damaged)? {
            if (id, kind) != (5, I32) {
                cursor.skip(kind, 0).ok_or_else(damaged)?;
                continue;
            }
            let children = cursor.zigzag().and_then(|n| u64::try_from(n).ok()).ok_or_else(damaged)?;
            FormatError::within("columns of an index", children, elements)?;
        }
    }
    Ok(())
}

fn row_groups(cursor: &mut Cursor<'_>) -> Result<(), FormatError> {
    for _ in 0..structs(cursor, "row groups", limits::INDEX_GROUPS as u64)? {
        let mut last = 0;
        while let Some((id, kind)) = cursor.field(&mut last).ok_or_else(damaged)? {
            if (id, kind) != (1, LIST) {
                cursor.skip(kind, 0).ok_or_else(damaged)?;
                continue;
            }
            for _ in 0..structs(cursor, "columns of an index", limits::INDEX_COLUMNS)? {
                cursor.skip(STRUCT, 0).ok_or_else(damaged)?;
            }
        }
    }
    Ok(())
}

fn damaged() -> FormatError {
    FormatError::corrupt("index footer", 0, "sound parquet metadata", "other bytes")
}
