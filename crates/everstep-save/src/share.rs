//! One rank's share of a save: its packs, and the rows that say where everything is. The whole of it for a rank alone.

use everstep_format::card::{CalledAttempt, ParentIndex};
use everstep_format::id::{AttemptId, ChunkId};
use everstep_format::part::PartRow;
use everstep_format::row::{Piece, Row};
use everstep_repo::{Attempt, Checkpoint, Repository, Spent};

use crate::group::Seat;
use crate::item::{ObjectBytes, items};
use crate::known::{Known, Stored};
use crate::plan::Plan;
use crate::writer::{Tally, Target, Writer, Written};
use crate::{SaveError, State, Tools, replica};

/// What is to be stored, without having read a byte of it, but checked as far as one rank can.
pub(crate) fn plan<'a>(
    repository: &Repository,
    state: &'a State<'_>,
    objects: &'a [ObjectBytes],
    seat: Seat,
) -> Result<Plan<'a>, SaveError> {
    let chunking = &repository.config().chunking;
    let items = items(state, objects, seat)?;
    replica::compare(&items, chunking)?;
    Ok(Plan::new(&items, chunking, seat))
}

/// What a rank must know of the attempt to write its share.
#[derive(Debug, Clone)]
pub(crate) struct Errand {
    pub(crate) attempt: AttemptId,
    pub(crate) parents: Vec<ParentIndex>,
    pub(crate) seat: Seat,
}

impl Errand {
    pub(crate) fn of_leader(attempt: &Attempt, seat: Seat) -> Self {
        let parents = attempt.confirmed.iter().map(Checkpoint::as_parent_index).collect();
        Self { attempt: attempt.id, parents, seat }
    }

    pub(crate) fn of_card(attempt: &CalledAttempt, seat: Seat) -> Self {
        Self { attempt: attempt.id, parents: attempt.parents.clone(), seat }
    }

    /// What the other ranks are told.
    pub(crate) fn called(&self, attempt: &Attempt) -> CalledAttempt {
        CalledAttempt { id: attempt.id, ordinal: attempt.ordinal, parents: self.parents.clone() }
    }
}

/// What a rank has stored, though not yet synced.
#[derive(Debug)]
pub(crate) struct Share {
    /// Sorted. Those that another rank stores have no piece.
    pub(crate) rows: Vec<Row>,
    /// Hashes of pieces, by row, where the row does not say them.
    own: Vec<(usize, ChunkId)>,
    pub(crate) raw_bytes: u64,
    pub(crate) tally: Tally,
    pub(crate) spent: Spent,
}

impl Share {
    /// As it is handed in.
    pub(crate) fn into_part(self) -> Vec<PartRow> {
        let mut part: Vec<PartRow> = self.rows.into_iter().map(|row| PartRow { row, own: None }).collect();
        for (row, own) in self.own {
            part[row].own = Some(own);
        }
        part
    }
}

/// Stores what no parent has, as far as it is for this rank to store.
pub(crate) async fn write(
    repository: &Repository,
    (errand, known): (&Errand, &Known),
    plan: Plan<'_>,
    tools: &Tools<'_>,
) -> Result<Share, SaveError> {
    let Errand { attempt, seat, .. } = *errand;
    let (store, world) = (repository.store(), repository.world());
    let target = Target { store, world, attempt, seat };
    let written = Writer::new(&plan, known, tools, &target).run().await?;
    Ok(filled_in(plan, written, known))
}

/// The rows of `plan`, with where their bytes are, or at least what they are.
fn filled_in(mut plan: Plan<'_>, written: Written, known: &Known) -> Share {
    let mut rows = std::mem::take(&mut plan.rows);
    let mut own = written.own;
    for (chunk, id) in plan.chunks.iter().zip(&written.ids) {
        if !chunk.stored {
            own.extend(plan.members(chunk).iter().map(|&row| (row, *id)));
            continue;
        }
        let stored =
            written.placed.get(id).or_else(|| known.get(id)).expect("every chunk was stored or is known");
        let mut chunk_offset = 0;
        for &number in plan.members(chunk) {
            let row = &mut rows[number];
            let Stored { raw_len, location } = *stored;
            row.piece = Some(Piece { chunk: *id, chunk_offset, raw_len, location });
            chunk_offset += row.byte_len().expect("sizes were checked");
        }
    }
    Share { rows, own, raw_bytes: plan.sums.raw_bytes, tally: written.tally, spent: written.spent }
}
