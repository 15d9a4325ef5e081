//! An evaluation that follows a run on a disk while training writes, older checkpoints expire and are collected.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use everstep::gc::{Orders, Settings};
use everstep::{
    Bounds, Checkpoint, Dtype, ErrorKind, Options, Ordinal, Replicas, Repository, Run, Shard, Source, State,
    Step, Writer, WriterOptions,
};

const ROUNDS: u64 = 3;
const PATIENCE: Duration = Duration::from_secs(60);
const ELEMENTS: usize = 20_000;

fn open(place: &str) -> Run {
    Repository::open(place, &Options::default()).expect("opens").run("gpt").expect("a run")
}

/// The only tensor of the checkpoint of `step`.
fn weights(step: u64) -> Vec<u8> {
    (0..ELEMENTS as u64).flat_map(|n| (n * step).to_le_bytes()).collect()
}

fn save(writer: &mut Writer, step: u64) {
    let (bytes, shape) = (weights(step), vec![ELEMENTS as u64]);
    let bounds = Bounds::whole(&shape);
    let (name, source) = ("w".to_owned(), Source::Memory(&bytes));
    let replicas = Replicas::None;
    let shard = Shard { name, dtype: Dtype::U64, shape, bounds, alias_of: None, replicas, source };
    writer
        .save(Step(step), &State { shards: vec![shard], objects: vec![] }, Default::default())
        .expect("saved");
}

/// Expires all but the newest checkpoint, and deletes what only they used.
fn retire(place: &str, run: &Run) {
    let attempts = run.attempts().expect("listed");
    let live = |(ordinal, state): &(Ordinal, everstep::AttemptState)| {
        matches!(state, everstep::AttemptState::Committed(_)).then_some(*ordinal)
    };
    let mut ordinals: Vec<Ordinal> = attempts.iter().filter_map(live).collect();
    ordinals.pop();
    ordinals.iter().for_each(|ordinal| run.expire(*ordinal, "test").expect("expired"));
    let repository = Repository::open(place, &Options::default()).expect("opens");
    repository.collect(Orders::Sweep, Settings::default(), &()).expect("collected");
}

/// Two checkpoints a round, of which the first is gone again at once.
fn train(place: &str, go: &Receiver<()>) {
    let run = open(place);
    let mut writer = run.writer(WriterOptions::default()).expect("opens");
    for round in 1..=ROUNDS {
        save(&mut writer, 2 * round - 1);
        save(&mut writer, 2 * round);
        retire(place, &run);
        go.recv_timeout(PATIENCE).expect("the follower saw something new");
    }
    writer.close().expect("closed");
}

/// Every step that was seen, in order.
fn follow(place: &str, news: &Sender<()>) -> Vec<u64> {
    let run = open(place);
    let mut known: Option<Checkpoint> = None;
    let mut seen = Vec::new();
    while known.as_ref().is_none_or(|known| known.manifest().step < Step(2 * ROUNDS)) {
        let found =
            run.wait(known.as_ref(), PATIENCE).expect("a reader meets no conflict").expect("news in time");
        let step = found.manifest().step.0;
        match found.read("w", None) {
            Ok(bytes) => assert!(bytes == weights(step), "step {step} is not what was saved"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Expired, "{error}"),
        }
        seen.push(step);
        if step.is_multiple_of(2) {
            // The trainer is gone only when it has failed.
            let _ = news.send(());
        }
        known = Some(found);
    }
    seen
}

#[test]
fn an_evaluation_sees_ever_newer_checkpoints_while_older_ones_expire_and_are_collected() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("repo").display().to_string();
    Repository::init(&place, &Options::default(), Default::default()).expect("made");
    let (news, go) = channel();
    let seen = thread::scope(|scope| {
        let place = &place;
        scope.spawn(move || train(place, &go));
        follow(place, &news)
    });
    assert!(seen.is_sorted_by(|a, b| a < b) && seen.last() == Some(&(2 * ROUNDS)), "{seen:?}");
    let run = open(&place);
    let last = run.latest().expect("read").expect("there");
    assert_eq!(run.wait(Some(&last), Duration::ZERO).expect("read").map(|news| news.manifest().step), None);
}

#[test]
fn what_a_lease_holds_stays_readable_after_it_has_expired_and_goes_when_it_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("repo").display().to_string();
    Repository::init(&place, &Options::default(), Default::default()).expect("made");
    let run = open(&place);
    let mut writer = run.writer(WriterOptions::default()).expect("opens");
    save(&mut writer, 1);
    let held = run.latest().expect("read").expect("there");
    let lease = held.lease(Duration::from_secs(3600)).expect("taken");
    save(&mut writer, 2);
    retire(&place, &run);
    assert!(held.read("w", None).expect("kept") == weights(1));
    let gone = run.checkpoint(held.manifest().ordinal).expect_err("it has expired");
    assert_eq!(gone.kind(), ErrorKind::Expired);
    assert_eq!(held.lease(Duration::from_secs(3600)).expect_err("too late").kind(), ErrorKind::Expired);
    lease.end().expect("ended");
    retire(&place, &run);
    assert_eq!(held.read("w", None).expect_err("collected").kind(), ErrorKind::Expired);
    assert_eq!(held.lease(Duration::from_secs(1)).expect_err("too short").kind(), ErrorKind::InvalidArgument);
    writer.close().expect("closed");
}
