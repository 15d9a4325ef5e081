//! What is to be saved, from Python's tuples.

use std::collections::HashMap;

use bytes::Bytes;
use everstep::{Bounds, Content, Dtype, ObjectEntry, Owner, Rank, RankSet, Replicas, Shard, Source, State};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::call::{self, Failure};
use crate::memory::Region;
use crate::value::{self, Opaque};

/// name, dtype as the format names it, global shape, offset, extent, alias_of, replicas, region.
pub(crate) type GivenShard =
    (String, String, Vec<u64>, Vec<u64>, Vec<u64>, Option<String>, Option<Holders>, Py<Region>);
/// name, whose it is, plain value or [`Opaque`].
pub(crate) type GivenObject<'py> = (String, Option<Whose>, Bound<'py, PyAny>);

/// A rank whose own it is, or "here": the whole job's, stored by this rank.
#[derive(FromPyObject)]
pub(crate) enum Whose {
    Word(String),
    Rank(u32),
}

/// "all", or ranks.
#[derive(FromPyObject)]
pub(crate) enum Holders {
    Word(String),
    Ranks(Vec<u32>),
}

/// A state, with the regions that its bytes are in.
pub(crate) struct Held {
    shards: Vec<HeldShard>,
    objects: Vec<ObjectEntry>,
}

struct HeldShard {
    name: String,
    dtype: Dtype,
    shape: Vec<u64>,
    bounds: Bounds,
    alias_of: Option<String>,
    replicas: Replicas,
    region: Py<Region>,
}

impl Held {
    pub(crate) fn new(
        py: Python<'_>,
        shards: Vec<GivenShard>,
        objects: Vec<GivenObject<'_>>,
    ) -> PyResult<Self> {
        let mut sets = HashMap::new();
        let mut held = Vec::with_capacity(shards.len());
        for (name, dtype, shape, offset, extent, alias_of, holders, region) in shards {
            let replicas = replicas(holders, &mut sets)?;
            let dtype = call::at_once(py, || dtype.parse::<Dtype>().map_err(Failure::from))?;
            let bounds = Bounds { offset: offset.into(), extent: extent.into() };
            held.push(HeldShard { name, dtype, shape, bounds, alias_of, replicas, region });
        }
        let objects = objects.into_iter().map(object).collect::<PyResult<_>>()?;
        Ok(Self { shards: held, objects })
    }

    pub(crate) fn state(&self) -> State<'_> {
        State { shards: self.shards.iter().map(HeldShard::shard).collect(), objects: self.objects.clone() }
    }
}

impl HeldShard {
    fn shard(&self) -> Shard<'_> {
        Shard {
            name: self.name.clone(),
            dtype: self.dtype,
            shape: self.shape.clone(),
            bounds: self.bounds.clone(),
            alias_of: self.alias_of.clone(),
            replicas: self.replicas.clone(),
            source: Source::Memory(self.region.get().bytes()),
        }
    }
}

/// Shards that the same ranks hold share one list of them.
fn replicas(holders: Option<Holders>, sets: &mut HashMap<Vec<u32>, RankSet>) -> PyResult<Replicas> {
    match holders {
        None => Ok(Replicas::None),
        Some(Holders::Word(all)) if all == "all" => Ok(Replicas::All),
        Some(Holders::Word(other)) => {
            Err(PyValueError::new_err(format!("replicas: expected None, \"all\" or ranks, found {other:?}")))
        }
        Some(Holders::Ranks(ranks)) => {
            let set =
                sets.entry(ranks).or_insert_with_key(|ranks| RankSet::new(ranks.iter().copied().map(Rank)));
            Ok(Replicas::These(set.clone()))
        }
    }
}

fn owner(whose: Option<Whose>) -> PyResult<Owner> {
    match whose {
        None => Ok(Owner::Job),
        Some(Whose::Rank(rank)) => Ok(Owner::Rank(Rank(rank))),
        Some(Whose::Word(here)) if here == "here" => Ok(Owner::JobFromHere),
        Some(Whose::Word(other)) => {
            let rule = "expected None, a rank or \"here\"";
            Err(PyValueError::new_err(format!("owner of an object: {rule}, found {other:?}")))
        }
    }
}

fn object((name, whose, given): GivenObject<'_>) -> PyResult<ObjectEntry> {
    let owner = owner(whose)?;
    let content = match given.cast::<Opaque>() {
        Ok(opaque) => {
            let data = opaque.get().data(given.py());
            Content::Opaque(Bytes::copy_from_slice(data.as_bytes(given.py())))
        }
        Err(_) => Content::Value(value::from_python(&given, &format!("object {name:?}"))?),
    };
    Ok(ObjectEntry { name, owner, content })
}
