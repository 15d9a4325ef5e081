//! Saved by many ranks, in any sharding and with any replicas; loaded by as many as you like.

use everstep_format::bounds::Bounds;
use everstep_format::dtype::Dtype;
use everstep_format::name::Rank;
use everstep_format::repository::Chunking;
use everstep_format::value::Value;
use everstep_restore::{RestoreError, RestoreOptions, Settings, Target};
use everstep_save::{Content, ObjectEntry, Owner, RankSet, Replicas, SaveError, Shard, Source, State};
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::any::{self, Case, Tensor};
use crate::fixture::{Fixture, bytes_of_stored};
use crate::{objects_come_back, reads_single_boxes, restores_all_boxes};

/// Something drawn from `seed` that differs for every `number`.
fn draw(seed: u64, number: u64) -> u64 {
    let hash = blake3::hash(&[seed.to_le_bytes(), number.to_le_bytes()].concat());
    u64::from_le_bytes(hash.as_bytes()[..8].try_into().unwrap())
}

/// Which ranks hold a shard: all, one, or some.
fn holders(ranks: u32, drawn: u64) -> (Vec<u32>, Replicas) {
    let all = (0..ranks).collect();
    match drawn % 4 {
        0 => (all, Replicas::All),
        1 => {
            let some: Vec<u32> = (0..ranks).filter(|rank| (drawn >> (8 + rank)) & 1 == 1).collect();
            let some = if some.is_empty() { all } else { some };
            let set = RankSet::new(some.iter().copied().map(Rank));
            (some, Replicas::These(set))
        }
        _ => (vec![u32::try_from(drawn >> 32).unwrap() % ranks], Replicas::None),
    }
}

/// The state of every rank: each shard of `case` is held by some, each object of the job by the leader and some others, or
/// stored by some other one.
fn states(case: &Case, ranks: u32, seed: u64) -> Vec<State<'_>> {
    let mut states: Vec<State<'_>> = (0..ranks).map(|_| State::default()).collect();
    let of = |rank: u32| usize::try_from(rank).unwrap();
    for (number, shard) in (0..).zip(case.state().shards) {
        let (holders, replicas) = holders(ranks, draw(seed, number));
        for rank in holders {
            states[of(rank)].shards.push(Shard { replicas: replicas.clone(), ..shard.clone() });
        }
    }
    for (number, object) in (1000..).zip(&case.objects) {
        let drawn = draw(seed, number);
        let giver = (drawn >> 63 == 1).then(|| u32::try_from(drawn >> 32 & 0xff).unwrap() % ranks);
        let holds = |rank: u32| match object.owner.rank() {
            Some(own) => own.0 == rank,
            None => giver.unwrap_or(0) == rank || drawn >> rank & 1 == 1,
        };
        for rank in (0..ranks).filter(|&rank| holds(rank)) {
            let owner = if giver == Some(rank) && object.owner == Owner::Job {
                Owner::JobFromHere
            } else {
                object.owner
            };
            states[of(rank)].objects.push(ObjectEntry { owner, ..object.clone() });
        }
    }
    states
}

proptest! {
    #![proptest_config(Config { cases: 96, ..Config::default() })]

    #[test]
    fn any_state_saved_by_any_ranks_comes_back_in_any_box(
        mut case in any::case(), ranks in 2..8u32, seed in any::<u64>(),
    ) {
        case.objects.retain(|object| object.owner.rank().is_none_or(|rank| rank.0 < ranks));
        let fixture = Fixture::new(case.chunking.clone());
        let reader = fixture.save_in_ranks(&states(&case, ranks, seed)).unwrap();
        restores_all_boxes(&fixture, &reader, &case)?;
        reads_single_boxes(&fixture, &reader, &case)?;
        objects_come_back(&fixture, &reader, &case)?;
        let totals = &reader.checkpoint().manifest.totals;
        prop_assert_eq!(totals.tensors, case.tensors.len() as u64);
        prop_assert_eq!(totals.objects, case.objects.len() as u64);
        // Once more by another number of ranks that hold other replicas.
        let again = fixture.save_in_ranks(&states(&case, 7, seed ^ 1)).unwrap();
        restores_all_boxes(&fixture, &again, &case)?;
        prop_assert_eq!(again.checkpoint().manifest.world_size, 7);
        prop_assert_eq!(fixture.sound(), Vec::<String>::new());
    }
}

fn bounds(offset: &[u64], extent: &[u64]) -> Bounds {
    Bounds { offset: offset.into(), extent: extent.into() }
}

/// Rows of `rank` of `world`, by the rule ceil(n / world): later ranks may have none.
fn rows_of(rank: u64, world: u64, shape: &[u64]) -> Bounds {
    let rows = shape[0].div_ceil(world);
    let start = (rank * rows).min(shape[0]);
    let mut piece = Bounds::whole(shape);
    (piece.offset[0], piece.extent[0]) = (start, rows.min(shape[0] - start));
    piece
}

fn arange(name: &str, shape: &[u64]) -> Tensor {
    let count = u16::try_from(shape.iter().product::<u64>()).unwrap();
    Tensor::new(name, Dtype::F32, shape, (0..count).flat_map(|n| f32::from(n).to_le_bytes()).collect())
}

fn shard<'a>(tensor: &Tensor, bounds: Bounds, bytes: &'a [u8]) -> Shard<'a> {
    Shard {
        name: tensor.name.clone(),
        dtype: tensor.dtype,
        shape: tensor.shape.clone(),
        bounds,
        alias_of: None,
        replicas: Replicas::None,
        source: Source::Memory(bytes),
    }
}

#[test]
fn c10_uneven_shards_and_ranks_with_nothing_load_on_any_number_of_ranks() {
    let tensors = [("A", &[50, 3][..]), ("B", &[10]), ("C", &[4]), ("D", &[1, 3])].map(|(n, s)| arange(n, s));
    let last = arange("E", &[5]);
    let share = |rank: u64| -> Vec<(usize, Bounds, Vec<u8>)> {
        let cut = |(n, tensor): (usize, &Tensor)| {
            let own = rows_of(rank, 8, &tensor.shape);
            (n, own.clone(), tensor.bytes_of(&own))
        };
        tensors.iter().enumerate().map(cut).collect()
    };
    let shares: Vec<_> = (0..8).map(share).collect();
    let empty = |n: usize| shares.iter().filter(|share| share[n].1.is_empty()).count();
    assert_eq!([empty(0), empty(1), empty(2), empty(3)], [0, 3, 4, 7]);
    let mut states: Vec<State<'_>> = shares
        .iter()
        .map(|share| State {
            shards: share.iter().map(|(n, own, bytes)| shard(&tensors[*n], own.clone(), bytes)).collect(),
            objects: vec![],
        })
        .collect();
    states[7].shards.push(shard(&last, Bounds::whole(&[5]), &last.bytes));

    let fixture = Fixture::new(Chunking::default());
    let reader = fixture.save_in_ranks(&states).unwrap();
    let all: Vec<&Tensor> = tensors.iter().chain([&last]).collect();
    for world in [6, 8, 5, 1, 16] {
        for rank in 0..world {
            let wanted: Vec<Bounds> = all.iter().map(|tensor| rows_of(rank, world, &tensor.shape)).collect();
            let expected: Vec<Vec<u8>> = all.iter().zip(&wanted).map(|(t, own)| t.bytes_of(own)).collect();
            let mut found: Vec<Vec<u8>> = expected.iter().map(|bytes| vec![0xA5; bytes.len()]).collect();
            let targets = all.iter().zip(wanted).zip(&mut found).map(|((tensor, bounds), into)| Target {
                name: tensor.name.clone(),
                dtype: tensor.dtype,
                shape: tensor.shape.clone(),
                bounds,
                into,
            });
            let strictly = RestoreOptions::default();
            fixture.restore(&reader, targets.collect(), &strictly, &Settings::default()).unwrap();
            assert_eq!(found, expected, "rank {rank} of {world}");
        }
    }
    assert_eq!(fixture.sound(), Vec::<String>::new());
}

#[test]
fn c10_state_of_each_rank_is_never_dropped_without_a_word() {
    let loader = |rank: u32| ObjectEntry {
        name: "dl".to_owned(),
        owner: Owner::Rank(Rank(rank)),
        content: Content::Value(Value::Int(i64::from(rank) * 100)),
    };
    let states: Vec<State<'_>> =
        (0..4).map(|rank| State { shards: vec![], objects: vec![loader(rank)] }).collect();
    let fixture = Fixture::new(Chunking::default());
    let reader = fixture.save_in_ranks(&states).unwrap();
    for rank in 0..4 {
        let own = fixture.object_of_rank(&reader, "dl", (Rank(rank), 4)).unwrap();
        assert!(matches!(own, everstep_restore::Content::Value(Value::Int(n)) if n == i64::from(rank) * 100));
    }
    for asked in [2, 8] {
        let error = fixture.object_of_rank(&reader, "dl", (Rank(0), asked)).unwrap_err();
        let RestoreError::WorldSize { stored, asked: found, .. } = &error else { panic!("{error}") };
        assert_eq!((stored.len(), *found), (4, asked));
        let text = error.to_string();
        assert!(text.contains("\"dl\"") && text.contains("saved for 4") && text.contains("rank 3"), "{text}");
        assert!(text.contains(&format!("asked for by {asked}")), "{text}");
        assert_eq!(everstep::Error::from(error).kind(), everstep::ErrorKind::SchemaMismatch);
    }
    assert!(fixture.object(&reader, "dl", Some(Rank(3))).is_ok(), "a policy may still ask for single ones");
}

fn given(name: &str, owner: Owner, bytes: &[u8]) -> ObjectEntry {
    ObjectEntry { name: name.to_owned(), owner, content: Content::Opaque(bytes.to_vec().into()) }
}

/// A state for each rank.
fn each_with(objects: Vec<Vec<ObjectEntry>>) -> Vec<State<'static>> {
    objects.into_iter().map(|objects| State { shards: vec![], objects }).collect()
}

#[test]
fn what_the_whole_job_has_may_be_stored_by_a_rank_that_is_not_the_leader() {
    let large: Vec<u8> = (0u32..3 << 20).map(|n| u8::try_from(n / 7 % 251).unwrap()).collect();
    let here = Owner::JobFromHere;
    let fixture = Fixture::new(Chunking { block_bytes: 1 << 20, ..Chunking::default() });
    let objects = vec![
        vec![given("of the leader", Owner::Job, b"0"), given("from the leader", here, b"00")],
        vec![
            given("nothing", here, b""),
            given("rng", Owner::Rank(Rank(1)), b"1"),
            given("small", here, b"11"),
        ],
        vec![given("both", here, b"same"), given("of the leader", Owner::Job, b"0")],
        vec![given("large", here, &large), given("both", here, b"same")],
    ];
    let reader = fixture.save_in_ranks(&each_with(objects)).unwrap();
    for (name, bytes) in [
        ("of the leader", &b"0"[..]),
        ("from the leader", b"00"),
        ("nothing", b""),
        ("small", b"11"),
        ("both", b"same"),
        ("large", &large),
    ] {
        assert_eq!(fixture.entry(&reader, name).unwrap().ranks, [], "{name}");
        let found = fixture.object(&reader, name, None).unwrap();
        assert!(bytes_of_stored(&found) == bytes, "{name}");
        assert!(fixture.object_of_rank(&reader, name, (Rank(5), 9)).is_ok(), "{name}: whoever asks");
    }
    assert_eq!(fixture.entry(&reader, "rng").unwrap().ranks, [Rank(1)]);
    assert!((0..4).all(|rank| fixture.stored_bytes(Some(rank)) > 0));
    assert_eq!(fixture.sound(), Vec::<String>::new());
}

#[test]
fn ranks_that_differ_in_what_the_whole_job_has_are_named_with_it() {
    let here = Owner::JobFromHere;
    for (one, other) in [(&b"abc"[..], &b"abd"[..]), (b"abc", b"abcd"), (b"", b"a"), (&[7; 9000], &[7; 8000])]
    {
        for first in [here, Owner::Job] {
            let objects = vec![vec![given("x", first, one)], vec![], vec![given("x", here, other)]];
            let error = Fixture::new(Chunking::default()).save_in_ranks(&each_with(objects)).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, SaveError::RankObjects { .. }), "{text}");
            assert!(text.contains("ranks 0 and 2") && text.contains("\"x\""), "{text}");
        }
    }
    let objects = vec![vec![], vec![given("x", here, b"a")], vec![given("x", Owner::Rank(Rank(2)), b"a")]];
    let error = Fixture::new(Chunking::default()).save_in_ranks(&each_with(objects)).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, SaveError::Invalid { .. }) && text.contains("\"x\""), "{text}");
    assert!(text.contains("rank 1 hands it in for the whole job, and rank 2 as its own"), "{text}");
}

#[test]
fn replicas_are_stored_once_and_by_all_who_hold_them() {
    const TENSORS: u64 = 12;
    let rows: u64 = 96;
    let tensors: Vec<Tensor> = (0..TENSORS)
        .map(|n| {
            let mut bytes = vec![0; 96 * 1024 * 4];
            blake3::Hasher::new().update(&n.to_le_bytes()).finalize_xof().fill(&mut bytes);
            Tensor::new(&format!("layers.{n}.weight"), Dtype::F32, &[rows, 1024], bytes)
        })
        .collect();
    let blocks = Chunking { block_elements: 8 * 1024, ..Chunking::default() };
    let alone = Fixture::new(blocks.clone());
    let state = State { shards: tensors.iter().flat_map(|t| t.state().shards).collect(), objects: vec![] };
    alone.save(&state);
    // Ranks 0 and 2 hold the upper halves, 1 and 3 the lower ones.
    let half = |rank: u64, tensor: &Tensor| {
        let own = bounds(&[rank % 2 * rows / 2, 0], &[rows / 2, 1024]);
        (own.clone(), tensor.bytes_of(&own))
    };
    let halves: Vec<Vec<(Bounds, Vec<u8>)>> =
        (0..4).map(|rank| tensors.iter().map(|tensor| half(rank, tensor)).collect()).collect();
    let states: Vec<State<'_>> = (0..4u32)
        .zip(&halves)
        .map(|(rank, halves)| {
            let set = Replicas::These(RankSet::new([Rank(rank % 2), Rank(rank % 2 + 2)]));
            let shards = tensors.iter().zip(halves).map(|(tensor, (own, bytes))| Shard {
                replicas: set.clone(),
                ..shard(tensor, own.clone(), bytes)
            });
            State { shards: shards.collect(), objects: vec![] }
        })
        .collect();
    let fixture = Fixture::new(blocks);
    let reader = fixture.save_in_ranks(&states).unwrap();
    let (once, in_ranks) = (alone.stored_bytes(None), fixture.stored_bytes(None));
    eprintln!("2 x 2 replicas: {in_ranks} bytes in packs, one copy by one writer {once}");
    assert!(in_ranks * 100 <= once * 102, "{in_ranks} and {once}");
    for rank in 0..4 {
        let share = fixture.stored_bytes(Some(rank));
        assert!(share * 100 >= in_ranks * 20, "rank {rank} stored {share} of {in_ranks}");
    }
    assert!(tensors.iter().all(|tensor| fixture.read(&reader, &tensor.name, None) == tensor.bytes));
}

/// Saves shards of a `[4, 100]` tensor, one list per rank; what went wrong.
fn refused(shards: &[Vec<Shard<'_>>]) -> String {
    let states: Vec<State<'_>> =
        shards.iter().map(|shards| State { shards: shards.clone(), objects: vec![] }).collect();
    let error = Fixture::new(Chunking::default()).save_in_ranks(&states).unwrap_err();
    let own = matches!(
        error,
        SaveError::Coverage { .. }
            | SaveError::RankReplicas { .. }
            | SaveError::Unstored { .. }
            | SaveError::Invalid { .. }
            | SaveError::RanksFailed { .. }
    );
    assert!(own, "{error}");
    error.to_string()
}

fn rows(offset: u64, extent: u64, bytes: &[u8]) -> Shard<'_> {
    let tensor = Tensor::new("w", Dtype::U8, &[4, 1000], vec![]);
    shard(&tensor, bounds(&[offset, 0], &[extent, 1000]), &bytes[..usize::try_from(extent).unwrap() * 1000])
}

#[test]
fn what_no_rank_can_see_alone_is_refused_naming_tensor_and_ranks() {
    let (a, b) = (vec![1; 4000], vec![2; 4000]);
    let everywhere = |bytes| Shard { replicas: Replicas::All, ..rows(0, 4, bytes) };

    let gap = refused(&[vec![], vec![rows(0, 1, &a)], vec![rows(2, 2, &a)]]);
    assert!(gap.contains("\"w\"") && gap.contains("1, 2 hold"), "{gap}");
    let overlap = refused(&[vec![], vec![rows(0, 3, &a)], vec![rows(2, 2, &a)]]);
    assert!(overlap.contains("\"w\"") && overlap.contains("overlap"), "{overlap}");
    let replicas = refused(&[vec![everywhere(&a)], vec![everywhere(&a)], vec![everywhere(&b)]]);
    assert!(replicas.contains("\"w\"") && replicas.contains('2'), "{replicas}");
    let other_dtype = Shard { dtype: Dtype::I8, ..rows(2, 2, &a) };
    let dtypes = refused(&[vec![rows(0, 2, &a)], vec![other_dtype]]);
    assert!(dtypes.contains("\"w\"") && dtypes.contains("i8"), "{dtypes}");
    let alias = Shard { alias_of: Some("elsewhere".to_owned()), ..rows(0, 4, &a) };
    let unknown = refused(&[vec![alias.clone()], vec![]]);
    assert!(unknown.contains("elsewhere"), "{unknown}");
    // Only some of those that are said to hold it do.
    let owners: Vec<String> = (0..3)
        .map(|rank| (0..3).map(|n| if n == rank { vec![everywhere(&a)] } else { vec![] }).collect())
        .filter_map(|shards: Vec<Vec<Shard<'_>>>| {
            let states: Vec<State<'_>> =
                shards.into_iter().map(|shards| State { shards, objects: vec![] }).collect();
            Fixture::new(Chunking::default()).save_in_ranks(&states).err().map(|e| e.to_string())
        })
        .collect();
    assert_eq!(owners.len(), 2, "the owner alone would do: {owners:?}");
    assert!(owners.iter().all(|text| text.contains("\"w\"") && text.contains("held by")), "{owners:?}");
}

#[test]
fn an_alias_may_point_to_a_tensor_of_another_rank() {
    let bytes = vec![7; 4000];
    let other = Shard { name: "v".to_owned(), ..rows(0, 4, &bytes) };
    let alias = Shard { alias_of: Some("v".to_owned()), ..rows(0, 4, &bytes) };
    let states =
        [State { shards: vec![alias], objects: vec![] }, State { shards: vec![other], objects: vec![] }];
    let fixture = Fixture::new(Chunking::default());
    let reader = fixture.save_in_ranks(&states).unwrap();
    assert_eq!(fixture.entry(&reader, "w").unwrap().alias_of.as_deref(), Some("v"));
}
