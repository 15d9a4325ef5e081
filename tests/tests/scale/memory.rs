//! What a collection holds in memory: something for each attempt, and for each pack of the dead that is still used; nothing for
//! each chunk, and nothing for packs that it only lists. Measured from outside, in a process that does nothing else.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use everstep_format::id::AttemptId;
use everstep_format::key::{Key, Prefix, StoredKind};
use everstep_format::name::{Rank, RunName};
use everstep_gc::{Collector, Orders, Settings};
use everstep_repo::{OpenOptions, Repository};
use everstep_store::{
    Class, Create, Deleted, Listed, LocalOptions, LocalStore, Object, Page, Payload, Span, Store, StoreError,
    SystemWorld,
};

use crate::collecting::{RANKS, pack, policy, repository, runtime, save};

const DIRECTORY: &str = "EVERSTEP_MEMORY_DIRECTORY";
/// Objects of a page, as S3 has it.
const PAGE: usize = 1000;
/// Bytes for each pack that is still used, at most: an entry of refs as it was read and as it was decoded, with its mark.
const BYTES_A_PACK: u64 = 200;

/// Control objects on a disk; packs are not stored, and listed all the same: one of each rank of each attempt that one asks for.
#[derive(Debug)]
struct Packless(LocalStore);

impl Packless {
    fn at(directory: &Path) -> Arc<dyn Store> {
        Arc::new(Self(LocalStore::open(directory, LocalOptions::default()).unwrap()))
    }
}

/// The attempt whose packs `prefix` has, and their ranks; sometimes several sixteenths of them share a prefix.
fn packs_below(prefix: &Prefix) -> Option<(AttemptId, Vec<u32>)> {
    let attempt: AttemptId = prefix.as_str().strip_prefix("packs/")?.split('/').nth(1)?.parse().ok()?;
    let here: Vec<bool> = (0..16).map(|rank| Prefix::packs_of(attempt, Rank(rank)) == *prefix).collect();
    Some((
        attempt,
        (0..RANKS).zip(here.into_iter().cycle()).filter(|(_, here)| *here).map(|(rank, _)| rank).collect(),
    ))
}

#[async_trait]
impl Store for Packless {
    fn describe(&self) -> String {
        self.0.describe()
    }

    async fn get(&self, key: &Key, span: Span) -> Result<Object, StoreError> {
        self.0.get(key, span).await
    }

    async fn put(&self, key: &Key, body: Payload, class: Class) -> Result<(), StoreError> {
        match key.kind() {
            Some(StoredKind::Pack(_)) => Ok(()),
            _ => self.0.put(key, body, class).await,
        }
    }

    async fn create(&self, key: &Key, body: Payload) -> Result<Create, StoreError> {
        self.0.create(key, body).await
    }

    async fn list(&self, prefix: &Prefix, token: Option<String>) -> Result<Page, StoreError> {
        let Some((attempt, ranks)) = packs_below(prefix) else { return self.0.list(prefix, token).await };
        let from: usize = token.map_or(0, |token| token.parse().unwrap());
        let listed = |rank: &u32| Listed {
            key: Key::pack(&pack(attempt, *rank)),
            size: 8 << 20,
            modified: SystemTime::UNIX_EPOCH,
        };
        let objects = ranks.iter().skip(from).take(PAGE).map(listed).collect();
        let next = (ranks.len() > from + PAGE).then(|| (from + PAGE).to_string());
        Ok(Page { objects, next, ..Page::default() })
    }

    async fn delete(&self, keys: &[Key]) -> Result<Vec<Deleted>, StoreError> {
        Ok(keys.iter().map(|key| Deleted { key: key.clone(), result: Ok(()) }).collect())
    }

    async fn sync(&self) -> Result<(), StoreError> {
        self.0.sync().await
    }
}

/// `attempts` checkpoints that are to expire, and one that uses half the packs of each.
async fn prepare(directory: &Path, attempts: u64) {
    let repository = repository(Packless::at(directory)).await;
    let run = RunName::new("large").unwrap();
    let mut session = repository.open_session(&run, OpenOptions::default()).await.unwrap();
    let mut old = Vec::new();
    for step in 0..attempts {
        let saved = save(&mut session, step, (&old, 1)).await;
        old.push(saved);
    }
    save(&mut session, attempts, (&[], 0)).await;
    save(&mut session, attempts + 1, (&old, RANKS / 2)).await;
    session.close().await.unwrap();
}

/// A line of `/proc/self/status`, in bytes.
fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().unwrap() * 1024
}

#[test]
#[ignore = "the process of the tests below; alone it does nothing"]
fn collector() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    runtime().block_on(async {
        let store = Packless::at(Path::new(&directory));
        let repository = Repository::open(store, Arc::new(SystemWorld::new())).await.unwrap();
        let mut collector = Collector::new(repository, Settings::default());
        let before = status("VmRSS:");
        let done = collector.collect(Orders::Policy(&policy()), &()).await.unwrap();
        println!(
            "held {} used {} gone {}",
            status("VmHWM:") - before,
            done.shared.objects,
            done.packs.objects
        );
    });
}

/// What a collection of so many attempts took at most, and packs of theirs that are still used.
fn measure(attempts: u64) -> (u64, u64) {
    let directory = tempfile::tempdir().unwrap();
    runtime().block_on(prepare(directory.path(), attempts));
    let said = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "memory::collector", "--ignored", "--nocapture"])
        .env(DIRECTORY, directory.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let held = text.split_once("held ").unwrap_or_else(|| panic!("{text}")).1;
    let mut numbers = held.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
    let [held, used, gone] = [(); 3].map(|()| numbers.next().unwrap());
    assert_eq!(used + gone, attempts * u64::from(RANKS));
    println!(
        "memory: {attempts} attempts, {gone} packs go, {used} of the dead are still used: {:.1} MB more, {:.0} bytes for each that is used",
        held as f64 / 1e6,
        held as f64 / used as f64
    );
    (held, used)
}

#[test]
fn a_collection_holds_some_bytes_for_each_pack_that_is_still_used_and_none_for_a_chunk() {
    let (few, many) = (measure(15), measure(60));
    let each = many.0.saturating_sub(few.0) / (many.1 - few.1);
    println!("memory: {each} bytes for each pack more");
    assert!(each <= BYTES_A_PACK, "{each} bytes a pack");
}

#[test]
#[ignore = "judges the same with more: a minute, for `make test-long`"]
fn a_collection_of_a_thousand_attempts_holds_no_more_for_each() {
    let (held, used) = measure(1000);
    assert!(held / used <= BYTES_A_PACK, "{held} bytes for {used} packs");
}
