//! Those who want to keep something while a trainer writes and older checkpoints expire and are collected eagerly:
//! followers with Get and List alone, readers that hold leases, operators who pin.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use everstep_format::name::{Ordinal, PinName, RunName};
use everstep_repo::{AttemptState, Checkpoint, LeaseOptions, Pinned, RepoError, Takeover};
use everstep_restore::RestoreError;
use everstep_sim::{Executor, Lie, SimStore, Weather};
use rand::RngExt;
use rayon::ThreadPool;

use crate::content::{Loaded, describe, load, load_slowly};
use crate::oracle;
use crate::others::{self, Stop};
use crate::scenario::{AFTERMATH, create_repository, link, start, with_link};
use crate::site::{Cluster, Link, Site};
use crate::trainer::{self, Job};

/// Longer than any reading takes, whatever freezes and fails.
const TTL: Duration = Duration::from_secs(12 * 3600);
/// Names that operators fight for.
const NAMES: [&str; 3] = ["release", "base", "best"];

/// What happened, and what should not have.
#[derive(Debug, Default, Clone)]
pub(crate) struct Kept {
    pub(crate) wrong: Vec<String>,
    followed: u64,
    expired_in_mid_read: u64,
    leases: u64,
    leases_refused: u64,
    read_after_expiry: u64,
    silent_leases: u64,
    pins: u64,
    names_taken: u64,
    unpinned: u64,
    pins_outliving: u64,
    collected: u64,
}

impl Kept {
    pub(crate) fn named(&self) -> [(&'static str, u64); 11] {
        [
            ("checkpoints followed and read whole", self.followed),
            ("expiries in mid-read, told as such", self.expired_in_mid_read),
            ("leases taken", self.leases),
            ("leases refused because the checkpoint had expired", self.leases_refused),
            ("checkpoints read whole under a lease after they had expired", self.read_after_expiry),
            ("silent leases ended by their time to live", self.silent_leases),
            ("pins made", self.pins),
            ("names that were taken", self.names_taken),
            ("pins given up", self.unpinned),
            ("pins that outlived what they name", self.pins_outliving),
            ("objects collected", self.collected),
        ]
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.followed += other.followed;
        self.expired_in_mid_read += other.expired_in_mid_read;
        self.leases += other.leases;
        self.leases_refused += other.leases_refused;
        self.read_after_expiry += other.read_after_expiry;
        self.silent_leases += other.silent_leases;
        self.pins += other.pins;
        self.names_taken += other.names_taken;
        self.unpinned += other.unpinned;
        self.pins_outliving += other.pins_outliving;
        self.collected += other.collected;
    }
}

/// A cluster, and what its keepers report.
#[derive(Clone)]
struct Town {
    cluster: Cluster,
    kept: Arc<Mutex<Kept>>,
    stop: Stop,
}

impl Town {
    fn note(&self, entry: impl FnOnce(&mut Kept)) {
        entry(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn run() -> RunName {
        RunName::new("pretrain").expect("a run name")
    }
}

/// Plays one seed; `lie` is what the store lies about to those who take leases.
pub(crate) fn play(seed: u64, lie: Lie, pool: &'static ThreadPool) -> Kept {
    let executor = Executor::new(seed);
    let room = executor.room().clone();
    let store = SimStore::new(&room);
    let cluster = Cluster { room, store, pool, ledger: Arc::default(), lie: Lie::None };
    let town = Town { cluster, kept: Arc::default(), stop: Arc::new(AtomicBool::new(false)) };
    executor.run(direct(town, lie))
}

async fn direct(town: Town, lie: Lie) -> Kept {
    let cluster = &town.cluster;
    create_repository(cluster).await;
    let collector = link(cluster);
    cluster.store.objects().permit_collection(collector.process);
    let mut ends = vec![
        start(cluster, collector, others::sweep(cluster.clone(), collector, town.stop.clone())),
        with_link(cluster, |link| retain(town.clone(), link)),
    ];
    let calm = Link { weather: Weather::CALM, tries: 1, ..link(cluster) };
    ends.push(start(cluster, calm, follow(town.clone(), calm)));
    ends.push(with_link(cluster, |link| follow(town.clone(), link)));
    for _ in 0..2 {
        ends.push(with_link(cluster, |link| hold(town.clone(), Link { lie, ..link })));
        ends.push(with_link(cluster, |link| operate(town.clone(), link)));
    }
    for _ in 0..3 {
        // Cancelled when it was killed: the next one is its restart.
        _ = with_link(cluster, |link| train(cluster.clone(), link)).await;
    }
    town.stop.store(true, Ordering::Relaxed);
    for end in ends {
        _ = end.await;
    }
    cluster.room.sleep(AFTERMATH + TTL).await;
    finish(&town).await
}

async fn train(cluster: Cluster, link: Link) {
    let job = Job {
        run: Town::run(),
        origin: None,
        label: Some("trainer".to_owned()),
        takeover: Takeover::Now,
        saves: 5,
        goes_back: false,
        closes: true,
        crew: 0,
    };
    _ = trainer::run(cluster, link, (job, Vec::new())).await;
}

/// Expires all but the newest checkpoint, soon.
async fn retain(town: Town, link: Link) {
    let Ok(site) = town.cluster.join(link).await else { return };
    while !town.is_over() {
        town.cluster.pause(Duration::from_secs(600)).await;
        if let Err(error) = expire_older(&site).await {
            town.tolerate("retention", &error);
        }
    }
}

async fn expire_older(site: &Site) -> Result<(), RepoError> {
    let attempts = match site.repository.attempts(&Town::run()).await {
        Err(RepoError::NotFound(_)) => return Ok(()),
        other => other?,
    };
    let committed = attempts.iter().filter(|(_, state)| matches!(state, AttemptState::Committed(_)));
    let mut ordinals: Vec<Ordinal> = committed.map(|(ordinal, _)| *ordinal).collect();
    ordinals.pop();
    for ordinal in ordinals {
        site.repository.expire(&Town::run(), ordinal, "simulated retention").await?;
    }
    Ok(())
}

/// Waits for news again and again, and reads it slowly. It never goes back, and in the end it knows the newest.
async fn follow(town: Town, link: Link) {
    let Ok((site, refusals)) = town.cluster.join_reading(link).await else { return };
    let mut known: Option<Ordinal> = None;
    loop {
        let over = town.is_over();
        let patience = if over { Duration::ZERO } else { Duration::from_secs(1200) };
        match site.repository.wait(&Town::run(), known, patience).await {
            Ok(Some(news)) => {
                if Some(news.manifest.ordinal) <= known {
                    town.cluster.wrong(format!("a follower was given {} after {known:?}", describe(&news)));
                }
                known = Some(news.manifest.ordinal);
                read_slowly(&town, &site, &news).await;
            }
            Ok(None) if over => break,
            Err(RepoError::NotFound(_)) if over || known.is_none() => {}
            Ok(None) => {}
            Err(error) => town.tolerate("a follower", &error),
        }
        if over && known.is_none() {
            break;
        }
    }
    let newest = site.repository.latest(&Town::run()).await.ok().flatten();
    if link.weather == Weather::CALM && newest.map(|newest| newest.manifest.ordinal) != known {
        town.cluster.wrong(format!("a follower ended with {known:?}, which is not the newest"));
    }
    if refusals.load(Ordering::Relaxed) > 0 {
        town.cluster.wrong("a follower tried to write".to_owned());
    }
}

async fn read_slowly(town: &Town, site: &Site, checkpoint: &Checkpoint) {
    match load_slowly(site, checkpoint, Duration::from_secs(900)).await {
        Loaded::Whole(_) => town.note(|kept| kept.followed += 1),
        Loaded::Failed(RestoreError::Repo(RepoError::Expired { .. })) => {
            town.note(|kept| kept.expired_in_mid_read += 1);
        }
        Loaded::Failed(RestoreError::Repo(RepoError::Store(_))) => {}
        Loaded::Failed(error) => town.cluster.wrong(format!("a follower met {error}")),
        Loaded::Wrong(what) => town.cluster.wrong(format!("{what} holds other bytes than were saved")),
    }
}

/// Reads slowly under leases; what then expires must stay readable.
async fn hold(town: Town, link: Link) {
    let Ok(site) = town.cluster.join(link).await else { return };
    while !town.is_over() {
        town.cluster.pause(Duration::from_secs(600)).await;
        match hold_once(&town, &site).await {
            Ok(()) | Err(RepoError::NotFound(_)) => {}
            Err(error) => town.tolerate("a reader with a lease", &error),
        }
    }
}

async fn hold_once(town: &Town, site: &Site) -> Result<(), RepoError> {
    let Some(latest) = site.repository.latest(&Town::run()).await? else { return Ok(()) };
    town.cluster.pause(Duration::from_secs(900)).await;
    let options = LeaseOptions { ttl: TTL, holder: Some("simulated".to_owned()) };
    let lease = match site.repository.lease(&latest, options).await {
        Err(RepoError::Expired { .. }) => {
            town.note(|kept| kept.leases_refused += 1);
            return Ok(());
        }
        other => other?,
    };
    town.note(|kept| kept.leases += 1);
    town.cluster.pause(Duration::from_secs(3600)).await;
    let expired = is_expired(site, &latest);
    match load_slowly(site, &latest, Duration::from_secs(1200)).await {
        Loaded::Whole(_) => town.note(|kept| kept.read_after_expiry += u64::from(expired)),
        Loaded::Failed(RestoreError::Repo(RepoError::Store(_))) => {}
        Loaded::Failed(error) => town.cluster.wrong(format!("under a lease: {error}")),
        Loaded::Wrong(what) => town.cluster.wrong(format!("{what} holds other bytes than were saved")),
    }
    if town.cluster.room.draw(|rng| rng.random_bool(0.5)) {
        lease.end().await?;
    }
    Ok(())
}

/// Past all faults and lies.
fn is_expired(site: &Site, checkpoint: &Checkpoint) -> bool {
    let manifest = &checkpoint.manifest;
    let marker = everstep_format::key::Key::expired(&manifest.run, manifest.ordinal);
    site.cluster.store.objects().peek(&marker).is_some()
}

/// Pins what is newest under one of a few names, and gives pins up.
async fn operate(town: Town, link: Link) {
    let Ok(site) = town.cluster.join(link).await else { return };
    while !town.is_over() {
        town.cluster.pause(Duration::from_secs(1200)).await;
        let chosen = town.cluster.room.draw(|rng| rng.random_range(0..NAMES.len()));
        let name = PinName::new(NAMES[chosen]).expect("a name");
        let unpins = town.cluster.room.draw(|rng| rng.random_bool(0.3));
        let done = if unpins { unpin(&town, &site, &name).await } else { pin(&town, &site, &name).await };
        match done {
            Ok(()) | Err(RepoError::NotFound(_) | RepoError::Conflict { .. } | RepoError::Unknown { .. }) => {
            }
            Err(error) => town.tolerate("an operator", &error),
        }
    }
}

async fn unpin(town: &Town, site: &Site, name: &PinName) -> Result<(), RepoError> {
    site.repository.unpin(name, "simulated").await?;
    town.note(|kept| kept.unpinned += 1);
    Ok(())
}

async fn pin(town: &Town, site: &Site, name: &PinName) -> Result<(), RepoError> {
    let Some(latest) = site.repository.latest(&Town::run()).await? else { return Ok(()) };
    match site.repository.pin(name, &latest).await {
        Ok(_) => town.note(|kept| kept.pins += 1),
        Err(RepoError::Refused(_)) => town.note(|kept| kept.names_taken += 1),
        Err(RepoError::Expired { .. }) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

impl Town {
    /// The store may fail; nothing else may.
    fn tolerate(&self, who: &str, error: &RepoError) {
        if !matches!(error, RepoError::Store(_)) {
            self.cluster.wrong(format!("{who} met {error}"));
        }
    }
}

/// The last collection and the judgement, in calm weather.
async fn finish(town: &Town) -> Kept {
    let process = town.cluster.room.process();
    town.cluster.store.objects().permit_collection(process);
    let calm = Link { process, weather: Weather::CALM, tries: 1, lie: Lie::None };
    let site = town.cluster.join(calm).await.expect("a calm store answers");
    let collected = others::sweep_once(&site).await;
    let pins = site.repository.pins().await.expect("a calm store answers");
    for pinned in &pins.pins {
        judge_pin(town, &site, pinned).await;
    }
    oracle::judge(&site).await;
    town.cluster.note(|ledger| {
        town.note(|kept| {
            kept.wrong.append(&mut ledger.wrong);
            kept.silent_leases += collected.map_or(0, |collected| collected.leases_ended);
            kept.collected += ledger.tally.collected;
        });
    });
    town.kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

async fn judge_pin(town: &Town, site: &Site, pinned: &Pinned) {
    match load(site, &pinned.checkpoint).await {
        Loaded::Whole(_) => {}
        Loaded::Failed(error) => town.cluster.wrong(format!("the pin {} is lost: {error}", pinned.name)),
        Loaded::Wrong(_) => town.cluster.wrong(format!("the pin {} holds other bytes", pinned.name)),
    }
    let outlived = site.repository.is_expired(&pinned.of.run, pinned.of.ordinal).await.expect("a calm store");
    town.note(|kept| kept.pins_outliving += u64::from(outlived));
}
