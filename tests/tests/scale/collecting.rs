//! What a collection costs after many checkpoints of a very large job have expired at once.

use std::sync::Arc;
use std::time::Duration;

use everstep_format::decision::{IndexRef, RefsRef, Totals};
use everstep_format::id::{AttemptId, ContentHash, PackId, RepositoryId};
use everstep_format::key::{Key, PackAddress};
use everstep_format::name::{Rank, RunName, Step};
use everstep_format::repository::{Chunking, RepositoryConfig, WriterMode};
use everstep_gc::{Collected, Collector, Orders, Policy, Settings};
use everstep_repo::{Checkpoint, CommitOutcome, Draft, OpenOptions, Parents, Repository, Session};
use everstep_store::{Class, Counts, Create, MemoryStore, Meter, Snapshot, Store, SystemWorld};

pub(crate) const RANKS: u32 = 1_856;
const POLICY: &str = "[[policy]]\nruns = \"*\"\nkeep_last = 2\n";

/// Refs as page 05 has them.
fn refs(mut packs: Vec<PackAddress>) -> (Vec<u8>, RefsRef) {
    packs.sort_unstable();
    let mut bytes = b"EVSTREFS".to_vec();
    bytes.extend_from_slice(&everstep_format::repository::FORMAT_VERSION.to_le_bytes());
    bytes.extend_from_slice(&0_u32.to_le_bytes());
    bytes.extend_from_slice(&(packs.len() as u64).to_le_bytes());
    for PackAddress { attempt, rank, pack } in &packs {
        bytes.extend_from_slice(&attempt.0);
        bytes.extend_from_slice(&rank.0.to_le_bytes());
        bytes.extend_from_slice(&pack.0);
    }
    let (blake3, len) = (ContentHash::of(&bytes), bytes.len() as u64);
    (bytes, RefsRef { blake3, len, packs: packs.len() as u64 })
}

pub(crate) fn pack(attempt: AttemptId, rank: u32) -> PackAddress {
    let name = [&attempt.0[..], &rank.to_le_bytes()].concat();
    PackAddress { attempt, rank: Rank(rank), pack: PackId(ContentHash::of(&name).0) }
}

/// Commits a checkpoint with a pack of each rank, which also uses those of so many ranks of each of `shared`; the last of
/// these is its parent.
pub(crate) async fn save(
    session: &mut Session,
    step: u64,
    (shared, ranks): (&[Checkpoint], u32),
) -> Checkpoint {
    let parents = shared.last().map_or(Parents::Latest, |last| Parents::These(vec![last.clone()]));
    let attempt = session.begin(Step(step), RANKS, parents).await.unwrap();
    let shared: Vec<AttemptId> = shared.iter().map(|shared| shared.manifest.attempt).collect();
    let store = session.repository().store().clone();
    let own: Vec<PackAddress> = (0..RANKS).map(|rank| pack(attempt.id, rank)).collect();
    for address in &own {
        store.put(&Key::pack(address), b"p".to_vec().into(), Class::Bulk).await.unwrap();
    }
    let others = shared.iter().copied().flat_map(|other| (0..ranks).map(move |rank| pack(other, rank)));
    let (bytes, refs) = refs(own.into_iter().chain(others).collect());
    store.put(&Key::refs(attempt.id, refs.blake3), bytes.into(), Class::Bulk).await.unwrap();
    let index = format!("index of {}", attempt.id);
    let (blake3, len) = (ContentHash::of(index.as_bytes()), index.len() as u64);
    store.put(&Key::index(attempt.id, blake3), index.into_bytes().into(), Class::Bulk).await.unwrap();
    let mut owners: Vec<AttemptId> = shared.into_iter().chain([attempt.id]).collect();
    owners.sort_unstable();
    let index = IndexRef { blake3, len, rows: 1, footer_offset: 4, footer_blake3: blake3 };
    let draft = Draft {
        index,
        refs,
        owners,
        totals: Totals::default(),
        stats: None,
        metadata: serde_json::Map::new(),
    };
    match session.commit(attempt, draft).await.unwrap() {
        CommitOutcome::Committed(checkpoint) => checkpoint,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn repository(store: Arc<dyn Store>) -> Repository {
    let created = "2026-01-01T00:00:00Z".to_owned();
    let config =
        RepositoryConfig::new(RepositoryId([9; 16]), Chunking::default(), WriterMode::ManyWriters, created);
    let made = store.create(&Key::repository(), config.to_bytes().unwrap().into()).await.unwrap();
    assert!(matches!(made, Create::Created));
    Repository::open(store, Arc::new(SystemWorld::new())).await.unwrap()
}

fn settings() -> Settings {
    // So that what is found empty is marked at once.
    Settings { swept_after: Duration::ZERO, ..Settings::default() }
}

pub(crate) fn policy() -> Policy {
    Policy::from_toml(POLICY).unwrap()
}

async fn pass(collector: &mut Collector, counts: &Counts) -> (Collected, Snapshot) {
    let policy = policy();
    let before = counts.snapshot();
    let done = collector.collect(Orders::Policy(&policy), &()).await.unwrap();
    let cost = counts.snapshot().since(&before);
    println!(
        "  {} dead attempts, {} objects freed, {} kept: {} requests ({} lists, {} gets, {} puts, {} deletes)",
        done.attempts,
        done.freed().objects,
        done.shared.objects,
        cost.requests(),
        cost.lists,
        cost.gets,
        cost.puts + cost.creates,
        cost.deletes,
    );
    (done, cost)
}

/// `attempts` checkpoints expire at once; the newest still uses half the packs of the oldest.
async fn collect_after(attempts: u64) {
    let counts = Arc::new(Counts::default());
    let store: Arc<dyn Store> = Arc::new(Meter::new(MemoryStore::private(), counts.clone()));
    let repository = repository(store).await;
    let run = RunName::new("large").unwrap();
    let mut session = repository.open_session(&run, OpenOptions::default()).await.unwrap();
    let first = save(&mut session, 0, (&[], 0)).await;
    for step in 1..=attempts {
        save(&mut session, step, (&[], 0)).await;
    }
    save(&mut session, attempts + 1, (&[first], RANKS / 2)).await;
    session.close().await.unwrap();
    println!("{RANKS} ranks, {} expire of {}:", attempts, attempts + 2);

    let mut collector = Collector::new(repository.clone(), settings());
    let (done, cost) = pass(&mut collector, &counts).await;
    assert_eq!((done.expired.len() as u64, done.kept), (attempts, 2));
    let packs = attempts * u64::from(RANKS) - u64::from(RANKS / 2);
    assert_eq!((done.packs.objects, done.shared.objects), (packs, u64::from(RANKS / 2)));
    assert_eq!(done.tables.objects, 2 * attempts);
    // The listings of everything, twice; 16 prefixes and the index of each dead attempt.
    let pages = 2 * (3 * (attempts + 3)).div_ceil(1000) + 8 + 17 * attempts;
    assert!(cost.lists <= pages, "{} lists, expected at most {pages}", cost.lists);
    // Each intent and each decision once, and the refs of the one checkpoint that uses something of the dead.
    assert!(cost.gets <= 2 * (attempts + 3) + 1, "{} gets", cost.gets);
    assert_eq!(cost.creates, attempts, "a marker for each");
    assert!(cost.deletes <= 17 * attempts + 4, "{} deletes", cost.deletes);

    let (done, _) = pass(&mut collector, &counts).await;
    assert_eq!(done.freed().objects, 0);
    assert_eq!(done.marked_swept, attempts - 1, "all but the first, which still has packs");
    // Another process, which knows nothing: what was swept costs nothing but its place in a listing.
    let mut fresh = Collector::new(repository, settings());
    let (done, cost) = pass(&mut fresh, &counts).await;
    assert_eq!((done.attempts, done.freed().objects), (1, 0));
    assert!(cost.gets <= 10 && cost.puts <= 1 && cost.deletes <= 2, "{cost:?}");
    assert!(cost.lists <= 3 * (3 * (attempts + 3)).div_ceil(1000) + 30, "{} lists", cost.lists);
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_collection_costs_its_candidates_and_the_refs_that_touch_them_and_a_second_one_next_to_nothing() {
    runtime().block_on(collect_after(20));
}

#[test]
#[ignore = "1.9 million objects in memory take minutes: `make test-long`"]
fn a_collection_of_a_thousand_checkpoints_of_1856_ranks() {
    runtime().block_on(collect_after(1000));
}
