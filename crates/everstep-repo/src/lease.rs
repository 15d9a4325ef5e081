//! Leases: a reader that takes long keeps the data of a checkpoint, even when that expires meanwhile.
//!
//! A lease is a child that never commits: it names its checkpoint as parent, is durable, and only then looks at the
//! expired marker (W2). Whoever collects garbage meets either the lease or a marker that the reader met as well.

use std::time::Duration;

use bytes::Bytes;
use everstep_format::FormatError;
use everstep_format::feature::Operation;
use everstep_format::id::AttemptId;
use everstep_format::key::Key;
use everstep_format::lease::{Lease as Stored, LeaseEnd};

use crate::beat::Beat;
use crate::register::Registered;
use crate::repository::rfc3339;
use crate::{Checkpoint, RepoError, Repository};

/// How a lease is taken.
#[derive(Debug, Clone)]
pub struct LeaseOptions {
    /// How long it counts after its last sign of life, in whole seconds; one is given every quarter of that.
    pub ttl: Duration,
    /// Who reads, for people; at most 256 bytes.
    pub holder: Option<String>,
}

impl Default for LeaseOptions {
    fn default() -> Self {
        Self { ttl: Duration::from_secs(24 * 3600), holder: None }
    }
}

/// Keeps the data of one checkpoint while it lives. End it with [`Lease::end`]; one that is only dropped falls silent and
/// counts until its time to live has passed.
#[derive(Debug)]
#[must_use = "a lease that is dropped falls silent"]
pub struct Lease {
    repository: Repository,
    id: AttemptId,
    checkpoint: Checkpoint,
    beat: Beat,
}

impl Repository {
    /// Takes a lease on the data of `checkpoint`: three or four requests. Until it ends, the checkpoint stays readable,
    /// even when it expires.
    ///
    /// # Errors
    /// [`RepoError::Expired`] when the checkpoint has expired already; [`RepoError::Invalid`] for a time to live that is
    /// out of bounds; [`RepoError::Store`].
    pub async fn lease(&self, checkpoint: &Checkpoint, options: LeaseOptions) -> Result<Lease, RepoError> {
        self.check_committed(checkpoint).await?;
        let id = AttemptId(self.world().random_id());
        let now = rfc3339(self.world().as_ref());
        let mut stored = Stored::new(id, checkpoint.as_parent(), options.ttl.as_secs(), now);
        stored.holder = options.holder;
        let body = Bytes::from(stored.to_bytes()?);
        self.take(id, &body).await?;
        // From here on it counts, so that whatever fails must end it.
        match self.still_counts(checkpoint).await {
            Ok(()) => {
                let beat = Beat::start(self, Key::alive(id), body, options.ttl / 4);
                Ok(Lease { repository: self.clone(), id, checkpoint: checkpoint.clone(), beat })
            }
            Err(error) => {
                self.give_up(id).await;
                Err(error)
            }
        }
    }

    async fn check_committed(&self, checkpoint: &Checkpoint) -> Result<(), RepoError> {
        let (run, ordinal) = (&checkpoint.manifest.run, checkpoint.manifest.ordinal);
        let decided = self.decision(run, ordinal, Operation::Read).await?;
        let committed = decided.and_then(|decided| decided.committed());
        if committed.is_some_and(|committed| committed.manifest.attempt == checkpoint.manifest.attempt) {
            return Ok(());
        }
        Err(RepoError::NotFound(format!("checkpoint {ordinal} of run {run} in this repository")))
    }

    async fn take(&self, id: AttemptId, body: &Bytes) -> Result<(), RepoError> {
        let key = Key::lease(id);
        match self.register(&key, body).await? {
            Registered::Ours => Ok(()),
            Registered::Theirs(_) => {
                let found = FormatError::corrupt("lease", 0, "no other lease of this id", "one");
                Err(RepoError::object(key)(found))
            }
            Registered::Unknown(error) => {
                // It may land yet.
                self.give_up(id).await;
                Err(error.into())
            }
        }
    }

    /// W2.
    async fn still_counts(&self, checkpoint: &Checkpoint) -> Result<(), RepoError> {
        let (run, ordinal) = (checkpoint.manifest.run.clone(), checkpoint.manifest.ordinal);
        if self.is_expired(&run, ordinal).await? {
            return Err(RepoError::Expired { run, ordinal });
        }
        Ok(())
    }

    /// Ends a lease that protects nobody, as well as the store allows: without it, it ends by its time to live.
    async fn give_up(&self, id: AttemptId) {
        if let Err(error) = self.end_lease(id, "dropped").await {
            tracing::debug!(lease = %id, %error, "a lease that protects nobody stays until its time has passed");
        }
    }

    pub(crate) async fn end_lease(&self, id: AttemptId, reason: &str) -> Result<(), RepoError> {
        let key = Key::lease_end(id);
        let end = LeaseEnd::new(id, reason, rfc3339(self.world().as_ref()));
        let body = Bytes::from(end.to_bytes().map_err(RepoError::object(key.clone()))?);
        match self.register(&key, &body).await? {
            Registered::Ours | Registered::Theirs(_) => Ok(()),
            Registered::Unknown(error) => Err(error.into()),
        }
    }
}

impl Lease {
    /// Its id.
    pub fn id(&self) -> AttemptId {
        self.id
    }

    /// The checkpoint whose data it keeps.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// Ends it: the data goes with the next garbage collection, if the checkpoint has expired.
    ///
    /// # Errors
    /// [`RepoError::Store`]; it then ends by falling silent.
    pub async fn end(self) -> Result<(), RepoError> {
        drop(self.beat);
        self.repository.end_lease(self.id, "closed").await
    }
}
