//! Whole saves on S3: what the cases ask of a checkpoint, not only of a request.

use std::time::Duration;

use everstep::{
    Bounds, Dtype, ErrorKind, Options, Replicas, Repository, Saved, Shard, Source, State, Step, WriterOptions,
};
use everstep_format::limits;
use everstep_sim::s3_stub::{Action, Rule, S3Stub, StubSettings};
use everstep_store::{RetryPolicy, StoreOptions};
use everstep_tests::large::Large;
use everstep_tests::servers::radosgw;
use http::Method;

use crate::stores::{options, quick};

fn with(store: StoreOptions) -> Options {
    Options { store, ..Options::default() }
}

fn reaching(stub: &S3Stub) -> Options {
    with(StoreOptions { s3: options(stub), retry: quick(), ..StoreOptions::default() })
}

/// A tensor of 3 Mi numbers, different in every step.
fn weights(step: u32) -> Vec<u8> {
    (0..3u32 << 20).flat_map(|number| (number ^ step).wrapping_mul(0x85eb_ca6b).to_le_bytes()).collect()
}

fn state(bytes: &[u8]) -> State<'_> {
    let shape = vec![bytes.len() as u64 / 4];
    let (bounds, source) = (Bounds::whole(&shape), Source::Memory(bytes));
    let shard = Shard {
        name: "w".to_owned(),
        dtype: Dtype::I32,
        shape,
        bounds,
        alias_of: None,
        replicas: Replicas::None,
        source,
    };
    State { shards: vec![shard], objects: vec![] }
}

/// Saves step 1 and reads it back through another opening.
fn saves_and_loads(address: &str, options: &Options) {
    let bytes = weights(1);
    let repository = Repository::init(address, options, Default::default()).unwrap();
    let mut writer = repository.run("gpt").unwrap().writer(WriterOptions::default()).unwrap();
    writer.save(Step(1), &state(&bytes), Saved::default()).unwrap();
    writer.close().unwrap();
    let checkpoint =
        Repository::open(address, options).unwrap().run("gpt").unwrap().latest().unwrap().unwrap();
    assert!(checkpoint.read("w", None).unwrap() == bytes);
}

#[test]
fn a_save_on_radosgw_comes_back() {
    let server = radosgw();
    let store = StoreOptions { s3: server.options(), ..StoreOptions::default() };
    saves_and_loads(&format!("s3://{}/a run", server.bucket()), &with(store));
}

#[test]
fn c13_a_save_through_throttling_resets_and_false_successes_is_whole() {
    let stub = S3Stub::start();
    stub.rule(Rule::on(Method::PUT, Action::Refuse(503, "SlowDown")).times(3));
    stub.rule(Rule::on(Method::GET, Action::Refuse(500, "InternalError")).times(1));
    stub.rule(Rule::on(Method::PUT, Action::ResetMidBody).at("/packs/").times(1));
    stub.rule(Rule::on(Method::PUT, Action::RefuseWith200("InternalError")).at("/packs/").after(1).times(1));
    stub.rule(Rule::on(Method::PUT, Action::DoThenDrop).at("/decisions/").times(1));
    saves_and_loads("s3://bucket/exp", &reaching(&stub));
    assert!(stub.seen().iter().all(|request| !request.is_multipart()));
}

#[test]
fn c14_a_commit_whose_reply_was_lost_is_a_success_with_one_decision() {
    for lost in [Action::DoThenDrop, Action::DoThenAnswer(409, "BlobAlreadyExists")] {
        let stub = S3Stub::start();
        stub.rule(Rule::on(Method::PUT, lost).at("/decisions/").times(1));
        saves_and_loads("s3://bucket/exp", &reaching(&stub));
        let commits = stub.objects("bucket").into_iter().filter(|(key, _)| key.contains("/decisions/"));
        assert!(commits.count() >= 1);
    }
}

#[test]
fn c15_the_almost_s3_stores_take_whole_saves() {
    let stub = S3Stub::with(StubSettings { refuse_checksums: true, page_keys: 3, ..StubSettings::default() });
    saves_and_loads("s3://bucket", &reaching(&stub));
}

#[test]
fn a_store_that_stops_answering_at_the_commit_leaves_the_outcome_unknown_and_the_data_in_place() {
    let stub = S3Stub::start();
    let retry = RetryPolicy { attempts: 2, budget: Duration::from_secs(2), ..quick() };
    let options = with(StoreOptions { s3: options(&stub), retry, ..StoreOptions::default() });
    let bytes = weights(1);
    let repository = Repository::init("s3://bucket", &options, Default::default()).unwrap();
    let mut writer = repository.run("gpt").unwrap().writer(WriterOptions::default()).unwrap();
    stub.rule(Rule::always(Action::DoThenDrop).at("/decisions/"));
    let error = writer.save(Step(1), &state(&bytes), Saved::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    stub.clear_rules();
    drop(writer);
    let latest = Repository::open("s3://bucket", &options).unwrap().run("gpt").unwrap().latest().unwrap();
    assert!(latest.expect("it had landed").read("w", None).unwrap() == bytes);
}

/// A slice costs a ranged GET for each chunk that it lies in.
fn slices_are_cheap(stub: &S3Stub, tensor: &Large) {
    let packs = || stub.seen().iter().filter(|request| request.target().contains("/packs/")).count() as u64;
    for (slice, chunks) in tensor.slices() {
        let repository = Repository::open("s3://bucket/exp", &reaching(stub)).unwrap();
        let checkpoint = repository.run("gpt").unwrap().latest().unwrap().unwrap();
        let before = packs();
        let found = checkpoint.read(tensor.name, Some(slice.clone())).unwrap();
        assert_eq!(found, tensor.expected(slice.offset[0], slice.extent[0]), "{slice}");
        assert!(packs() - before <= chunks, "{slice}");
    }
    assert!(stub.seen().iter().all(|request| !request.is_multipart()));
}

/// Every object went up in one PUT, far below what a PUT may carry.
fn objects_are_small(stub: &S3Stub) {
    let sizes: Vec<u64> = stub.objects("bucket").iter().map(|(_, bytes)| bytes.len() as u64).collect();
    assert!(sizes.len() > 20 && sizes.iter().all(|bytes| *bytes <= limits::PACK_BYTES));
    let puts = stub.seen().into_iter().filter(|request| request.method == Method::PUT);
    let sent: Vec<u64> = puts.filter_map(|request| request.body_bytes).collect();
    assert!(sent.len() >= sizes.len() && sent.iter().all(|bytes| *bytes <= limits::PACK_BYTES));
}

fn goes_through_s3(tensor: &Large) {
    let stub = S3Stub::start();
    let options = reaching(&stub);
    let repository = Repository::init("s3://bucket/exp", &options, Default::default()).unwrap();
    let mut writer = repository.run("gpt").unwrap().writer(WriterOptions::default()).unwrap();
    writer.save(Step(1), &tensor.state(), Saved::default()).unwrap();
    writer.close().unwrap();
    objects_are_small(&stub);
    let repository = Repository::open("s3://bucket/exp", &options).unwrap();
    tensor.assert_stored(&repository.run("gpt").unwrap().latest().unwrap().unwrap());
    slices_are_cheap(&stub, tensor);
}

#[test]
#[ignore = "long: 2 GiB through the stub, run by make test-long"]
fn c24_two_gibibytes_and_four_bytes_go_through_s3_in_single_puts() {
    goes_through_s3(&Large::floats());
}

#[test]
#[ignore = "long: 4 GiB through the stub, run by make test-long"]
fn c24_four_gibibytes_and_one_byte_go_through_s3_in_single_puts() {
    goes_through_s3(&Large::bytes());
}
