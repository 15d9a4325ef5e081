//! Everybody but the trainers: retention, collectors, readers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use everstep_format::name::{Ordinal, RunName};
use everstep_gc::{Collected, Collector, GcError, Orders, Policy, Settings};
use everstep_repo::{AttemptState, Checkpoint, RepoError};
use rand::RngExt;

use crate::site::{Cluster, Link, Site};
use crate::trainer::resume;

/// Ends the loops below.
pub(crate) type Stop = Arc<AtomicBool>;

/// Age at which the impatient collector takes an undecided attempt for dead.
const IDLE: Duration = Duration::from_secs(1800);
/// What a collection by policy keeps.
const POLICY: &str = "[[policy]]\nruns = \"*\"\nkeep_last = 2\nkeep_every = 3\n";

/// Expires older checkpoints at random.
pub(crate) async fn retain(cluster: Cluster, link: Link, stop: Stop) {
    let Ok(site) = cluster.join(link).await else { return };
    while !stop.load(Ordering::Relaxed) {
        cluster.pause(Duration::from_secs(900)).await;
        if let Err(error) = expire_one(&site).await {
            tolerate(&cluster, "retention", &error);
        }
    }
}

async fn expire_one(site: &Site) -> Result<(), RepoError> {
    let runs = site.repository.runs().await?;
    let draw = |n: usize| site.cluster.room.draw(|rng| rng.random_range(0..n));
    if runs.is_empty() {
        return Ok(());
    }
    let run = &runs[draw(runs.len())];
    let attempts = site.repository.attempts(run).await?;
    let committed = |(ordinal, state): &(Ordinal, AttemptState)| {
        matches!(state, AttemptState::Committed(_)).then_some(*ordinal)
    };
    let candidates: Vec<Ordinal> = attempts.iter().filter_map(committed).collect();
    if candidates.is_empty() {
        return Ok(());
    }
    let ordinal = candidates[draw(candidates.len())];
    site.cluster.pause(Duration::from_secs(300)).await;
    match site.repository.expire(run, ordinal, "simulated retention").await {
        Ok(()) => site.cluster.note(|ledger| ledger.tally.expired += 1),
        Err(RepoError::Refused(_)) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Ends idle attempts, expires by a policy now and then, and collects garbage, eagerly. What was read is remembered, as in a
/// process that goes on.
pub(crate) async fn sweep(cluster: Cluster, link: Link, stop: Stop) {
    let Ok(site) = cluster.join(link).await else { return };
    let thorough = cluster.room.draw(|rng| rng.random_bool(0.2));
    let mut collector = collector(&site, thorough);
    let policy = Policy::from_toml(POLICY).expect("a policy");
    while !stop.load(Ordering::Relaxed) {
        cluster.pause(Duration::from_secs(600)).await;
        let by_policy = cluster.room.draw(|rng| rng.random_bool(0.2));
        let orders = if by_policy { Orders::Policy(&policy) } else { Orders::Sweep };
        note(&site, collector.collect(orders, &()).await);
    }
}

/// One round of a collector that knows nothing yet and looks everywhere: what arrived late below an attempt that had been found
/// empty goes as well.
pub(crate) async fn sweep_once(site: &Site) -> Option<Collected> {
    let mut collector = collector(site, true);
    note(site, collector.collect(Orders::Sweep, &()).await)
}

fn collector(site: &Site, thorough: bool) -> Collector {
    let swept_after = Duration::from_secs(3600);
    let settings = Settings { idle: IDLE, swept_after, thorough, in_flight: 3, ..Settings::default() };
    Collector::new(site.repository.clone(), settings)
}

/// The store may fail, and others may collect at the same time; nothing else may stop a collection.
fn note(site: &Site, outcome: Result<Collected, GcError>) -> Option<Collected> {
    match outcome {
        Ok(done) => {
            site.cluster.note(|ledger| {
                ledger.tally.expired += done.expired.len() as u64;
                ledger.tally.idle_aborts += done.aborted.len() as u64;
                ledger.tally.collected += done.freed().objects;
                ledger.tally.marked_swept += done.marked_swept;
                ledger.tally.collections_restarted += u64::from(done.restarts);
            });
            return Some(done);
        }
        Err(GcError::Changed) => site.cluster.note(|ledger| ledger.tally.collections_restarted += 1),
        Err(GcError::Repo(RepoError::Store(_))) => {}
        Err(error) => site.cluster.wrong(format!("a collector met {error}")),
    }
    None
}

/// Resolves `latest` of every run again and again, and restores it and any other. It never goes back.
pub(crate) async fn read(cluster: Cluster, link: Link, stop: Stop) {
    let mut seen = BTreeMap::new();
    let Ok(site) = cluster.join(link).await else { return };
    while !stop.load(Ordering::Relaxed) {
        cluster.pause(Duration::from_secs(900)).await;
        if let Err(error) = read_all(&site, &mut seen).await {
            tolerate(&cluster, "a reader", &error);
        }
    }
}

async fn read_all(site: &Site, seen: &mut BTreeMap<RunName, Ordinal>) -> Result<(), RepoError> {
    for run in site.repository.runs().await? {
        let Some(latest) = site.repository.latest(&run).await? else {
            if let Some(before) = seen.get(&run) {
                site.cluster.wrong(format!("latest of run {run} was {before} and is nothing now"));
            }
            continue;
        };
        let ordinal = latest.manifest.ordinal;
        let before = seen.insert(run.clone(), ordinal);
        if before > Some(ordinal) {
            site.cluster.wrong(format!("latest of run {run} went back from {before:?} to {ordinal}"));
        }
        resume(site, &latest).await;
        read_any(site, &run).await?;
    }
    Ok(())
}

/// Restores any checkpoint of `run`, old or new.
async fn read_any(site: &Site, run: &RunName) -> Result<(), RepoError> {
    let committed =
        |(_, state)| if let AttemptState::Committed(checkpoint) = state { Some(checkpoint) } else { None };
    let checkpoints: Vec<Checkpoint> =
        site.repository.attempts(run).await?.into_iter().filter_map(committed).collect();
    if checkpoints.is_empty() {
        return Ok(());
    }
    let chosen = site.cluster.room.draw(|rng| rng.random_range(0..checkpoints.len()));
    site.cluster.pause(Duration::from_secs(60)).await;
    resume(site, &checkpoints[chosen]).await;
    Ok(())
}

/// The store may fail; nothing else may.
fn tolerate(cluster: &Cluster, who: &str, error: &RepoError) {
    if !matches!(error, RepoError::Store(_)) {
        cluster.wrong(format!("{who} met {error}"));
    }
}
