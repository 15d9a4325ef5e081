//! Beyond 2 and 4 GiB, and beyond anything that is there: no size and no offset may be of 32 bits.

use everstep::{Bounds, Checkpoint, Options, Repository, Saved, Step, Verdict, WriterOptions};
use everstep_format::limits;
use everstep_store::{SystemWorld, open};
use everstep_tests::large::{Large, VAST, VAST_ELEMENTS, assert_packs_within_their_limit, commit_vast, run};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn newest(place: &str) -> (Repository, Checkpoint) {
    let repository = Repository::open(place, &Options::default()).unwrap();
    let checkpoint = repository.run("gpt").unwrap().latest().unwrap().unwrap();
    (repository, checkpoint)
}

/// A slice costs the chunks that it lies in and no more.
fn slices_are_cheap(place: &str, tensor: &Large) {
    for (slice, chunks) in tensor.slices() {
        let (repository, checkpoint) = newest(place);
        let file = checkpoint.index_file().unwrap();
        let checkpoint = checkpoint.with_index_file(file).unwrap();
        let estimate = checkpoint.estimate(&[(tensor.name.to_owned(), slice.clone())]).unwrap();
        assert_eq!((estimate.raw_bytes, estimate.chunks), (16, chunks), "{slice}");
        assert!(estimate.stored_bytes <= limits::GRID_BYTES, "less than one whole block: {estimate:?}");
        let before = repository.traffic();
        let found = checkpoint.read(tensor.name, Some(slice.clone())).unwrap();
        let spent = repository.traffic().since(&before);
        let start = slice.offset[0];
        assert_eq!(found, tensor.expected(start, slice.extent[0]), "{slice}");
        assert_eq!((spent.gets, spent.bytes_read), (estimate.requests, estimate.stored_bytes), "{slice}");
    }
}

fn comes_back(tensor: &Large) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display().to_string();
    let repository = Repository::init(&place, &Options::default(), Default::default()).unwrap();
    let mut writer = repository.run("gpt").unwrap().writer(WriterOptions::default()).unwrap();
    let report = writer.save(Step(1), &tensor.state(), Saved::default()).unwrap();
    writer.close().unwrap();
    let world = std::sync::Arc::new(SystemWorld::new());
    let stored = runtime().block_on(async {
        let store = open(&place, &Default::default(), world).await.unwrap();
        assert_packs_within_their_limit(store.as_ref()).await
    });
    assert_eq!(report.bytes_uploaded, stored);
    let (repository, checkpoint) = newest(&place);
    tensor.assert_stored(&checkpoint);
    assert_eq!(repository.check(false, None, &()).unwrap().verdict(), Verdict::Sound);
    slices_are_cheap(&place, tensor);
}

#[test]
#[ignore = "long: 2 GiB through save and restore, run by make test-long"]
fn c24_two_gibibytes_and_four_bytes_come_back_from_a_local_store() {
    comes_back(&Large::floats());
}

#[test]
#[ignore = "long: 4 GiB through save and restore, run by make test-long"]
fn c24_four_gibibytes_and_one_byte_come_back_from_a_local_store() {
    comes_back(&Large::bytes());
}

#[test]
fn c24_a_tensor_of_a_tebibyte_is_planned_and_read_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display().to_string();
    let made = Repository::init(&place, &Options::default(), Default::default()).unwrap();
    drop(made);
    runtime().block_on(async {
        let world = std::sync::Arc::new(SystemWorld::new());
        let store = open(&place, &Default::default(), world.clone()).await.unwrap();
        let repository = everstep_repo::Repository::open(store, world).await.unwrap();
        commit_vast(&repository, "gpt").await;
    });
    let (repository, checkpoint) = newest(&place);
    let manifest = checkpoint.manifest();
    assert_eq!((manifest.totals.raw_bytes, manifest.totals.chunks), (VAST_ELEMENTS, 1));
    let all = checkpoint.estimate(&[(VAST.to_owned(), Bounds::whole(&[VAST_ELEMENTS]))]).unwrap();
    assert_eq!((all.raw_bytes, all.chunks, all.requests), (VAST_ELEMENTS, 1, 1));
    for border in [1 << 31, 1 << 32, 1 << 33, VAST_ELEMENTS - 8] {
        let before = repository.traffic();
        assert_eq!(checkpoint.read(VAST, Some(run(border - 8, 16))).unwrap(), [0; 16], "around {border}");
        assert_eq!(repository.traffic().since(&before).gets, 1, "around {border}");
    }
    assert!(checkpoint.read(VAST, Some(run(VAST_ELEMENTS - 8, 16))).is_err());
    assert_eq!(repository.check(true, None, &()).unwrap().verdict(), Verdict::Sound);
}
