//! The parts of all ranks, made into the rows of one index.
//!
//! Every box comes from the rank that stored it and, as a report, from each rank that holds a replica of it. A report
//! must agree with what was stored, and is then dropped.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use everstep_format::FormatError;
use everstep_format::name::Rank;
use everstep_format::part::{self, PartRef, PartRow};
use everstep_format::row::{self, Kind, Row};
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

/// The names of several parts, each kept once: all ranks have much the same ones, and millions of copies would take
/// longer to give back than to make.
#[derive(Debug, Default)]
pub struct Names(Mutex<HashSet<Arc<str>>>);

impl Names {
    fn share(&self, rows: &mut [PartRow]) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for PartRow { row, .. } in rows {
            match names.get(&row.name) {
                Some(known) => row.name = known.clone(),
                None => drop(names.insert(row.name.clone())),
            }
        }
    }
}

impl Part {
    /// Reads what `rank` handed in as the bytes of `reference`.
    ///
    /// # Errors
    /// As [`part::read`].
    pub fn read(rank: Rank, bytes: &Bytes, reference: &PartRef, names: &Names) -> Result<Self, FormatError> {
        let mut rows = part::read(bytes, reference)?;
        names.share(&mut rows);
        Ok(Self { rank, rows })
    }
}

/// A row of a part, by number: rows are looked at where they are and moved once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
/// [`SaveError::RankReplicas`], [`SaveError::RankObjects`] and [`SaveError::Unstored`]; [`SaveError::Coverage`] and
/// [`SaveError::Invalid`] for boxes and descriptions that contradict each other; all name tensor or object, and ranks.
pub fn merge(mut parts: Vec<Part>) -> Result<Vec<Row>, SaveError> {
    parts.sort_unstable_by_key(|part| part.rank);
    let merged: Vec<Result<Vec<Place>, SaveError>> =
        windows(&parts, &cuts(&parts)).into_par_iter().map(|window| merge_window(&parts, window)).collect();
    let kept: Vec<Vec<Place>> = merged.into_iter().collect::<Result<_, _>>()?;
    let mut rows = take(parts, &kept.concat());
    give_chunks_one_place(&mut rows);
    Ok(rows)
}

/// Which rows of every part have the names from one cut to the next.
type Window = Vec<Range<usize>>;

/// Windows are merged in parallel, each in memory that is near: a merge needs one row of every part at a time, and whole
/// parts are far apart.
fn windows(parts: &[Part], cuts: &[Arc<str>]) -> Vec<Window> {
    let ends = |part: &Part| -> Vec<usize> {
        let end = |cut: &Arc<str>| part.rows.partition_point(|row| row.row.name < *cut);
        cuts.iter().map(end).chain([part.rows.len()]).collect()
    };
    let ends: Vec<Vec<usize>> = parts.par_iter().map(ends).collect();
    let range = |at: usize, ends: &[usize]| at.checked_sub(1).map_or(0, |before| ends[before])..ends[at];
    (0..=cuts.len()).map(|at| ends.iter().map(|ends| range(at, ends)).collect()).collect()
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

fn merge_window(parts: &[Part], window: Window) -> Result<Vec<Place>, SaveError> {
    let mut kept = Vec::with_capacity(window.iter().map(ExactSizeIterator::len).sum());
    for places in by_name(parts, window) {
        kept.append(&mut merge_name(parts, places)?);
    }
    Ok(kept)
}

/// What a window has under each name, in name order. All ranks have much the same names, so this is cheaper than sorting
/// their rows.
fn by_name(parts: &[Part], window: Window) -> Vec<Vec<Place>> {
    let mut names: HashMap<&str, Vec<Place>> = HashMap::new();
    for (part, rows) in window.into_iter().enumerate() {
        for row in rows {
            names.entry(&parts[part].rows[row].row.name).or_default().push(Place { part, row });
        }
    }
    let mut names: Vec<_> = names.into_iter().collect();
    names.sort_unstable_by_key(|(name, _)| *name);
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
    if let (Some(first), Some(last)) = (places.first(), places.last()) {
        same_owner(handed(parts, first), handed(parts, last))?;
    }
    places.chunk_by(|a, b| order(a) == order(b)).map(|replicas| choose(parts, replicas)).collect()
}

/// The one of several views of the same box that the index has: the first, or the first that was stored.
fn choose(parts: &[Part], replicas: &[Place]) -> Result<Place, SaveError> {
    let first = handed(parts, &replicas[0]);
    for other in replicas[1..].iter().map(|place| handed(parts, place)) {
        same_object(first, other)?;
        same_state(first, other)?;
        same_bytes(first, other)?;
    }
    let Row { name, bounds, .. } = &first.row.row;
    match replicas.iter().find(|place| handed(parts, place).row.row.piece.is_some()) {
        Some(stored) => Ok(*stored),
        None if bounds.is_empty() => Ok(replicas[0]),
        None => {
            let held: Vec<Rank> = replicas.iter().map(|place| parts[place.part].rank).collect();
            Err(SaveError::Unstored { tensor: shown(name), bounds: bounds.clone(), ranks: list(&held) })
        }
    }
}

fn handed<'p>(parts: &'p [Part], place: &Place) -> Handed<'p> {
    let part = &parts[place.part];
    Handed { rank: part.rank, row: &part.rows[place.row] }
}

/// Moves the rows out of their parts.
fn take(parts: Vec<Part>, kept: &[Place]) -> Vec<Row> {
    let mut rows = Vec::with_capacity(kept.len());
    let mut parts: Vec<Vec<Option<PartRow>>> =
        parts.into_par_iter().map(|part| part.rows.into_iter().map(Some).collect()).collect();
    rows.extend(kept.iter().filter_map(|place| Some(parts[place.part][place.row].take()?.row)));
    // Millions of slots take a while to look through, empty as they are.
    parts.into_par_iter().for_each(drop);
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

/// What several ranks hand in for the whole job is one object. A difference in length shows in the first of its boxes.
fn same_object(a: Handed<'_>, b: Handed<'_>) -> Result<(), SaveError> {
    let (x, y) = (&a.row.row, &b.row.row);
    let objects = x.kind == Kind::Object && y.kind == Kind::Object;
    if !objects || ((&x.element, &x.shape) == (&y.element, &y.shape) && a.row.hash() == b.row.hash()) {
        return Ok(());
    }
    Err(SaveError::RankObjects { name: shown(&x.name), first: a.rank, second: b.rank })
}

/// Of one name, sorted, the first and the last row are both of the whole job or both of a rank.
fn same_owner(first: Handed<'_>, last: Handed<'_>) -> Result<(), SaveError> {
    let Row { name, rank, .. } = &first.row.row;
    if rank.is_some() == last.row.row.rank.is_some() {
        return Ok(());
    }
    let (job, own) = (first.rank, last.rank);
    let detail =
        format!("rank {job} hands it in for the whole job, and rank {own} as its own; use two names");
    Err(invalid(name, detail))
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
