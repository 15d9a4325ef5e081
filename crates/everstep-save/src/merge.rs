//! The parts of all ranks, made into the rows of one index.
//!
//! Every box comes from the rank that stored it and, as a report, from each rank that holds a replica of it. A report
//! must agree with what was stored, and is then dropped.

use std::collections::HashMap;
use std::sync::Arc;

use everstep_format::id::ChunkId;
use everstep_format::key::PackAddress;
use everstep_format::name::Rank;
use everstep_format::part::PartRow;
use everstep_format::row::Row;
use rayon::prelude::*;

use crate::SaveError;
use crate::check::{invalid, shown};

/// Ranks that messages name at most.
const NAMED_RANKS: usize = 8;

/// What one rank handed in.
#[derive(Debug)]
pub struct Part {
    /// The rank.
    pub rank: Rank,
    /// Its rows, sorted.
    pub rows: Vec<PartRow>,
}

/// A row of a part, by number: rows are looked at where they are and moved once.
#[derive(Debug, Clone, Copy)]
struct Place {
    part: usize,
    row: usize,
}

/// A row and the rank that it comes from.
#[derive(Clone, Copy)]
struct Handed<'p> {
    rank: Rank,
    row: &'p PartRow,
}

/// The rows of the whole, sorted. Whether they cover the tensors is for the checks of every index to say. Runs on the
/// current pool.
///
/// # Errors
/// [`SaveError::RankReplicas`] and [`SaveError::Unstored`]; [`SaveError::Coverage`] and [`SaveError::Invalid`] for
/// boxes and descriptions that contradict each other; all name tensor and ranks.
pub fn merge(mut parts: Vec<Part>) -> Result<Vec<Row>, SaveError> {
    parts.sort_unstable_by_key(|part| part.rank);
    let kept: Vec<Result<Vec<Place>, SaveError>> =
        by_name(&parts).into_par_iter().map(|places| merge_name(&parts, places)).collect();
    let kept: Vec<Vec<Place>> = kept.into_iter().collect::<Result<_, _>>()?;
    let mut rows = take(parts, &kept);
    give_chunks_one_place(&mut rows);
    Ok(rows)
}

/// What was handed in under each name, in name order. All ranks have much the same names, so this is cheaper than
/// sorting their rows.
fn by_name(parts: &[Part]) -> Vec<Vec<Place>> {
    let mut names: HashMap<&str, Vec<Place>> = HashMap::new();
    for (part, Part { rows, .. }) in parts.iter().enumerate() {
        for (row, PartRow { row: Row { name, .. }, .. }) in rows.iter().enumerate() {
            names.entry(name).or_default().push(Place { part, row });
        }
    }
    let mut names: Vec<_> = names.into_iter().collect();
    names.par_sort_unstable_by_key(|(name, _)| *name);
    names.into_iter().map(|(_, places)| places).collect()
}

/// Which of the rows of one name the index has, in order.
fn merge_name(parts: &[Part], mut places: Vec<Place>) -> Result<Vec<Place>, SaveError> {
    let order = |place: &Place| {
        let row = &parts[place.part].rows[place.row].row;
        (row.rank, row.bounds.offset.as_slice())
    };
    // Stable, so that the lowest rank comes first.
    places.sort_by(|a, b| order(a).cmp(&order(b)));
    places.chunk_by(|a, b| order(a) == order(b)).map(|replicas| choose(parts, replicas)).collect()
}

/// The one of several views of the same box that the index has: the first, or the first that was stored.
fn choose(parts: &[Part], replicas: &[Place]) -> Result<Place, SaveError> {
    let handed =
        |place: &Place| Handed { rank: parts[place.part].rank, row: &parts[place.part].rows[place.row] };
    let first = handed(&replicas[0]);
    for other in &replicas[1..] {
        same_state(first, handed(other))?;
        same_bytes(first, handed(other))?;
    }
    let Row { name, bounds, .. } = &first.row.row;
    match replicas.iter().find(|place| handed(place).row.row.piece.is_some()) {
        Some(stored) => Ok(*stored),
        None if bounds.is_empty() => Ok(replicas[0]),
        None => {
            let held: Vec<Rank> = replicas.iter().map(|place| parts[place.part].rank).collect();
            Err(SaveError::Unstored { tensor: shown(name), bounds: bounds.clone(), ranks: list(&held) })
        }
    }
}

/// Moves the rows out of their parts; the rows of one name share it.
fn take(parts: Vec<Part>, kept: &[Vec<Place>]) -> Vec<Row> {
    let mut rows = Vec::with_capacity(kept.iter().map(Vec::len).sum());
    let mut parts: Vec<Vec<Option<PartRow>>> =
        parts.into_iter().map(|part| part.rows.into_iter().map(Some).collect()).collect();
    for places in kept {
        let mut shared: Option<Arc<str>> = None;
        for place in places {
            let Some(PartRow { mut row, .. }) = parts[place.part][place.row].take() else { continue };
            row.name = shared.get_or_insert(row.name).clone();
            rows.push(row);
        }
    }
    rows
}

fn same_bytes(a: Handed<'_>, b: Handed<'_>) -> Result<(), SaveError> {
    if a.row.hash() == b.row.hash() {
        return Ok(());
    }
    let Row { name, bounds, .. } = &a.row.row;
    Err(SaveError::RankReplicas {
        tensor: shown(name),
        bounds: bounds.clone(),
        first: a.rank,
        second: b.rank,
    })
}

/// Two rows of one place tell of the same box of the same tensor.
fn same_state(a: Handed<'_>, b: Handed<'_>) -> Result<(), SaveError> {
    let (x, y) = (&a.row.row, &b.row.row);
    if x.bounds != y.bounds {
        let detail =
            format!("({}) of rank {} and ({}) of rank {} overlap", x.bounds, a.rank, y.bounds, b.rank);
        return Err(SaveError::Coverage { tensor: shown(&x.name), detail });
    }
    if (x.kind, &x.element, &x.shape, &x.alias_of) == (y.kind, &y.element, &y.shape, &y.alias_of) {
        return Ok(());
    }
    let describe = |of: Handed<'_>| {
        let Row { kind, element, shape, alias_of, .. } = &of.row.row;
        let alias =
            alias_of.as_ref().map(|name| format!(", an alias of {:?}", shown(name))).unwrap_or_default();
        format!("rank {} has a {kind:?} of {} and shape {shape:?}{alias}", of.rank, element.name())
    };
    Err(invalid(&x.name, format!("ranks disagree on it: {}, but {}", describe(a), describe(b))))
}

/// Ranks that met the same new chunk have each stored it; one place is referred to.
fn give_chunks_one_place(rows: &mut [Row]) {
    let mut first: HashMap<ChunkId, usize> = HashMap::with_capacity(rows.len());
    let mut again = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let Some(piece) = &row.piece else { continue };
        let kept = *first.entry(piece.chunk).or_insert(number);
        if kept != number {
            again.push((kept, number));
        }
    }
    // First the lowest place to the first row of each chunk, then from there to the others.
    for &(kept, number) in &again {
        if order(&rows[number]) < order(&rows[kept]) {
            copy_place(rows, number, kept);
        }
    }
    for (kept, number) in again {
        copy_place(rows, kept, number);
    }
}

fn order(row: &Row) -> Option<(PackAddress, u64)> {
    row.piece.as_ref().map(|piece| (piece.location.pack, piece.location.pack_offset))
}

fn copy_place(rows: &mut [Row], from: usize, to: usize) {
    let location = rows[from].piece.as_ref().map(|piece| piece.location);
    if let (Some(piece), Some(location)) = (&mut rows[to].piece, location) {
        piece.location = location;
    }
}

/// Ranks for people: `0, 3, 4 and 12 more`.
pub(crate) fn list(ranks: &[Rank]) -> String {
    let named: Vec<String> = ranks.iter().take(NAMED_RANKS).map(ToString::to_string).collect();
    match ranks.len() - named.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests;
