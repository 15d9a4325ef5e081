//! One run: its checkpoints, and its only writer at a time.

use std::time::Duration;

use everstep_format::name::{Ordinal, RunName, Step};
use everstep_repo::{AttemptState, CommitOutcome, OpenOptions, Parents, Session, Takeover};
use everstep_save::{Group, SaveCache, SaveOptions, Tools};

use crate::progress::Watched;
use crate::{Checkpoint, Error, Progress, Repository, SaveReport, SessionId, State};

/// A named line of training. Reading needs neither a fence nor write permission.
#[derive(Debug, Clone)]
pub struct Run {
    pub(crate) repository: Repository,
    pub(crate) name: RunName,
}

/// Every attempt of a run in ordinal order, with what became of it.
pub type Attempts = Vec<(Ordinal, AttemptState)>;

/// How a run is opened for writing.
#[derive(Debug, Clone, Default)]
pub struct WriterOptions {
    /// Label of the job. A session with the same label is taken over silently; labels never decide safety.
    pub job: Option<String>,
    /// What to do when another job's session seems alive; `None`: fail.
    pub takeover: Option<Takeover>,
    /// How long a silent session counts as alive; `None`: 5 minutes.
    pub takeover_after: Option<Duration>,
}

/// What is said about a checkpoint beside its state.
#[derive(Debug, Clone, Default)]
pub struct Saved {
    /// Metrics, git commit, anything JSON; at most 1 MiB.
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// Checkpoints to deduplicate against, beside the newest one of the run: of any run, such as a base model.
    pub also: Vec<Checkpoint>,
}

impl Run {
    /// The name.
    pub fn name(&self) -> &RunName {
        &self.name
    }

    /// The newest checkpoint: `None` only if the store answered and nothing is committed.
    ///
    /// # Errors
    /// `NotFound` for an unknown run; `Unreachable`, `Corrupt`.
    pub fn latest(&self) -> Result<Option<Checkpoint>, Error> {
        let latest = self.repository.engine.wait(self.repository.inner.latest(&self.name))?;
        Ok(latest.map(|checkpoint| Checkpoint::new(self.repository.clone(), checkpoint)))
    }

    /// Waits for a checkpoint newer than `after` (for any, when that is `None`) and gives the newest; `None` when `timeout`
    /// is over first. Needs Get and List alone. Each look takes one GET, and one for each attempt that is being saved;
    /// looks are 1 to 15 s apart.
    ///
    /// # Errors
    /// `NotFound` when time is over and there is no such run; `InvalidArgument` when `after` is of another run;
    /// `Unreachable`, `Corrupt`.
    pub fn wait(&self, after: Option<&Checkpoint>, timeout: Duration) -> Result<Option<Checkpoint>, Error> {
        if let Some(other) = after.map(|after| &after.manifest().run).filter(|run| **run != self.name) {
            return Err(Error::invalid(format!(
                "cannot wait in run {} for news after run {other}",
                self.name
            )));
        }
        let after = after.map(|after| after.manifest().ordinal);
        let news = self.repository.inner.wait(&self.name, after, timeout);
        let news = self.repository.engine.wait(news)?;
        Ok(news.map(|checkpoint| Checkpoint::new(self.repository.clone(), checkpoint)))
    }

    /// The checkpoint with exactly this ordinal.
    ///
    /// # Errors
    /// `Incomplete` when that attempt was never committed; `Expired`, `NotFound`.
    pub fn checkpoint(&self, ordinal: Ordinal) -> Result<Checkpoint, Error> {
        let found = self.repository.inner.checkpoint(&self.name, ordinal);
        let checkpoint = self.repository.engine.wait(found)?;
        Ok(Checkpoint::new(self.repository.clone(), checkpoint))
    }

    /// Every attempt: checkpoints, expired, aborted, unfinished, fences; and those that are damaged or of a newer version.
    ///
    /// # Errors
    /// `NotFound` for an unknown run; `Unreachable`, `PermissionDenied`.
    pub fn attempts(&self) -> Result<Attempts, Error> {
        self.repository.engine.wait(self.repository.inner.attempts(&self.name))
    }

    /// Puts the expired marker beside a checkpoint; its data goes with the next garbage collection.
    ///
    /// # Errors
    /// `Conflict` for the newest checkpoint of the run.
    pub fn expire(&self, ordinal: Ordinal, reason: &str) -> Result<(), Error> {
        self.repository.engine.wait(self.repository.inner.expire(&self.name, ordinal, reason))
    }

    /// Opens the run for writing: fences older sessions and settles what they left.
    ///
    /// # Errors
    /// `Conflict` when another job's session is alive and may not be taken over.
    pub fn writer(&self, options: WriterOptions) -> Result<Writer, Error> {
        let defaults = OpenOptions::default();
        let open = OpenOptions {
            job: options.job,
            takeover: options.takeover.unwrap_or(defaults.takeover),
            takeover_after: options.takeover_after.unwrap_or(defaults.takeover_after),
        };
        let opened = self.repository.inner.open_session(&self.name, open);
        let session = self.repository.engine.wait(opened)?;
        Ok(Writer { repository: self.repository.clone(), session, cache: SaveCache::default() })
    }
}

/// The writer of a run: one session. Close it, or the next job waits for it to fall silent.
#[derive(Debug)]
pub struct Writer {
    repository: Repository,
    session: Session,
    cache: SaveCache,
}

impl Writer {
    /// The newest checkpoint, as resolved at opening or committed since.
    pub fn latest(&self) -> Option<Checkpoint> {
        self.session.latest().map(|latest| Checkpoint::new(self.repository.clone(), latest.clone()))
    }

    /// Saves `state` as the checkpoint of `step` and returns once it is committed and durable.
    ///
    /// # Errors
    /// `Conflict` once another session has fenced this one; `OutcomeUnknown` when the store's answer to the commit cannot
    /// be trusted; `StorageFull`, `InvalidArgument` (gaps, overlaps, unequal replicas), `Unreachable`.
    pub fn save(&mut self, step: Step, state: &State<'_>, saved: Saved) -> Result<SaveReport, Error> {
        self.save_with(step, state, saved, &())
    }

    /// The id of this opening of the run.
    pub fn session(&self) -> SessionId {
        self.session.id()
    }

    /// What other processes need to take part in saves ([`Repository::member`]), as text to pass on. It stays good as long
    /// as this writer is open.
    pub fn ticket(&self) -> String {
        self.session.ticket().to_string()
    }

    /// As [`Writer::save`], together with the other ranks of `group`, each of which calls [`crate::Member::save`] with its own
    /// share. This one leads, and must be rank 0. All or nothing: the report is of the whole.
    ///
    /// # Errors
    /// `RankFailed` when ranks failed or handed nothing in within the deadline, naming them; those of [`Writer::save`].
    pub fn save_in(
        &mut self,
        step: Step,
        state: &State<'_>,
        saved: Saved,
        group: &Group,
    ) -> Result<SaveReport, Error> {
        self.save_in_with(step, state, saved, (group, &()))
    }

    /// [`Writer::save_in`], reporting the progress of this rank's own share.
    ///
    /// # Errors
    /// Those of [`Writer::save_in`].
    pub fn save_in_with(
        &mut self,
        step: Step,
        state: &State<'_>,
        saved: Saved,
        (group, progress): (&Group, &dyn Progress),
    ) -> Result<SaveReport, Error> {
        self.lead(state, self.options(step, saved, group.clone()), progress)
    }

    /// Tells the other ranks of `group`, who are about to save `step`, that there will be no attempt, and `why`: for a leader
    /// that cannot take part itself.
    ///
    /// # Errors
    /// `InvalidArgument` for a group that another rank leads; `Unreachable`: they then wait until their deadline.
    pub fn give_up(&mut self, step: Step, why: &str, group: &Group) -> Result<(), Error> {
        self.repository.engine.wait(everstep_save::call_off(&mut self.session, (step, group), why))
    }

    /// Lets the next save against `checkpoint` use its index as it is at hand there ([`Checkpoint::index_file`],
    /// [`Checkpoint::with_index_file`]) instead of reading it once more: after a restart, the one just restored.
    pub fn take_index(&self, checkpoint: &Checkpoint) {
        self.cache.take_index(checkpoint.index());
    }

    /// [`Writer::save`], reporting progress.
    ///
    /// # Errors
    /// Those of [`Writer::save`].
    pub fn save_with(
        &mut self,
        step: Step,
        state: &State<'_>,
        saved: Saved,
        progress: &dyn Progress,
    ) -> Result<SaveReport, Error> {
        self.lead(state, self.options(step, saved, Group::alone()), progress)
    }

    fn options(&self, step: Step, saved: Saved, group: Group) -> SaveOptions {
        let (parents, metadata) = (self.parents(&saved.also), saved.metadata);
        let counts = Some(self.repository.engine.options.store.counts.clone());
        SaveOptions { step, parents, metadata, group, counts }
    }

    fn lead(
        &mut self,
        state: &State<'_>,
        options: SaveOptions,
        progress: &dyn Progress,
    ) -> Result<SaveReport, Error> {
        let engine = &self.repository.engine;
        let settings = &engine.options.save;
        let tools =
            Tools { pool: engine.cpu.pool(), settings, progress: &Watched(progress), cache: &self.cache };
        let (before, occasion) = (self.session.ticket().next, options.occasion());
        let saved = engine.wait(everstep_save::save(&mut self.session, state, options, &tools));
        if saved.as_ref().is_err_and(Error::is_interruption) {
            // What is still to be said is said in the background: the store may be why the call was interrupted.
            let _inside = engine.runtime.enter();
            everstep_save::let_go(&mut self.session, before, occasion);
        }
        saved
    }

    fn parents(&self, also: &[Checkpoint]) -> Parents {
        if also.is_empty() {
            return Parents::Latest;
        }
        let others = also.iter().map(Checkpoint::inner);
        Parents::These(self.session.latest().into_iter().chain(others).cloned().collect())
    }

    /// Goes back to `target` deliberately: commits a copy of it as the newest checkpoint and returns that.
    ///
    /// # Errors
    /// `Expired` when `target` has expired meanwhile; otherwise those of [`Writer::save`].
    pub fn rollback(&mut self, target: &Checkpoint) -> Result<Checkpoint, Error> {
        let engine = &self.repository.engine;
        let outcome = engine.wait(self.session.rollback(target.inner()));
        if outcome.as_ref().is_err_and(Error::is_interruption) {
            let _inside = engine.runtime.enter();
            self.session.let_go("interrupted");
        }
        match outcome? {
            CommitOutcome::Committed(checkpoint) => Ok(Checkpoint::new(self.repository.clone(), checkpoint)),
            CommitOutcome::Conflict(error) => Err(error.into()),
            CommitOutcome::Unknown(cause) => Err(Error::unknown_outcome(self.session.run(), &cause)),
        }
    }

    /// Ends the session, so that the next job need not wait.
    ///
    /// # Errors
    /// `Unreachable`; the session is over all the same.
    pub fn close(self) -> Result<(), Error> {
        self.repository.engine.wait(self.session.close())
    }
}
