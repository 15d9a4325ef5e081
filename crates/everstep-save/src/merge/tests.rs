use everstep_format::bounds::Bounds;
use everstep_format::codec::Codec;
use everstep_format::dtype::Dtype;
use everstep_format::id::{AttemptId, ChunkId, PackId};
use everstep_format::invariant;
use everstep_format::key::PackAddress;
use everstep_format::row::{ElementType, Kind, Location, Piece};
use proptest::prelude::*;

use super::*;

const WIDTH: u64 = 1024;

/// The box `at` of "w", stored by `rank`, with these contents.
fn stored(rank: u32, at: u64, contents: &str) -> PartRow {
    let pack = PackAddress { attempt: AttemptId([7; 16]), rank: Rank(rank), pack: PackId([1; 32]) };
    let pack_offset = 64 + WIDTH * u64::from(contents.as_bytes()[0]);
    let location = Location { pack, pack_len: 1 << 20, pack_offset, stored_len: WIDTH, codec: Codec::Raw };
    let row = Row {
        name: Arc::from("w"),
        kind: Kind::Tensor,
        element: ElementType::Dtype(Dtype::U8),
        shape: vec![4 * WIDTH].into(),
        bounds: Bounds { offset: vec![at * WIDTH].into(), extent: vec![WIDTH].into() },
        alias_of: None,
        rank: None,
        piece: Some(Piece {
            chunk: ChunkId::of(contents.as_bytes()),
            chunk_offset: 0,
            raw_len: WIDTH,
            location,
        }),
    };
    PartRow { row, own: None }
}

/// The same box, held by a rank that does not store it.
fn reported(at: u64, contents: &str) -> PartRow {
    let row = stored(0, at, contents);
    PartRow { own: row.hash(), row: Row { piece: None, ..row.row } }
}

fn parts<const N: usize>(rows: [Vec<PartRow>; N]) -> Vec<Part> {
    rows.into_iter().zip(0..).map(|(rows, rank)| Part { rank: Rank(rank), rows }).collect()
}

#[test]
fn parts_make_one_sorted_index_in_whatever_order_they_come() {
    let mut shards = parts([
        vec![stored(0, 0, "a"), stored(0, 3, "d")],
        vec![stored(1, 1, "b")],
        vec![],
        vec![stored(3, 2, "c")],
    ]);
    let rows = merge(parts([
        vec![stored(0, 0, "a"), stored(0, 3, "d")],
        vec![stored(1, 1, "b")],
        vec![],
        vec![stored(3, 2, "c")],
    ]))
    .unwrap();
    assert_eq!(rows.iter().map(|row| row.bounds.offset[0] / WIDTH).collect::<Vec<_>>(), [0, 1, 2, 3]);
    invariant::rows_are_sound(&rows).unwrap();
    shards.reverse();
    assert_eq!(merge(shards).unwrap(), rows);
}

#[test]
fn a_replica_that_agrees_is_dropped_whoever_stores_the_box() {
    for owner in 0..3u32 {
        let rows = std::array::from_fn::<_, 3, _>(|rank| {
            let row = |at| match u32::try_from(rank) == Ok(owner) {
                true => stored(owner, at, "same"),
                false => reported(at, "same"),
            };
            vec![row(0), row(1)]
        });
        let merged = merge(parts(rows)).unwrap();
        assert_eq!(merged, [stored(owner, 0, "same").row, stored(owner, 1, "same").row]);
    }
}

#[test]
fn replicas_that_differ_are_refused_with_tensor_box_and_ranks() {
    let error = merge(parts([vec![stored(0, 2, "a")], vec![], vec![reported(2, "b")]])).unwrap_err();
    let SaveError::RankReplicas { tensor, bounds, first, second } = error else { panic!("{error}") };
    assert_eq!((tensor.as_str(), bounds.offset), ("w", vec![2 * WIDTH].into()));
    assert_eq!((first, second), (Rank(0), Rank(2)));
    assert!(matches!(
        merge(parts([vec![stored(0, 2, "a")], vec![stored(1, 2, "b")]])),
        Err(SaveError::RankReplicas { .. })
    ));
}

#[test]
fn a_box_that_nobody_stored_is_refused_with_the_ranks_that_hold_it() {
    let error = merge(parts([vec![], vec![reported(1, "a")], vec![reported(1, "a")]])).unwrap_err();
    assert!(matches!(&error, SaveError::Unstored { ranks, .. } if ranks == "1, 2"), "{error}");
}

#[test]
fn boxes_and_descriptions_that_contradict_each_other_are_refused() {
    let mut wider = stored(1, 0, "a");
    wider.row.bounds.extent[0] *= 2;
    let error = merge(parts([vec![stored(0, 0, "a")], vec![wider]])).unwrap_err();
    assert!(matches!(&error, SaveError::Coverage { detail, .. } if detail.contains("rank 1")), "{error}");
    let mut other = reported(0, "a");
    other.row.element = ElementType::Dtype(Dtype::I8);
    let error = merge(parts([vec![stored(0, 0, "a")], vec![other]])).unwrap_err();
    assert!(matches!(&error, SaveError::Invalid { detail, .. } if detail.contains("i8")), "{error}");
}

#[test]
fn a_chunk_that_several_ranks_stored_is_referred_to_in_one_place() {
    let rows = merge(parts([vec![], vec![stored(1, 0, "zeros")], vec![stored(2, 1, "zeros")]])).unwrap();
    let writers: Vec<Rank> =
        rows.iter().map(|row| row.piece.as_ref().expect("stored").location.pack.rank).collect();
    assert_eq!(writers, [Rank(1), Rank(1)]);
}

#[test]
fn long_lists_of_ranks_are_cut() {
    let ranks: Vec<Rank> = (0..20).map(Rank).collect();
    assert_eq!(list(&ranks[..2]), "0, 1");
    assert_eq!(list(&ranks), "0, 1, 2, 3, 4, 5, 6, 7 and 12 more");
}

proptest! {
    /// However boxes and replicas are spread over ranks, every box comes out once, from a rank that stored it.
    #[test]
    fn every_box_comes_out_once(holders in prop::collection::vec((0u32..6, prop::collection::btree_set(0u32..6, 0..6)), 0..40)) {
        let mut of_ranks: [Vec<PartRow>; 6] = Default::default();
        for (at, (owner, others)) in (0u64..).zip(&holders) {
            let contents = format!("{}", at % 5);
            let mut add = |rank: u32, mut row: PartRow| {
                row.row.shape = vec![40 * WIDTH].into();
                of_ranks[usize::try_from(rank).expect("small")].push(row);
            };
            add(*owner, stored(*owner, at, &contents));
            others.iter().filter(|rank| *rank != owner).for_each(|rank| add(*rank, reported(at, &contents)));
        }
        let rows = merge(parts(of_ranks)).unwrap();
        let offsets: Vec<u64> = rows.iter().map(|row| row.bounds.offset[0] / WIDTH).collect();
        prop_assert_eq!(offsets, (0..holders.len() as u64).collect::<Vec<_>>());
        let mut places = HashMap::new();
        for row in &rows {
            let piece = row.piece.as_ref().expect("stored");
            prop_assert_eq!(*places.entry(piece.chunk).or_insert(piece.location), piece.location);
        }
    }

    /// Wherever parts are cut, their windows together are the whole.
    #[test]
    fn windows_merge_to_what_the_whole_does(
        names in prop::collection::vec(prop::collection::btree_set(10u8..30, 0..20), 1..5),
        cuts in prop::collection::btree_set(10u8..32, 0..6),
    ) {
        let named = |rank: u32, name: &u8| {
            let mut row = stored(rank, u64::from(rank), "same");
            row.row.name = name.to_string().into();
            row
        };
        let part = |(rank, names): (u32, &std::collections::BTreeSet<u8>)| {
            Part { rank: Rank(rank), rows: names.iter().map(|name| named(rank, name)).collect() }
        };
        let parts: Vec<Part> = (0..).zip(&names).map(part).collect();
        let cuts: Vec<Arc<str>> = cuts.iter().map(|cut| cut.to_string().into()).collect();
        let merged = |cuts: &[Arc<str>]| -> Vec<Place> {
            let windows = windows(&parts, cuts);
            assert_eq!(windows.len(), cuts.len() + 1);
            windows.into_iter().flat_map(|window| merge_window(&parts, window).unwrap()).collect()
        };
        prop_assert_eq!(merged(&cuts), merged(&[]));
    }
}
