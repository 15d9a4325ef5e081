//! Named checks that hold for every sound checkpoint; run before a commit and by `verify`.

use std::collections::{HashMap, HashSet};
use std::ops::Deref;

use rayon::prelude::*;

use crate::FormatError;
use crate::bounds::{self, Bounds};
use crate::grid;
use crate::id::{AttemptId, ChunkId};
use crate::key::PackAddress;
use crate::limits;
use crate::row::{self, ElementType, Kind, Location, Piece, Row};

mod cover;

pub use cover::boxes_cover;

/// Rows of which [`rows_are_sound`] holds: what an index may be made of.
#[derive(Debug, Clone, Copy)]
pub struct SoundRows<'r>(&'r [Row]);

impl Deref for SoundRows<'_> {
    type Target = [Row];

    fn deref(&self) -> &[Row] {
        self.0
    }
}

/// Rows are sorted by [`Row::sort_key`], without equal keys.
///
/// # Errors
/// [`FormatError::Invalid`] naming the first pair out of order.
pub fn rows_are_sorted<R: AsRef<Row> + Sync>(rows: &[R]) -> Result<(), FormatError> {
    let wrong = |pair: &&[R]| pair[0].as_ref().sort_key() >= pair[1].as_ref().sort_key();
    match rows.par_windows(2).find_first(wrong) {
        None => Ok(()),
        Some(pair) => {
            let found = format!("{} before {}", label(pair[0].as_ref()), label(pair[1].as_ref()));
            Err(FormatError::invalid("index", found, "rows sorted by name, rank and offset, each once"))
        }
    }
}

/// Every rule that the rows of one checkpoint must keep on their own, checked on all threads of the current pool: names and shapes within limits, one kind, type
/// and shape per name, full coverage, pieces inside their chunks, chunks inside their packs, one location per chunk, and one
/// chunk per location.
///
/// # Errors
/// The first [`FormatError`], naming tensor and piece.
pub fn rows_are_sound(rows: &[Row]) -> Result<SoundRows<'_>, FormatError> {
    rows_are_sorted(rows)?;
    let names = rows.par_chunk_by(|a, b| a.name == b.name);
    if let Some(error) = names.find_map_first(|same_name| name_is_sound(same_name).err()) {
        return Err(error);
    }
    aliases_exist(rows)?;
    let (chunks, packs) = rayon::join(|| chunks_have_one_place(rows), || packs_have_one_length(rows));
    chunks.and(packs)?;
    places_have_one_chunk(rows)?;
    Ok(SoundRows(rows))
}

/// All rows of one name.
fn name_is_sound(same_name: &[Row]) -> Result<(), FormatError> {
    same_name.iter().try_for_each(row_is_sound)?;
    names_agree(same_name)?;
    same_name.chunk_by(|a, b| a.rank == b.rank).try_for_each(state_is_whole)
}

/// The rows of W4: each refers to a pack of the attempt `own`, or to a chunk exactly where the index of a confirmed
/// parent has it, which `is_confirmed` tells of a piece's chunk, raw length and location.
///
/// # Errors
/// [`FormatError::Invalid`] naming the first tensor whose chunk is neither.
pub fn rows_refer_to(
    rows: &[Row],
    own: AttemptId,
    is_confirmed: impl Fn(&Piece) -> bool,
) -> Result<(), FormatError> {
    let stray = |row: &&Row| {
        row.piece.as_ref().is_some_and(|piece| piece.location.pack.attempt != own && !is_confirmed(piece))
    };
    let Some((row, piece)) = rows.iter().find(stray).and_then(|row| Some((row, row.piece.as_ref()?))) else {
        return Ok(());
    };
    let found = format!("{}: chunk {} in pack {}", label(row), piece.chunk, piece.location.pack.pack);
    let rule = "a chunk is in a pack of the own attempt, or where the index of a confirmed parent has it";
    Err(FormatError::invalid("reference", found, rule))
}

/// What one row must keep on its own.
///
/// # Errors
/// [`FormatError::Invalid`] or [`FormatError::TooLarge`], naming tensor and box.
pub fn row_is_sound(row: &Row) -> Result<(), FormatError> {
    state_is_described(row)?;
    match &row.piece {
        None if row.bounds.is_empty() => Ok(()),
        Some(piece) if !row.bounds.is_empty() => piece_fits(row, piece),
        _ => Err(FormatError::invalid("row", label(row), "a chunk exactly when the box has elements")),
    }
}

/// What one row of a part must keep: as one of an index, but a box may be without a chunk where `own` says the hash of
/// its bytes, which another rank stores; and a piece that is not all of its chunk has its own hash beside it.
///
/// # Errors
/// [`FormatError::Invalid`] or [`FormatError::TooLarge`], naming tensor and box.
pub fn part_row_is_sound(row: &Row, own: Option<ChunkId>) -> Result<(), FormatError> {
    state_is_described(row)?;
    let hashes_fit = match &row.piece {
        None => own.is_some() != row.bounds.is_empty(),
        Some(piece) => {
            piece_fits(row, piece)?;
            let is_whole = row.byte_len() == Some(piece.raw_len);
            !row.bounds.is_empty() && own.is_none() == is_whole
        }
    };
    if hashes_fit {
        return Ok(());
    }
    let rule =
        "a chunk or a hash of its own bytes for a box with elements, and both where the chunk has more bytes";
    Err(FormatError::invalid("row of a part", label(row), rule))
}

/// Name, shape, type and box of a row.
fn state_is_described(row: &Row) -> Result<(), FormatError> {
    FormatError::within("bytes of a name", row.name.len() as u64, limits::STATE_NAME_BYTES as u64)?;
    FormatError::within("dimensions of a tensor", row.shape.len() as u64, limits::DIMENSIONS as u64)?;
    FormatError::within(
        "bytes of a dtype",
        row.element.name().len() as u64,
        limits::DTYPE_NAME_BYTES as u64,
    )?;
    row.bounds.check_inside(&row.shape).map_err(|e| about(row, &e))?;
    grid::keeps_bytes_whole(&row.shape, &row.element, &row.bounds).map_err(|e| about(row, &e))?;
    let kinds_fit = match (&row.element, row.kind) {
        (ElementType::Value | ElementType::Opaque, kind) => kind == Kind::Object && row.shape.len() == 1,
        (ElementType::Dtype(_), kind) => kind == Kind::Tensor,
        (ElementType::Unknown(_), _) => true,
    };
    if !kinds_fit {
        let found =
            format!("{}: {:?} of {} and shape {:?}", label(row), row.kind, row.element.name(), row.shape);
        return Err(FormatError::invalid(
            "row",
            found,
            "tensors have a dtype; objects are value or bytes, of one dimension",
        ));
    }
    Ok(())
}

fn piece_fits(row: &Row, piece: &Piece) -> Result<(), FormatError> {
    let bytes = row.byte_len();
    if bytes.is_none() && !matches!(row.element, ElementType::Unknown(_)) {
        return Err(FormatError::invalid("row", label(row), "a box whose bytes can be counted in 64 bits"));
    }
    let end = piece.chunk_offset.checked_add(bytes.unwrap_or(0));
    if !end.is_some_and(|end| end <= piece.raw_len && piece.raw_len <= limits::CHUNK_RAW_BYTES) {
        let found =
            format!("{}: {bytes:?} bytes from {} of {}", label(row), piece.chunk_offset, piece.raw_len);
        let rule = format!("a piece inside its chunk of at most {} bytes", limits::CHUNK_RAW_BYTES);
        return Err(FormatError::invalid("row", found, rule));
    }
    location_fits(&piece.location).map_err(|e| about(row, &e))
}

/// The stored chunk lies inside its pack, at a multiple of [`limits::PACK_ALIGNMENT`], and both keep to their limits.
///
/// # Errors
/// [`FormatError::Invalid`].
pub fn location_fits(location: &Location) -> Result<(), FormatError> {
    let Location { pack, pack_len, pack_offset, stored_len, .. } = location;
    let inside = pack_offset.checked_add(*stored_len).is_some_and(|end| end <= *pack_len);
    let sizes =
        *stored_len > 0 && *stored_len <= limits::CHUNK_STORED_BYTES && *pack_len <= limits::PACK_BYTES;
    if inside && sizes && *pack_offset > 0 && pack_offset.is_multiple_of(limits::PACK_ALIGNMENT) {
        return Ok(());
    }
    let found = format!("{stored_len} bytes from {pack_offset} of pack {} of {pack_len} bytes", pack.pack);
    let rule = format!(
        "a chunk of at most {} bytes inside a pack of at most {}, from a multiple of {}",
        limits::CHUNK_STORED_BYTES,
        limits::PACK_BYTES,
        limits::PACK_ALIGNMENT
    );
    Err(FormatError::invalid("location", found, rule))
}

/// One kind per name, and either rank-scoped or not.
fn names_agree(same_name: &[Row]) -> Result<(), FormatError> {
    let first = &same_name[0];
    match same_name.iter().find(|row| row.kind != first.kind || row.rank.is_some() != first.rank.is_some()) {
        None => Ok(()),
        Some(row) => {
            let found = format!("{} and {}", label(first), label(row));
            Err(FormatError::invalid(
                "name",
                found,
                "one kind per name, with a rank for all of its rows or for none",
            ))
        }
    }
}

/// One type, shape and alias per tensor or object, and boxes that cover it.
fn state_is_whole(state: &[Row]) -> Result<(), FormatError> {
    let first = &state[0];
    let same = |row: &&Row| {
        row.element == first.element && row.shape == first.shape && row.alias_of == first.alias_of
    };
    if let Some(other) = state.iter().find(|row| !same(row)) {
        let describe = |row: &Row| format!("{} {:?} alias {:?}", row.element.name(), row.shape, row.alias_of);
        let found = format!("{}: {} and {}", label(other), describe(first), describe(other));
        return Err(FormatError::invalid("tensor", found, "one dtype, shape and alias for all its pieces"));
    }
    if let Some(empty) =
        state.iter().find(|row| row.bounds.is_empty() && !Bounds::whole(&row.shape).is_empty())
    {
        let rule = "boxes with elements, unless the whole has none";
        return Err(FormatError::invalid("tensor", label(empty), rule));
    }
    let boxes: Vec<&Bounds> = state.iter().map(|row| &row.bounds).collect();
    boxes_cover(&first.name, &first.shape, &boxes)
}

fn aliases_exist(rows: &[Row]) -> Result<(), FormatError> {
    if rows.iter().all(|row| row.alias_of.is_none()) {
        return Ok(());
    }
    let names: HashSet<&str> = rows.iter().map(|row| &*row.name).collect();
    let sound = |row: &Row| row.alias_of.as_ref().is_none_or(|of| *of != row.name && names.contains(&**of));
    match rows.iter().find(|row| !sound(row)) {
        None => Ok(()),
        Some(row) => {
            let found = format!("{} alias of {:?}", label(row), row.alias_of);
            Err(FormatError::invalid("alias", found, "another name of the same checkpoint"))
        }
    }
}

/// One location and raw length per chunk.
fn chunks_have_one_place(rows: &[Row]) -> Result<(), FormatError> {
    let place = |number: usize| rows[number].piece.as_ref().map(|piece| (piece.location, piece.raw_len));
    let elsewhere = |same: &Vec<usize>| same.iter().copied().find(|&number| place(number) != place(same[0]));
    let repeated = row::repeated_chunks(rows);
    let first = repeated.iter().filter_map(|same| Some((elsewhere(same)?, same[0]))).min();
    match first.and_then(|(number, other)| Some((&rows[number], rows[number].piece.as_ref()?, place(other)?)))
    {
        None => Ok(()),
        Some((row, piece, (other, raw_len))) => {
            let found = format!(
                "{}: chunk {} of {} bytes at {:?}",
                label(row),
                piece.chunk,
                piece.raw_len,
                piece.location
            );
            let rule = format!("one length and location per chunk, such as {raw_len} bytes at {other:?}");
            Err(FormatError::invalid("chunk", found, rule))
        }
    }
}

/// One chunk per place: whoever says of one place that it holds two chunks is wrong about one of them, whatever lies there.
fn places_have_one_chunk(rows: &[Row]) -> Result<(), FormatError> {
    let rule = "one chunk at one place of a pack";
    match row::shared_places(rows).first() {
        None => Ok(()),
        Some(&(first, second)) => {
            let chunk = |number: usize| rows[number].piece.as_ref().map(|piece| piece.chunk.to_string());
            let (of, chunks) =
                (label(&rows[second]), [chunk(first), chunk(second)].map(Option::unwrap_or_default));
            let found = format!(
                "{of}: chunks {} and {} at the place of {}",
                chunks[0],
                chunks[1],
                label(&rows[first])
            );
            Err(FormatError::invalid("chunk", found, rule))
        }
    }
}

fn packs_have_one_length(rows: &[Row]) -> Result<(), FormatError> {
    let mut packs: HashMap<PackAddress, u64> = HashMap::new();
    for row in rows {
        let Some(Piece { location: Location { pack, pack_len, .. }, .. }) = &row.piece else { continue };
        let first = *packs.entry(*pack).or_insert(*pack_len);
        if first != *pack_len {
            let found = format!("{}: pack {} of {pack_len} bytes", label(row), pack.pack);
            return Err(FormatError::invalid("pack", found, format!("one length per pack, such as {first}")));
        }
    }
    Ok(())
}

/// Name, rank and box of a row, for messages; a long name is shortened.
fn label(row: &Row) -> String {
    let name = shown(&row.name);
    match row.rank {
        Some(rank) => format!("{name:?} of rank {rank} {}", row.bounds),
        None => format!("{name:?} {}", row.bounds),
    }
}

/// A name for messages, shortened where it is long.
fn shown(name: &str) -> String {
    let mut short: String = name.chars().take(200).collect();
    if short.len() < name.len() {
        short.push('\u{2026}');
    }
    short
}

fn about(row: &Row, error: &FormatError) -> FormatError {
    FormatError::invalid("row", label(row), error.to_string())
}

/// Elements of `shape`, which must be countable.
fn countable(name: &str, shape: &[u64]) -> Result<u64, FormatError> {
    bounds::elements(shape).ok_or_else(|| {
        FormatError::invalid("shape", format!("{:?} {shape:?}", shown(name)), "fewer than 2^64 elements")
    })
}

#[cfg(test)]
mod tests;
