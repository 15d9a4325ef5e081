//! What must be true at the end, told from the objects and from the ledger.

use std::collections::{BTreeMap, BTreeSet};

use everstep_check::{CheckOptions, check};
use everstep_format::intent::{Intent, IntentKind};
use everstep_format::key::{Key, StoredKind};
use everstep_format::name::{Ordinal, RunName};
use everstep_repo::{AttemptState, Checkpoint};

use crate::content::{Loaded, describe, load, save_of};
use crate::site::{Ledger, Site, Told};

/// Judges everything; what is wrong goes into the ledger.
pub(crate) async fn judge(site: &Site) {
    let mut checkpoints = BTreeMap::new();
    for run in site.repository.runs().await.expect("a calm store answers") {
        let attempts = site.repository.attempts(&run).await.expect("a calm store answers");
        for (ordinal, state) in attempts {
            if let AttemptState::Committed(checkpoint) | AttemptState::Expired(checkpoint) = &state {
                checkpoints.insert((run.clone(), ordinal), checkpoint.clone());
            }
            if let AttemptState::Committed(checkpoint) = &state {
                restores_bit_exact(site, checkpoint).await;
            }
        }
    }
    fences_hold(site, &checkpoints);
    site.cluster.note(|ledger| {
        sessions_resolved_what_stays(ledger, &checkpoints);
        reports_are_true(ledger, &checkpoints);
    });
    newest_is_never_expired(site, &checkpoints).await;
    check_is_clean(site).await;
    let offences = site.cluster.store.objects().offences().to_vec();
    site.cluster.note(|ledger| ledger.wrong.extend(offences));
}

type Checkpoints = BTreeMap<(RunName, Ordinal), Checkpoint>;

async fn restores_bit_exact(site: &Site, checkpoint: &Checkpoint) {
    match load(site, checkpoint).await {
        Loaded::Whole(_) => {}
        Loaded::Failed(error) => site.cluster.wrong(format!("{} is lost: {error}", describe(checkpoint))),
        Loaded::Wrong(what) => site.cluster.wrong(format!("{what} holds other bytes than were saved")),
    }
}

/// A COMMIT belongs to the session of the nearest fence below it, and ordinals are dense.
fn fences_hold(site: &Site, checkpoints: &Checkpoints) {
    let intents = intents(site);
    for ((run, ordinal), checkpoint) in checkpoints {
        let below = intents.range((run.clone(), Ordinal::FIRST)..(run.clone(), *ordinal)).rev();
        let fence = below.map(|(_, intent)| intent).find(|intent| intent.kind == IntentKind::Fence);
        if fence.map(|fence| fence.session) != Some(checkpoint.manifest.session) {
            site.cluster
                .wrong(format!("{} was committed by a session that was fenced", describe(checkpoint)));
        }
    }
    for (run, ordinal) in intents.keys().filter(|(_, ordinal)| *ordinal > Ordinal::FIRST) {
        if !intents.contains_key(&(run.clone(), Ordinal(ordinal.0 - 1))) {
            site.cluster.wrong(format!("run {run} has no ordinal before {ordinal}"));
        }
    }
}

fn intents(site: &Site) -> BTreeMap<(RunName, Ordinal), Intent> {
    let objects = site.cluster.store.objects();
    let mut intents = BTreeMap::new();
    for key in objects.keys() {
        if let Some(StoredKind::Intent(run, ordinal)) = key.kind() {
            let bytes = objects.peek(&Key::intent(&run, ordinal)).expect("just listed");
            let intent = Intent::from_bytes(&bytes, &run, ordinal).expect("intents are sound");
            intents.insert((run, ordinal), intent);
        }
    }
    intents
}

/// What a session resolved as `latest` below its fence is for good the newest COMMIT below its fence.
fn sessions_resolved_what_stays(ledger: &mut Ledger, checkpoints: &Checkpoints) {
    let wrong = ledger.opened.iter().filter_map(|(run, fence, resolved)| {
        let below = checkpoints.range((run.clone(), Ordinal::FIRST)..(run.clone(), *fence));
        let newest = below.last().map(|((_, ordinal), _)| *ordinal);
        // A newer session may have committed before this one got to R3; then it sees that, and is fenced.
        let resolved_below = resolved.is_none_or(|ordinal| ordinal < *fence);
        (resolved_below && newest != *resolved).then(|| {
            format!(
                "the session at fence {fence} of run {run} resolved {resolved:?}, but {newest:?} is newest"
            )
        })
    });
    let wrong: Vec<String> = wrong.collect();
    ledger.wrong.extend(wrong);
}

fn reports_are_true(ledger: &mut Ledger, checkpoints: &Checkpoints) {
    let originals = checkpoints.iter().filter(|(_, checkpoint)| checkpoint.manifest.rollback_to.is_none());
    let committed: BTreeMap<u64, &(RunName, Ordinal)> =
        originals.map(|(place, checkpoint)| (save_of(checkpoint), place)).collect();
    let mut unknown = 0;
    let mut wrong = Vec::new();
    for (save, run, told) in &ledger.saves {
        match (told, committed.get(save)) {
            (Told::Committed(ordinal), Some(place)) if **place == (run.clone(), *ordinal) => {}
            (Told::Committed(ordinal), found) => {
                wrong.push(format!(
                    "checkpoint {ordinal} of run {run} was reported as committed; found {found:?}"
                ));
            }
            (Told::Failed(why), Some(place)) => {
                wrong.push(format!("a save was reported as failed ({why}), yet it is {place:?}"));
            }
            (Told::Unknown, Some(_)) => unknown += 1,
            (Told::Failed(_) | Told::Unknown, None) => {}
        }
    }
    ledger.tally.unknown_but_committed += unknown;
    ledger.wrong.extend(wrong);
}

async fn newest_is_never_expired(site: &Site, checkpoints: &Checkpoints) {
    let runs: BTreeSet<&RunName> = checkpoints.keys().map(|(run, _)| run).collect();
    for run in runs {
        let newest = checkpoints.keys().filter(|(of, _)| of == run).map(|(_, ordinal)| *ordinal).max();
        let latest = site.repository.latest(run).await.expect("a calm store answers");
        let latest = latest.map(|checkpoint| checkpoint.manifest.ordinal);
        if latest != newest {
            site.cluster.wrong(format!("latest of run {run} is {latest:?}, the newest COMMIT is {newest:?}"));
        }
    }
}

/// The product's own judge agrees.
async fn check_is_clean(site: &Site) {
    let settings = everstep_check::Settings::default();
    let tools = everstep_check::Tools { pool: site.cluster.pool, settings: &settings, progress: &() };
    let options = CheckOptions { deep: true, only: None };
    let report = check(&site.repository, &options, &tools).await.expect("a calm store answers");
    for finding in report.damage() {
        site.cluster.wrong(format!("check found damage: {finding:?}"));
    }
    // The collection before was undisturbed.
    for finding in report.findings.iter().filter(|f| f.advice.contains("garbage collection will free it")) {
        site.cluster.wrong(format!("garbage is left: {finding:?}"));
    }
}
