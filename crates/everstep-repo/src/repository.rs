//! A repository: making, opening, listing, resolving, expiring. No write permission is needed to read.

use std::sync::Arc;

use bytes::Bytes;
use everstep_format::decision::Abort;
use everstep_format::feature::Operation;
use everstep_format::id::RepositoryId;
use everstep_format::intent::Intent;
use everstep_format::key::{Key, Prefix, StoredKind};
use everstep_format::marker::Expired;
use everstep_format::name::{Ordinal, RunName};
use everstep_format::reference::CheckpointRef;
use everstep_format::repository::{self, Chunking, RepositoryConfig, WriterMode};
use everstep_format::{FormatError, limits};
use everstep_store::probe::{self, ProbeSettings, Verdict};
use everstep_store::store::list_all;
use everstep_store::{Store, StoreError, World};

use crate::reading::{DecisionCache, check_preface, exists, fetch};
use crate::register::{Registered, register};
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
    cache: Arc<DecisionCache>,
}

/// What became of one ordinal.
#[derive(Debug, Clone)]
pub enum AttemptState {
    /// Not decided (yet): running, or left by a crash.
    Undecided(Intent),
    /// A fence: the opening of a session.
    Fence(Intent),
    /// Aborted.
    Aborted(Intent, Abort),
    /// A checkpoint.
    Committed(Checkpoint),
    /// Was a checkpoint.
    Expired(Checkpoint),
    /// Its intent or decision is damaged, so nobody can say.
    Damaged(RepoError),
    /// Its intent or decision is of a newer version, or needs a feature that this one does not know: a newer one can say.
    Newer(RepoError),
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
    /// [`RepoError::Refused`] if one is there already, or if the probe found the store's create not to be
    /// atomic and `single_writer` was not asked for.
    pub async fn init(
        store: Arc<dyn Store>,
        world: Arc<dyn World>,
        options: InitOptions,
    ) -> Result<Self, RepoError> {
        check_chunking(&options.chunking)?;
        let key = Key::repository();
        if exists(store.as_ref(), &key).await? {
            return Err(already_there(store.as_ref()));
        }
        let writers = writer_mode(store.as_ref(), world.as_ref(), options.single_writer).await?;
        let id = RepositoryId(world.random_id());
        let config = RepositoryConfig::new(id, options.chunking, writers, rfc3339(world.as_ref()));
        let body = Bytes::from(config.to_bytes().map_err(RepoError::object(key.clone()))?);
        match register(store.as_ref(), world.as_ref(), &key, &body).await? {
            Registered::Ours => Ok(Self::assemble(store, world, config)),
            Registered::Theirs(_) => Err(already_there(store.as_ref())),
            Registered::Unknown(error) => Err(error.into()),
        }
    }

    /// Opens a repository.
    ///
    /// # Errors
    /// [`RepoError::NotFound`], [`RepoError::Object`] for an unsupported version or damage.
    pub async fn open(store: Arc<dyn Store>, world: Arc<dyn World>) -> Result<Self, RepoError> {
        let key = Key::repository();
        let Some(bytes) = fetch(store.as_ref(), &key).await? else {
            let what = format!("a repository at {} (make one with `ckpt-inspect init`)", store.describe());
            return Err(RepoError::NotFound(what));
        };
        let config = check_preface(("everstep.json", repository::MAGIC), &bytes, Operation::Read)
            .and_then(|()| RepositoryConfig::from_bytes(&bytes))
            .map_err(RepoError::object(key))?;
        Ok(Self::assemble(store, world, config))
    }

    fn assemble(store: Arc<dyn Store>, world: Arc<dyn World>, config: RepositoryConfig) -> Self {
        Self { store, world, config: Arc::new(config), cache: Arc::default() }
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

    pub(crate) fn cache(&self) -> &DecisionCache {
        &self.cache
    }

    /// The runs of training, in name order. Lists the keys of every attempt: some 1,000 of them per request.
    ///
    /// # Errors
    /// [`RepoError::Store`].
    pub async fn runs(&self) -> Result<Vec<RunName>, RepoError> {
        let mut runs = Vec::new();
        for object in list_all(self.store.as_ref(), &Prefix::runs()).await? {
            let Some(StoredKind::Intent(run, _)) = object.key.kind() else { continue };
            if runs.last() != Some(&run) && !run.is_pins() {
                runs.push(run);
            }
        }
        // Keys sort `run-1/` before `run/`, names the other way round.
        runs.sort_unstable();
        runs.dedup();
        Ok(runs)
    }

    /// Every attempt of `run` in order, with its state.
    ///
    /// # Errors
    /// [`RepoError::NotFound`] for an unknown run; [`RepoError::Store`]. Damage, and what a newer version wrote, are states:
    /// they must not hide the other attempts.
    pub async fn attempts(&self, run: &RunName) -> Result<Vec<(Ordinal, AttemptState)>, RepoError> {
        Ok(self.outcomes(run).await?.states())
    }

    /// The newest checkpoint of `run`: `None` only if the store answered and nothing is committed.
    ///
    /// # Errors
    /// [`RepoError::NotFound`] for an unknown run; [`RepoError::Object`], [`RepoError::Store`].
    pub async fn latest(&self, run: &RunName) -> Result<Option<Checkpoint>, RepoError> {
        let listing = self.listing_of_known(run).await?;
        self.latest_from(run, listing).await
    }

    /// The checkpoint of exactly this ordinal.
    ///
    /// # Errors
    /// [`RepoError::Incomplete`], [`RepoError::Expired`], [`RepoError::NotFound`].
    pub async fn checkpoint(&self, run: &RunName, ordinal: Ordinal) -> Result<Checkpoint, RepoError> {
        self.checkpoint_at(run, ordinal).await
    }

    /// What a person's reference means.
    ///
    /// # Errors
    /// [`RepoError::NotFound`], [`RepoError::Incomplete`], [`RepoError::Expired`].
    pub async fn resolve(&self, reference: &CheckpointRef) -> Result<Resolved, RepoError> {
        self.resolve_reference(reference).await
    }

    /// Puts the expired marker beside a checkpoint; one that is there already is fine. Refused for the newest
    /// checkpoint of a run, unless it is a pin.
    ///
    /// # Errors
    /// [`RepoError::Refused`], [`RepoError::Incomplete`].
    pub async fn expire(&self, run: &RunName, ordinal: Ordinal, reason: &str) -> Result<(), RepoError> {
        match self.checkpoint_at(run, ordinal).await {
            Err(RepoError::Expired { .. }) => return Ok(()),
            other => other?,
        };
        if run.is_pins() {
            return self.mark_expired(run, ordinal, reason).await;
        }
        // A newer COMMIT, once there, stays: whatever happens meanwhile, this one is never again the newest.
        let newest = self.latest(run).await?.map(|checkpoint| checkpoint.manifest.ordinal);
        if newest <= Some(ordinal) {
            let why = "it is the newest checkpoint of its run, which is never expired";
            return Err(RepoError::Refused(format!("checkpoint {ordinal} of run {run} stays: {why}")));
        }
        self.mark_expired(run, ordinal, reason).await
    }

    /// Puts the expired marker, whatever it stands beside.
    pub(crate) async fn mark_expired(
        &self,
        run: &RunName,
        ordinal: Ordinal,
        reason: &str,
    ) -> Result<(), RepoError> {
        let marker = Expired::new(run.clone(), ordinal, reason.to_owned(), rfc3339(self.world.as_ref()));
        let key = Key::expired(run, ordinal);
        let body = Bytes::from(marker.to_bytes().map_err(RepoError::object(key.clone()))?);
        match register(self.store.as_ref(), self.world.as_ref(), &key, &body).await? {
            Registered::Ours | Registered::Theirs(_) => Ok(()),
            Registered::Unknown(error) => Err(error.into()),
        }
    }

    /// Opens `run` for writing (R1-R3), taking it over from an older session as `options` say.
    ///
    /// # Errors
    /// [`RepoError::Conflict`] when another job's session is alive and the takeover is `Fail`.
    pub async fn open_session(&self, run: &RunName, options: OpenOptions) -> Result<Session, RepoError> {
        let requires = &self.config.requires;
        requires.check(Operation::Write).map_err(RepoError::object(Key::repository()))?;
        crate::opening::open(self.clone(), run, options).await
    }

    pub(crate) async fn register(&self, key: &Key, body: &Bytes) -> Result<Registered, StoreError> {
        register(self.store.as_ref(), self.world.as_ref(), key, body).await
    }
}

fn already_there(store: &dyn Store) -> RepoError {
    RepoError::Refused(format!("there is a repository at {} already", store.describe()))
}

fn check_chunking(chunking: &Chunking) -> Result<(), FormatError> {
    let blocks = chunking
        .overrides
        .iter()
        .map(|o| o.block_elements)
        .chain([chunking.block_elements, chunking.block_bytes]);
    if blocks.into_iter().any(|size| size == 0) {
        return Err(FormatError::invalid("block size", "0", "at least one element and one byte per block"));
    }
    FormatError::within("block of the grid in bytes", chunking.block_bytes, limits::CHUNK_RAW_BYTES)
}

async fn writer_mode(
    store: &dyn Store,
    world: &dyn World,
    single_writer: bool,
) -> Result<WriterMode, RepoError> {
    if single_writer {
        return Ok(WriterMode::SingleWriter);
    }
    let address = store.describe();
    match probe::probe(store, world, ProbeSettings::default()).await?.verdict {
        Verdict::Atomic => Ok(WriterMode::ManyWriters),
        Verdict::Unproven { why } => Err(RepoError::Refused(format!(
            "could not find out whether {address} creates objects atomically: {why}. Try again when the store \
             answers reliably"
        ))),
        Verdict::NotAtomic { why } => Err(RepoError::Refused(format!(
            "{address} does not create objects atomically: {why}. Two jobs could destroy each other's \
             checkpoints there. Use another store; or, if only one process at a time will ever use this \
             repository, say so with `--single-writer` (the field `single_writer` of the options)"
        ))),
    }
}

/// The world's time as RFC 3339 text; informational.
pub(crate) fn rfc3339(world: &dyn World) -> String {
    let whole_milliseconds = |time: jiff::Timestamp| jiff::Timestamp::from_millisecond(time.as_millisecond());
    let now = jiff::Timestamp::try_from(world.now()).and_then(whole_milliseconds);
    now.unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
}
