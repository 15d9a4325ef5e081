//! The rows of all ranks together: made to agree with the parents, checked, summed up.

use std::collections::BTreeMap;

use everstep_format::bounds::Bounds;
use everstep_format::id::AttemptId;
use everstep_format::invariant::{self, SoundRows};
use everstep_format::key::PackAddress;
use everstep_format::row::Row;

use crate::SaveError;
use crate::check::{invalid, shown};
use crate::known::{Chunks, Known};

/// Makes every chunk that a parent has point to where the parent's index has it. A rank that remembers its own share of
/// a parent refers to where it stored a chunk itself, though the parent's index may have taken another rank's copy.
pub(crate) fn settle(rows: &mut [Row], known: &Known, own: AttemptId) {
    for piece in rows.iter_mut().filter_map(|row| row.piece.as_mut()) {
        if piece.location.pack.attempt == own || known.confirms(piece) {
            continue;
        }
        if let Some(stored) = known.find(&piece.chunk) {
            piece.location = stored.location;
        }
    }
}

/// Everything that must hold before a commit (I5, I7).
pub(crate) fn check<'r>(rows: &'r [Row], known: &Known, own: AttemptId) -> Result<SoundRows<'r>, SaveError> {
    let sound = invariant::rows_are_sound(rows).map_err(|error| explained(rows).unwrap_or(error.into()))?;
    invariant::rows_refer_to(rows, own, |piece| known.confirms(piece))?;
    Ok(sound)
}

/// Which tensor is at fault, where it is one whose parts were handed in by several ranks.
fn explained(rows: &[Row]) -> Option<SaveError> {
    rows.chunk_by(|a, b| a.name == b.name && a.rank == b.rank).find_map(|state| {
        let first = &state[0];
        let differs = |row: &&Row| {
            (&row.element, &row.shape, &row.alias_of) != (&first.element, &first.shape, &first.alias_of)
        };
        if let Some(other) = state.iter().find(differs) {
            let describe = |row: &Row| {
                format!("{} of shape {:?} at {:?}", row.element.name(), row.shape, row.bounds.offset)
            };
            let detail = format!("its boxes disagree: {} and {}", describe(first), describe(other));
            return Some(invalid(&first.name, detail));
        }
        if let Some(target) = first.alias_of.as_ref().filter(|target| !has(rows, target)) {
            let detail = format!("it is an alias of {:?}, which no rank has", shown(target));
            return Some(invalid(&first.name, detail));
        }
        let boxes: Vec<&Bounds> = state.iter().map(|row| &row.bounds).collect();
        let error = invariant::boxes_cover(&first.name, &first.shape, &boxes).err()?;
        Some(SaveError::Coverage { tensor: shown(&first.name), detail: error.to_string() })
    })
}

fn has(rows: &[Row], name: &str) -> bool {
    rows.binary_search_by(|row| (*row.name).cmp(name)).is_ok()
}

/// How many packs of the attempt `own` hold any of `chunks`, and their bytes.
pub(crate) fn packs(chunks: &Chunks, own: AttemptId) -> (u64, u64) {
    let of_own =
        chunks.values().map(|stored| &stored.location).filter(|location| location.pack.attempt == own);
    let packs: BTreeMap<PackAddress, u64> =
        of_own.map(|location| (location.pack, location.pack_len)).collect();
    (packs.len() as u64, packs.values().sum())
}
