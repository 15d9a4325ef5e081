//! One opening of a run for writing: fence, walk, attempts, commit.

use std::time::Duration;

use everstep_format::decision::{IndexRef, RefsRef, Totals};
use everstep_format::id::{AttemptId, SessionId};
use everstep_format::name::{Ordinal, RunName, Step};
use everstep_store::StoreError;

use crate::{Checkpoint, RepoError, Repository};

/// What to do when another job's session seems alive. Safety never depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takeover {
    /// Wait until it has closed or fallen silent, at most so long.
    Wait(Duration),
    /// Fence it now.
    Now,
    /// Give up with a Conflict.
    Fail,
}

/// How a run is opened for writing.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Label of the job: equal labels take over silently.
    pub job: Option<String>,
    /// For another job's live session.
    pub takeover: Takeover,
    /// A session that has not been refreshed for so long (by the store's clock) is not alive.
    pub takeover_after: Duration,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { job: None, takeover: Takeover::Fail, takeover_after: Duration::from_secs(300) }
    }
}

/// An open session. Dropping it without [`Session::close`] leaves it to fall silent.
#[derive(Debug)]
pub struct Session {
    repository: Repository,
    run: RunName,
    id: SessionId,
    latest: Option<Checkpoint>,
}

/// Which checkpoints an attempt deduplicates against.
#[derive(Debug, Clone, Default)]
pub enum Parents {
    /// The session's latest, if there is one.
    #[default]
    Latest,
    /// These, of any run.
    These(Vec<Checkpoint>),
}

/// An attempt between W2 and W4.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// Its id.
    pub id: AttemptId,
    /// Its ordinal.
    pub ordinal: Ordinal,
    /// Its training step.
    pub step: Step,
    /// Writers.
    pub world_size: u32,
    /// Parents that passed W2.
    pub confirmed: Vec<Checkpoint>,
}

/// What the writers found out and a COMMIT must say.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The index, uploaded.
    pub index: IndexRef,
    /// The refs, uploaded.
    pub refs: RefsRef,
    /// Owners of the packs in refs.
    pub owners: Vec<AttemptId>,
    /// Sums.
    pub totals: Totals,
    /// User metadata.
    pub metadata: serde_json::Map<String, serde_json::Value>,
}

/// The outcome of W4.
#[derive(Debug)]
pub enum CommitOutcome {
    /// Read back or answered as our COMMIT.
    Committed(Checkpoint),
    /// Somebody aborted the attempt: a newer session, or garbage collection.
    Conflict(RepoError),
    /// The store gave no answer that can be trusted. The attempt may be committed; nothing was and nothing will be
    /// deleted because of it.
    Unknown(StoreError),
}

impl Session {
    /// The run.
    pub fn run(&self) -> &RunName {
        &self.run
    }

    /// This session's id.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// The repository.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// The newest checkpoint, as resolved at opening (R3) or committed since.
    pub fn latest(&self) -> Option<&Checkpoint> {
        self.latest.as_ref()
    }

    /// Claims the next ordinal (walking, never by LIST) and confirms parents: W1, W2.
    ///
    /// # Errors
    /// [`RepoError::Conflict`] ("fenced by ...") once a newer session has opened the run.
    pub async fn begin(&mut self, step: Step, world_size: u32, parents: Parents) -> Result<Attempt, RepoError> {
        let _ = (step, world_size, parents);
        unimplemented!()
    }

    /// Commits an attempt: W4. Everything it refers to must be durable.
    ///
    /// # Errors
    /// Only for what never reached the store, such as metadata beyond its limit; the rest is in the outcome.
    pub async fn commit(&mut self, attempt: Attempt, draft: Draft) -> Result<CommitOutcome, RepoError> {
        let _ = (attempt, draft);
        unimplemented!()
    }

    /// Gives an attempt up: ABORT "failed". Best effort; an undecided attempt does no harm.
    pub async fn abandon(&mut self, attempt: Attempt, why: &str) {
        let _ = (attempt, why);
    }

    /// Goes back to `target` deliberately: an attempt above the fence whose COMMIT carries a copy of its index. From
    /// then on it is [`Session::latest`].
    ///
    /// # Errors
    /// [`RepoError::Expired`] when `target` was dropped at W2.
    pub async fn rollback(&mut self, target: &Checkpoint) -> Result<CommitOutcome, RepoError> {
        let _ = target;
        unimplemented!()
    }

    /// Ends the session: ABORT "closed" on its fence and a closing mark, so that the next one need not wait.
    ///
    /// # Errors
    /// [`RepoError::Store`]; the session is over all the same.
    pub async fn close(self) -> Result<(), RepoError> {
        unimplemented!()
    }
}
