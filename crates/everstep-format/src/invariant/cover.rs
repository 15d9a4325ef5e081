//! Whether boxes cover a shape exactly once, and where they do not.
//!
//! Count how often each point is covered and subtract 1 inside the shape: the boxes are sound exactly when that is 0
//! everywhere. Its differences along all dimensions are non-zero only at corners of boxes. So it is enough to sweep over
//! corners: at each coordinate of a dimension, boxes that begin count +1 and boxes that end count -1, equal cross
//! sections cancel (on a grid nearly all do), and what is left is swept along the next dimension. In lexicographic
//! order, the first corner that does not cancel is itself a point that is covered too rarely or too often.

use crate::FormatError;
use crate::bounds::Bounds;
use crate::limits;

use super::{countable, shown};

/// A box with how often it counts. The shape itself counts -1.
#[derive(Clone, Copy)]
struct Weighted<'a> {
    weight: i64,
    bounds: &'a Bounds,
}

/// `boxes` cover `shape` without gap and without overlap. A shape without elements is covered by one box, itself.
/// Takes n log n steps where boxes lie on a common grid.
///
/// # Errors
/// [`FormatError::Invalid`] naming a gap or the two boxes that overlap; [`FormatError::TooLarge`] for boxes so irregular
/// that checking them would take more than [`limits::COVER_STEPS`] steps.
pub fn boxes_cover(name: &str, shape: &[u64], boxes: &[&Bounds]) -> Result<(), FormatError> {
    let whole = Bounds::whole(shape);
    countable(name, shape)?;
    if let Some(outside) = boxes.iter().find_map(|b| b.check_inside(shape).err()) {
        return Err(FormatError::invalid("tensor", format!("{:?}", shown(name)), outside.to_string()));
    }
    if whole.is_empty() {
        return if boxes.len() == 1 && *boxes[0] == whole {
            Ok(())
        } else {
            let found = format!("{:?} {shape:?} in {} boxes", shown(name), boxes.len());
            Err(FormatError::invalid("tensor without elements", found, "one box, the whole"))
        };
    }
    let mut items = vec![Weighted { weight: -1, bounds: &whole }];
    items.extend(boxes.iter().filter(|b| !b.is_empty()).map(|b| Weighted { weight: 1, bounds: b }));
    let mut steps = 0;
    match first_imbalance(&items, 0, &mut steps)? {
        None => Ok(()),
        Some(point) => Err(imbalance(name, &point, boxes)),
    }
}

/// The lexicographically first corner at which the weights of `items`, swept from dimension `d` on, do not cancel.
fn first_imbalance(
    items: &[Weighted<'_>],
    d: usize,
    steps: &mut u64,
) -> Result<Option<Vec<u64>>, FormatError> {
    *steps += items.len() as u64;
    FormatError::within("work of checking a tensor's boxes", *steps, limits::COVER_STEPS)?;
    if items.first().is_none_or(|item| item.bounds.rank() == d) {
        let net: i64 = items.iter().map(|item| item.weight).sum();
        return Ok((net != 0).then(Vec::new));
    }
    for (at, rest) in cross_sections(items, d) {
        if rest.is_empty() {
            continue;
        }
        if let Some(mut point) = first_imbalance(&rest, d + 1, steps)? {
            point.insert(0, at);
            return Ok(Some(point));
        }
    }
    Ok(None)
}

/// The begins and ends of `items` along dimension `d` by coordinate, with equal cross sections merged.
fn cross_sections<'a>(items: &[Weighted<'a>], d: usize) -> impl Iterator<Item = (u64, Vec<Weighted<'a>>)> {
    let mut events: Vec<(u64, Weighted<'a>)> = Vec::with_capacity(items.len() * 2);
    for item in items {
        events.push((item.bounds.offset[d], *item));
        events.push((item.bounds.end(d), Weighted { weight: -item.weight, ..*item }));
    }
    let section = move |bounds: &'a Bounds| (&bounds.offset[d + 1..], &bounds.extent[d + 1..]);
    events.sort_unstable_by(|(at, a), (bt, b)| {
        at.cmp(bt).then_with(|| section(a.bounds).cmp(&section(b.bounds)))
    });
    let mut sweep = events.into_iter().peekable();
    std::iter::from_fn(move || {
        let (at, first) = sweep.next()?;
        let mut merged = vec![first];
        while let Some((_, next)) = sweep.next_if(|(coordinate, _)| *coordinate == at) {
            match merged.last_mut() {
                Some(last) if section(last.bounds) == section(next.bounds) => last.weight += next.weight,
                _ => merged.push(next),
            }
        }
        merged.retain(|item| item.weight != 0);
        Some((at, merged))
    })
}

fn imbalance(name: &str, point: &[u64], boxes: &[&Bounds]) -> FormatError {
    let contains = |b: &&&Bounds| (0..point.len()).all(|d| (b.offset[d]..b.end(d)).contains(&point[d]));
    let name = shown(name);
    let mut here = boxes.iter().filter(contains);
    match (here.next(), here.next()) {
        (Some(one), Some(other)) => {
            let found = format!("{name:?}: boxes {one} and {other} overlap at {point:?}");
            FormatError::invalid("tensor", found, "boxes that cover it without overlap")
        }
        _ => {
            let found = format!("{name:?}: no box has element {point:?}");
            FormatError::invalid("tensor", found, "boxes that cover it without gap")
        }
    }
}
