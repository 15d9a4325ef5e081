//! Applying a policy to what is in the repository.

use std::collections::BTreeMap;

use everstep_format::intent::ParentRef;
use everstep_format::name::{Ordinal, PinName, RunName};
use everstep_repo::{Checkpoint, Repository};
use jiff::Timestamp;

use crate::judge::{Candidate, Judged, Line, Verdict, judge};
use crate::learning::{Known, Outcome, Reading};
use crate::listing::Listing;
use crate::policy::Policy;
use crate::{GcError, sizes};

/// The checkpoints of a run, judged; both in the same order, ascending.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) checkpoints: Vec<Checkpoint>,
    pub(crate) judged: Vec<Judged>,
}

impl Run {
    pub(crate) fn each(&self) -> impl Iterator<Item = (&Checkpoint, &Judged)> {
        self.checkpoints.iter().zip(&self.judged)
    }

    pub(crate) fn expired(&self) -> Vec<(&Checkpoint, &Judged)> {
        self.each().filter(|(_, judged)| judged.verdict == Verdict::Expire).collect()
    }
}

/// The checkpoints of the runs, by run, pins apart.
pub(crate) fn checkpoints(listing: &Listing, known: &Known) -> BTreeMap<RunName, Vec<Checkpoint>> {
    let mut runs: BTreeMap<RunName, Vec<Checkpoint>> = BTreeMap::new();
    for (place, entry) in &listing.attempts {
        if let (None, Some(Outcome::Committed(checkpoint))) = (entry.expired, known.outcome(place)) {
            runs.entry(place.0.clone()).or_default().push(checkpoint.clone());
        }
    }
    runs
}

/// Judges every checkpoint of every run but pins.
pub(crate) async fn judge_all(
    policy: &Policy,
    (listing, known): (&Listing, &Known),
    reading: Reading<'_>,
) -> Result<Vec<Run>, GcError> {
    let mut runs = checkpoints(listing, known);
    let pins = pins(&runs.remove(&RunName::pins()).unwrap_or_default());
    let rollbacks = rollbacks(listing, known);
    let now = Timestamp::try_from(reading.repository.world().now()).unwrap_or_default();
    let mut judged_runs = Vec::new();
    for (run, checkpoints) in runs {
        let line = Line {
            run: &run,
            checkpoints: checkpoints.iter().map(|checkpoint| candidate(checkpoint, &pins)).collect(),
            rollbacks: rollbacks.get(&run).cloned().unwrap_or_default(),
        };
        let (mut judged, fit) = judge(policy, &line, now);
        if let Some(fit) = fit {
            let stays = sizes::measure(reading, &checkpoints, &fit).await?;
            fit.apply(&mut judged, &stays);
        }
        judged_runs.push(Run { checkpoints, judged });
    }
    Ok(judged_runs)
}

type PinsOf = BTreeMap<ParentRef, Vec<PinName>>;

fn pins(pins: &[Checkpoint]) -> PinsOf {
    let mut of = PinsOf::new();
    for pin in pins.iter().filter_map(|checkpoint| checkpoint.manifest.pin.as_ref()) {
        of.entry(pin.of.clone()).or_default().push(pin.name.clone());
    }
    of
}

fn rollbacks(listing: &Listing, known: &Known) -> BTreeMap<RunName, Vec<(Ordinal, Ordinal)>> {
    let mut rollbacks: BTreeMap<RunName, Vec<(Ordinal, Ordinal)>> = BTreeMap::new();
    for place in listing.attempts.keys() {
        let Some(Outcome::Committed(checkpoint)) = known.outcome(place) else { continue };
        let target = checkpoint.manifest.rollback_to.as_ref().filter(|target| target.run == place.0);
        if let Some(target) = target {
            rollbacks.entry(place.0.clone()).or_default().push((place.1, target.ordinal));
        }
    }
    rollbacks
}

fn candidate<'c>(checkpoint: &'c Checkpoint, pins: &'c PinsOf) -> Candidate<'c> {
    let manifest = &checkpoint.manifest;
    Candidate {
        ordinal: manifest.ordinal,
        step: manifest.step,
        created: &manifest.created,
        metadata: &manifest.metadata,
        pins: pins.get(&checkpoint.as_parent()).map_or(&[], Vec::as_slice),
    }
}

/// Puts the marker of one checkpoint of `run`.
pub(crate) async fn expire(
    repository: &Repository,
    run: &Run,
    (checkpoint, judged): (&Checkpoint, &Judged),
) -> Result<(), GcError> {
    // The newest is never judged to expire.
    let Some(newest) = run.checkpoints.last() else { return Ok(()) };
    let why: Vec<&str> = judged.reasons.iter().map(|reason| reason.why.as_str()).collect();
    Ok(repository.expire_older(checkpoint, newest, &format!("retention: {}", why.join("; "))).await?)
}
