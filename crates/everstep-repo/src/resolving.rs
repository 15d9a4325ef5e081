//! What a person's reference means.

use everstep_format::decision::Manifest;
use everstep_format::feature::Operation;
use everstep_format::intent::{Intent, IntentKind};
use everstep_format::name::{Ordinal, RunName, Step};
use everstep_format::reference::{CheckpointRef, Which};

use crate::history::History;
use crate::reading::Fate;
use crate::{AttemptState, Checkpoint, RepoError, Repository, Resolved};

/// A run is listed anew when the checkpoint chosen from it expired meanwhile, at most so often.
pub(crate) const ROUNDS: usize = 16;

#[derive(Clone, Copy)]
enum Extreme {
    Min,
    Max,
}

impl Repository {
    pub(crate) async fn resolve_reference(&self, reference: &CheckpointRef) -> Result<Resolved, RepoError> {
        let (run, which) = match reference {
            CheckpointRef::Of(run, which) => (run, which),
            CheckpointRef::Pin(name) => {
                let checkpoint = self.pinned(name).await?.checkpoint;
                return Ok(Resolved { checkpoint, also: Vec::new() });
            }
        };
        let checkpoint = match which {
            Which::Latest => self.latest(run).await?.ok_or_else(|| nothing_committed(run))?,
            Which::Ordinal(ordinal) => self.checkpoint(run, *ordinal).await?,
            Which::Step(step) => return self.of_step(run, *step).await,
            Which::Min(metric) => self.extreme(run, metric, Extreme::Min).await?,
            Which::Max(metric) => self.extreme(run, metric, Extreme::Max).await?,
        };
        Ok(Resolved { checkpoint, also: Vec::new() })
    }

    async fn of_step(&self, run: &RunName, step: Step) -> Result<Resolved, RepoError> {
        let choose = |history: &History| {
            let fits = |checkpoint: &Checkpoint| checkpoint.manifest.step == step;
            let mut fitting: Vec<Checkpoint> = history.checkpoints().filter(fits).collect();
            let checkpoint = fitting.pop()?;
            let also = fitting.iter().rev().map(|other| other.manifest.ordinal).collect();
            Some(Resolved { checkpoint, also })
        };
        match self.choose(run, choose).await? {
            Some(resolved) => Ok(resolved),
            None => Err(no_such_step(&self.outcomes(run).await?, step)),
        }
    }

    async fn extreme(&self, run: &RunName, metric: &str, extreme: Extreme) -> Result<Checkpoint, RepoError> {
        let choose = |history: &History| {
            let checkpoint = best_of(history.checkpoints(), metric, extreme)?;
            Some(Resolved { checkpoint, also: Vec::new() })
        };
        let none = || {
            RepoError::NotFound(format!("a checkpoint of run {run} with a number {metric:?} in its metadata"))
        };
        Ok(self.choose(run, choose).await?.ok_or_else(none)?.checkpoint)
    }

    /// Chooses from all checkpoints, and again if the one chosen has expired since they were listed.
    async fn choose(
        &self,
        run: &RunName,
        choose: impl Fn(&History) -> Option<Resolved>,
    ) -> Result<Option<Resolved>, RepoError> {
        let mut round = 1;
        loop {
            let history = self.decided(run).await?;
            if let Some((_, error)) = history.unreadable.first() {
                return Err(error.clone());
            }
            let Some(resolved) = choose(&history) else { return Ok(None) };
            let ordinal = resolved.checkpoint.manifest.ordinal;
            if !self.is_expired(run, ordinal).await? {
                return Ok(Some(resolved));
            }
            if round == ROUNDS {
                return Err(RepoError::Expired { run: run.clone(), ordinal });
            }
            round += 1;
        }
    }

    pub(crate) async fn checkpoint_at(
        &self,
        run: &RunName,
        ordinal: Ordinal,
    ) -> Result<Checkpoint, RepoError> {
        let Some(decided) = self.decision(run, ordinal, Operation::Read).await? else {
            let intent = self.intent(run, ordinal, Operation::Read).await?;
            let unknown = || RepoError::NotFound(format!("attempt {ordinal} of run {run}"));
            return Err(undecided(&intent.ok_or_else(unknown)?));
        };
        match &decided.fate {
            Fate::Abort(abort) => {
                let detail =
                    if abort.detail.is_empty() { String::new() } else { format!(": {}", abort.detail) };
                let by = abort.by.map(|by| format!(" by session {by}")).unwrap_or_default();
                let why = format!("it was aborted{by} ({}{detail})", abort.reason);
                Err(RepoError::Incomplete { run: run.clone(), ordinal, why })
            }
            Fate::Commit(_) if self.is_expired(run, ordinal).await? => {
                Err(RepoError::Expired { run: run.clone(), ordinal })
            }
            Fate::Commit(manifest) => Ok(Checkpoint { manifest: manifest.clone() }),
        }
    }
}

pub(crate) fn nothing_committed(run: &RunName) -> RepoError {
    RepoError::NotFound(format!(
        "a checkpoint of run {run} (the run is there, but nothing has been committed)"
    ))
}

fn undecided(intent: &Intent) -> RepoError {
    let Intent { run, ordinal, session, job, .. } = intent;
    let job = job.as_ref().map(|job| format!(" (job {job})")).unwrap_or_default();
    let why = match intent.kind {
        IntentKind::Fence => format!("it is the fence of session {session}{job}"),
        IntentKind::Save => {
            format!(
                "it is undecided: session {session}{job} is still saving it, or stopped before the commit"
            )
        }
    };
    RepoError::Incomplete { run: run.clone(), ordinal: *ordinal, why }
}

/// Says what there is of `step`, when no checkpoint: an attempt that failed or runs, an expired one, or
/// nothing.
fn no_such_step(history: &History, step: Step) -> RepoError {
    let run = &history.run;
    for (ordinal, state) in history.states().into_iter().rev() {
        match state {
            AttemptState::Expired(checkpoint) if checkpoint.manifest.step == step => {
                return RepoError::Expired { run: run.clone(), ordinal };
            }
            AttemptState::Undecided(intent) if intent.step == Some(step) => return undecided(&intent),
            AttemptState::Aborted(intent, abort) if intent.step == Some(step) => {
                let why = format!("step {step} was never committed: it was aborted ({})", abort.reason);
                return RepoError::Incomplete { run: run.clone(), ordinal, why };
            }
            _ => {}
        }
    }
    RepoError::NotFound(format!("a checkpoint of run {run} with step {step}"))
}

/// The number that a manifest's metadata has under `metric`; text, `null` and everything else never count.
fn metric_of(manifest: &Manifest, metric: &str) -> Option<f64> {
    manifest.metadata.get(metric)?.as_f64().filter(|value| !value.is_nan())
}

/// The best of `ascending`; equal values go to the newest.
fn best_of(
    ascending: impl Iterator<Item = Checkpoint>,
    metric: &str,
    extreme: Extreme,
) -> Option<Checkpoint> {
    let mut best: Option<(f64, Checkpoint)> = None;
    for checkpoint in ascending {
        let Some(value) = metric_of(&checkpoint.manifest, metric) else { continue };
        let better = best.as_ref().is_none_or(|(so_far, _)| match extreme {
            Extreme::Min => value <= *so_far,
            Extreme::Max => value >= *so_far,
        });
        if better {
            best = Some((value, checkpoint));
        }
    }
    best.map(|(_, checkpoint)| checkpoint)
}
