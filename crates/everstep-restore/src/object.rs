//! Objects: non-tensor state, global or one for each rank.

use std::sync::Arc;

use bytes::Bytes;
use everstep_format::name::Rank;
use everstep_format::row::{ElementType, Kind, Row};
use everstep_format::value::Value;

use crate::error::RestoreError;

/// The content of an object.
#[derive(Debug, Clone)]
pub enum Content {
    /// A value.
    Value(Value),
    /// Bytes, as they were saved.
    Opaque(Bytes),
}

/// An object that was read.
#[derive(Debug, Clone)]
pub struct StoredObject {
    /// Its name.
    pub name: Arc<str>,
    /// The rank it belongs to; `None` for global state.
    pub rank: Option<Rank>,
    /// What it is.
    pub content: Content,
}

/// The rows of each object for `asked`: global ones, and those of that rank (of every rank, when none is named).
pub(crate) fn wanted(rows: &[Row], asked: Option<Rank>) -> impl Iterator<Item = &[Row]> {
    rows.chunk_by(|a, b| a.name == b.name && a.rank == b.rank)
        .filter(|rows| rows[0].kind == Kind::Object)
        .filter(move |rows| asked.is_none() || rows[0].rank.is_none() || rows[0].rank == asked)
}

/// Of the rows of one name, those of the one object that `asked` means.
pub(crate) fn choose<'r>(
    rows: &'r [Row],
    name: &str,
    asked: Option<Rank>,
) -> Result<&'r [Row], RestoreError> {
    if rows.iter().any(|row| row.kind != Kind::Object) {
        let problem = "it is a tensor; read it as one".to_owned();
        return Err(RestoreError::Invalid { name: name.to_owned(), problem });
    }
    let chosen = rows.chunk_by(|a, b| a.rank == b.rank).find(|rows| {
        let rank = rows[0].rank;
        rank.is_none() || (asked.is_some() && rank == asked)
    });
    chosen.ok_or_else(|| {
        let mut stored: Vec<Rank> = rows.iter().filter_map(|row| row.rank).collect();
        stored.dedup();
        RestoreError::World { name: name.to_owned(), stored, asked }
    })
}

/// `Ok` when the rows of one name are global, or those of ranks 0 to `world_size` less one.
pub(crate) fn same_world(rows: &[Row], name: &str, world_size: u32) -> Result<(), RestoreError> {
    let mut stored: Vec<Rank> = rows.iter().filter_map(|row| row.rank).collect();
    stored.dedup();
    if stored.is_empty() || stored.iter().map(|rank| rank.0).eq(0..world_size) {
        return Ok(());
    }
    Err(RestoreError::WorldSize { name: name.to_owned(), stored, asked: world_size })
}

/// The content that `bytes`, already verified, stand for.
///
/// # Errors
/// Says what is wrong with the canonical encoding.
pub(crate) fn content(element: &ElementType, bytes: Vec<u8>) -> Result<Content, String> {
    match element {
        ElementType::Value => Value::from_bytes(&bytes).map(Content::Value).map_err(|e| e.to_string()),
        _ => Ok(Content::Opaque(bytes.into())),
    }
}
