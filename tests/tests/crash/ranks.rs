//! C04: one rank fails, and nobody waits for ever.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use everstep_format::bounds::Bounds;
use everstep_format::dtype::Dtype;
use everstep_format::key::StoredKind;
use everstep_format::name::{Rank, Step};
use everstep_repo::{OpenOptions, Parents, Rendezvous, Repository, Session, StoreRendezvous, Ticket};
use everstep_restore::CheckpointReader;
use everstep_save::{
    Engine, Group, Member, Replicas, SaveCache, SaveError, SaveOptions, SaveReport, Settings, Shard,
    ShareOptions, Source, State, Tools,
};
use everstep_sim::{CrashStore, Death, Moment};
use everstep_store::{LocalOptions, LocalStore, MemoryStore, Store, SystemWorld};
use everstep_tests::crowd;
use everstep_tests::refusing::RefusingStore;
use futures::future::{Either, join, join_all, select};

pub(crate) const RANKS: u32 = 4;
/// The rank that fails.
pub(crate) const VICTIM: u32 = 2;
const ROWS: u64 = 100;
/// What everybody is promised here.
const LIMIT: Duration = Duration::from_secs(30);
const DEADLINE: Duration = Duration::from_secs(5);
const QUICKLY: std::ops::Range<Duration> = Duration::from_millis(5)..Duration::from_millis(100);

const DIRECTORY: &str = "EVERSTEP_RANK_DIRECTORY";
const TICKET: &str = "EVERSTEP_RANK_TICKET";
const CALL: &str = "EVERSTEP_RANK_CALL";

pub(crate) fn bytes(step: u64, rank: u32) -> Vec<u8> {
    let mut bytes = vec![0; 40_000];
    let seed = [step, u64::from(rank)].map(u64::to_le_bytes).concat();
    blake3::Hasher::new().update(&seed).finalize_xof().fill(&mut bytes);
    bytes
}

/// A rank's rows; too few bytes for them when it is `broken`.
pub(crate) fn state(rank: u32, bytes: &[u8], broken: bool) -> State<'_> {
    let shard = Shard {
        name: "w".to_owned(),
        dtype: Dtype::F32,
        shape: vec![u64::from(RANKS) * ROWS, 100],
        bounds: Bounds { offset: vec![u64::from(rank) * ROWS, 0].into(), extent: vec![ROWS, 100].into() },
        alias_of: None,
        replicas: Replicas::None,
        source: Source::Memory(if broken { &bytes[1..] } else { bytes }),
    };
    State { shards: vec![shard], objects: vec![] }
}

fn group(rank: u32, store: &Arc<dyn Store>) -> Group {
    let rendezvous: Arc<dyn Rendezvous> = Arc::new(StoreRendezvous::with_pauses(store.clone(), QUICKLY));
    Group::new(Rank(rank), RANKS).within(DEADLINE).meeting(rendezvous)
}

/// What every rank keeps from save to save.
pub(crate) struct Kit {
    pub(crate) repository: Repository,
    engine: Engine,
    settings: Settings,
    cache: SaveCache,
}

impl Kit {
    pub(crate) async fn new(store: Arc<dyn Store>) -> Self {
        let repository = Repository::open(store, Arc::new(SystemWorld::new())).await.expect("it opens");
        let engine = Engine::new(1).expect("a thread");
        Self { repository, engine, settings: Settings::default(), cache: SaveCache::default() }
    }

    pub(crate) fn tools(&self) -> Tools<'_> {
        Tools { pool: self.engine.pool(), settings: &self.settings, progress: &(), cache: &self.cache }
    }

    pub(crate) fn group(&self, rank: u32) -> Group {
        group(rank, self.repository.store())
    }

    pub(crate) async fn lead(&self, session: &mut Session, step: u64) -> Result<SaveReport, SaveError> {
        let options = SaveOptions {
            step: Step(step),
            parents: Parents::Latest,
            metadata: serde_json::Map::new(),
            group: self.group(0),
            counts: None,
        };
        everstep_save::save(session, &state(0, &bytes(step, 0), false), options, &self.tools()).await
    }

    pub(crate) async fn follow(
        &self,
        member: &mut Member,
        (rank, step): (u32, u64),
        broken: bool,
    ) -> Result<(), SaveError> {
        let options = ShareOptions { step: Step(step), group: self.group(rank) };
        member.save(&state(rank, &bytes(step, rank), broken), &options, &self.tools()).await.map(drop)
    }

    async fn holds(&self, report: &SaveReport, step: u64) {
        let reader = CheckpointReader::new(&self.repository, report.checkpoint.clone());
        let settings = everstep_restore::Settings::default();
        let tools = everstep_restore::Tools { pool: self.engine.pool(), settings: &settings, progress: &() };
        let expected: Vec<u8> = (0..RANKS).flat_map(|rank| bytes(step, rank)).collect();
        assert!(reader.read_box("w", None, &tools).await.expect("it loads") == expected);
    }
}

/// How the victim fails, in a process that goes on.
#[derive(Debug, Clone, Copy)]
enum Failure {
    WhilePlanning,
    InAnUpload,
    BeforeHandingIn,
}

pub(crate) fn names_the_victim(told: &str, cause: &str) {
    assert!(told.contains(&format!("rank {VICTIM} failed")) && told.contains(cause), "{told}");
}

async fn fails_and_recovers(failure: Failure, cause: &str) {
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::private());
    let refusing = Arc::new(RefusingStore::new(memory.clone()));
    crowd::repository(memory.clone()).await;
    let store = |rank| if rank == VICTIM { refusing.clone() as Arc<dyn Store> } else { memory.clone() };
    let kits = join_all((0..RANKS).map(|rank| Kit::new(store(rank)))).await;
    let mut session =
        kits[0].repository.open_session(&crowd::run(), OpenOptions::default()).await.expect("free");
    let mut members: Vec<Member> =
        kits[1..].iter().map(|kit| Member::new(kit.repository.clone(), session.ticket())).collect();
    let mut report = None;
    for step in 1..=3 {
        let fails = step == 2;
        refusing.refuse(match failure {
            Failure::InAnUpload if fails => |kind| matches!(kind, StoredKind::Pack(_)),
            Failure::BeforeHandingIn if fails => |kind| matches!(kind, StoredKind::Part(..)),
            _ => |_| false,
        });
        let broken = |rank| fails && rank == VICTIM && matches!(failure, Failure::WhilePlanning);
        let world = kits[0].repository.world();
        let started = world.elapsed();
        let members = (1..).zip(&kits[1..]).zip(&mut members);
        let following = members.map(|((rank, kit), member)| kit.follow(member, (rank, step), broken(rank)));
        let (led, followed) = join(kits[0].lead(&mut session, step), join_all(following)).await;
        assert!(world.elapsed() - started < DEADLINE, "nobody waits for the deadline once a rank has failed");
        if !fails {
            followed.into_iter().for_each(|followed| followed.expect("nothing is in the way"));
            report = Some(led.expect("nothing is in the way"));
            continue;
        }
        let error = led.expect_err("a rank failed");
        assert!(
            matches!(&error, SaveError::RanksFailed { failed, .. } if failed[0].0 == Rank(VICTIM)),
            "{error}"
        );
        names_the_victim(&error.to_string(), cause);
        for (rank, followed) in (1..).zip(followed) {
            let error = followed.expect_err("nothing was saved");
            assert!(error.to_string().contains(cause), "rank {rank}: {error}");
            if rank != VICTIM {
                names_the_victim(&error.to_string(), cause);
                assert!(matches!(&error, SaveError::NotCommitted { ranks, .. } if *ranks == [Rank(VICTIM)]));
            }
        }
        let latest = kits[1].repository.latest(&crowd::run()).await.expect("readable").expect("step 1");
        assert_eq!(latest.manifest.step, Step(1), "nothing is committed");
    }
    kits[3].holds(&report.expect("step 3"), 3).await;
    session.close().await.expect("it closes");
}

#[tokio::test(flavor = "multi_thread")]
async fn c04_a_rank_that_fails_while_planning_is_named_to_all() {
    fails_and_recovers(Failure::WhilePlanning, "its source has 39999").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c04_a_rank_that_may_not_upload_is_named_to_all() {
    fails_and_recovers(Failure::InAnUpload, "403").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c04_a_rank_that_cannot_hand_in_is_named_to_all() {
    fails_and_recovers(Failure::BeforeHandingIn, "the part of rank 2").await;
}

fn local(directory: &Path) -> Arc<dyn Store> {
    Arc::new(LocalStore::open(directory, LocalOptions::default()).expect("a directory"))
}

/// The victim as a process of its own: takes part in step 1 and dies at the call that the environment names.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the child process of the test below; alone it does nothing"]
async fn rank() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let number = |name: &str| std::env::var(name).expect("set").parse::<u64>().expect("a number");
    let store = local(Path::new(&directory));
    let dying = CrashStore::dying(store, (number(CALL), Moment::Before), Death::Killed);
    let kit = Kit::new(Arc::new(dying)).await;
    let ticket: Ticket = std::env::var(TICKET).expect("a ticket").parse().expect("a ticket");
    let mut member = Member::new(kit.repository.clone(), ticket);
    kit.follow(&mut member, (VICTIM, 1), false).await.expect("it saves unless it dies");
}

fn start_rank(directory: &Path, ticket: &Ticket, call: u64) -> Child {
    Command::new(std::env::current_exe().expect("this test binary"))
        .args(["--exact", "ranks::rank", "--ignored", "--quiet"])
        .env(DIRECTORY, directory)
        .env(TICKET, ticket.to_string())
        .env(CALL, call.to_string())
        .stdout(Stdio::null())
        .spawn()
        .expect("the rank starts")
}

/// Saves step 1 with a rank in another process that dies at `call`; whether it was saved, and what everybody heard.
async fn with_a_rank_killed_at(call: u64) -> bool {
    let directory = tempfile::tempdir().expect("a directory");
    let store = local(directory.path());
    crowd::repository(store.clone()).await;
    let kits = join_all((0..RANKS).map(|_| Kit::new(store.clone()))).await;
    let mut session =
        kits[0].repository.open_session(&crowd::run(), OpenOptions::default()).await.expect("free");
    let ticket = session.ticket();
    let mut process = start_rank(directory.path(), &ticket, call);
    let live: Vec<u32> = (1..RANKS).filter(|rank| *rank != VICTIM).collect();
    let following = live.iter().map(|&rank| {
        let (kit, ticket) = (&kits[usize::try_from(rank).expect("small")], ticket.clone());
        async move {
            let mut member = Member::new(kit.repository.clone(), ticket);
            kit.follow(&mut member, (rank, 1), false).await
        }
    });
    let world = kits[0].repository.world();
    let started = world.elapsed();
    let (led, followed) = join(kits[0].lead(&mut session, 1), join_all(following)).await;
    assert!(world.elapsed() - started < LIMIT);
    let status = process.wait().expect("our own child");
    match &led {
        Ok(report) => {
            kits[1].holds(report, 1).await;
            assert!(followed.iter().all(Result::is_ok), "{followed:?}");
        }
        Err(error) => {
            assert!(!status.success());
            let named = format!("rank {VICTIM} handed nothing in within 5.0 s");
            assert!(error.to_string().contains(&named), "{error}");
            for error in followed.into_iter().map(|told| told.expect_err("nothing was saved").to_string()) {
                assert!(error.contains(&named), "{error}");
            }
            let latest = kits[1].repository.latest(&crowd::run()).await.expect("readable");
            assert!(latest.is_none(), "nothing is committed");
        }
    }
    led.is_ok()
}

#[test]
fn c04_a_rank_that_is_killed_is_named_to_all_within_the_deadline() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    // Long before it hands in, and long after.
    let saved = runtime.block_on(join_all([1, 3, 1000].map(with_a_rank_killed_at)));
    assert_eq!(saved, [false, false, true]);
}

/// What each of the others hears of a leader that falls silent at its `call`th call to the store; `None` when that is
/// before it leads.
async fn with_a_leader_silent_from(call: u64) -> Option<Vec<&'static str>> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::private());
    crowd::repository(store.clone()).await;
    let others = Kit::new(store.clone()).await;
    let leader = Kit::new(Arc::new(CrashStore::dying(store, (call, Moment::After), Death::Silent))).await;
    let run = crowd::run();
    let opened = leader.repository.open_session(&run, OpenOptions::default());
    let mut session = tokio::time::timeout(Duration::from_secs(1), opened).await.ok()?.expect("it is free");
    let ticket = session.ticket();
    let following = (1..RANKS).map(|rank| {
        let (kit, ticket) = (&others, ticket.clone());
        async move {
            let mut member = Member::new(kit.repository.clone(), ticket);
            let group = kit.group(rank).within(Duration::from_secs(1));
            let options = ShareOptions { step: Step(1), group };
            let bytes = bytes(1, rank);
            member.save(&state(rank, &bytes, false), &options, &kit.tools()).await
        }
    });
    let lead = Box::pin(leader.lead(&mut session, 1));
    let followed = match select(lead, join_all(following)).await {
        Either::Left((led, follow)) => {
            led.expect("it lived");
            follow.await
        }
        Either::Right((followed, _)) => followed,
    };
    let heard = followed.into_iter().map(|told| match told {
        Ok(_) => "committed",
        Err(SaveError::LeaderSilent { what, .. }) => what,
        Err(error) => panic!("{error}"),
    });
    Some(heard.collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn c04_a_leader_that_falls_silent_is_named_to_all_within_the_deadline() {
    let heard = join_all((6..30).map(with_a_leader_silent_from)).await;
    let heard: Vec<Vec<&str>> = heard.into_iter().flatten().collect();
    assert!(
        heard.iter().all(|told| told.iter().all(|what| *what == told[0])),
        "all hear the same: {heard:?}"
    );
    for what in ["call", "outcome", "committed"] {
        assert!(heard.iter().any(|told| told[0] == what), "{heard:?}");
    }
}
