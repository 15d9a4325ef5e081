//! A save in two halves: hand in first, commit when somebody else says so.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use everstep::{
    AttemptState, Bounds, Cancel, Checkpoint, Dtype, Error, ErrorKind, Group, InitOptions, Member,
    MemoryRendezvous, Metadata, Options, Ordinal, Rank, Rendezvous, Replicas, Repository, SaveReport, Saved,
    Shard, Source, State, Step, Writer, WriterOptions,
};

const RANKS: u32 = 3;
const ROWS: u64 = 50;
const ROW_BYTES: usize = 400;

fn bytes(step: u64, rank: u32) -> Vec<u8> {
    let mut bytes = vec![0; 50 * ROW_BYTES];
    let seed = [step, u64::from(rank)].map(u64::to_le_bytes).concat();
    blake3::Hasher::new().update(&seed).finalize_xof().fill(&mut bytes);
    bytes
}

fn state(rank: u32, bytes: &[u8]) -> State<'_> {
    let shard = Shard {
        name: "w".to_owned(),
        dtype: Dtype::F32,
        shape: vec![u64::from(RANKS) * ROWS, 100],
        bounds: Bounds { offset: vec![u64::from(rank) * ROWS, 0].into(), extent: vec![ROWS, 100].into() },
        alias_of: None,
        replicas: Replicas::None,
        source: Source::Memory(bytes),
    };
    State { shards: vec![shard], objects: vec![] }
}

/// A job whose ranks are one thread.
struct Job {
    repository: Repository,
    board: Arc<dyn Rendezvous>,
    writer: Writer,
    members: Vec<Member>,
}

impl Job {
    fn new(name: &str) -> Self {
        let init = InitOptions { single_writer: true, ..InitOptions::default() };
        let repository =
            Repository::init(&format!("memory://{name}"), &Options::default(), init).expect("made");
        let writer =
            repository.run("gpt").expect("a name").writer(WriterOptions::default()).expect("it is free");
        let board: Arc<dyn Rendezvous> = Arc::new(MemoryRendezvous::new());
        let members = members(&repository, &writer);
        Self { repository, board, writer, members }
    }

    fn group(&self, rank: u32) -> Group {
        Group::new(Rank(rank), RANKS).within(Duration::from_millis(300)).meeting(self.board.clone())
    }

    fn lead(&mut self, step: u64) -> Result<(), Error> {
        let (bytes, group) = (bytes(step, 0), self.group(0));
        self.writer.hand_in(Step(step), &state(0, &bytes), &group).map(drop)
    }

    /// Members but those of `without` hand in.
    fn follow(&mut self, step: u64, without: &[u32]) {
        let groups: Vec<Group> = (0..RANKS).map(|rank| self.group(rank)).collect();
        for (rank, member) in (1..).zip(&mut self.members).filter(|(rank, _)| !without.contains(rank)) {
            let group = &groups[usize::try_from(rank).expect("small")];
            member.hand_in(Step(step), &state(rank, &bytes(step, rank)), group).expect("it hands in");
        }
    }

    fn commit(&mut self) -> Result<SaveReport, Error> {
        let group = self.group(0);
        self.writer.commit(Metadata::new(), &group)
    }

    fn save(&mut self, step: u64) -> SaveReport {
        self.lead(step).expect("it hands in");
        self.follow(step, &[]);
        let report = self.commit().expect("it commits");
        holds(&self.latest(), step);
        report
    }

    fn latest(&self) -> Checkpoint {
        self.repository.run("gpt").expect("a name").latest().expect("readable").expect("a checkpoint")
    }

    /// What became of the save attempts, in order.
    fn fates(&self) -> String {
        let attempts = self.repository.run("gpt").expect("a name").attempts().expect("readable");
        let fate = |(_, state): (Ordinal, AttemptState)| match state {
            AttemptState::Committed(_) => Some("C"),
            AttemptState::Aborted(..) => Some("A"),
            AttemptState::Undecided(_) => Some("?"),
            _ => None,
        };
        attempts.into_iter().filter_map(fate).collect()
    }
}

fn members(repository: &Repository, writer: &Writer) -> Vec<Member> {
    (1..RANKS).map(|_| repository.member(&writer.ticket()).expect("a ticket")).collect()
}

fn holds(checkpoint: &Checkpoint, step: u64) {
    assert_eq!(checkpoint.manifest().step, Step(step));
    let expected: Vec<u8> = (0..RANKS).flat_map(|rank| bytes(step, rank)).collect();
    assert!(checkpoint.read("w", None).expect("whole") == expected);
}

#[test]
fn two_halves_save_what_one_save_does() {
    let mut whole = Job::new("halves-whole");
    let groups = [0, 1, 2].map(|rank| whole.group(rank).within(Duration::from_secs(60)));
    let at_once = thread::scope(|scope| {
        for ((rank, member), group) in (1..).zip(&mut whole.members).zip(&groups[1..]) {
            scope.spawn(move || member.save(Step(1), &state(rank, &bytes(1, rank)), group).expect("saved"));
        }
        whole.writer.save_in(Step(1), &state(0, &bytes(1, 0)), Saved::default(), &groups[0]).expect("saved")
    });
    let mut halved = Job::new("halves-halved");
    let in_halves = halved.save(1);
    let sums = |report: &SaveReport| {
        let SaveReport { tensors, raw_bytes, chunks_uploaded, bytes_uploaded, packs, .. } = *report;
        (tensors, raw_bytes, chunks_uploaded, bytes_uploaded, packs)
    };
    assert_eq!(sums(&at_once), sums(&in_halves));
    assert_eq!(whole.latest().manifest().totals, halved.latest().manifest().totals);
    assert_eq!(in_halves.slowest.len(), 3);
    // The next one references what is unchanged, by the rank that has it.
    assert_eq!(halved.save(1).chunks_uploaded, 0);
    let manifest = halved.latest().manifest().clone();
    let stats = manifest.stats.expect("where the time went");
    assert!(stats["seconds"]["ranks"].is_number() && stats["ranks"].as_array().is_some_and(|r| r.len() == 3));
    let report = halved.repository.check(true, None, &()).expect("readable");
    assert!(report.is_sound(), "{:?}", report.damage().collect::<Vec<_>>());
}

#[test]
fn what_is_handed_in_is_no_checkpoint_before_its_commit_which_brings_the_metadata() {
    let mut job = Job::new("halves-metadata");
    job.save(1);
    job.lead(2).expect("it hands in");
    job.follow(2, &[]);
    holds(&job.latest(), 1);
    assert_eq!(job.fates(), "C?");
    let (mut metadata, group) = (Metadata::new(), job.group(0));
    metadata.insert("loss".to_owned(), 0.5.into());
    let report = job.writer.commit(metadata.clone(), &group).expect("it commits");
    assert_eq!(report.checkpoint.manifest.metadata, metadata);
    holds(&job.latest(), 2);
}

#[test]
fn c04_a_commit_without_a_report_names_the_rank_and_the_next_save_is_whole() {
    let mut job = Job::new("halves-missing");
    job.save(1);
    job.lead(2).expect("it hands in");
    job.follow(2, &[2]);
    let error = job.commit().expect_err("a rank is missing");
    assert_eq!(error.kind(), ErrorKind::RankFailed);
    assert!(error.to_string().contains("rank 2 handed nothing in"), "{error}");
    let again = job.commit().expect_err("it was given up");
    assert_eq!(again.kind(), ErrorKind::InvalidArgument);
    assert!(
        again.to_string().contains("step 2 was given up") && again.to_string().contains("rank 2"),
        "{again}"
    );
    holds(&job.latest(), 1);
    assert_eq!(job.fates(), "CA");
    job.members.remove(1);
    job.members.push(job.repository.member(&job.writer.ticket()).expect("a ticket"));
    job.save(3);
}

#[test]
fn giving_up_what_was_handed_in_tells_the_ranks_that_wait_and_a_commit_that_comes_later() {
    let mut job = Job::new("halves-given-up");
    job.lead(1).expect("it hands in");
    let group = job.group(1).within(Duration::from_secs(60));
    let handed_in = job.members[0].hand_in(Step(1), &state(1, &bytes(1, 1)), &group).expect("it hands in");
    let leaders = job.group(0);
    job.writer.give_up(Step(1), "the plan failed", &leaders).expect("told");
    let told = job.members[0].outcome(&handed_in, &group).expect_err("nothing was saved");
    assert_eq!(told.kind(), ErrorKind::RankFailed);
    assert!(told.to_string().contains("the plan failed"), "{told}");
    let late = job.commit().expect_err("it was given up");
    assert!(late.to_string().contains("the plan failed"), "{late}");
    assert_eq!(job.fates(), "A");
    job.members = members(&job.repository, &job.writer);
    job.save(2);
}

#[test]
fn giving_up_another_step_ends_what_was_handed_in_and_calls_the_other_off() {
    let mut job = Job::new("halves-other-step");
    job.lead(1).expect("it hands in");
    job.follow(1, &[]);
    let leaders = job.group(0);
    job.writer.give_up(Step(2), "no memory", &leaders).expect("told");
    assert_eq!(job.fates(), "A");
    let group = job.group(1);
    let told = job.members[0].hand_in(Step(2), &state(1, &bytes(2, 1)), &group).expect_err("called off");
    assert!(told.to_string().contains("no memory"), "{told}");
}

#[test]
fn whatever_else_is_saved_or_ended_gives_up_what_was_handed_in() {
    let mut job = Job::new("halves-ended");
    job.lead(1).expect("it hands in");
    job.follow(1, &[]);
    // By the next first half.
    job.save(2);
    assert_eq!(job.fates(), "AC");
    let whole = bytes(3, 0);
    let alone = Shard { bounds: Bounds::whole(&[50, 100]), shape: vec![50, 100], ..shard(&whole) };
    let alone = State { shards: vec![alone], objects: vec![] };
    job.lead(3).expect("it hands in");
    job.writer.save(Step(4), &alone, Saved::default()).expect("it saves");
    assert_eq!(job.fates(), "ACAC");
    job.lead(5).expect("it hands in");
    let target = job.latest();
    job.writer.rollback(&target).expect("it rolls back");
    assert_eq!(job.fates(), "ACACAC");
    let late = job.commit().expect_err("it was given up");
    assert!(late.to_string().contains("step 5 was given up (the run was rolled back"), "{late}");
    job.lead(6).expect("it hands in");
    let Job { writer, .. } = std::mem::replace(&mut job, Job::new("halves-ended-too"));
    writer.close().expect("it closes");
    let nothing = job.commit().expect_err("nothing was handed in");
    assert!(nothing.to_string().contains("hand a save in first"), "{nothing}");
}

fn shard(bytes: &[u8]) -> Shard<'_> {
    state(0, bytes).shards.remove(0)
}

#[test]
fn a_writer_that_is_closed_or_dropped_between_the_halves_leaves_nothing_undecided() {
    for close in [true, false] {
        let mut job = Job::new(&format!("halves-closed-{close}"));
        job.save(1);
        job.lead(2).expect("it hands in");
        let run = job.repository.run("gpt").expect("a name");
        let Job { writer, .. } = job;
        if close {
            writer.close().expect("it closes")
        } else {
            drop(writer)
        }
        let takeover = Some(everstep::Takeover::Now);
        let next = run.writer(WriterOptions { takeover, ..WriterOptions::default() }).expect("it takes over");
        holds(&next.latest().expect("the first"), 1);
        let undecided = |(_, state): &(Ordinal, AttemptState)| matches!(state, AttemptState::Undecided(_));
        assert!(!run.attempts().expect("readable").iter().any(undecided), "closed: {close}");
    }
}

#[test]
fn a_commit_in_a_group_of_another_size_or_with_too_much_metadata_ends_the_attempt() {
    let mut job = Job::new("halves-refused");
    job.lead(1).expect("it hands in");
    job.follow(1, &[]);
    let other = Group::new(Rank(0), RANKS + 1).meeting(job.board.clone());
    let error = job.writer.commit(Metadata::new(), &other).expect_err("another group");
    assert!(error.to_string().contains("4 ranks") && error.to_string().contains("3 ranks"), "{error}");
    job.lead(2).expect("it hands in");
    job.follow(2, &[]);
    let (mut metadata, group) = (Metadata::new(), job.group(0));
    metadata.insert("notes".to_owned(), "x".repeat(2 << 20).into());
    let error = job.writer.commit(metadata, &group).expect_err("too much");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(job.fates(), "AA");
    job.save(3);
}

#[test]
fn members_that_wait_for_the_outcome_hear_of_a_commit_in_halves() {
    let mut job = Job::new("halves-awaited");
    job.lead(1).expect("it hands in");
    let groups = [0, 1, 2].map(|rank| job.group(rank).within(Duration::from_secs(60)));
    thread::scope(|scope| {
        for ((rank, member), group) in (1..).zip(&mut job.members).zip(&groups[1..]) {
            scope.spawn(move || member.save(Step(1), &state(rank, &bytes(1, rank)), group).expect("saved"));
        }
        job.writer.commit(Metadata::new(), &groups[0]).expect("it commits");
    });
    holds(&job.latest(), 1);
}

#[test]
fn a_commit_that_is_interrupted_ends_the_attempt_and_tells_the_others() {
    let mut job = Job::new("halves-interrupted");
    job.lead(1).expect("it hands in");
    let group = job.group(1).within(Duration::from_secs(60));
    let handed_in = job.members[0].hand_in(Step(1), &state(1, &bytes(1, 1)), &group).expect("it hands in");
    let cancel = Cancel::new();
    let leaders = job.group(0).within(Duration::from_secs(60));
    let committed = thread::scope(|scope| {
        let committing = scope.spawn(|| cancel.scope(|| job.writer.commit(Metadata::new(), &leaders)));
        cancel.cancel();
        committing.join().expect("no panic")
    });
    assert_eq!(committed.expect_err("interrupted").kind(), ErrorKind::Interrupted);
    let told = job.members[0].outcome(&handed_in, &group).expect_err("it was interrupted");
    assert!(told.to_string().contains("interrupted"), "{told}");
    job.save(2);
    assert_eq!(job.fates(), "AC");
}

#[test]
fn a_session_carried_on_elsewhere_saves_in_turns_with_the_one_that_opened_it() {
    let mut job = Job::new("halves-adopted");
    let ticket = job.writer.ticket();
    job.save(1);
    // The daemon begins to count where the trainer did, on the same board.
    let mut daemon = Job {
        repository: job.repository.clone(),
        board: job.board.clone(),
        writer: job.repository.adopt(&ticket).expect("it is open"),
        members: members(&job.repository, &job.writer),
    };
    holds(&daemon.writer.latest().expect("the first"), 1);
    let steps = [2, 3, 4, 5, 6, 7];
    for step in steps {
        let who = if step % 3 == 0 { &mut job } else { &mut daemon };
        let report = who.save(step);
        let parents = report.checkpoint.manifest.parents.iter().map(|parent| parent.ordinal);
        assert_eq!(parents.collect::<Vec<_>>(), [Ordinal(step)], "step {step} stands on the one before");
    }
    // What one leaves open the other one ends.
    daemon.lead(8).expect("it hands in");
    daemon.follow(8, &[]);
    job.lead(9).expect("it hands in");
    let late = daemon.commit().expect_err("the trainer went on");
    assert_eq!(late.kind(), ErrorKind::Conflict);
    job.follow(9, &[]);
    job.commit().expect("it commits");
    holds(&job.latest(), 9);
    assert_eq!(job.fates(), "CCCCCCCAC");
    daemon.writer.close().expect("its part ends");
    job.save(10);
    job.writer.close().expect("it closes");
    let over = job.repository.adopt(&ticket).expect_err("it is closed");
    assert_eq!(over.kind(), ErrorKind::Conflict);
}
