//! Everybody but the trainers: retention, collectors, readers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use everstep_format::name::{Ordinal, RunName};
use everstep_repo::{AttemptState, Checkpoint, RepoError};
use everstep_sim::collector::{abort_idle, collect};
use rand::RngExt;

use crate::site::{Cluster, Link, Site};
use crate::trainer::resume;

/// Ends the loops below.
pub(crate) type Stop = Arc<AtomicBool>;

/// Age at which the impatient collector takes an undecided attempt for dead.
const IDLE: Duration = Duration::from_secs(1800);

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

/// Aborts idle attempts and collects garbage, eagerly.
pub(crate) async fn sweep(cluster: Cluster, link: Link, stop: Stop) {
    let Ok(site) = cluster.join(link).await else { return };
    while !stop.load(Ordering::Relaxed) {
        cluster.pause(Duration::from_secs(600)).await;
        sweep_once(&site).await;
    }
}

/// One round of the collector.
pub(crate) async fn sweep_once(site: &Site) {
    let (store, now) = (site.repository.store(), site.repository.world().now());
    let aborted = abort_idle(store.as_ref(), now, IDLE).await.unwrap_or(0);
    let collected = collect(store.as_ref()).await.unwrap_or(0);
    site.cluster.note(|ledger| {
        ledger.tally.idle_aborts += u64::from(aborted);
        ledger.tally.collected += collected as u64;
    });
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
