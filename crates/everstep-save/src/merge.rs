//! The parts of all ranks, made into the rows of one index.
//!
//! Every box comes from the rank that stored it and, as a report, from each rank that holds a replica of it. A report
//! must agree with what was stored, and is then dropped.

use std::collections::HashMap;

use everstep_format::id::ChunkId;
use everstep_format::name::Rank;
use everstep_format::part::PartRow;
use everstep_format::row::{Location, Row};
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
pub fn merge(mut parts: Vec<Part>) -> Result<Vec<Row>, SaveError> {
    parts.sort_unstable_by_key(|part| part.rank);
    let handed = |part: Part| {
        let rank = part.rank;
        part.rows.into_iter().map(move |row| Handed { rank, row })
    };
    let mut all: Vec<Handed> = parts.into_iter().flat_map(handed).collect();
    // Stable, so that the lowest rank comes first; and quick, since it is made of sorted runs.
    all.par_sort_by(|a, b| a.row.row.sort_key().cmp(&b.row.row.sort_key()));
    let mut rows = Vec::with_capacity(all.len());
    let mut all = all.into_iter().peekable();
    while let Some(first) = all.next() {
        let mut replicas = Replicas::new(first);
        while let Some(next) = all.next_if(|next| replicas.share_place_with(next)) {
            replicas.add(next)?;
        }
        rows.push(replicas.finish()?);
    }
    give_chunks_one_place(&mut rows);
    Ok(rows)
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

    fn share_place_with(&self, next: &Handed) -> bool {
        next.row.row.sort_key() == self.kept.row.row.sort_key()
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
    let mut places: HashMap<ChunkId, Location> = HashMap::with_capacity(rows.len());
    let order = |location: &Location| (location.pack, location.pack_offset);
    for piece in rows.iter().filter_map(|row| row.piece.as_ref()) {
        let place = places.entry(piece.chunk).or_insert(piece.location);
        if order(&piece.location) < order(place) {
            *place = piece.location;
        }
    }
    for piece in rows.iter_mut().filter_map(|row| row.piece.as_mut()) {
        piece.location = places[&piece.chunk];
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
