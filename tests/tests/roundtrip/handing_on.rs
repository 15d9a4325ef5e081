//! The index, read by one process of a machine and handed on to the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use everstep::{
    Bounds, Checkpoint, Dtype, ErrorKind, Group, MemoryRendezvous, Options, Progress, Rank, Replicas,
    Repository, Saved, Shard, Source, State, Step, WriterOptions,
};
use everstep_tests::large::run;

/// Two tensors of 10,000 numbers each.
fn state(bytes: &[u8], replicas: Replicas) -> State<'_> {
    let shard = |name: &str| Shard {
        name: name.to_owned(),
        dtype: Dtype::U64,
        shape: vec![10_000],
        bounds: Bounds::whole(&[10_000]),
        alias_of: None,
        replicas: replicas.clone(),
        source: Source::Memory(bytes),
    };
    State { shards: vec![shard("w"), shard("b")], objects: vec![] }
}

fn numbers(step: u64) -> Vec<u8> {
    (0..10_000u64).flat_map(|n| (n * step).to_le_bytes()).collect()
}

/// A repository with the checkpoints of steps 1 and 2.
fn trained() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display().to_string();
    let repository = Repository::init(&place, &Options::default(), Default::default()).unwrap();
    let mut writer = repository.run("gpt").unwrap().writer(WriterOptions::default()).unwrap();
    for step in [1, 2] {
        let bytes = numbers(step);
        writer.save(Step(step), &state(&bytes, Replicas::None), Default::default()).unwrap();
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
    let part = run(5_000, 3);
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

#[derive(Default)]
struct Heard {
    planned: AtomicU64,
    done: AtomicU64,
}

impl Progress for Heard {
    fn planned(&self, bytes: u64) {
        self.planned.fetch_add(bytes, Ordering::SeqCst);
    }

    fn done(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::SeqCst);
    }
}

/// Bytes that a process read while `save` ran.
fn read_by<T>(repository: &Repository, save: impl FnOnce() -> T) -> (u64, T) {
    let before = repository.traffic();
    let saved = save();
    (repository.traffic().since(&before).bytes_read, saved)
}

#[test]
fn a_session_reads_the_index_of_its_parent_unless_it_is_at_hand() {
    let bytes = numbers(2);
    let [at_hand, anew] = [true, false].map(|at_hand| {
        let folder = trained();
        let (repository, restored) = process(&folder, 2);
        let index = restored.index_file().unwrap().len() as u64;
        let mut writer = repository.run("gpt").unwrap().writer(WriterOptions::default()).unwrap();
        if at_hand {
            writer.take_index(&restored);
        }
        let state = state(&bytes, Replicas::None);
        let (read, report) = read_by(&repository, || writer.save(Step(3), &state, Saved::default()).unwrap());
        assert_eq!(report.chunks_uploaded, 0);
        writer.close().unwrap();
        (read, index)
    });
    assert_eq!(anew.0, at_hand.0 + anew.1, "bytes read with the index of the parent at hand, and without");
}

#[test]
fn a_rank_that_restored_saves_without_reading_the_index_again_and_each_hears_how_far_it_is() {
    let folder = trained();
    let [(leader, restored), (follower, own)] = [process(&folder, 2), process(&folder, 2)];
    let file = restored.index_file().unwrap();
    let own = own.with_index_file(file.clone()).unwrap();
    let meeting = Arc::new(MemoryRendezvous::new());
    let group = |rank| Group::new(Rank(rank), 2).meeting(meeting.clone());
    let mut writer = leader.run("gpt").unwrap().writer(WriterOptions::default()).unwrap();
    writer.take_index(&restored);
    let ticket = writer.ticket();
    let bytes = numbers(2);
    let heard = [Heard::default(), Heard::default()];
    let (led, member) = std::thread::scope(|scope| {
        let member = scope.spawn(|| {
            let mut member = follower.member(&ticket).unwrap();
            member.take_index(&own);
            let share = state(&bytes, Replicas::All);
            read_by(&follower, || member.save_with(Step(3), &share, &group(1), &heard[1]).unwrap())
        });
        let share = state(&bytes, Replicas::All);
        let progress: (&Group, &dyn Progress) = (&group(0), &heard[0]);
        let led = writer.save_in_with(Step(3), &share, Default::default(), progress).unwrap();
        (led, member.join().unwrap())
    });
    writer.close().unwrap();
    let (read, handed_in) = member;
    assert_eq!((led.chunks_uploaded, handed_in.chunks_uploaded), (0, 0));
    assert_eq!(read, 0, "the leader calls in memory, the index is at hand");
    for heard in heard {
        assert_eq!(heard.planned.into_inner(), 160_000);
        assert_eq!(heard.done.into_inner(), 160_000);
    }
}
