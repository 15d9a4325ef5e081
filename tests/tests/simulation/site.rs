//! What one simulated process has: its connection, its repository, its threads, and the ledger it reports to.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use everstep_format::name::{Ordinal, RunName};
use everstep_repo::{RepoError, Repository};
use everstep_sim::{Lie, Process, ReadOnly, Room, SimStore, SimWorld, Weather};
use everstep_store::{Counts, Retry, RetryPolicy, Store, World};
use rayon::ThreadPool;

/// Who shares the simulated repository.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) room: Room,
    pub(crate) store: SimStore,
    pub(crate) pool: &'static ThreadPool,
    pub(crate) ledger: Arc<Mutex<Ledger>>,
    /// What the store lies about to trainers.
    pub(crate) lie: Lie,
}

/// One process of the cluster.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) cluster: Cluster,
    pub(crate) repository: Repository,
}

/// How a process reaches the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub(crate) process: Process,
    pub(crate) weather: Weather,
    /// Tries of each call by the store layer.
    pub(crate) tries: u32,
    pub(crate) lie: Lie,
}

/// What a trainer was told about a save.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    Committed(Ordinal),
    Failed(String),
    Unknown,
}

/// What the processes did and were told, in order.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Sessions: run, fence, and `latest` as it was resolved.
    pub(crate) opened: Vec<(RunName, Ordinal, Option<Ordinal>)>,
    /// Saves by number.
    pub(crate) saves: Vec<(u64, RunName, Told)>,
    /// What must never happen.
    pub(crate) wrong: Vec<String>,
    pub(crate) tally: Tally,
}

/// How often what happened; a simulation in which something never happens proves nothing about it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) committed: u64,
    pub(crate) conflicts: u64,
    pub(crate) failed: u64,
    pub(crate) unknown: u64,
    pub(crate) unknown_but_committed: u64,
    pub(crate) takeovers: u64,
    pub(crate) rollbacks: u64,
    pub(crate) expired: u64,
    pub(crate) dropped_rollbacks: u64,
    pub(crate) restored: u64,
    pub(crate) expired_during_restore: u64,
    pub(crate) collected: u64,
    pub(crate) idle_aborts: u64,
    pub(crate) chunks_reused: u64,
    pub(crate) across_runs: u64,
    pub(crate) killed: u64,
    pub(crate) by_ranks: u64,
    pub(crate) ranks_failed: u64,
    pub(crate) heard_committed: u64,
    pub(crate) heard_failed: u64,
    pub(crate) leaders_silent: u64,
    pub(crate) marked_swept: u64,
    pub(crate) collections_restarted: u64,
}

impl Tally {
    pub(crate) fn named(&self) -> [(&'static str, u64); 23] {
        [
            ("saves committed", self.committed),
            ("saves in conflict", self.conflicts),
            ("saves failed", self.failed),
            ("saves of unknown outcome", self.unknown),
            ("of these, committed after all", self.unknown_but_committed),
            ("sessions opened over another", self.takeovers),
            ("rollbacks committed", self.rollbacks),
            ("rollbacks whose target had expired", self.dropped_rollbacks),
            ("checkpoints expired", self.expired),
            ("checkpoints restored", self.restored),
            ("restores overtaken by expiry", self.expired_during_restore),
            ("objects collected", self.collected),
            ("idle attempts aborted", self.idle_aborts),
            ("chunks reused", self.chunks_reused),
            ("runs started from another run", self.across_runs),
            ("processes killed", self.killed),
            ("saves by several ranks committed", self.by_ranks),
            ("saves given up because of a rank", self.ranks_failed),
            ("shares heard to be committed", self.heard_committed),
            ("shares heard not to be", self.heard_failed),
            ("leaders not heard of in time", self.leaders_silent),
            ("attempts found empty for good", self.marked_swept),
            ("passes of a collector thrown away", self.collections_restarted),
        ]
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.committed += other.committed;
        self.conflicts += other.conflicts;
        self.failed += other.failed;
        self.unknown += other.unknown;
        self.unknown_but_committed += other.unknown_but_committed;
        self.takeovers += other.takeovers;
        self.rollbacks += other.rollbacks;
        self.expired += other.expired;
        self.dropped_rollbacks += other.dropped_rollbacks;
        self.restored += other.restored;
        self.expired_during_restore += other.expired_during_restore;
        self.collected += other.collected;
        self.idle_aborts += other.idle_aborts;
        self.chunks_reused += other.chunks_reused;
        self.across_runs += other.across_runs;
        self.killed += other.killed;
        self.by_ranks += other.by_ranks;
        self.ranks_failed += other.ranks_failed;
        self.heard_committed += other.heard_committed;
        self.heard_failed += other.heard_failed;
        self.leaders_silent += other.leaders_silent;
        self.marked_swept += other.marked_swept;
        self.collections_restarted += other.collections_restarted;
    }
}

impl Cluster {
    /// Opens the repository as `link.process`.
    pub(crate) async fn join(&self, link: Link) -> Result<Site, RepoError> {
        let connection = self.store.connect(link.process, link.weather).lying(link.lie);
        self.join_by(link, connection).await
    }

    /// As [`Cluster::join`], with Get and List alone; the number counts calls that were refused.
    pub(crate) async fn join_reading(&self, link: Link) -> Result<(Site, Arc<AtomicU64>), RepoError> {
        let connection = ReadOnly::new(self.store.connect(link.process, link.weather).lying(link.lie));
        let refusals = connection.refusals();
        Ok((self.join_by(link, connection).await?, refusals))
    }

    async fn join_by(&self, link: Link, connection: impl Store) -> Result<Site, RepoError> {
        let Link { process, tries, .. } = link;
        let world: Arc<dyn World> = Arc::new(SimWorld::new(&self.room, process));
        let policy =
            RetryPolicy { attempts: tries, budget: Duration::from_secs(120), ..RetryPolicy::default() };
        let store = Arc::new(Retry::new(connection, policy, Arc::clone(&world), Arc::new(Counts::default())));
        let repository = Repository::open(store, world).await?;
        Ok(Site { cluster: self.clone(), repository })
    }

    /// Writes into the ledger.
    pub(crate) fn note<T>(&self, entry: impl FnOnce(&mut Ledger) -> T) -> T {
        entry(&mut self.ledger.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes what must never happen.
    pub(crate) fn wrong(&self, what: String) {
        self.note(|ledger| ledger.wrong.push(what));
    }

    /// A pause of up to `most`.
    pub(crate) async fn pause(&self, most: Duration) {
        self.room.sleep(self.room.time_between(Duration::ZERO, most)).await;
    }
}

impl Site {
    pub(crate) fn save_tools<'a>(&self, cache: &'a everstep_save::SaveCache) -> everstep_save::Tools<'a> {
        let settings = save_settings();
        everstep_save::Tools { pool: self.cluster.pool, settings, progress: &(), cache }
    }

    pub(crate) fn restore_tools(&self) -> everstep_restore::Tools<'static> {
        everstep_restore::Tools { pool: self.cluster.pool, settings: restore_settings(), progress: &() }
    }
}

/// Small packs, so that every save has several.
fn save_settings() -> &'static everstep_save::Settings {
    static SETTINGS: std::sync::LazyLock<everstep_save::Settings> = std::sync::LazyLock::new(|| {
        everstep_save::Settings { pack_target: 1500, uploads: 3, ..everstep_save::Settings::default() }
    });
    &SETTINGS
}

fn restore_settings() -> &'static everstep_restore::Settings {
    static SETTINGS: std::sync::LazyLock<everstep_restore::Settings> =
        std::sync::LazyLock::new(everstep_restore::Settings::default);
    &SETTINGS
}
