//! One name of a checkpoint, summed up from its rows.

use std::sync::Arc;

use everstep_format::name::Rank;
use everstep_format::row::{ElementType, Kind, Row};

/// A tensor or object as the index describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: Arc<str>,
    /// Tensor or object.
    pub kind: Kind,
    /// Type of its elements.
    pub element: ElementType,
    /// Global shape. Of an object kept per rank, that of the lowest rank.
    pub shape: Vec<u64>,
    /// The name whose storage it shared in the trainer.
    pub alias_of: Option<Arc<str>>,
    /// Ranks that have their own, sorted; empty for global state.
    pub ranks: Vec<Rank>,
    /// Raw bytes, all ranks together.
    pub raw_bytes: u64,
    /// Its share of the encoded bytes of the chunks it uses; a chunk shared with others counts by its part.
    pub stored_bytes: u64,
    /// Pieces it is stored in.
    pub pieces: u64,
}

impl Entry {
    /// Sums up `rows`, all those of one name (at least one).
    pub(crate) fn of(rows: &[Row]) -> Self {
        let first = &rows[0];
        let mut ranks: Vec<Rank> = rows.iter().filter_map(|row| row.rank).collect();
        ranks.dedup();
        Self {
            name: first.name.clone(),
            kind: first.kind,
            element: first.element.clone(),
            shape: first.shape.to_vec(),
            alias_of: first.alias_of.clone(),
            ranks,
            raw_bytes: rows.iter().map(raw_bytes).fold(0, u64::saturating_add),
            stored_bytes: rows.iter().map(stored_bytes).fold(0, u64::saturating_add),
            pieces: rows.iter().filter(|row| row.piece.is_some()).count() as u64,
        }
    }
}

fn raw_bytes(row: &Row) -> u64 {
    match &row.piece {
        None => 0,
        // Of an unknown type only whole chunks are known in bytes.
        Some(piece) => row.byte_len().unwrap_or(piece.raw_len),
    }
}

fn stored_bytes(row: &Row) -> u64 {
    let Some(piece) = &row.piece else { return 0 };
    let share = u128::from(piece.location.stored_len) * u128::from(raw_bytes(row));
    u64::try_from(share.div_ceil(u128::from(piece.raw_len.max(1)))).unwrap_or(u64::MAX)
}

/// The rows of each name in turn; `rows` are sorted by name.
pub(crate) fn by_name(rows: &[Row]) -> impl Iterator<Item = &[Row]> {
    rows.chunk_by(|a, b| a.name == b.name)
}

/// The rows of `name`; `rows` are sorted by name.
pub(crate) fn rows_of<'r>(rows: &'r [Row], name: &str) -> &'r [Row] {
    let start = rows.partition_point(|row| *row.name < *name);
    let len = rows[start..].partition_point(|row| *row.name == *name);
    &rows[start..start + len]
}
