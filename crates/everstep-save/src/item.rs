//! The state in name order: one item per tensor or object, with its boxes and where their bytes are.

use bytes::Bytes;
use everstep_format::bounds::Bounds;
use everstep_format::name::Rank;
use everstep_format::row::{ElementType, Kind};

use crate::group::{Replicas, Seat};
use crate::state::{Content, ObjectEntry, Owner, Shard, Source, State};
use crate::{SaveError, check};

/// What an object is that the leader stores.
const OF_ALL: &Replicas = &Replicas::All;
/// What an object is that the rank stores which has it.
const OF_ONE: &Replicas = &Replicas::None;

/// One tensor, or one object of one rank.
#[derive(Debug)]
pub(crate) struct Item<'a> {
    pub(crate) name: &'a str,
    pub(crate) rank: Option<Rank>,
    pub(crate) kind: Kind,
    pub(crate) element: ElementType,
    pub(crate) shape: &'a [u64],
    pub(crate) alias_of: Option<&'a str>,
    /// Not empty, each once, sorted by offset.
    pub(crate) boxes: Vec<Part<'a>>,
    /// Further sources of boxes: (position in `boxes`, source).
    pub(crate) replicas: Vec<(usize, Part<'a>)>,
}

/// A box and its bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) bounds: &'a Bounds,
    pub(crate) source: Source<'a>,
    /// Bits of one element.
    pub(crate) bits: u64,
    /// For messages.
    pub(crate) name: &'a str,
    /// Who else has it.
    pub(crate) replicas: &'a Replicas,
}

/// An object as it is stored.
#[derive(Debug)]
pub(crate) struct ObjectBytes {
    bytes: Bytes,
    bounds: Bounds,
}

/// The stored bytes of `objects`, in their order.
pub(crate) fn object_bytes(objects: &[ObjectEntry]) -> Result<Vec<ObjectBytes>, SaveError> {
    let encode = |object: &ObjectEntry| {
        check::name(&object.name)?;
        let bytes = match &object.content {
            Content::Opaque(bytes) => bytes.clone(),
            Content::Value(value) => {
                value.to_bytes().map_err(|e| check::invalid(&object.name, e.to_string()))?.into()
            }
        };
        Ok(ObjectBytes { bounds: Bounds::whole(&[bytes.len() as u64]), bytes })
    };
    objects.iter().map(encode).collect()
}

/// The items of `state`, sorted by name and rank, checked for everything that needs neither bytes nor other ranks.
/// `objects` are the stored bytes of its objects.
pub(crate) fn items<'a>(
    state: &'a State<'_>,
    objects: &'a [ObjectBytes],
    seat: Seat,
) -> Result<Vec<Item<'a>>, SaveError> {
    let mut shards: Vec<&Shard<'_>> = state.shards.iter().collect();
    shards.sort_by(|a, b| (&a.name, &a.bounds.offset).cmp(&(&b.name, &b.bounds.offset)));
    let mut items = Vec::with_capacity(shards.len() + objects.len());
    for of_one in shards.chunk_by(|a, b| a.name == b.name) {
        items.push(tensor(of_one, seat)?);
    }
    items.extend(state.objects.iter().zip(objects).map(|(entry, stored)| object(entry, stored)));
    items.sort_by_key(|item| (item.name, item.rank));
    check::items(&items, seat)?;
    Ok(items)
}

fn tensor<'a>(shards: &[&'a Shard<'_>], seat: Seat) -> Result<Item<'a>, SaveError> {
    check::shards(shards, seat)?;
    let first = shards[0];
    let mut item = Item {
        name: &first.name,
        rank: None,
        kind: Kind::Tensor,
        element: ElementType::Dtype(first.dtype),
        shape: &first.shape,
        alias_of: first.alias_of.as_deref(),
        boxes: Vec::with_capacity(1),
        replicas: Vec::new(),
    };
    shards.iter().filter(|shard| !shard.bounds.is_empty()).for_each(|shard| item.add(shard));
    // What other ranks hold shows when their parts come together.
    if seat.is_alone() && !item.shape.contains(&0) {
        let boxes: Vec<&Bounds> = item.boxes.iter().map(|part| part.bounds).collect();
        check::coverage(item.name, item.shape, &boxes)?;
    }
    Ok(item)
}

impl<'a> Item<'a> {
    /// Adds a shard; shards come sorted by offset, so that replicas follow each other unless boxes overlap.
    fn add(&mut self, shard: &&'a Shard<'_>) {
        let Shard { bounds, source, dtype, name, replicas, .. } = *shard;
        let part = Part { bounds, source: *source, bits: dtype.bits(), name, replicas };
        let same_offset =
            self.boxes.iter().enumerate().rev().take_while(|(_, b)| b.bounds.offset == bounds.offset);
        match same_offset.map(|(i, b)| (i, b.bounds)).find(|(_, b)| b.extent == bounds.extent) {
            Some((i, _)) => self.replicas.push((i, part)),
            None => self.boxes.push(part),
        }
    }
}

fn object<'a>(entry: &'a ObjectEntry, stored: &'a ObjectBytes) -> Item<'a> {
    let ObjectBytes { bytes, bounds } = stored;
    let replicas = match entry.owner {
        Owner::Job => OF_ALL,
        Owner::JobFromHere | Owner::Rank(_) => OF_ONE,
    };
    let part = Part { bounds, source: Source::Memory(bytes), bits: 8, name: &entry.name, replicas };
    Item {
        name: &entry.name,
        rank: entry.owner.rank(),
        kind: Kind::Object,
        element: match entry.content {
            Content::Value(_) => ElementType::Value,
            Content::Opaque(_) => ElementType::Opaque,
        },
        shape: &bounds.extent,
        alias_of: None,
        boxes: if bytes.is_empty() { Vec::new() } else { vec![part] },
        replicas: Vec::new(),
    }
}
