//! What garbage collection may write into the protocol: markers, ABORT on attempts that died, the end of leases that did.

use everstep_format::decision::Abort;
use everstep_format::id::AttemptId;
use everstep_format::intent::Intent;

use crate::register::Registered;
use crate::session::{Claim, put_abort};
use crate::{Checkpoint, RepoError, Repository};

/// Why a collector ends what showed no sign of life.
const ABANDONED: &str = "abandoned";

impl Repository {
    /// Puts the expired marker beside `checkpoint`, in one request; one that is there already is fine. `newer` proves that
    /// `checkpoint` is not the newest of its run: decisions never change.
    ///
    /// # Errors
    /// [`RepoError::Refused`] when `newer` proves nothing; [`RepoError::Store`].
    pub async fn expire_older(
        &self,
        checkpoint: &Checkpoint,
        newer: &Checkpoint,
        reason: &str,
    ) -> Result<(), RepoError> {
        let (run, ordinal) = (&checkpoint.manifest.run, checkpoint.manifest.ordinal);
        if newer.manifest.run != *run || newer.manifest.ordinal <= ordinal {
            let why = "it may be the newest checkpoint of its run, which is never expired";
            return Err(RepoError::Refused(format!("checkpoint {ordinal} of run {run} stays: {why}")));
        }
        self.mark_expired(run, ordinal, reason).await
    }

    /// Decides the attempt that `intent` claimed as ABORT, because it showed no sign of life. Whether this call did it;
    /// what is decided already stays.
    ///
    /// # Errors
    /// [`RepoError::Store`] also when it is not known what stands there now.
    pub async fn abandon(&self, intent: &Intent, detail: String) -> Result<bool, RepoError> {
        let claim = Claim { ordinal: intent.ordinal, attempt: intent.attempt };
        let abort = Abort { reason: ABANDONED.to_owned(), detail, by: None };
        let registered = put_abort(self, &intent.run, claim, abort).await?;
        Ok(matches!(registered, Registered::Ours))
    }

    /// Ends the lease `id`, whose reader showed no sign of life for its time to live.
    ///
    /// # Errors
    /// [`RepoError::Store`].
    pub async fn abandon_lease(&self, id: AttemptId) -> Result<(), RepoError> {
        self.end_lease(id, ABANDONED).await
    }
}
