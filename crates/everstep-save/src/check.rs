//! Everything that can be refused without reading a byte of the state.

use std::collections::HashSet;

use everstep_format::bounds::{self, Bounds};
use everstep_format::invariant;
use everstep_format::row::{ElementType, Kind};
use everstep_format::{FormatError, grid, limits};

use crate::SaveError;
use crate::group::Seat;
use crate::item::Item;
use crate::state::Shard;

/// Characters of a name that messages show.
const SHOWN_CHARS: usize = 200;

/// `name`, shortened for a message.
pub(crate) fn shown(name: &str) -> String {
    let mut short: String = name.chars().take(SHOWN_CHARS).collect();
    if short.len() < name.len() {
        short.push('…');
    }
    short
}

pub(crate) fn invalid(name: &str, detail: impl Into<String>) -> SaveError {
    SaveError::Invalid { name: shown(name), detail: detail.into() }
}

/// Any text but the empty one: names are content, never keys, so NUL and control characters do no harm.
pub(crate) fn name(name: &str) -> Result<(), SaveError> {
    if name.is_empty() {
        return Err(invalid(name, "a name must not be empty, or nobody could ask for it"));
    }
    FormatError::within("the name", name.len() as u64, limits::STATE_NAME_BYTES as u64)
        .map_err(|e| invalid(name, format!("{e} bytes")))
}

/// The shards of one tensor, each by itself and against the first.
pub(crate) fn shards(shards: &[&Shard<'_>], seat: Seat) -> Result<(), SaveError> {
    let Some(first) = shards.first() else { return Ok(()) };
    name(&first.name)?;
    shape(first)?;
    shards.iter().try_for_each(|shard| {
        agrees(first, shard)?;
        one_shard(shard)?;
        shard.replicas.check(seat).map_err(|e| invalid(&shard.name, e.to_string()))
    })
}

fn shape(shard: &Shard<'_>) -> Result<(), SaveError> {
    FormatError::within("the number of dimensions", shard.shape.len() as u64, limits::DIMENSIONS as u64)
        .map_err(|e| invalid(&shard.name, e.to_string()))?;
    let bytes = bounds::elements(&shard.shape).and_then(|elements| shard.dtype.byte_len(elements));
    if bytes.is_some() {
        return Ok(());
    }
    Err(invalid(&shard.name, format!("shape {:?} of {} has more than 2^64 bytes", shard.shape, shard.dtype)))
}

fn agrees(first: &Shard<'_>, shard: &Shard<'_>) -> Result<(), SaveError> {
    let differ = |what, expected: String, found: String| {
        Err(invalid(&shard.name, format!("its shards disagree on {what}: {expected} and {found}")))
    };
    if shard.dtype != first.dtype {
        return differ("the dtype", first.dtype.to_string(), shard.dtype.to_string());
    }
    if shard.shape != first.shape {
        return differ("the shape", format!("{:?}", first.shape), format!("{:?}", shard.shape));
    }
    if shard.alias_of != first.alias_of {
        return differ("what they alias", format!("{:?}", first.alias_of), format!("{:?}", shard.alias_of));
    }
    Ok(())
}

fn one_shard(shard: &Shard<'_>) -> Result<(), SaveError> {
    let refuse = |e: FormatError| invalid(&shard.name, e.to_string());
    shard.bounds.check_inside(&shard.shape).map_err(refuse)?;
    grid::keeps_bytes_whole(&shard.shape, &ElementType::Dtype(shard.dtype), &shard.bounds).map_err(refuse)?;
    let expected = shard.bounds.elements().and_then(|elements| shard.dtype.byte_len(elements));
    let found = shard.source.len();
    if expected == Some(found) {
        return Ok(());
    }
    let expected = expected.unwrap_or(u64::MAX);
    let Shard { bounds, dtype, .. } = shard;
    Err(invalid(
        &shard.name,
        format!("its box ({bounds}) of {dtype} takes {expected} bytes, but its source has {found}"),
    ))
}

/// The distinct boxes of a tensor make it up, without gap or overlap.
pub(crate) fn coverage(name: &str, shape: &[u64], boxes: &[&Bounds]) -> Result<(), SaveError> {
    if let [only] = boxes
        && *only.extent == *shape
    {
        return Ok(());
    }
    invariant::boxes_cover(name, shape, boxes)
        .map_err(|e| SaveError::Coverage { tensor: shown(name), detail: e.to_string() })
}

/// `items`, sorted by name and rank, do not contradict each other.
pub(crate) fn items(items: &[Item<'_>], seat: Seat) -> Result<(), SaveError> {
    for pair in items.windows(2) {
        if pair[0].name == pair[1].name {
            same_name(&pair[0], &pair[1])?;
        }
    }
    if !seat.is_alone() {
        items.iter().try_for_each(|item| of_this_rank(item, seat))?;
    }
    aliases(items, seat)
}

fn of_this_rank(item: &Item<'_>, seat: Seat) -> Result<(), SaveError> {
    match item.rank {
        Some(rank) if rank != seat.rank => {
            let Seat { rank: own, .. } = seat;
            Err(invalid(item.name, format!("it belongs to rank {rank}, and rank {own} hands it in")))
        }
        _ => Ok(()),
    }
}

fn same_name(a: &Item<'_>, b: &Item<'_>) -> Result<(), SaveError> {
    if a.kind != b.kind {
        return Err(invalid(a.name, "it is the name of a tensor and of an object"));
    }
    match (a.rank, b.rank) {
        (Some(x), Some(y)) if x != y => Ok(()),
        (None, None) => Err(invalid(a.name, "it is the name of two objects")),
        (Some(rank), Some(_)) => {
            Err(invalid(a.name, format!("it is the name of two objects of rank {rank}")))
        }
        _ => Err(invalid(
            a.name,
            "some ranks have an object of this name and so has the whole job; use two names",
        )),
    }
}

fn aliases(items: &[Item<'_>], seat: Seat) -> Result<(), SaveError> {
    if items.iter().all(|item| item.alias_of.is_none()) {
        return Ok(());
    }
    let tensors: HashSet<&str> =
        items.iter().filter(|item| item.kind == Kind::Tensor).map(|item| item.name).collect();
    for item in items {
        match item.alias_of {
            Some(target) if target == item.name => {
                return Err(invalid(item.name, "it is an alias of itself"));
            }
            Some(target) if seat.is_alone() && !tensors.contains(target) => {
                let detail =
                    format!("it is an alias of {:?}, which is no tensor of this state", shown(target));
                return Err(invalid(item.name, detail));
            }
            _ => {}
        }
    }
    Ok(())
}
