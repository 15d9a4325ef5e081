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

/// A row and the rank that it comes from.
struct Handed {
    rank: Rank,
    row: PartRow,
}

/// The rows of the whole, sorted. Whether they cover the tensors is for the checks of every index to say. Runs on the
/// current pool.
///
/// # Errors
/// [`SaveError::RankReplicas`] and [`SaveError::Unstored`]; [`SaveError::Coverage`] and [`SaveError::Invalid`] for
/// boxes and descriptions that contradict each other; all name tensor and ranks.
pub fn merge(parts: Vec<Part>) -> Result<Vec<Row>, SaveError> {
    let merged: Vec<Result<Vec<Row>, SaveError>> =
        by_name(parts).into_par_iter().map(|(_, handed)| merge_name(handed)).collect();
    let mut rows = Vec::with_capacity(merged.iter().flatten().map(Vec::len).sum());
    for of_name in merged {
        rows.append(&mut of_name?);
    }
    give_chunks_one_place(&mut rows);
    Ok(rows)
}

/// What was handed in under each name, in name order. All ranks have much the same names, so this is cheaper than
/// sorting their rows.
fn by_name(mut parts: Vec<Part>) -> Vec<(Arc<str>, Vec<Handed>)> {
    parts.sort_unstable_by_key(|part| part.rank);
    let mut names: HashMap<Arc<str>, Vec<Handed>> = HashMap::new();
    for Part { rank, rows } in parts {
        for row in rows {
            let handed = Handed { rank, row };
            match names.get_mut(&handed.row.row.name) {
                Some(of_name) => of_name.push(handed),
                None => drop(names.insert(handed.row.row.name.clone(), vec![handed])),
            }
        }
    }
    let mut names: Vec<_> = names.into_iter().collect();
    names.par_sort_unstable_by(|a, b| a.0.cmp(&b.0));
    names
}

/// The rows of one name.
fn merge_name(mut handed: Vec<Handed>) -> Result<Vec<Row>, SaveError> {
    // Stable, so that the lowest rank comes first.
    handed.sort_by(|a, b| a.place().cmp(&b.place()));
    let mut rows = Vec::with_capacity(handed.len());
    let mut handed = handed.into_iter().peekable();
    while let Some(first) = handed.next() {
        let mut replicas = Replicas::new(first);
        while let Some(next) = handed.next_if(|next| next.place() == replicas.kept.place()) {
            replicas.add(next)?;
        }
        rows.push(replicas.finish()?);
    }
    Ok(rows)
}

impl Handed {
    /// Where it stands among the rows of its name.
    fn place(&self) -> (Option<Rank>, &[u64]) {
        (self.row.row.rank, &self.row.row.bounds.offset)
    }
}

/// One box, as the ranks that hold it see it.
struct Replicas {
    /// The first, or the first that was stored.
    kept: Handed,
    others: Vec<Rank>,
}

impl Replicas {
    fn new(first: Handed) -> Self {
        Self { kept: first, others: Vec::new() }
    }

    fn add(&mut self, next: Handed) -> Result<(), SaveError> {
        same_state(&self.kept, &next)?;
        if self.kept.row.hash() != next.row.hash() {
            let Row { name, bounds, .. } = &next.row.row;
            return Err(SaveError::RankReplicas {
                tensor: shown(name),
                bounds: bounds.clone(),
                first: self.kept.rank,
                second: next.rank,
            });
        }
        if self.kept.row.row.piece.is_none() && next.row.row.piece.is_some() {
            self.others.push(self.kept.rank);
            self.kept = next;
        } else {
            self.others.push(next.rank);
        }
        Ok(())
    }

    fn finish(self) -> Result<Row, SaveError> {
        let row = self.kept.row.row;
        if row.piece.is_some() || row.bounds.is_empty() {
            return Ok(row);
        }
        let held: Vec<Rank> = std::iter::once(self.kept.rank).chain(self.others).collect();
        Err(SaveError::Unstored { tensor: shown(&row.name), bounds: row.bounds, ranks: list(&held) })
    }
}

/// Two rows of one place tell of the same box of the same tensor.
fn same_state(a: &Handed, b: &Handed) -> Result<(), SaveError> {
    let (x, y) = (&a.row.row, &b.row.row);
    if x.bounds != y.bounds {
        let detail =
            format!("({}) of rank {} and ({}) of rank {} overlap", x.bounds, a.rank, y.bounds, b.rank);
        return Err(SaveError::Coverage { tensor: shown(&x.name), detail });
    }
    if (x.kind, &x.element, &x.shape, &x.alias_of) == (y.kind, &y.element, &y.shape, &y.alias_of) {
        return Ok(());
    }
    let describe = |of: &Handed| {
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
