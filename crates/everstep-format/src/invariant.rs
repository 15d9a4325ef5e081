//! Named checks that hold for every sound checkpoint; run before a commit and by `verify`.

use crate::bounds::Bounds;
use crate::FormatError;
use crate::row::Row;

/// Rows are sorted by [`Row::sort_key`], without equal keys.
///
/// # Errors
/// [`FormatError::Invalid`] naming the first pair out of order.
pub fn rows_are_sorted(rows: &[Row]) -> Result<(), FormatError> {
    let _ = rows;
    unimplemented!()
}

/// `boxes` cover `shape` without gap and without overlap.
///
/// # Errors
/// [`FormatError::Invalid`] naming a gap or the two boxes that overlap.
pub fn boxes_cover(name: &str, shape: &[u64], boxes: &[&Bounds]) -> Result<(), FormatError> {
    let _ = (name, shape, boxes);
    unimplemented!()
}

/// Every rule that the rows of one checkpoint must keep on their own: names and shapes within limits, one kind, type
/// and shape per name, full coverage, pieces inside their chunks, chunks inside their packs, one location per chunk.
///
/// # Errors
/// The first [`FormatError`], naming tensor and piece.
pub fn rows_are_sound(rows: &[Row]) -> Result<(), FormatError> {
    let _ = rows;
    unimplemented!()
}
