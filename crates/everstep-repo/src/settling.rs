//! What became of one attempt, and deciding one that nobody else decides.

use everstep_format::decision::Abort;
use everstep_format::feature::Operation;
use everstep_format::intent::{Intent, IntentKind};
use everstep_format::key::Key;
use everstep_format::name::{Ordinal, RunName};

use crate::reading::Fate;
use crate::session::{Claim, put_abort};
use crate::{AttemptState, Checkpoint, RepoError, Repository};

/// Why a person aborts an attempt.
const BY_OPERATOR: &str = "operator";

impl Repository {
    /// What became of one attempt, read from the store now: two or three requests.
    ///
    /// # Errors
    /// [`RepoError::NotFound`] when nobody claimed the ordinal; [`RepoError::Store`] when the answer cannot be read;
    /// [`RepoError::Object`] for what a newer version wrote. Damage is a state.
    pub async fn attempt(&self, run: &RunName, ordinal: Ordinal) -> Result<AttemptState, RepoError> {
        // A decision never changes; a marker may come.
        match self.decision(run, ordinal, Operation::Read).await {
            Err(error) => damaged(error),
            Ok(None) => self.undecided_attempt(run, ordinal).await,
            Ok(Some(decided)) => match &decided.fate {
                Fate::Commit(manifest) => {
                    let checkpoint = Checkpoint { manifest: manifest.clone() };
                    let expired = self.is_expired(run, ordinal).await?;
                    Ok(if expired {
                        AttemptState::Expired(checkpoint)
                    } else {
                        AttemptState::Committed(checkpoint)
                    })
                }
                Fate::Abort(abort) => self.aborted_attempt(run, ordinal, abort).await,
            },
        }
    }

    async fn undecided_attempt(&self, run: &RunName, ordinal: Ordinal) -> Result<AttemptState, RepoError> {
        match self.intent(run, ordinal, Operation::Read).await {
            Err(error) => damaged(error),
            Ok(Some(intent)) if intent.kind == IntentKind::Fence => Ok(AttemptState::Fence(intent)),
            Ok(Some(intent)) => Ok(AttemptState::Undecided(intent)),
            Ok(None) => Err(RepoError::NotFound(format!("attempt {ordinal} of run {run}"))),
        }
    }

    async fn aborted_attempt(
        &self,
        run: &RunName,
        ordinal: Ordinal,
        abort: &Abort,
    ) -> Result<AttemptState, RepoError> {
        match self.intent(run, ordinal, Operation::Read).await {
            Err(error) => damaged(error),
            Ok(Some(intent)) if intent.kind == IntentKind::Fence => Ok(AttemptState::Fence(intent)),
            Ok(Some(intent)) => Ok(AttemptState::Aborted(intent, abort.clone())),
            Ok(None) => {
                let because = "it was decided, and intents are never deleted".to_owned();
                Ok(AttemptState::Damaged(RepoError::Missing { key: Key::intent(run, ordinal), because }))
            }
        }
    }

    /// Decides an undecided attempt as ABORT, for a person: a save that still runs for it fails with a Conflict. What is
    /// decided already stays as it is; the answer says what stands there now.
    ///
    /// # Errors
    /// Those of [`Repository::attempt`].
    pub async fn abort_undecided(
        &self,
        run: &RunName,
        ordinal: Ordinal,
        detail: &str,
    ) -> Result<AttemptState, RepoError> {
        let state = self.attempt(run, ordinal).await?;
        let AttemptState::Undecided(Intent { attempt, .. }) = state else { return Ok(state) };
        let abort = Abort { reason: BY_OPERATOR.to_owned(), detail: detail.to_owned(), by: None };
        put_abort(self, run, Claim { ordinal, attempt }, abort).await?;
        self.attempt(run, ordinal).await
    }
}

fn damaged(error: RepoError) -> Result<AttemptState, RepoError> {
    match error {
        RepoError::Object { .. } if !error.is_unsupported() => Ok(AttemptState::Damaged(error)),
        other => Err(other),
    }
}
