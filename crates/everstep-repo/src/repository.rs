//! A repository: making, opening, listing, resolving, expiring. No write permission is needed to read.

use std::sync::Arc;

use everstep_format::decision::Abort;
use everstep_format::intent::Intent;
use everstep_format::name::{Ordinal, RunName};
use everstep_format::reference::CheckpointRef;
use everstep_format::repository::{Chunking, RepositoryConfig};
use everstep_store::{Store, World};

use crate::{Checkpoint, OpenOptions, RepoError, Session};

/// How a repository is made.
#[derive(Debug, Clone, Default)]
pub struct InitOptions {
    /// Block sizes.
    pub chunking: Chunking,
    /// Accept a store whose put-if-absent is not atomic: one process at a time for everything.
    pub single_writer: bool,
}

/// An open repository.
#[derive(Debug, Clone)]
pub struct Repository {
    store: Arc<dyn Store>,
    world: Arc<dyn World>,
    config: Arc<RepositoryConfig>,
}

/// What became of one ordinal.
#[derive(Debug, Clone)]
pub enum AttemptState {
    /// Not decided (yet): running, or left by a crash.
    Undecided(Intent),
    /// A fence.
    Fence(Intent),
    /// Aborted.
    Aborted(Intent, Abort),
    /// A checkpoint.
    Committed(Checkpoint),
    /// Was a checkpoint.
    Expired(Checkpoint),
}

/// A reference, resolved.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The checkpoint meant.
    pub checkpoint: Checkpoint,
    /// Others that the reference fits as well (several with one step), newest first.
    pub also: Vec<Ordinal>,
}

impl Repository {
    /// Makes a repository: probes the store with contended creates, then creates `everstep.json`.
    ///
    /// # Errors
    /// [`RepoError::Refused`] if one is there already, or if the probe found the store's create not to be atomic and
    /// `single_writer` was not asked for.
    pub async fn init(
        store: Arc<dyn Store>,
        world: Arc<dyn World>,
        options: InitOptions,
    ) -> Result<Self, RepoError> {
        let _ = (store, world, options);
        unimplemented!()
    }

    /// Opens a repository.
    ///
    /// # Errors
    /// [`RepoError::NotFound`], [`RepoError::Object`] for an unsupported version or damage.
    pub async fn open(store: Arc<dyn Store>, world: Arc<dyn World>) -> Result<Self, RepoError> {
        let _ = (store, world);
        unimplemented!()
    }

    /// The store below.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Clock and randomness.
    pub fn world(&self) -> &Arc<dyn World> {
        &self.world
    }

    /// What `everstep.json` says.
    pub fn config(&self) -> &RepositoryConfig {
        &self.config
    }

    /// The runs, in name order.
    ///
    /// # Errors
    /// [`RepoError::Store`].
    pub async fn runs(&self) -> Result<Vec<RunName>, RepoError> {
        unimplemented!()
    }

    /// Every attempt of `run` in order, with its state.
    ///
    /// # Errors
    /// [`RepoError::NotFound`] for an unknown run; [`RepoError::Object`] for damage.
    pub async fn attempts(&self, run: &RunName) -> Result<Vec<(Ordinal, AttemptState)>, RepoError> {
        let _ = run;
        unimplemented!()
    }

    /// The newest checkpoint of `run`: `None` only if the store answered and nothing is committed.
    ///
    /// # Errors
    /// [`RepoError::NotFound`] for an unknown run; [`RepoError::Object`], [`RepoError::Store`].
    pub async fn latest(&self, run: &RunName) -> Result<Option<Checkpoint>, RepoError> {
        let _ = run;
        unimplemented!()
    }

    /// The checkpoint of exactly this ordinal.
    ///
    /// # Errors
    /// [`RepoError::Incomplete`], [`RepoError::Expired`], [`RepoError::NotFound`].
    pub async fn checkpoint(&self, run: &RunName, ordinal: Ordinal) -> Result<Checkpoint, RepoError> {
        let _ = (run, ordinal);
        unimplemented!()
    }

    /// What a person's reference means.
    ///
    /// # Errors
    /// [`RepoError::NotFound`], [`RepoError::Incomplete`], [`RepoError::Expired`].
    pub async fn resolve(&self, reference: &CheckpointRef) -> Result<Resolved, RepoError> {
        let _ = reference;
        unimplemented!()
    }

    /// Puts the expired marker beside a checkpoint. Refused for the newest checkpoint of a run.
    ///
    /// # Errors
    /// [`RepoError::Refused`], [`RepoError::Incomplete`].
    pub async fn expire(&self, run: &RunName, ordinal: Ordinal, reason: &str) -> Result<(), RepoError> {
        let _ = (run, ordinal, reason);
        unimplemented!()
    }

    /// Opens `run` for writing (R1-R3), taking it over from an older session as `options` say.
    ///
    /// # Errors
    /// [`RepoError::Conflict`] when another job's session is alive and the takeover is `Fail`.
    pub async fn open_session(&self, run: &RunName, options: OpenOptions) -> Result<Session, RepoError> {
        let _ = (run, options);
        unimplemented!()
    }
}
