//! What a writer and a follower do in a process of their own.

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use everstep_format::name::RunName;
use everstep_repo::{Checkpoint, Parents, RepoError, Repository};
use everstep_restore::RestoreError;
use everstep_save::SaveError;
use everstep_store::{StoreOptions, SystemWorld};
use everstep_tests::servers::{ACCESS_KEY, SECRET_KEY, reaching};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::states::{save_into, try_load};

pub(crate) const ADDRESS: &str = "EVERSTEP_STORM_ADDRESS";
pub(crate) const ENDPOINT: &str = "EVERSTEP_STORM_ENDPOINT";
pub(crate) const REPORT: &str = "EVERSTEP_STORM_REPORT";
pub(crate) const ROLE: &str = "EVERSTEP_STORM_ROLE";

/// How long a process goes on if nobody kills it.
const LIFE: Duration = Duration::from_secs(60);
/// A follower looks up that often.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a process knows.
struct Actor {
    repository: Repository,
    run: RunName,
    pool: ThreadPool,
}

#[test]
#[ignore = "a process of the tests beside it; alone it does nothing"]
fn actor() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let role = std::env::var(ROLE).expect("a role");
    let (role, run) = role.split_once(' ').expect("a role and a run");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let repository = open(&address, std::env::var(ENDPOINT).ok()).await;
        let pool = ThreadPoolBuilder::new().num_threads(1).build().expect("a pool");
        let actor = Actor { repository, run: RunName::new(run).expect("a run name"), pool };
        if role == "writer" { actor.write().await } else { actor.follow().await }
    });
}

/// The repository at an address, on the S3 server at `endpoint` if that is where it is.
pub(crate) async fn open(address: &str, endpoint: Option<String>) -> Repository {
    let keys = everstep_store::s3::Keys {
        access_key: ACCESS_KEY.to_owned(),
        secret_key: SECRET_KEY.to_owned(),
        token: None,
        expires: None,
    };
    let s3 = endpoint.map(|url| reaching(&url, keys)).unwrap_or_default();
    let options = StoreOptions { s3, ..StoreOptions::default() };
    let world = Arc::new(SystemWorld::new());
    let store = everstep_store::open(address, &options, world.clone()).await.expect("a store");
    Repository::open(store, world).await.expect("a repository")
}

/// Tells what was done: one line, whole or not at all.
fn report(line: &str) {
    let path = std::env::var_os(REPORT).expect("a report");
    let mut file = OpenOptions::new().append(true).create(true).open(path).expect("a file");
    file.write_all(format!("{line}\n").as_bytes()).expect("written");
}

impl Actor {
    fn is_over(&self) -> bool {
        self.repository.world().elapsed() > LIFE
    }

    /// Saves one version after another, each third on top of what another run has.
    async fn write(&self) {
        let latest = self.repository.latest(&self.run).await;
        let mut version = match latest {
            Ok(latest) => latest.map_or(0, |latest| latest.manifest.step.0),
            Err(RepoError::NotFound(_)) => 0,
            Err(error) => panic!("{error}"),
        };
        while !self.is_over() {
            version += 1;
            let parents =
                if version.is_multiple_of(3) { self.foreign(version).await } else { Parents::Latest };
            match save_into(&self.repository, (&self.run, parents, version), &self.pool).await {
                Ok(saved) => report(&format!("saved {} {}", self.run, saved.manifest.ordinal)),
                // A parent that expired, or a collector without patience.
                Err(SaveError::Repo(RepoError::Expired { .. }) | SaveError::Conflict(_)) => {}
                Err(error) => panic!("{}: {error}", self.run),
            }
        }
    }

    async fn foreign(&self, version: u64) -> Parents {
        let runs = self.repository.runs().await.expect("listed");
        let others: Vec<RunName> = runs.into_iter().filter(|run| *run != self.run).collect();
        let turn = usize::try_from(version).expect("small").checked_rem(others.len());
        let Some(other) = turn.and_then(|turn| others.get(turn)) else { return Parents::Latest };
        match self.repository.latest(other).await {
            Ok(Some(latest)) => Parents::These(vec![latest]),
            Ok(None) | Err(RepoError::NotFound(_)) => Parents::Latest,
            Err(error) => panic!("{error}"),
        }
    }

    /// Loads what is new, and never goes back.
    async fn follow(&self) {
        let mut known = None;
        while !self.is_over() {
            match self.repository.wait(&self.run, known, PATIENCE).await {
                Ok(Some(news)) => {
                    assert!(Some(news.manifest.ordinal) > known, "{} after {known:?}", news.manifest.ordinal);
                    known = Some(news.manifest.ordinal);
                    self.load(&news).await;
                }
                Ok(None) | Err(RepoError::NotFound(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    async fn load(&self, news: &Checkpoint) {
        match try_load(&self.repository, news, &self.pool).await {
            Ok(_) => report(&format!("followed {} {}", self.run, news.manifest.ordinal)),
            Err(RestoreError::Repo(RepoError::Expired { .. })) => report("expired in mid-read"),
            Err(error) => panic!("{error}"),
        }
    }
}
