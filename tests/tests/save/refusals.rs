//! What is wrong with a state is said before anything is claimed or stored.

use everstep_format::dtype::Dtype;
use everstep_format::name::{Rank, RunName};
use everstep_repo::Session;
use everstep_save::{Content, ObjectEntry, SaveError, SaveOptions, Shard, State, Tools, save};

use crate::bench::{Bench, bounds, tensors, whole};

/// Saves a state that must be refused; the message.
async fn refusal(bench: &Bench, session: &mut Session, state: &State<'_>) -> (SaveError, String) {
    let before = bench.requests();
    let error = bench.save(session, state).await.expect_err("must be refused");
    assert_eq!(bench.requests(), before, "refused without a request: {error}");
    let text = error.to_string();
    (error, text)
}

fn part<'a>(offset: &[u64], extent: &[u64], bytes: &'a [u8]) -> Shard<'a> {
    Shard { bounds: bounds(offset, extent), ..whole("w", Dtype::U8, &[4, 4], bytes) }
}

fn object(name: &str, rank: Option<u32>) -> ObjectEntry {
    ObjectEntry {
        name: name.to_owned(),
        owner: rank.map(Rank).into(),
        content: Content::Opaque(b"x".to_vec().into()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gaps_and_overlaps_are_refused_naming_the_tensor() {
    let bench = Bench::new().await;
    let mut session = bench.session().await;
    let cases = [
        vec![part(&[0, 0], &[2, 4], &[0; 8]), part(&[3, 0], &[1, 4], &[0; 4])],
        vec![part(&[0, 0], &[3, 4], &[0; 12]), part(&[2, 0], &[2, 4], &[0; 8])],
        vec![part(&[0, 0], &[4, 2], &[0; 8])],
        vec![part(&[0, 0], &[0, 4], &[])],
    ];
    for shards in cases {
        let (error, text) = refusal(&bench, &mut session, &tensors(shards)).await;
        assert!(matches!(error, SaveError::Coverage { .. }), "{text}");
        assert!(text.contains("\"w\""), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unequal_replicas_are_refused_naming_tensor_and_box() {
    let bench = Bench::with_blocks(4).await;
    let mut session = bench.session().await;
    let mut other = [5; 16];
    other[9] = 6;
    let state = tensors(vec![part(&[0, 0], &[4, 4], &[5; 16]), part(&[0, 0], &[4, 4], &other)]);
    let (error, text) = refusal(&bench, &mut session, &state).await;
    let SaveError::Replicas { tensor, bounds: found } = error else { panic!("{text}") };
    assert_eq!((&*tensor, found), ("w", bounds(&[2, 0], &[1, 4])));
}

#[tokio::test(flavor = "multi_thread")]
async fn c30_the_empty_name_is_refused_with_the_reason() {
    let bench = Bench::new().await;
    let mut session = bench.session().await;
    let (_, text) = refusal(&bench, &mut session, &tensors(vec![whole("", Dtype::U8, &[1], &[1])])).await;
    assert!(text.contains("must not be empty"), "{text}");
    let state = State { shards: Vec::new(), objects: vec![object("", None)] };
    let (_, text) = refusal(&bench, &mut session, &state).await;
    assert!(text.contains("must not be empty"), "{text}");
    let long = "x".repeat(16 * 1024 + 1);
    let (_, text) = refusal(&bench, &mut session, &tensors(vec![whole(&long, Dtype::U8, &[1], &[1])])).await;
    assert!(text.contains("16384") && text.len() < 1000, "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_mean_two_things_are_refused() {
    let bench = Bench::new().await;
    let mut session = bench.session().await;
    let tensor = || vec![whole("x", Dtype::U8, &[1], &[1])];
    let cases = [
        State { shards: tensor(), objects: vec![object("x", None)] },
        State { shards: Vec::new(), objects: vec![object("x", None), object("x", None)] },
        State { shards: Vec::new(), objects: vec![object("x", Some(1)), object("x", Some(1))] },
        State { shards: Vec::new(), objects: vec![object("x", None), object("x", Some(1))] },
    ];
    for state in cases {
        let (error, text) = refusal(&bench, &mut session, &state).await;
        assert!(matches!(error, SaveError::Invalid { .. }) && text.contains("\"x\""), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_that_contradict_themselves_or_each_other_are_refused() {
    let bench = Bench::new().await;
    let mut session = bench.session().await;
    let base = || part(&[0, 0], &[2, 4], &[0; 8]);
    let second = || part(&[2, 0], &[2, 4], &[0; 8]);
    let cases = [
        (vec![base(), Shard { dtype: Dtype::I8, ..second() }], "dtype"),
        (vec![base(), Shard { shape: vec![4, 5], ..second() }], "shape"),
        (vec![base(), Shard { alias_of: Some("v".to_owned()), ..second() }], "alias"),
        (vec![base(), part(&[2, 0], &[3, 4], &[0; 12])], "inside"),
        (vec![base(), part(&[2, 0], &[2, 4], &[0; 7])], "takes 8 bytes"),
        (vec![base(), part(&[2, u64::MAX], &[2, 4], &[0; 8])], "inside"),
        (vec![base(), part(&[2], &[2], &[0; 2])], "inside"),
        (vec![whole("w", Dtype::F64, &[1 << 62, 4], &[])], "2^64"),
        (vec![whole("w", Dtype::U8, &[1; 65], &[1])], "dimensions"),
        (vec![Shard { alias_of: Some("v".to_owned()), ..whole("w", Dtype::U8, &[1], &[1]) }], "alias"),
        (vec![Shard { alias_of: Some("w".to_owned()), ..whole("w", Dtype::U8, &[1], &[1]) }], "itself"),
    ];
    for (shards, reason) in cases {
        let (error, text) = refusal(&bench, &mut session, &tensors(shards)).await;
        assert!(matches!(error, SaveError::Invalid { .. }), "{text}");
        assert!(text.contains("\"w\"") && text.contains(reason), "{reason}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c21_a_shard_that_splits_a_packed_byte_is_refused() {
    let bench = Bench::new().await;
    let mut session = bench.session().await;
    let shard = |offset: u64, extent: u64, bytes: &'static [u8]| Shard {
        bounds: bounds(&[0, offset], &[2, extent]),
        ..whole("w", Dtype::F4E2m1, &[2, 8], bytes)
    };
    let (_, text) =
        refusal(&bench, &mut session, &tensors(vec![shard(0, 3, &[0; 3]), shard(3, 5, &[0; 5])])).await;
    assert!(text.contains("4-bit"), "{text}");
    bench.save(&mut session, &tensors(vec![shard(0, 2, &[0; 2]), shard(2, 6, &[0; 6])])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_beyond_its_limit_is_refused() {
    let bench = Bench::new().await;
    let mut session = bench.session().await;
    let before = bench.requests();
    let mut options = SaveOptions::at(1);
    options.metadata.insert("notes".to_owned(), "x".repeat(1 << 20).into());
    let Bench { engine, settings, cache, .. } = &bench;
    let tools = Tools { pool: engine.pool(), settings, progress: &(), cache };
    let error = save(&mut session, &State::default(), options, &tools).await.unwrap_err();
    assert!(error.to_string().contains("metadata"), "{error}");
    assert_eq!(bench.requests(), before);
    assert!(bench.repository.latest(&RunName::new("run").unwrap()).await.unwrap().is_none());
}
