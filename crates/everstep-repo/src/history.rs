//! What the protocol objects of one run say together, and the ordering invariants that they must keep. Pure:
//! loading is elsewhere, so that listing and checking judge by the same rules.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use everstep_format::decision::{Abort, Manifest};
use everstep_format::intent::{Intent, IntentKind, ParentRef};
use everstep_format::name::{Ordinal, RunName};

use crate::reading::{Decided, Fate};
use crate::{AttemptState, Checkpoint, RepoError};

/// Reasons that only a session writes on a fence, and only once everything below that fence is decided.
const SETTLING_REASONS: [&str; 2] = ["closed", "superseded"];

/// The intents, decisions and expired markers of one run.
#[derive(Debug, Clone)]
pub struct History {
    /// The run.
    pub run: RunName,
    /// Intents that could be read.
    pub intents: BTreeMap<Ordinal, Intent>,
    /// Decisions that could be read.
    pub decisions: BTreeMap<Ordinal, Arc<Decided>>,
    /// Ordinals with an expired marker.
    pub expired: BTreeSet<Ordinal>,
    /// Objects that are there but cannot be read or understood.
    pub unreadable: Vec<(Ordinal, RepoError)>,
}

/// A broken ordering invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The run.
    pub run: RunName,
    /// The attempt concerned.
    pub ordinal: Ordinal,
    /// The invariant: the name of the function that judged it.
    pub invariant: &'static str,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { run, ordinal, invariant, what } = self;
        write!(f, "run {run}, attempt {ordinal}: {what} ({invariant})")
    }
}

impl History {
    /// A history without anything in it.
    pub fn empty(run: RunName) -> Self {
        Self {
            run,
            intents: BTreeMap::new(),
            decisions: BTreeMap::new(),
            expired: BTreeSet::new(),
            unreadable: Vec::new(),
        }
    }

    /// The state of every attempt, in order.
    pub fn states(&self) -> Vec<(Ordinal, AttemptState)> {
        let unreadable = self.unreadable.iter().map(|(ordinal, _)| ordinal);
        let ordinals: BTreeSet<Ordinal> =
            self.intents.keys().chain(self.decisions.keys()).chain(unreadable).copied().collect();
        ordinals.into_iter().filter_map(|ordinal| Some((ordinal, self.state(ordinal)?))).collect()
    }

    fn state(&self, ordinal: Ordinal) -> Option<AttemptState> {
        let fate = self.decisions.get(&ordinal).map(|decided| &decided.fate);
        if let Some(Fate::Commit(manifest)) = fate {
            let checkpoint = Checkpoint { manifest: manifest.clone() };
            let expired = self.expired.contains(&ordinal);
            return Some(if expired {
                AttemptState::Expired(checkpoint)
            } else {
                AttemptState::Committed(checkpoint)
            });
        }
        // A COMMIT that can be read stands, whatever became of its intent; anything else does not.
        if let Some((_, error)) = self.unreadable.iter().find(|(bad, _)| *bad == ordinal) {
            let is_newer = error.is_unsupported();
            let state = if is_newer { AttemptState::Newer } else { AttemptState::Damaged };
            return Some(state(error.clone()));
        }
        let intent = self.intents.get(&ordinal)?.clone();
        Some(match (intent.kind, fate) {
            (IntentKind::Fence, _) => AttemptState::Fence(intent),
            (IntentKind::Save, Some(Fate::Abort(abort))) => AttemptState::Aborted(intent, abort.clone()),
            (IntentKind::Save, _) => AttemptState::Undecided(intent),
        })
    }

    /// Checkpoints that are not expired, ascending.
    pub fn checkpoints(&self) -> impl Iterator<Item = Checkpoint> {
        let live = self.decisions.iter().filter(|(ordinal, _)| !self.expired.contains(ordinal));
        live.filter_map(|(_, decided)| decided.committed())
    }

    /// Every broken invariant. `unreadable` objects are not findings: whoever loaded them reports them.
    pub fn findings(&self) -> Vec<Finding> {
        let invariants = [
            ordinals_are_dense,
            decisions_belong_to_their_intents,
            manifests_match_their_intents,
            fences_never_commit,
            nothing_is_undecided_below_a_settled_fence,
            the_newest_commit_is_not_expired,
        ];
        invariants.into_iter().flat_map(|judge| judge(self)).collect()
    }

    fn finding(&self, ordinal: Ordinal, invariant: &'static str, what: String) -> Finding {
        Finding { run: self.run.clone(), ordinal, invariant, what }
    }

    fn is_unreadable(&self, ordinal: Ordinal) -> bool {
        self.unreadable.iter().any(|(bad, _)| *bad == ordinal)
    }

    fn commits(&self) -> impl DoubleEndedIterator<Item = (Ordinal, &Arc<Manifest>)> {
        self.decisions.iter().filter_map(|(ordinal, decided)| match &decided.fate {
            Fate::Commit(manifest) => Some((*ordinal, manifest)),
            Fate::Abort(_) => None,
        })
    }

    fn abort_of(&self, ordinal: Ordinal) -> Option<&Abort> {
        match &self.decisions.get(&ordinal)?.fate {
            Fate::Abort(abort) => Some(abort),
            Fate::Commit(_) => None,
        }
    }

    /// The newest fence whose session has surely finished aborting what lay below it: it closed, was
    /// superseded, or went on to save above it.
    fn newest_settled_fence(&self) -> Option<Ordinal> {
        let newest_commit = self.commits().next_back().map(|(ordinal, _)| ordinal);
        let saved = |fence: &Intent| {
            let mut above = self.intents.range(fence.ordinal..).map(|(_, intent)| intent);
            above.any(|intent| intent.kind == IntentKind::Save && intent.session == fence.session)
        };
        let settled = |ordinal: Ordinal| {
            newest_commit > Some(ordinal)
                || self.intents.get(&ordinal).is_some_and(saved)
                || self
                    .abort_of(ordinal)
                    .is_some_and(|abort| SETTLING_REASONS.contains(&abort.reason.as_str()))
        };
        let fences = self.intents.values().filter(|intent| intent.kind == IntentKind::Fence);
        fences.map(|intent| intent.ordinal).rfind(|&ordinal| settled(ordinal))
    }
}

/// Ordinals are dense from 1: k is claimed only after k-1 was seen, and neither intents nor decisions are
/// deleted.
pub fn ordinals_are_dense(history: &History) -> Vec<Finding> {
    let name = "ordinals_are_dense";
    let mut findings = Vec::new();
    let mut expected = Ordinal::FIRST;
    for &ordinal in history.intents.keys() {
        let mut skipped = (expected.0..ordinal.0).map(Ordinal);
        if let Some(missing) = skipped.find(|&missing| !history.is_unreadable(missing)) {
            let what = format!("the intent of {missing} is missing, although {ordinal} was claimed after it");
            findings.push(history.finding(missing, name, what));
        }
        expected = Ordinal(ordinal.0.saturating_add(1));
    }
    for &ordinal in history.decisions.keys().chain(&history.expired) {
        if !history.intents.contains_key(&ordinal) && !history.is_unreadable(ordinal) && ordinal >= expected {
            findings.push(history.finding(
                ordinal,
                name,
                "it has a decision or marker but no intent".to_owned(),
            ));
        }
    }
    findings
}

/// A decision decides the attempt that its intent claims, no other.
pub fn decisions_belong_to_their_intents(history: &History) -> Vec<Finding> {
    let pairs =
        history.decisions.iter().filter_map(|(o, decided)| Some((*o, decided, history.intents.get(o)?)));
    pairs
        .filter(|(_, decided, intent)| decided.attempt != intent.attempt)
        .map(|(ordinal, decided, intent)| {
            let what =
                format!("it is decided for attempt {}, but claimed by {}", decided.attempt, intent.attempt);
            history.finding(ordinal, "decisions_belong_to_their_intents", what)
        })
        .collect()
}

/// A COMMIT names the session, the step and only parents of its intent.
pub fn manifests_match_their_intents(history: &History) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (ordinal, manifest) in history.commits() {
        let Some(intent) = history.intents.get(&ordinal) else { continue };
        let stray = |parent: &&ParentRef| !intent.parents.contains(parent);
        let what = if manifest.session != intent.session {
            format!("its COMMIT names session {}, its intent {}", manifest.session, intent.session)
        } else if Some(manifest.step) != intent.step && intent.kind == IntentKind::Save {
            format!("its COMMIT names step {}, its intent another", manifest.step)
        } else if let Some(parent) = manifest.parents.iter().find(stray) {
            format!("its COMMIT has the parent {}@ordinal={}, its intent has not", parent.run, parent.ordinal)
        } else {
            continue;
        };
        findings.push(history.finding(ordinal, "manifests_match_their_intents", what));
    }
    findings
}

/// The decision of a fence is ABORT by definition.
pub fn fences_never_commit(history: &History) -> Vec<Finding> {
    let is_fence =
        |ordinal| history.intents.get(&ordinal).is_some_and(|i: &Intent| i.kind == IntentKind::Fence);
    let fences = history.commits().map(|(ordinal, _)| ordinal).filter(|&ordinal| is_fence(ordinal));
    let what = "it is a fence, yet its decision says COMMIT";
    fences.map(|ordinal| history.finding(ordinal, "fences_never_commit", what.to_owned())).collect()
}

/// Once a session has settled, every attempt below its fence is decided; else a late COMMIT could change
/// `latest`. A fence needs no decision to be one.
pub fn nothing_is_undecided_below_a_settled_fence(history: &History) -> Vec<Finding> {
    let Some(fence) = history.newest_settled_fence() else { return Vec::new() };
    let below = history.intents.range(..fence).filter(|(_, intent)| intent.kind == IntentKind::Save);
    let undecided =
        below.map(|(ordinal, _)| *ordinal).filter(|ordinal| !history.decisions.contains_key(ordinal));
    undecided
        .filter(|&ordinal| !history.is_unreadable(ordinal))
        .map(|ordinal| {
            let what = format!("it is undecided, although the session of fence {fence} had to abort it");
            history.finding(ordinal, "nothing_is_undecided_below_a_settled_fence", what)
        })
        .collect()
}

/// Retention never expires the newest COMMIT of a run; in the run of pins any one may be unpinned.
pub fn the_newest_commit_is_not_expired(history: &History) -> Vec<Finding> {
    let newest = history.commits().next_back().map(|(ordinal, _)| ordinal);
    let expired = newest.filter(|ordinal| history.expired.contains(ordinal) && !history.run.is_pins());
    let what = "it is the newest COMMIT of its run, yet it is expired";
    let judge = |ordinal| history.finding(ordinal, "the_newest_commit_is_not_expired", what.to_owned());
    expired.map(judge).into_iter().collect()
}

#[cfg(test)]
mod tests;
