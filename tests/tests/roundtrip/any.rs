//! Strategies: any tensor, any sharding of it, any boxes wanted, any objects.

use everstep_format::bounds::Bounds;
use everstep_format::dtype::Dtype;
use everstep_format::grid::Grid;
use everstep_format::name::Rank;
use everstep_format::repository::Chunking;
use everstep_format::row::ElementType;
use everstep_format::value::Value;
use everstep_restore::Settings;
use everstep_save::{Content, ObjectEntry, Replicas, Shard, Source, State};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use crate::bits::{gather, positions};

/// A tensor, the shards it is saved in, and the boxes wanted of it.
#[derive(Debug, Clone)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<u64>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) shards: Vec<(Bounds, Vec<u8>)>,
    pub(crate) wanted: Vec<Bounds>,
}

/// A state, how it is cut and stored, and how it is read back.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) objects: Vec<ObjectEntry>,
    pub(crate) chunking: Chunking,
    pub(crate) settings: Settings,
}

impl Tensor {
    pub(crate) fn new(name: &str, dtype: Dtype, shape: &[u64], bytes: Vec<u8>) -> Self {
        let shape = shape.to_vec();
        let whole = Bounds::whole(&shape);
        let shards = vec![(whole.clone(), bytes.clone())];
        Self { name: name.to_owned(), dtype, shape, bytes, shards, wanted: vec![whole] }
    }

    pub(crate) fn named(&self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self.clone() }
    }

    pub(crate) fn bytes_of(&self, bounds: &Bounds) -> Vec<u8> {
        gather(&self.bytes, self.dtype.bits(), &positions(&self.shape, bounds))
    }

    /// Saved as one shard.
    pub(crate) fn whole(&self) -> Self {
        Self::new(&self.name, self.dtype, &self.shape, self.bytes.clone())
    }

    fn sharded(&self, boxes: Vec<Bounds>) -> Self {
        let shards = boxes.into_iter().map(|bounds| (bounds.clone(), self.bytes_of(&bounds))).collect();
        Self { shards, ..self.clone() }
    }

    /// Saved in shards that cut the outermost dimension at multiples of the grid's block.
    pub(crate) fn cut_on_the_grid(&self, block_elements: u64, block_bytes: u64, seed: u64) -> Self {
        let chunking = Chunking { block_elements, block_bytes, overrides: vec![] };
        let grid = Grid::new(&self.shape, &ElementType::Dtype(self.dtype), &chunking, &self.name);
        let whole = Bounds::whole(&self.shape);
        let Some((&size, &block)) = self.shape.first().zip(grid.block().first()) else { return self.whole() };
        let mut boxes = Vec::new();
        let (mut start, mut seed) = (0, seed);
        while start < size {
            let blocks = 1 + seed % 3;
            seed = seed.rotate_right(5);
            let len = (block.max(1) * blocks).min(size - start);
            let mut piece = whole.clone();
            (piece.offset[0], piece.extent[0]) = (start, len);
            boxes.push(piece);
            start += len;
        }
        if boxes.is_empty() { self.whole() } else { self.sharded(boxes) }
    }

    pub(crate) fn state(&self) -> State<'_> {
        State { shards: self.shards().collect(), objects: vec![] }
    }

    fn shards(&self) -> impl Iterator<Item = Shard<'_>> {
        self.shards.iter().map(|(bounds, bytes)| Shard {
            name: self.name.clone(),
            dtype: self.dtype,
            shape: self.shape.clone(),
            bounds: bounds.clone(),
            alias_of: None,
            replicas: Replicas::None,
            source: Source::Memory(bytes),
        })
    }
}

impl Case {
    pub(crate) fn state(&self) -> State<'_> {
        let shards = self.tensors.iter().flat_map(Tensor::shards).collect();
        State { shards, objects: self.objects.clone() }
    }
}

/// Shapes with up to 600 elements, often with odd or empty dimensions; of packed types the innermost one is even.
fn shape(dtype: Dtype) -> impl Strategy<Value = Vec<u64>> {
    let dimension = prop_oneof![1 => Just(0u64), 2 => Just(1), 20 => 1..9u64];
    prop_oneof![3 => vec(dimension, 0..5), 1 => (0..600u64).prop_map(|n| vec![n])].prop_map(
        move |mut shape| {
            if dtype.bits() == 4
                && let Some(last) = shape.last_mut()
            {
                *last *= 2;
            }
            shape
        },
    )
}

/// Bytes as states have them: random, constant, counting.
fn content(len: usize) -> impl Strategy<Value = Vec<u8>> {
    let counting = (0..len).map(|n| n.to_le_bytes()[0]).collect::<Vec<u8>>();
    prop_oneof![
        4 => vec(any::<u8>(), len),
        1 => any::<u8>().prop_map(move |byte| vec![byte; len]),
        1 => Just(counting),
    ]
}

/// Where to cut a dimension, with its ends; at even places where two elements share a byte.
fn cuts(size: u64, step: u64) -> impl Strategy<Value = Vec<u64>> {
    vec(0..=size / step, 0..3).prop_map(move |places| {
        let mut cuts: Vec<u64> = places.into_iter().map(|at| at * step).chain([0, size]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        cuts
    })
}

/// Boxes that make up `shape`: every dimension cut somewhere.
fn sharding(shape: &[u64], step: u64) -> impl Strategy<Value = Vec<Bounds>> + use<> {
    let last = shape.len().saturating_sub(1);
    let whole = Bounds::whole(shape);
    let dimensions: Vec<_> =
        shape.iter().enumerate().map(|(d, &size)| cuts(size, if d == last { step } else { 1 })).collect();
    dimensions.prop_map(move |cuts| {
        if whole.is_empty() {
            return vec![whole.clone()];
        }
        let mut boxes = vec![Bounds { offset: Default::default(), extent: Default::default() }];
        for cuts in &cuts {
            let with = |bounds: Bounds| {
                cuts.windows(2).map(move |pair| {
                    let mut bounds = bounds.clone();
                    bounds.offset.push(pair[0]);
                    bounds.extent.push(pair[1] - pair[0]);
                    bounds
                })
            };
            boxes = boxes.into_iter().flat_map(with).collect();
        }
        boxes
    })
}

/// Any box inside `shape`, also an empty one.
fn any_box(shape: &[u64], step: u64) -> impl Strategy<Value = Bounds> + use<> {
    let last = shape.len().saturating_sub(1);
    let range = |(d, &size): (usize, &u64)| {
        let step = if d == last { step } else { 1 };
        (0..=size / step, 0..=size / step)
            .prop_map(move |(a, b)| (a.min(b) * step, (a.max(b) - a.min(b)) * step))
    };
    let dimensions: Vec<_> = shape.iter().enumerate().map(range).collect();
    dimensions.prop_map(|ranges| {
        let (offset, extent) = ranges.into_iter().unzip();
        Bounds { offset, extent }
    })
}

/// Any tensor without a name.
pub(crate) fn tensor() -> impl Strategy<Value = Tensor> {
    let shaped = prop::sample::select(Dtype::ALL).prop_flat_map(|dtype| (Just(dtype), shape(dtype)));
    shaped.prop_flat_map(|(dtype, shape)| {
        let step = if dtype.bits() == 4 { 2 } else { 1 };
        let len = dtype.byte_len(shape.iter().product()).unwrap();
        let mut bytes = content(usize::try_from(len).unwrap()).boxed();
        if dtype.bits() == 4 && shape.iter().product::<u64>() % 2 == 1 {
            // The half byte that nothing uses.
            bytes = bytes.prop_map(clear_last_half).boxed();
        }
        (bytes, sharding(&shape, step), vec(any_box(&shape, step), 1..3)).prop_map(
            move |(bytes, boxes, wanted)| Tensor {
                wanted,
                ..Tensor::new("", dtype, &shape, bytes).sharded(boxes)
            },
        )
    })
}

fn clear_last_half(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(last) = bytes.last_mut() {
        *last &= 0x0F;
    }
    bytes
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::None),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        any::<u64>().prop_map(|bits| Value::Float(f64::from_bits(bits))),
        any::<String>().prop_map(Value::Text),
        vec(any::<u8>(), 0..40).prop_map(Value::Bytes),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::List),
            vec(inner.clone(), 0..4).prop_map(Value::Tuple),
            btree_map(any::<i64>(), inner, 0..4)
                .prop_map(|map| Value::Map(map.into_iter().map(|(k, v)| (Value::Int(k), v)).collect())),
        ]
    })
}

fn object_content() -> impl Strategy<Value = Content> {
    prop_oneof![
        value().prop_map(Content::Value),
        vec(any::<u8>(), 0..400).prop_map(|bytes| Content::Opaque(bytes.into())),
    ]
}

/// Under each name either one object for all, or one for each of some ranks.
fn objects() -> impl Strategy<Value = Vec<ObjectEntry>> {
    let one = (Just(false), vec(object_content(), 1..2));
    let per_rank = (Just(true), vec(object_content(), 1..4));
    vec(prop_oneof![one, per_rank], 0..4).prop_map(|named| {
        let entries = named.into_iter().enumerate().flat_map(|(n, (ranked, contents))| {
            contents.into_iter().zip(0u32..).map(move |(content, rank)| ObjectEntry {
                name: format!("object.{n}"),
                owner: ranked.then_some(Rank(rank * 2)).into(),
                content,
            })
        });
        entries.collect()
    })
}

pub(crate) fn settings() -> impl Strategy<Value = Settings> {
    (1..5000u64, 1..5usize, 0..300u64, 1..4000u64).prop_map(
        |(bytes_in_flight, reads, coalesce_gap, coalesce_max)| Settings {
            bytes_in_flight,
            reads,
            coalesce_gap,
            coalesce_max,
        },
    )
}

/// Blocks from a single element to more than any tensor here has.
fn chunking() -> impl Strategy<Value = Chunking> {
    (1..800u64, 16..4000u64).prop_map(|(block_elements, block_bytes)| Chunking {
        block_elements,
        block_bytes,
        overrides: vec![],
    })
}

pub(crate) fn case() -> impl Strategy<Value = Case> {
    let name = prop_oneof![3 => "[a-z]{1,3}(\\.[a-z0-9]{1,3}){0,3}", 1 => "\\PC{1,12}"];
    (btree_map(name, tensor(), 0..7), objects(), chunking(), settings()).prop_map(
        |(named, objects, chunking, settings)| {
            let tensors = named.iter().map(|(name, tensor)| tensor.named(&format!("t.{name}"))).collect();
            Case { tensors, objects, chunking, settings }
        },
    )
}
