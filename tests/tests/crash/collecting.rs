//! Collections that die at any call, or that stop at any call while others save, expire and collect; and saves that stop at
//! any call while others collect.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use everstep_check::{CheckOptions, Severity, check};
use everstep_format::key::{Key, Prefix};
use everstep_format::name::RunName;
use everstep_gc::{Collected, Collector, GcError, Orders, Policy, Settings};
use everstep_repo::{AttemptState, Checkpoint, InitOptions, OpenOptions, Parents, RepoError, Repository};
use everstep_save::SaveError;
use everstep_sim::{
    CrashStore, Death, Executor, Moment, PauseStore, Process, Room, SimStore, SimWorld, Weather,
};
use everstep_store::store::list_all;
use everstep_store::{LocalOptions, LocalStore, Store, SystemWorld};
use futures::FutureExt;
use futures::channel::oneshot;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::states::{is_sound, load, run, save, save_into};

const SEED: u64 = 3;
/// The versions that are there before anything happens; the policy keeps the last.
const BEFORE: [u64; 3] = [10, 20, 30];
const MOMENTS: [Moment; 2] = [Moment::Before, Moment::After];

fn policy() -> Policy {
    Policy::from_toml("[[policy]]\nruns = \"*\"\nkeep_last = 1\n").expect("a policy")
}

fn tuned() -> RunName {
    RunName::new("tuned").expect("a run name")
}

/// A pool of the calling thread.
fn pool() -> &'static ThreadPool {
    let pool = ThreadPoolBuilder::new().num_threads(1).use_current_thread().build().expect("a pool");
    Box::leak(Box::new(pool))
}

/// A simulated store that several processes use.
#[derive(Clone)]
struct Yard {
    room: Room,
    store: SimStore,
    pool: &'static ThreadPool,
}

impl Yard {
    fn connect(&self) -> (Process, Arc<dyn Store>) {
        let process = self.room.process();
        (process, Arc::new(self.store.connect(process, Weather::CALM)))
    }

    async fn open(&self, (process, store): (Process, Arc<dyn Store>)) -> Result<Repository, RepoError> {
        Repository::open(store, Arc::new(SimWorld::new(&self.room, process))).await
    }

    async fn enter(&self) -> Repository {
        self.open(self.connect()).await.expect("it opens")
    }

    /// A repository with [`BEFORE`] in it; the first of these.
    async fn prepare(&self) -> Checkpoint {
        let (process, store) = self.connect();
        let options = InitOptions { single_writer: false, ..InitOptions::default() };
        let world = Arc::new(SimWorld::new(&self.room, process));
        let repository = Repository::init(store, world, options).await.expect("a repository");
        let mut first = None;
        for version in BEFORE {
            let saved = save(&repository, version, self.pool).await.expect("it saves");
            first = first.or(Some(saved));
        }
        first.expect("there are several")
    }

    /// Every checkpoint that counts loads, bit for bit; how many these are.
    async fn judge(&self) -> usize {
        let repository = self.enter().await;
        let mut count = 0;
        for name in repository.runs().await.expect("listed") {
            for (_, state) in repository.attempts(&name).await.expect("listed") {
                if let AttemptState::Committed(checkpoint) = state {
                    load(&repository, &checkpoint, self.pool).await;
                    count += 1;
                }
            }
        }
        is_sound(&repository, self.pool).await;
        count
    }

    /// A collection that takes whatever is undecided for dead.
    async fn collect_impatiently(&self) {
        let settings = Settings { idle: Duration::ZERO, ..Settings::default() };
        let mut collector = Collector::new(self.enter().await, settings);
        collector.collect(Orders::Policy(&policy()), &()).await.expect("nothing is in the way");
    }

    /// `latest` is the last of [`BEFORE`] or version 40, whole; the former if there is no other to be had by its step.
    async fn old_or_new(&self) {
        let repository = self.enter().await;
        let latest = repository.latest(&run()).await.expect("readable").expect("there is always one");
        let version = load(&repository, &latest, self.pool).await;
        assert!(version == 30 || version == 40, "latest is version {version}");
        let new = repository.resolve(&format!("{}@step=40", run()).parse().expect("a reference")).await;
        match new {
            Ok(found) => assert_eq!((version, found.checkpoint.manifest.step.0), (40, 40)),
            Err(RepoError::Incomplete { .. } | RepoError::NotFound(_)) => assert_eq!(version, 30),
            Err(error) => panic!("{error}"),
        }
    }

    /// An undisturbed collection, after which nothing is left to collect.
    async fn finish(&self) {
        let repository = self.enter().await;
        collect(&repository).await.expect("nothing is in the way");
        self.judge().await;
        nothing_is_wasted(&repository, self.pool).await;
    }
}

/// A simulation of what `life` does.
fn play<T: 'static, F: Future<Output = T> + 'static>(
    pool: &'static ThreadPool,
    life: impl FnOnce(Yard) -> F,
) -> T {
    let executor = Executor::new(SEED);
    let room = executor.room().clone();
    let store = SimStore::new(&room);
    executor.run(life(Yard { room, store, pool }))
}

async fn collect(repository: &Repository) -> Result<Collected, GcError> {
    Collector::new(repository.clone(), Settings::default()).collect(Orders::Policy(&policy()), &()).await
}

async fn nothing_is_wasted(repository: &Repository, pool: &ThreadPool) {
    let settings = everstep_check::Settings::default();
    let tools = everstep_check::Tools { pool, settings: &settings, progress: &() };
    let report = check(repository, &CheckOptions::default(), &tools).await.expect("readable");
    let waste = report.findings.iter().filter(|finding| finding.severity == Severity::Note);
    let waste: Vec<_> = waste.filter(|finding| finding.advice.contains("garbage collection")).collect();
    assert!(waste.is_empty(), "{waste:#?}");
}

#[test]
fn c07_a_collection_that_dies_at_any_call_loses_nothing_and_the_next_one_goes_on() {
    let pool = pool();
    let mut deaths = 0;
    for call in 1.. {
        let mut lived = false;
        for moment in MOMENTS {
            lived |= play(pool, |yard| async move {
                yard.prepare().await;
                let (process, inner) = yard.connect();
                let store = Arc::new(CrashStore::dying(inner, (call, moment), Death::Severed));
                let lived = match yard.open((process, store.clone())).await {
                    Ok(repository) => collect(&repository).await.is_ok() && store.calls() < call,
                    Err(_) => false,
                };
                yard.room.kill(process);
                let left = yard.judge().await;
                assert!((1..=BEFORE.len()).contains(&left), "{left} are left");
                yard.finish().await;
                assert_eq!(yard.judge().await, 1, "the policy keeps one");
                lived
            });
            deaths += u32::from(!lived);
        }
        if lived {
            break;
        }
    }
    assert!(deaths > 60, "{deaths}");
    eprintln!("collecting: {deaths} deaths");
}

#[test]
fn a_trainer_that_only_expires_reads_what_is_new_of_its_own_run_and_deletes_nothing() {
    play(pool(), |yard| async move {
        let oldest = yard.prepare().await;
        let repository = yard.enter().await;
        save_into(&repository, (&tuned(), Parents::These(vec![oldest]), 10), yard.pool).await.expect("saved");
        save_into(&repository, (&tuned(), Parents::Latest, 20), yard.pool).await.expect("saved");
        let (process, inner) = yard.connect();
        let counting = Arc::new(CrashStore::counting(inner));
        let trainer = yard.open((process, counting.clone())).await.expect("it opens");
        let mut collector = Collector::new(trainer, Settings::default());
        let expired = collector.expire(&policy(), &run()).await.expect("nothing is in the way");
        assert_eq!(expired.len(), BEFORE.len() - 1, "all but the newest");
        save(&repository, 40, yard.pool).await.expect("it saves");
        let before = counting.calls();
        assert_eq!(collector.expire(&policy(), &run()).await.expect("nothing is in the way").len(), 1);
        // Two listings, of some pages; the fence and the attempt, an intent and a decision each; the marker.
        assert!((7..=8).contains(&(counting.calls() - before)));
        assert!(collector.expire(&policy(), &run()).await.expect("nothing is in the way").is_empty());
        assert_eq!(
            yard.judge().await,
            3,
            "the newest, and both of the other run, which use what has expired"
        );
        let everything = CheckOptions::default();
        let settings = everstep_check::Settings::default();
        let tools = everstep_check::Tools { pool: yard.pool, settings: &settings, progress: &() };
        let report = check(&repository, &everything, &tools).await.expect("readable");
        assert!(report.findings.iter().any(|finding| finding.advice.contains("garbage collection")));
    });
}

/// Saves another run against the oldest checkpoint; and, if it is `busy`, a new version of the first run before, and collects
/// after.
async fn bustle(yard: Yard, old: Checkpoint, busy: bool) {
    let repository = yard.enter().await;
    if busy {
        save(&repository, 40, yard.pool).await.expect("nobody fences it");
    }
    // The oldest has the chunks of version 10, and may have expired meanwhile.
    let into = (&tuned(), Parents::These(vec![old]), 10);
    match save_into(&repository, into, yard.pool).await {
        Ok(_) | Err(SaveError::Repo(RepoError::Expired { .. })) => {}
        Err(error) => panic!("{error}"),
    }
    if busy {
        collect(&yard.enter().await).await.expect("nothing is in the way");
    }
}

#[test]
fn c07_a_collection_may_stop_at_any_call_while_others_save_expire_and_collect() {
    let pool = pool();
    let mut pauses = 0;
    for call in 1.. {
        let mut over = false;
        for (moment, busy) in MOMENTS.into_iter().flat_map(|moment| [(moment, true), (moment, false)]) {
            over |= play(pool, |yard| async move {
                let old = yard.prepare().await;
                let (process, inner) = yard.connect();
                let interlude = bustle(yard.clone(), old, busy).boxed();
                let store = Arc::new(PauseStore::new(inner, (call, moment), interlude));
                let repository = yard.open((process, store.clone())).await.expect("it opens");
                match collect(&repository).await {
                    Ok(_) | Err(GcError::Changed) => {}
                    Err(error) => panic!("call {call}: {error}"),
                }
                yard.judge().await;
                yard.finish().await;
                store.calls() < call
            });
            pauses += u32::from(!over);
        }
        if over {
            break;
        }
    }
    assert!(pauses > 60, "{pauses}");
    eprintln!("collecting: a collection stopped at {pauses} places");
}

/// A save against the oldest checkpoint that is about to commit: tell it to go on, and hear that it has.
fn about_to_commit(yard: &Yard, old: Checkpoint) -> (oneshot::Sender<()>, oneshot::Receiver<()>) {
    let (go, told) = oneshot::channel();
    let (ended, end) = oneshot::channel();
    let (process, inner) = yard.connect();
    let wait = async move { _ = told.await };
    let store = Arc::new(PauseStore::before_create(inner, "runs/tuned/decisions", wait.boxed()));
    let saver = yard.clone();
    let life = async move {
        let repository = saver.open((process, store)).await.expect("it opens");
        let into = (&tuned(), Parents::These(vec![old]), 10);
        save_into(&repository, into, saver.pool).await.expect("it commits");
        ended.send(()).expect("somebody waits");
    };
    yard.room.spawn(process, life.boxed());
    (go, end)
}

#[test]
fn c07_a_save_may_commit_and_its_parent_be_stripped_at_any_call_of_a_slower_collection() {
    let pool = pool();
    for call in 1.. {
        let over = play(pool, |yard| async move {
            let old = yard.prepare().await;
            let (go, end) = about_to_commit(&yard, old);
            yard.room.sleep(Duration::from_secs(600)).await;
            let (process, inner) = yard.connect();
            let other = yard.clone();
            let interlude = async move {
                go.send(()).expect("it waits");
                end.await.expect("it commits");
                collect(&other.enter().await).await.expect("nothing is in the way");
            };
            let store = Arc::new(PauseStore::new(inner, (call, Moment::Before), interlude.boxed()));
            let repository = yard.open((process, store.clone())).await.expect("it opens");
            match collect(&repository).await {
                Ok(_) | Err(GcError::Changed) => {}
                Err(error) => panic!("call {call}: {error}"),
            }
            let over = store.calls() < call;
            if !over {
                assert_eq!(yard.judge().await, 2, "the newest of each run");
            }
            over
        });
        if over {
            break;
        }
    }
}

#[test]
fn c07_a_save_may_stop_at_any_call_while_its_parent_expires_and_is_collected() {
    let pool = pool();
    let (mut pauses, mut reused, mut stored) = (0, 0, 0);
    for call in 1.. {
        let mut over = false;
        for moment in MOMENTS {
            let (ended, chunks) = play(pool, |yard| async move {
                let old = yard.prepare().await;
                let (process, inner) = yard.connect();
                let other = yard.clone();
                let interlude = async move {
                    let repository = other.enter().await;
                    collect(&repository).await.expect("nothing is in the way");
                };
                let store = Arc::new(PauseStore::new(inner, (call, moment), interlude.boxed()));
                let repository = yard.open((process, store.clone())).await.expect("it opens");
                let into = (&tuned(), Parents::These(vec![old]), 10);
                let saved = match save_into(&repository, into, yard.pool).await {
                    Ok(saved) => Some(saved),
                    Err(SaveError::Repo(RepoError::Expired { .. })) => None,
                    Err(error) => panic!("call {call}: a save is never stopped by a collection: {error}"),
                };
                yard.judge().await;
                yard.finish().await;
                let totals =
                    saved.map(|saved| (saved.manifest.totals.chunks_new, saved.manifest.totals.chunks));
                (store.calls() < call, totals)
            });
            over |= ended;
            pauses += 1;
            match chunks {
                Some((0, _)) => reused += 1,
                Some(_) => stored += 1,
                None => {}
            }
        }
        if over {
            break;
        }
    }
    assert!(reused > 0 && stored > 0, "the parent held {reused} times and was dropped {stored} times");
    eprintln!("collecting: a save stopped at {pauses} places; its parent held {reused} times");
}

#[test]
fn c03_the_last_checkpoint_stays_until_the_next_one_is_committed() {
    let pool = pool();
    for call in 1.. {
        let over = play(pool, |yard| async move {
            yard.prepare().await;
            let (process, inner) = yard.connect();
            let other = yard.clone();
            let interlude = async move {
                let repository = other.enter().await;
                collect(&repository).await.expect("nothing is in the way");
                let latest = repository.latest(&run()).await.expect("readable").expect("there is always one");
                let version = load(&repository, &latest, other.pool).await;
                assert!(version == 30 || version == 40, "latest is version {version}");
            };
            let store = Arc::new(PauseStore::new(inner, (call, Moment::Before), interlude.boxed()));
            let repository = yard.open((process, store.clone())).await.expect("it opens");
            save(&repository, 40, yard.pool).await.expect("collections are in nobody's way");
            assert!(yard.judge().await >= 1);
            yard.finish().await;
            store.calls() < call
        });
        if over {
            break;
        }
    }
}

/// As C01 has it, when those that collect think little of a save that is silent.
#[test]
fn c01_a_save_that_dies_at_any_call_leaves_the_old_or_the_new_checkpoint_to_an_impatient_collection() {
    let pool = pool();
    let mut calls = 0;
    for call in 1.. {
        let mut lived = false;
        for moment in MOMENTS {
            lived |= play(pool, |yard| async move {
                yard.prepare().await;
                let (process, inner) = yard.connect();
                let store = Arc::new(CrashStore::dying(inner, (call, moment), Death::Severed));
                let lived = match yard.open((process, store.clone())).await {
                    Ok(repository) => save(&repository, 40, yard.pool).await.is_ok() && store.calls() < call,
                    Err(_) => false,
                };
                yard.room.kill(process);
                yard.collect_impatiently().await;
                yard.old_or_new().await;
                yard.finish().await;
                lived
            });
        }
        calls = call;
        if lived {
            break;
        }
    }
    eprintln!("collecting: a save died at {calls} calls, and what it left was collected");
}

#[test]
fn what_sessions_leave_is_forgotten_after_a_week_but_not_of_a_session_that_lives() {
    play(pool(), |yard| async move {
        yard.prepare().await;
        let session = yard.enter().await.open_session(&tuned(), OpenOptions::default()).await.expect("free");
        yard.room.sleep(Duration::from_secs(8 * 24 * 3600)).await;
        let repository = yard.enter().await;
        let done = collect(&repository).await.expect("nothing is in the way");
        assert_eq!(done.records.objects, BEFORE.len() as u64);
        let left = list_all(repository.store().as_ref(), &Prefix::sessions()).await.expect("listed");
        assert_eq!(left.into_iter().map(|mark| mark.key).collect::<Vec<_>>(), [Key::session(session.id())]);
        session.close().await.expect("it closes");
    });
}

const DIRECTORY: &str = "EVERSTEP_COLLECT_DIRECTORY";
const CALL: &str = "EVERSTEP_COLLECT_CALL";

fn local(directory: &Path) -> Arc<dyn Store> {
    Arc::new(LocalStore::open(directory, LocalOptions::default()).expect("a directory"))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// The victim: collects, and dies at the call that the environment names.
#[test]
#[ignore = "the child process of the test below; alone it does nothing"]
fn collector() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let call = std::env::var(CALL).expect("a call").parse().expect("a number");
    let store = CrashStore::dying(local(Path::new(&directory)), (call, Moment::After), Death::Killed);
    runtime().block_on(async {
        let repository =
            Repository::open(Arc::new(store), Arc::new(SystemWorld::new())).await.expect("opens");
        collect(&repository).await.expect("it collects unless it dies");
    });
}

#[test]
fn c07_a_process_killed_while_it_collects_leaves_saving_and_collecting_to_others() {
    let scratch = tempfile::tempdir().expect("a directory");
    let pool = pool();
    let world = Arc::new(SystemWorld::new());
    runtime().block_on(async {
        let repository = Repository::init(local(scratch.path()), world, InitOptions::default()).await;
        let repository = repository.expect("a repository");
        save(&repository, 1, pool).await.expect("it saves");
        let mut killed = 0;
        for (round, call) in (2..).zip([1, 4, 9, 16, 22, 28, 33, 37, 41, 45]) {
            save(&repository, round, pool).await.expect("a killed collector is in nobody's way");
            let status = Command::new(std::env::current_exe().expect("this test binary"))
                .args(["--exact", "collecting::collector", "--ignored", "--quiet"])
                .env(DIRECTORY, scratch.path())
                .env(CALL, call.to_string())
                .stdout(Stdio::null())
                .status()
                .expect("the victim starts");
            killed += u32::from(!status.success());
            let latest = repository.latest(&run()).await.expect("readable").expect("there");
            assert_eq!(load(&repository, &latest, pool).await, round);
            is_sound(&repository, pool).await;
        }
        collect(&repository).await.expect("nothing is in the way");
        is_sound(&repository, pool).await;
        nothing_is_wasted(&repository, pool).await;
        assert!(killed >= 5, "{killed} were killed");
        eprintln!("collecting: {killed} processes killed");
    });
}
