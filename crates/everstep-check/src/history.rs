//! Runs: intents, decisions and markers, each by itself and against each other.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use everstep_format::id::{AttemptId, SessionId};
use everstep_format::intent::{IntentKind, ParentRef};
use everstep_format::key::{Key, Prefix, StoredKind};
use everstep_format::marker::Expired;
use everstep_format::name::{Ordinal, RunName};
use everstep_repo::{Checkpoint, Fate, Finding as Broken, History, RepoError, Repository};
use everstep_store::Store;
use everstep_store::store::list_all;

use crate::CheckError;
use crate::reading::{Got, get_control};
use crate::report::{Finding, Hurt};

/// How a session says that it has ended by itself.
const CLOSED: &str = "closed";

/// An ordinal of a run.
pub(crate) type Place<'a> = (&'a RunName, Ordinal);

/// Every run of a repository, as far as it can be read.
#[derive(Debug, Default)]
pub(crate) struct Histories {
    runs: BTreeMap<RunName, History>,
}

/// What became of the attempt that owns an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// A checkpoint that counts.
    Checkpoint,
    /// Was a checkpoint.
    Expired,
    /// Not a checkpoint.
    Aborted,
    /// Running, or left by a crash.
    Undecided,
    /// Its decision cannot be read.
    Unreadable,
}

impl Histories {
    /// Reads every run, and judges all that can be judged without looking at an index.
    pub(crate) async fn read(repository: &Repository) -> Result<(Self, Vec<Finding>), CheckError> {
        let listed = list_all(repository.store().as_ref(), &Prefix::runs()).await.map_err(RepoError::from)?;
        let (mut names, mut expired) = (BTreeSet::new(), Vec::new());
        for object in listed {
            match object.key.kind() {
                Some(StoredKind::Intent(run, _) | StoredKind::Decision(run, _)) => drop(names.insert(run)),
                Some(StoredKind::Expired(run, ordinal)) => {
                    names.insert(run.clone());
                    expired.push((run, ordinal));
                }
                _ => {}
            }
        }
        let mut all = Self::default();
        for run in names {
            match repository.history(&run).await {
                Ok(history) => drop(all.runs.insert(run, history)),
                // Gone between two listings: nothing of it can be judged.
                Err(RepoError::NotFound(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut findings = all.judge();
        findings.extend(still_missing(repository.store().as_ref(), all.lost()).await?);
        for (run, ordinal) in &expired {
            findings.extend(judge_marker(repository.store().as_ref(), (run, *ordinal)).await?);
        }
        Ok((all, findings))
    }

    /// The checkpoints that count, by run and ordinal. Not those whose decision is no answer to their intent: they have a
    /// finding, and nothing that they say can be held against anything.
    pub(crate) fn checkpoints(&self) -> Vec<Checkpoint> {
        let of_run = |history: &History| {
            let broken: BTreeSet<Ordinal> =
                history.findings().into_iter().filter(unfit).map(|f| f.ordinal).collect();
            let fit = |checkpoint: &Checkpoint| !broken.contains(&checkpoint.manifest.ordinal);
            history.checkpoints().filter(fit).collect::<Vec<_>>()
        };
        self.runs.values().flat_map(of_run).collect()
    }

    /// Attempts of all runs.
    pub(crate) fn attempts(&self) -> usize {
        let of_run = |history: &History| {
            let ordinals = history.intents.keys().chain(history.decisions.keys());
            ordinals.collect::<BTreeSet<_>>().len()
        };
        self.runs.values().map(of_run).sum()
    }

    /// What became of each attempt.
    pub(crate) fn standings(&self) -> HashMap<AttemptId, (Hurt, Standing)> {
        let mut standings = HashMap::new();
        for history in self.runs.values() {
            let ids = history.intents.iter().map(|(n, intent)| (*n, intent.attempt));
            let decided = history.decisions.iter().map(|(n, decided)| (*n, decided.attempt));
            for (ordinal, attempt) in ids.chain(decided) {
                let standing = standing(history, ordinal);
                standings.insert(attempt, (hurt(history, ordinal), standing));
            }
        }
        standings
    }

    fn judge(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for history in self.runs.values() {
            findings.extend(history.unreadable.iter().map(|(n, error)| unreadable(history, *n, error)));
            findings.extend(history.findings().into_iter().map(|broken| of_broken(history, broken)));
            findings.extend(self.strange_parents(history));
        }
        findings
    }

    /// The COMMIT of an attempt, as far as it was read; also of one that has expired.
    fn commit_of(&self, attempt: &ParentRef) -> Option<Checkpoint> {
        let decided = self.runs.get(&attempt.run)?.decisions.get(&attempt.ordinal)?;
        decided.committed().filter(|checkpoint| checkpoint.manifest.attempt == attempt.attempt)
    }

    /// Every parent was a COMMIT of that attempt. Expired since is fine; what is lost or damaged there has its own
    /// finding.
    fn strange_parents(&self, history: &History) -> Vec<Finding> {
        let strange = |parent: &&ParentRef| {
            let Some(run) = self.runs.get(&parent.run) else { return false };
            let fence = run.intents.get(&parent.ordinal).is_some_and(|i| i.kind == IntentKind::Fence);
            let decided = run.decisions.contains_key(&parent.ordinal);
            fence || (decided && self.commit_of(parent).is_none())
        };
        let mut findings = Vec::new();
        for (&ordinal, decided) in &history.decisions {
            let Some(checkpoint) = decided.committed() else { continue };
            let finding = |parent: &ParentRef| {
                let ParentRef { run, ordinal: number, attempt } = parent;
                Finding::damage(Key::decision(&history.run, ordinal), "a parent of it was never a checkpoint")
                    .expect(
                        "parents that were committed before",
                        format!("{run}@ordinal={number}, attempt {attempt}"),
                    )
                    .hurting([hurt(history, ordinal)])
                    .advise("chunks taken from that parent may be collected; save anew without it")
            };
            findings.extend(checkpoint.manifest.parents.iter().filter(strange).map(finding));
        }
        findings
    }

    /// Decisions that are not there and surely were, besides those that the runs' own invariants tell.
    fn lost(&self) -> Vec<(Key, Finding)> {
        let named = self.named_as_parents();
        let of_run = |history: &History| {
            let known: BTreeSet<Ordinal> = history.findings().iter().map(|broken| broken.ordinal).collect();
            lost_decisions(history, &named, &known)
        };
        let claimed = self.runs.values().flat_map(of_run);
        claimed.chain(named.iter().filter_map(|(place, child)| self.lost_whole(*place, *child))).collect()
    }

    /// A parent of which nothing is left, perhaps not even its run.
    fn lost_whole(&self, (run, ordinal): Place<'_>, (child, number): Place<'_>) -> Option<(Key, Finding)> {
        let met = |history: &History| {
            let readable = history.intents.contains_key(&ordinal) || history.decisions.contains_key(&ordinal);
            readable || history.unreadable.iter().any(|(bad, _)| *bad == ordinal)
        };
        if self.runs.get(run).is_some_and(met) {
            return None;
        }
        let why = format!("a COMMIT: {child}@ordinal={number} names it as a parent");
        let hurt = Hurt { run: run.clone(), ordinal, step: None };
        Some(lost_decision((run, ordinal), why, hurt))
    }

    /// Who was named as a parent, and by whom: each was read as COMMIT before.
    fn named_as_parents(&self) -> HashMap<Place<'_>, Place<'_>> {
        let intents = self.runs.values().flat_map(|history| history.intents.values());
        let pairs = intents.flat_map(|intent| intent.parents.iter().map(move |parent| (parent, intent)));
        pairs.map(|(parent, child)| ((&parent.run, parent.ordinal), (&child.run, child.ordinal))).collect()
    }
}

/// Whether a decision does not fit its intent.
fn unfit(broken: &Broken) -> bool {
    let about = ["decisions_belong_to_their_intents", "manifests_match_their_intents", "fences_never_commit"];
    about.contains(&broken.invariant)
}

fn standing(history: &History, ordinal: Ordinal) -> Standing {
    match history.decisions.get(&ordinal).map(|decided| &decided.fate) {
        Some(Fate::Commit(_)) if history.expired.contains(&ordinal) => Standing::Expired,
        Some(Fate::Commit(_)) => Standing::Checkpoint,
        Some(Fate::Abort(_)) => Standing::Aborted,
        None if is_unreadable(history, &Key::decision(&history.run, ordinal)) => Standing::Unreadable,
        None => Standing::Undecided,
    }
}

fn is_unreadable(history: &History, key: &Key) -> bool {
    history
        .unreadable
        .iter()
        .any(|(_, error)| matches!(error, RepoError::Object { key: bad, .. } if bad == key))
}

fn hurt(history: &History, ordinal: Ordinal) -> Hurt {
    let intended = history.intents.get(&ordinal).and_then(|intent| intent.step);
    let decided = || Some(history.decisions.get(&ordinal)?.committed()?.manifest.step);
    Hurt { run: history.run.clone(), ordinal, step: intended.or_else(decided) }
}

fn unreadable(history: &History, ordinal: Ordinal, error: &RepoError) -> Finding {
    let RepoError::Object { key, source } = error else {
        let key = Key::intent(&history.run, ordinal);
        return Finding::damage(key, error.to_string()).hurting([hurt(history, ordinal)]);
    };
    let finding = Finding::unreadable(key, source);
    match key.kind() {
        Some(StoredKind::Decision(..)) => finding.hurting([hurt(history, ordinal)]),
        _ => finding
            .advise("the checkpoint stays readable, but the run cannot be opened for writing; use a new run"),
    }
}

fn of_broken(history: &History, broken: Broken) -> Finding {
    let Broken { ordinal, invariant, what, .. } = broken;
    let (run, hurts) = (&history.run, hurt(history, ordinal));
    let finding = match invariant {
        "ordinals_are_dense" => Finding::damage(Key::intent(run, ordinal), what)
            .advise("intents are never deleted: find out what removed it; checkpoints stay readable"),
        "the_newest_commit_is_not_expired" => Finding::warning(Key::expired(run, ordinal), what)
            .advise("retention never does that; find out what wrote the marker"),
        _ => Finding::damage(Key::decision(run, ordinal), what).hurting([hurts]),
    };
    finding.expect(format!("the invariant `{invariant}`"), "it is broken")
}

async fn judge_marker(store: &dyn Store, (run, ordinal): Place<'_>) -> Result<Option<Finding>, CheckError> {
    let key = Key::expired(run, ordinal);
    let finding = match get_control(store, &key).await? {
        Got::Bytes(bytes) => match Expired::from_bytes(&bytes, run, ordinal) {
            Ok(_) => return Ok(None),
            Err(error) => Finding::unreadable(&key, &error),
        },
        Got::Missing => Finding::damage(&key, "the marker has vanished, although markers are never deleted"),
        Got::Unusable(found) => Finding::damage(&key, "it is damaged").expect("a small JSON object", found),
    };
    Ok(Some(finding.advise("the checkpoint counts as expired all the same: the marker's presence decides")))
}

fn lost_decision((run, ordinal): Place<'_>, expected: String, hurt: Hurt) -> (Key, Finding) {
    let key = Key::decision(run, ordinal);
    let finding = Finding::damage(&key, "the decision is lost").expect(expected, "nothing").hurting([hurt]);
    (key, finding)
}

/// Those of `lost` that are not there now: one run was read before another, and saves went on meanwhile.
async fn still_missing(store: &dyn Store, lost: Vec<(Key, Finding)>) -> Result<Vec<Finding>, CheckError> {
    let mut missing = Vec::new();
    for (key, finding) in lost {
        if get_control(store, &key).await? == Got::Missing {
            missing.push(finding);
        }
    }
    Ok(missing)
}

/// Attempts without a decision that surely had one, besides those that the run's own invariants (`known`) tell.
fn lost_decisions(
    history: &History,
    named: &HashMap<Place<'_>, Place<'_>>,
    known: &BTreeSet<Ordinal>,
) -> Vec<(Key, Finding)> {
    let closed = closed_sessions(history);
    let undecided = history.intents.values().filter(|intent| {
        intent.kind == IntentKind::Save
            && !known.contains(&intent.ordinal)
            && standing(history, intent.ordinal) == Standing::Undecided
    });
    let judge = |intent: &everstep_format::intent::Intent| {
        let (run, ordinal) = (&history.run, intent.ordinal);
        let why = match named.get(&(run, ordinal)) {
            Some((run, child)) => format!("a COMMIT: {run}@ordinal={child} names it as a parent"),
            None if history.expired.contains(&ordinal) => "a COMMIT: it was expired".to_owned(),
            None => {
                let open = || (Key::decision(run, ordinal), left_open(history, ordinal));
                return closed.contains(&intent.session).then(open);
            }
        };
        Some(lost_decision((run, ordinal), why, hurt(history, ordinal)))
    };
    undecided.filter_map(judge).collect()
}

fn closed_sessions(history: &History) -> BTreeSet<SessionId> {
    let fences = history.intents.values().filter(|intent| intent.kind == IntentKind::Fence);
    let closed = fences.filter(|fence| {
        let decided = history.decisions.get(&fence.ordinal);
        decided.is_some_and(|decided| matches!(&decided.fate, Fate::Abort(abort) if abort.reason == CLOSED))
    });
    closed.map(|fence| fence.session).collect()
}

/// A session that closes decides its attempts, except one whose commit got no answer.
fn left_open(history: &History, ordinal: Ordinal) -> Finding {
    Finding::warning(
        Key::decision(&history.run, ordinal),
        "the session that began this attempt has closed and left it undecided",
    )
    .expect("a COMMIT or an ABORT", "nothing")
    .hurting([hurt(history, ordinal)])
    .advise("the store gave no answer to the commit, or the decision is lost; the next opening of the run aborts it")
}
