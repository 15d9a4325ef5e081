//! One run and its checkpoints.

use std::time::Duration;

use everstep_format::name::{Ordinal, RunName};
use everstep_repo::{AttemptState, OpenOptions, Takeover};

use crate::{Checkpoint, Error, Repository, Writer};

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
        Ok(Writer::new(self.repository.clone(), session))
    }
}
