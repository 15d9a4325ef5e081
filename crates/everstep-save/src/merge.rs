//! The parts of all ranks, made into the rows of one index.
//!
//! Every box comes from the rank that stored it and, as a report, from each rank that holds a replica of it. A report
//! must agree with what was stored, and is then dropped.

use std::collections::HashMap;
use std::sync::Arc;

use everstep_format::name::Rank;
use everstep_format::part::PartRow;
use everstep_format::row::{self, Row};
use rayon::prelude::*;

use crate::SaveError;
use crate::check::{invalid, shown};

/// Ranks that messages name at most.
const NAMED_RANKS: usize = 8;

/// Rows that are merged at one go, about.
const WINDOW_ROWS: usize = 16 * 1024;
/// One in so many names is looked at to tell where windows end.
const SAMPLED: usize = 64;

/// What one rank handed in.
#[derive(Debug)]
pub struct Part {
    /// The rank.
    pub rank: Rank,
    /// Its rows, sorted.
    pub rows: Vec<PartRow>,
}

/// A row and the rank that it comes from.
#[derive(Debug)]
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
    let total = parts.iter().map(|part| part.rows.len()).sum();
    let cuts = cuts(&parts);
    let mut slots: Vec<(Rank, Vec<Option<PartRow>>)> = parts
        .into_par_iter()
        .map(|Part { rank, rows }| (rank, rows.into_iter().map(Some).collect()))
        .collect();
    let merged: Vec<Result<Vec<Row>, SaveError>> =
        windows(&mut slots, &cuts).into_par_iter().map(|window| merge_window(handed(window))).collect();
    drop(slots);
    let mut rows = Vec::with_capacity(total);
    for window in merged {
        rows.append(&mut window?);
    }
    give_chunks_one_place(&mut rows);
    Ok(rows)
}

/// What every part has of the names from one cut to the next.
type Window<'p> = Vec<(Rank, &'p mut [Option<PartRow>])>;

/// Windows are merged in parallel, each in memory that is near: a merge needs one row of every part at a time, and whole
/// parts are far apart.
fn windows<'p>(parts: &'p mut [(Rank, Vec<Option<PartRow>>)], cuts: &[Arc<str>]) -> Vec<Window<'p>> {
    let ends = |(_, rows): &(Rank, Vec<Option<PartRow>>)| -> Vec<usize> {
        let is_before =
            |row: &Option<PartRow>, cut: &Arc<str>| row.as_ref().is_some_and(|row| row.row.name < *cut);
        cuts.iter().map(|cut| rows.partition_point(|row| is_before(row, cut))).collect()
    };
    let ends: Vec<Vec<usize>> = parts.par_iter().map(ends).collect();
    let mut windows: Vec<Window<'p>> = (0..=cuts.len()).map(|_| Vec::with_capacity(parts.len())).collect();
    for ((rank, rows), ends) in parts.iter_mut().zip(ends) {
        let (mut rest, mut start) = (rows.as_mut_slice(), 0);
        for (window, end) in windows.iter_mut().zip(ends) {
            let (before, after) = rest.split_at_mut(end - start);
            window.push((*rank, before));
            (rest, start) = (after, end);
        }
        windows[cuts.len()].push((*rank, rest));
    }
    windows
}

fn handed(window: Window<'_>) -> Vec<Handed> {
    let of_part = |(rank, rows): (Rank, &mut [Option<PartRow>])| {
        rows.iter_mut().filter_map(Option::take).map(move |row| Handed { rank, row }).collect::<Vec<_>>()
    };
    window.into_iter().flat_map(of_part).collect()
}

/// Names between windows of about [`WINDOW_ROWS`] rows, from a sample of all names.
fn cuts(parts: &[Part]) -> Vec<Arc<str>> {
    let sampled = |(number, part): (usize, &Part)| {
        let names = part.rows.iter().map(|row| &row.row.name);
        names.skip(number % SAMPLED).step_by(SAMPLED).cloned().collect::<Vec<_>>()
    };
    let mut names: Vec<Arc<str>> = parts.iter().enumerate().flat_map(sampled).collect();
    names.par_sort_unstable();
    let mut cuts: Vec<Arc<str>> = names.into_iter().step_by(WINDOW_ROWS / SAMPLED).skip(1).collect();
    cuts.dedup();
    cuts
}

/// The rows that the index has of those that were handed in under some names, sorted; those of one name share it.
fn merge_window(handed: Vec<Handed>) -> Result<Vec<Row>, SaveError> {
    let names: Vec<Vec<usize>> =
        by_name(&handed).into_iter().map(|rows| merge_name(&handed, rows)).collect::<Result<_, _>>()?;
    let mut handed: Vec<Option<Handed>> = handed.into_iter().map(Some).collect();
    let mut merged = Vec::with_capacity(names.iter().map(Vec::len).sum());
    for kept in names {
        let mut shared: Option<Arc<str>> = None;
        for mut row in kept.into_iter().filter_map(|number| Some(handed[number].take()?.row.row)) {
            row.name = shared.get_or_insert(row.name).clone();
            merged.push(row);
        }
    }
    Ok(merged)
}

/// The numbers of the rows of each name, in name order. All ranks have much the same names, so this is cheaper than
/// sorting their rows.
fn by_name(handed: &[Handed]) -> Vec<Vec<usize>> {
    let mut names: HashMap<&str, Vec<usize>> = HashMap::new();
    for (number, Handed { row, .. }) in handed.iter().enumerate() {
        names.entry(&row.row.name).or_default().push(number);
    }
    let mut names: Vec<_> = names.into_iter().collect();
    names.sort_unstable_by_key(|(name, _)| *name);
    names.into_iter().map(|(_, rows)| rows).collect()
}

/// Which of the rows of one name the index has, in order.
fn merge_name(handed: &[Handed], mut rows: Vec<usize>) -> Result<Vec<usize>, SaveError> {
    let order = |&number: &usize| {
        let row = &handed[number].row.row;
        (row.rank, row.bounds.offset.as_slice())
    };
    // Stable, so that the lowest rank comes first.
    rows.sort_by(|a, b| order(a).cmp(&order(b)));
    rows.chunk_by(|a, b| order(a) == order(b)).map(|replicas| choose(handed, replicas)).collect()
}

/// The one of several views of the same box that the index has: the first, or the first that was stored.
fn choose(handed: &[Handed], replicas: &[usize]) -> Result<usize, SaveError> {
    let first = &handed[replicas[0]];
    for &other in &replicas[1..] {
        same_state(first, &handed[other])?;
        same_bytes(first, &handed[other])?;
    }
    let Row { name, bounds, .. } = &first.row.row;
    match replicas.iter().find(|&&number| handed[number].row.row.piece.is_some()) {
        Some(stored) => Ok(*stored),
        None if bounds.is_empty() => Ok(replicas[0]),
        None => {
            let held: Vec<Rank> = replicas.iter().map(|&number| handed[number].rank).collect();
            Err(SaveError::Unstored { tensor: shown(name), bounds: bounds.clone(), ranks: list(&held) })
        }
    }
}

fn same_bytes(a: &Handed, b: &Handed) -> Result<(), SaveError> {
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

/// Ranks that met the same new chunk have each stored it; one place is referred to, the lowest.
fn give_chunks_one_place(rows: &mut [Row]) {
    for same in row::repeated_chunks(rows) {
        let locations = same.iter().filter_map(|&number| Some(rows[number].piece.as_ref()?.location));
        let Some(lowest) = locations.min_by_key(|place| (place.pack, place.pack_offset)) else { continue };
        for number in same {
            rows[number].piece.iter_mut().for_each(|piece| piece.location = lowest);
        }
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
