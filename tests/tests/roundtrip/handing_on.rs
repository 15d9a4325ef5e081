//! The index, read by one process of a machine and handed on to the others.

use everstep::{
    Bounds, Checkpoint, Dtype, ErrorKind, Options, Replicas, Repository, Shard, Source, State, Step,
    WriterOptions,
};

/// A repository with the checkpoints of steps 1 and 2.
fn trained() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display().to_string();
    let repository = Repository::init(&place, &Options::default(), Default::default()).unwrap();
    let mut writer = repository.run("gpt").unwrap().writer(WriterOptions::default()).unwrap();
    for step in [1, 2] {
        let bytes: Vec<u8> = (0..10_000u64).flat_map(|n| (n * step).to_le_bytes()).collect();
        let shard = |name: &str| Shard {
            name: name.to_owned(),
            dtype: Dtype::U64,
            shape: vec![10_000],
            bounds: Bounds::whole(&[10_000]),
            alias_of: None,
            replicas: Replicas::None,
            source: Source::Memory(&bytes),
        };
        let state = State { shards: vec![shard("w"), shard("b")], objects: vec![] };
        writer.save(Step(step), &state, Default::default()).unwrap();
    }
    writer.close().unwrap();
    folder
}

/// What a process of its own has: nothing read yet.
fn process(folder: &tempfile::TempDir, step: u64) -> (Repository, Checkpoint) {
    let place = folder.path().display().to_string();
    let repository = Repository::open(&place, &Options::default()).unwrap();
    let reference = format!("gpt@step={step}").parse().unwrap();
    let (checkpoint, _) = repository.resolve(&reference).unwrap();
    (repository, checkpoint)
}

#[test]
fn a_process_that_was_handed_the_index_reads_what_it_estimates_and_nothing_else() {
    let folder = trained();
    let (first, checkpoint) = process(&folder, 2);
    let before = first.traffic();
    let file = checkpoint.index_file().unwrap();
    assert_eq!(first.traffic().since(&before).bytes_read, checkpoint.manifest().index.len);

    let (repository, checkpoint) = process(&folder, 2);
    let before = repository.traffic();
    let checkpoint = checkpoint.with_index_file(file.to_vec()).unwrap();
    let part = Bounds { offset: vec![5_000], extent: vec![3] };
    let estimate = checkpoint.estimate(&[("w".to_owned(), part.clone())]).unwrap();
    assert!(checkpoint.entry("b").unwrap().is_some());
    assert_eq!(repository.traffic().since(&before).requests(), 0);
    let expected: Vec<u8> = [10_000u64, 10_002, 10_004].iter().flat_map(|n| n.to_le_bytes()).collect();
    assert_eq!(checkpoint.read("w", Some(part)).unwrap(), expected);
    let spent = repository.traffic().since(&before);
    assert_eq!((spent.requests(), spent.bytes_read), (estimate.requests, estimate.stored_bytes));
    assert_eq!((estimate.raw_bytes, estimate.chunks, estimate.requests), (24, 1, 1));
}

#[test]
fn the_index_of_another_checkpoint_is_refused_in_so_many_words() {
    let folder = trained();
    let [file, own] = [1, 2].map(|step| process(&folder, step).1.index_file().unwrap());
    let (_, checkpoint) = process(&folder, 2);
    let error = checkpoint.with_index_file(file.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    for hash in [blake3::hash(&file), blake3::hash(&own)] {
        assert!(error.to_string().contains(&hash.to_string()), "{error}");
    }
    assert_eq!(checkpoint.entries(&Default::default()).unwrap().len(), 2, "what was refused does no harm");
}
