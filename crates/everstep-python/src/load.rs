//! Loading in place, also where targets share memory.

use std::collections::HashSet;
use std::ops::Range;

use everstep::{Bounds, Checkpoint, Dtype, RestoreOptions, RestoreReport, Target};
use pyo3::prelude::*;

use crate::call::Failure;
use crate::memory::{Filling, Region};
use crate::progress::Progress;

/// name, dtype as the format names it, global shape, offset, extent, region to fill.
pub(crate) type Given = (String, String, Vec<u64>, Vec<u64>, Vec<u64>, Py<Region>);

/// A box that is wanted, and where.
pub(crate) struct Wanted {
    name: String,
    dtype: Dtype,
    shape: Vec<u64>,
    bounds: Bounds,
    region: Py<Region>,
}

impl Wanted {
    pub(crate) fn new((name, dtype, shape, offset, extent, region): Given) -> Result<Self, Failure> {
        let bounds = Bounds { offset: offset.into(), extent: extent.into() };
        Ok(Self { name, dtype: dtype.parse()?, shape, bounds, region })
    }

    fn region(&self) -> &Region {
        self.region.get()
    }

    fn target<'a>(&self, into: &'a mut [u8]) -> Target<'a> {
        let Self { name, dtype, shape, bounds, .. } = self;
        Target { name: name.clone(), dtype: *dtype, shape: shape.clone(), bounds: bounds.clone(), into }
    }
}

/// Fills `wanted`. What shares memory with targets before it is loaded beside, compared with what they got, and copied.
pub(crate) fn load(
    checkpoint: &Checkpoint,
    wanted: &[Wanted],
    options: &RestoreOptions,
    progress: Option<&Progress>,
) -> Result<RestoreReport, Failure> {
    let regions = wanted.iter().map(Wanted::region).collect();
    let mut filling = Filling::begin(regions).map_err(Failure::Python)?;
    let beside = |(wanted, apart): (&Wanted, &bool)| vec![0; if *apart { 0 } else { wanted.region().len() }];
    let mut beside: Vec<Vec<u8>> = wanted.iter().zip(filling.apart()).map(beside).collect();
    let parts = filling.parts().into_iter().zip(&mut beside);
    let targets =
        wanted.iter().zip(parts).map(|(wanted, (part, beside))| wanted.target(part.unwrap_or(beside)));
    let report = match progress {
        Some(progress) => checkpoint.load_with(targets.collect(), options, progress)?,
        None => checkpoint.load(targets.collect(), options)?,
    };
    copy_shared(wanted, &report, &beside, &mut filling)?;
    Ok(report)
}

/// Copies what was loaded beside to where it belongs.
fn copy_shared(
    wanted: &[Wanted],
    report: &RestoreReport,
    beside: &[Vec<u8>],
    filling: &mut Filling<'_>,
) -> Result<(), Failure> {
    let missing: HashSet<&str> = report.missing.iter().map(String::as_str).collect();
    let is_filled = |number: usize| !missing.contains(wanted[number].name.as_str());
    let mut in_place: Vec<usize> =
        (0..wanted.len()).filter(|number| filling.apart()[*number] && is_filled(*number)).collect();
    for number in (0..wanted.len()).filter(|number| is_filled(*number)) {
        if filling.apart()[number] {
            continue;
        }
        let own = (&wanted[number], beside[number].as_slice());
        let other = in_place.iter().map(|other| &wanted[*other]).find(|other| differ(own, other));
        if let Some(other) = other {
            return Err(unequal(&wanted[number].name, &other.name));
        }
        filling.copy_into(number, &beside[number]);
        in_place.push(number);
    }
    Ok(())
}

/// Whether `other`, in place, has other bytes where both have memory.
fn differ((wanted, bytes): (&Wanted, &[u8]), other: &Wanted) -> bool {
    let (own, there) = (wanted.region().range(), other.region().range());
    let common = own.start.max(there.start)..own.end.min(there.end);
    let within = |range: &Range<usize>| common.start - range.start..common.end - range.start;
    common.start < common.end && bytes[within(&own)] != other.region().bytes()[within(&there)]
}

fn unequal(name: &str, other: &str) -> Failure {
    let message = format!(
        "{other:?} and {name:?} share memory here, but are stored with different contents: load them into memory of \
         their own, or only one of them"
    );
    Failure::Kind("schema-mismatch", message)
}
