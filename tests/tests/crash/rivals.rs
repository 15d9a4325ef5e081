//! C28: two jobs write to one place.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use everstep::gc::{Orders, Policy, Settings};
use everstep::{
    Bounds, Dtype, ErrorKind, Options, Replicas, Repository, Saved, Shard, Source, State, Step, Takeover,
    WriterOptions,
};
use everstep_tests::binaries::binary_of;

const DIRECTORY: &str = "EVERSTEP_RIVAL_DIRECTORY";
const VALUE: &str = "EVERSTEP_RIVAL_VALUE";
const ROUNDS: u64 = 100;
/// Rounds with a collection in each.
const ROUNDS_COLLECTED: u64 = 20;
const POLICY: &str = "[[policy]]\nruns = \"*\"\nkeep_last = 1\n";
const BYTES: usize = 60_000;

fn state(bytes: &[u8]) -> State<'_> {
    let shards = (0..3).map(|n| Shard {
        name: format!("w{n}"),
        dtype: Dtype::U8,
        shape: vec![BYTES as u64],
        bounds: Bounds::whole(&[BYTES as u64]),
        alias_of: None,
        replicas: Replicas::None,
        source: Source::Memory(bytes),
    });
    State { shards: shards.collect(), objects: vec![] }
}

fn open(directory: &Path) -> Repository {
    Repository::open(directory.to_str().expect("UTF-8"), &Options::default()).expect("it opens")
}

/// A job: in each round it opens the run, says so, waits for the word, and saves all of its own value.
#[test]
#[ignore = "the child process of the test below; alone it does nothing"]
fn job() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let value: u8 = std::env::var(VALUE).expect("a value").parse().expect("a number");
    let bytes = vec![value; BYTES];
    let run = open(Path::new(&directory)).run("shared").expect("a name");
    let mut words = std::io::stdin().lines();
    while let Some(Ok(_)) = words.next() {
        let takeover = Some(Takeover::Now);
        let mut writer =
            run.writer(WriterOptions { takeover, ..WriterOptions::default() }).expect("it takes over");
        println!("opened {}", writer.ticket());
        words.next().expect("the word").expect("text");
        match writer.save(Step(100), &state(&bytes), Saved::default()) {
            Ok(report) => println!("committed {}", report.checkpoint.manifest.ordinal),
            Err(error) if error.kind() == ErrorKind::Conflict => println!("conflict {error}"),
            Err(error) => println!("failed {error}"),
        }
    }
}

struct Rival {
    process: Child,
    words: Option<ChildStdin>,
    says: BufReader<ChildStdout>,
}

impl Rival {
    fn start(directory: &Path, value: u8) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this test binary"))
            .args(["--exact", "rivals::job", "--ignored", "--quiet", "--nocapture"])
            .env(DIRECTORY, directory)
            .env(VALUE, value.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the job starts");
        let words = process.stdin.take();
        let says = BufReader::new(process.stdout.take().expect("piped"));
        Self { process, words, says }
    }

    fn tell(&mut self) {
        writeln!(self.words.as_mut().expect("open"), "go").expect("it listens");
    }

    /// What follows one of `verbs` in the next line that begins with one.
    fn hear(&mut self, verbs: &[&'static str]) -> (&'static str, String) {
        loop {
            let mut line = String::new();
            assert!(self.says.read_line(&mut line).expect("text") > 0, "the job ended too early");
            let said = verbs.iter().find_map(|verb| Some((*verb, line.trim().strip_prefix(verb)?)));
            if let Some((verb, rest)) = said {
                return (verb, rest.trim().to_owned());
            }
        }
    }

    fn end(mut self) {
        drop(self.words.take());
        assert!(self.process.wait().expect("our own child").success());
    }
}

/// A collection beside a round, in a process of its own.
fn collection(directory: &Path, address: &Path) -> Child {
    let policy = directory.join("policy.toml");
    std::fs::write(&policy, POLICY).expect("written");
    let mut command = Command::new(binary_of("ckpt-gc"));
    command.arg("run").arg(address).arg("--policy").arg(policy).stdout(Stdio::null());
    command.spawn().expect("it starts")
}

#[test]
fn c28_of_two_jobs_on_one_run_one_wins_each_round_and_nothing_is_mixed() {
    play(ROUNDS, |_, _| None);
}

#[test]
fn c28_of_two_jobs_on_one_run_one_wins_each_round_while_old_ones_are_collected() {
    let (_directory, repository) =
        play(ROUNDS_COLLECTED, |directory, address| Some(collection(directory, address)));
    let policy = Policy::from_toml(POLICY).expect("a policy");
    repository.collect(Orders::Policy(&policy), Settings::default(), &()).expect("nothing is in the way");
    let report = repository.check(true, None, &()).expect("readable");
    assert!(report.is_sound(), "{:?}", report.damage().collect::<Vec<_>>());
    assert_eq!((report.counts.checkpoints, report.counts.packs), (1, 1));
}

/// Plays so many rounds, each beside what `beside` starts.
fn play(rounds: u64, beside: impl Fn(&Path, &Path) -> Option<Child>) -> (tempfile::TempDir, Repository) {
    let directory = tempfile::tempdir().expect("a directory");
    let address = directory.path().join("repository");
    let repository =
        Repository::init(address.to_str().expect("UTF-8"), &Options::default(), Default::default())
            .expect("made");
    let run = repository.run("shared").expect("a name");
    let mut rivals = [Rival::start(&address, 0xAA), Rival::start(&address, 0xBB)];
    let mut wins = [0, 0];
    for round in 1..=rounds {
        let collection = beside(directory.path(), &address);
        rivals.iter_mut().for_each(Rival::tell);
        let opened = rivals.each_mut().map(|rival| rival.hear(&["opened"]).1);
        rivals.iter_mut().for_each(Rival::tell);
        let ended = rivals.each_mut().map(|rival| rival.hear(&["committed", "conflict", "failed"]));
        let winner = ended.iter().position(|(verb, _)| *verb == "committed").expect("somebody wins");
        let (verb, why) = &ended[1 - winner];
        assert_eq!(*verb, "conflict", "round {round}: {ended:?}");
        let session = opened[winner].split(':').nth(1).expect("a session");
        assert!(why.contains(session), "round {round}: {why} does not name {session}");
        wins[winner] += 1;
        let latest = run.latest().expect("readable").expect("a checkpoint");
        assert_eq!(latest.manifest().ordinal.to_string(), ended[winner].1);
        let value = [0xAA, 0xBB][winner];
        for name in ["w0", "w1", "w2"] {
            assert!(
                latest.read(name, None).expect("whole").iter().all(|byte| *byte == value),
                "{name} is mixed"
            );
        }
        if let Some(mut collection) = collection {
            assert!(collection.wait().expect("our own child").success(), "round {round}");
        }
    }
    rivals.into_iter().for_each(Rival::end);
    eprintln!("rivals: {rounds} rounds, won {} to {}", wins[0], wins[1]);
    let report = repository.check(true, None, &()).expect("readable");
    assert!(report.is_sound(), "{:?}", report.damage().collect::<Vec<_>>());
    (directory, repository)
}

#[test]
fn c28_two_runs_in_one_repository_share_chunks_and_collecting_one_leaves_the_other_intact() {
    let repository =
        Repository::init("memory://two-runs", &Options::default(), Default::default()).expect("made");
    let bytes = vec![7; BYTES];
    let save = |name: &str, also: Vec<everstep::Checkpoint>| {
        let mut writer =
            repository.run(name).expect("a name").writer(WriterOptions::default()).expect("free");
        let saved = Saved { also, ..Saved::default() };
        let report = writer.save(Step(100), &state(&bytes), saved).expect("it saves");
        (writer, report)
    };
    let (mut first, report) = save("first", vec![]);
    assert_eq!(report.chunks_uploaded, 1);
    let latest = first.latest().expect("just saved");
    let (_second, shared) = save("second", vec![latest]);
    assert_eq!((shared.chunks_uploaded, shared.chunks_reused), (0, 1));
    // The first goes on, and its old checkpoint expires.
    first.save(Step(101), &state(&vec![8; BYTES]), Saved::default()).expect("it saves");
    let run = repository.run("first").expect("a name");
    run.expire(report.checkpoint.manifest.ordinal, "a test").expect("it is not the newest");
    let second = repository.run("second").expect("a name").latest().expect("readable").expect("there");
    assert!(second.read("w2", None).expect("whole") == bytes);
    // What only the first needed goes, and not what they share.
    let done = repository.collect(Orders::Sweep, Settings::default(), &()).expect("nothing is in the way");
    assert_eq!((done.packs.objects, done.shared.objects, done.tables.objects > 0), (0, 1, true));
    assert!(second.read("w2", None).expect("whole") == bytes);
}
