use everstep_format::codec::{Codec, Encoded};
use everstep_format::name::Rank;
use everstep_format::pack::PackChunk;

use super::*;

const ATTEMPT: AttemptId = AttemptId([1; 16]);
const RANK: Rank = Rank(3);

/// A pack of `count` chunks of `len` bytes each, numbered from `first`.
fn pack_of(first: usize, count: usize, len: usize) -> Vec<(ChunkId, Stored)> {
    let chunk = |n: usize| {
        let bytes: Vec<u8> = n.to_le_bytes().iter().copied().cycle().take(len).collect();
        let (chunk, raw_len) = (ChunkId::of(&bytes), len as u64);
        PackChunk { chunk, raw_len, encoded: Encoded { codec: Codec::Raw, bytes } }
    };
    let built = pack::build(ATTEMPT, RANK, (first..first + count).map(chunk).collect()).unwrap();
    built.chunks.into_iter().map(|(id, raw_len, location)| (id, Stored { raw_len, location })).collect()
}

fn parent(chunks: &[(ChunkId, Stored)]) -> Arc<Stock> {
    Arc::new(Stock { chunks: chunks.iter().copied().collect(), complete: true })
}

#[test]
fn a_wholly_used_pack_is_never_sparse_however_small_its_chunks() {
    for len in [1, 40, 64, 65, 5000] {
        for count in [1, 3, 100] {
            assert!(sparse_packs(&[parent(&pack_of(0, count, len))]).is_empty(), "{count} of {len} bytes");
        }
    }
}

#[test]
fn a_pack_used_by_less_than_half_is_sparse() {
    let chunks = pack_of(0, 10, 4096);
    assert!(sparse_packs(&[parent(&chunks[..5])]).is_empty());
    let known = Known { parents: vec![parent(&chunks[..4])], sparse: sparse_packs(&[parent(&chunks[..4])]) };
    assert!(known.get(&chunks[0].0).is_none(), "to be stored again");
    let piece = |location| Piece { chunk: chunks[0].0, chunk_offset: 0, raw_len: 4096, location };
    assert!(known.confirms(&piece(chunks[0].1.location)), "but a reference to it would be sound");
    assert!(!known.confirms(&piece(chunks[1].1.location)));
}

#[test]
fn what_two_parents_use_adds_up_and_counts_once() {
    let chunks = pack_of(0, 10, 4096);
    assert!(sparse_packs(&[parent(&chunks[..3]), parent(&chunks[3..6])]).is_empty());
    assert_eq!(sparse_packs(&[parent(&chunks[..4]), parent(&chunks[..4])]).len(), 1);
}

#[test]
fn a_chunk_of_a_sparse_pack_is_taken_from_another_parent() {
    let (sparse, full) = (pack_of(0, 10, 4096), pack_of(0, 2, 4096));
    let parents = vec![parent(&sparse[..2]), parent(&full)];
    let known = Known { sparse: sparse_packs(&parents), parents };
    assert_eq!(known.get(&full[0].0).unwrap().location, full[0].1.location);
}

#[test]
fn a_cache_keeps_what_the_next_save_may_ask_for() {
    let cache = SaveCache::default();
    let id = |n| AttemptId([n; 16]);
    cache.remember(id(1), &parent(&[]));
    cache.remember(id(2), &parent(&[]));
    cache.keep(id(3), Chunks::new(), &[id(2)]);
    assert!(cache.get(id(1)).is_none());
    assert!(cache.get(id(2)).is_some() && cache.get(id(3)).is_some());
}

#[test]
fn who_knows_a_share_alone_stores_anew_only_from_packs_that_it_wrote_itself() {
    let share = pack_of(0, 10, 4096)[..3].to_vec();
    let chunks = || share.iter().copied().collect::<Chunks>();
    let sparse_for = |writer: (AttemptId, Rank)| {
        let cache = SaveCache::default();
        cache.keep_share(writer, chunks(), &[]);
        cache.sparse_packs(&[cache.get(writer.0).unwrap()]).len()
    };
    assert_eq!(sparse_for((ATTEMPT, RANK)), 1);
    assert_eq!(sparse_for((ATTEMPT, Rank(4))), 0, "another rank may use the rest");
    assert_eq!(sparse_for((AttemptId([2; 16]), RANK)), 0);
}

#[test]
fn a_share_is_remembered_beside_what_it_may_be_compared_with_and_never_taken_for_the_whole() {
    let cache = SaveCache::default();
    let id = |n| AttemptId([n; 16]);
    cache.keep(id(7), Chunks::new(), &[]);
    cache.keep_share((id(8), RANK), Chunks::new(), &[id(7)]);
    assert!(cache.get(id(7)).unwrap().complete && !cache.get(id(8)).unwrap().complete);
    let written = pack_of(0, 1, 4096).into_iter().collect::<Chunks>();
    cache.keep_share((ATTEMPT, RANK), written, &[id(8)]);
    assert_eq!(cache.cached().written.len(), 1, "attempts whose packs nobody uses are forgotten");
    assert!(cache.get(id(7)).is_none());
}
