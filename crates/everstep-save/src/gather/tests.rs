use everstep_format::dtype::Dtype;
use everstep_format::repository::Chunking;

use super::*;
use crate::group::{Group, Replicas};
use crate::item::items;
use crate::{ByteSource, Shard, State};

/// A source of any length, which notes what it is asked for.
struct Asked {
    len: u64,
    reads: Mutex<Vec<(u64, usize)>>,
}

impl ByteSource for Asked {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        self.reads.lock().unwrap().push((offset, into.len()));
        Ok(())
    }
}

/// What is read for the chunks of a tensor of `shape` that `wanted` chooses by number; (chunks, reads).
fn reads(dtype: Dtype, shape: &[u64], wanted: impl Fn(usize) -> bool) -> (usize, Vec<(u64, usize)>) {
    let len = dtype.byte_len(shape.iter().product()).unwrap();
    let source = Asked { len, reads: Mutex::default() };
    let shard = Shard {
        name: "t".to_owned(),
        dtype,
        shape: shape.to_vec(),
        bounds: Bounds::whole(shape),
        alias_of: None,
        replicas: Replicas::None,
        source: Source::Reader(&source),
    };
    let state = State { shards: vec![shard], objects: Vec::new() };
    let seat = Group::alone().check(true).unwrap();
    let items = items(&state, &[], seat).unwrap();
    let plan = Plan::new(&items, &Chunking::default(), seat);
    assert_eq!(plan.sums.raw_bytes, len);
    let scratch = Scratch::new(16 << 20);
    for (_, chunk) in plan.chunks.iter().enumerate().filter(|(n, _)| wanted(*n)) {
        scratch.give_back(load(&plan, chunk, &scratch).unwrap());
    }
    let reads = source.reads.lock().unwrap().clone();
    (plan.chunks.len(), reads)
}

#[test]
fn c24_a_source_beyond_4_gibibytes_is_asked_for_the_right_bytes() {
    let block = 2usize << 20;
    let (chunks, asked) = reads(Dtype::U8, &[(1 << 32) + 1], |n| n == 0 || n >= 2046);
    assert_eq!(chunks, 2049);
    let start = |n: u64| n * block as u64;
    assert_eq!(asked, [(0, block), (start(2046), block), (start(2047), block), (1 << 32, 1)]);

    let (chunks, asked) = reads(Dtype::F32, &[(1 << 29) + 1], |n| n >= 255);
    assert_eq!((chunks, asked), (257, vec![((1 << 31) - (8 << 20), 8 << 20), (1 << 31, 4)]));

    // A tensor of 2^40 elements: half a million chunks are planned, two of them read.
    let (chunks, asked) = reads(Dtype::F32, &[1 << 20, 1 << 20], |n| n == 1 << 10 || n + 1 == 1 << 19);
    assert_eq!((chunks, asked), (1 << 19, vec![(1 << 33, 8 << 20), ((1 << 42) - (8 << 20), 8 << 20)]));
}
