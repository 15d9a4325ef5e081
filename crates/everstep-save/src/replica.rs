//! Replicas of one box must be equal, or nobody could say which of them is the checkpoint.

use everstep_format::bounds::Bounds;
use everstep_format::grid::Grid;
use everstep_format::repository::Chunking;
use rayon::prelude::*;

use crate::SaveError;
use crate::check::shown;
use crate::gather;
use crate::item::{Item, Part};

/// `Ok` when all replicas of every box of `items` have the same bytes. Runs on the current pool.
pub(crate) fn compare(items: &[Item<'_>], chunking: &Chunking) -> Result<(), SaveError> {
    items.iter().filter(|item| !item.replicas.is_empty()).try_for_each(|item| compare_item(item, chunking))
}

fn compare_item(item: &Item<'_>, chunking: &Chunking) -> Result<(), SaveError> {
    let grid = Grid::new(item.shape, &item.element, chunking, item.name);
    for (position, replica) in &item.replicas {
        let first = &item.boxes[*position];
        let unequal = |piece: &Bounds| equal(first, replica, piece).map(|same| !same);
        let pieces = grid.pieces(replica.bounds);
        // In order, so that the first difference is the one reported.
        let findings: Vec<_> = pieces.par_iter().map(unequal).collect();
        for (finding, bounds) in findings.into_iter().zip(pieces) {
            if finding? {
                return Err(SaveError::Replicas { tensor: shown(item.name), bounds });
            }
        }
    }
    Ok(())
}

fn equal(a: &Part<'_>, b: &Part<'_>, piece: &Bounds) -> Result<bool, SaveError> {
    let elements = piece.elements().expect("sizes were checked");
    let len = usize::try_from((elements * a.bits).div_ceil(8)).expect("a chunk fits memory");
    let (mut copy_a, mut copy_b) = (Vec::new(), Vec::new());
    Ok(bytes(a, piece, len, &mut copy_a)? == bytes(b, piece, len, &mut copy_b)?)
}

fn bytes<'b>(
    part: &Part<'b>,
    piece: &Bounds,
    len: usize,
    copy: &'b mut Vec<u8>,
) -> Result<&'b [u8], SaveError> {
    if let Some(bytes) = gather::borrow(part, piece) {
        return Ok(bytes);
    }
    copy.resize(len, 0);
    gather::copy(part, piece, copy)?;
    Ok(copy)
}
