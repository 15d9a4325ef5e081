//! One opening of a run for writing: fence, walk, attempts, commit.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use everstep_format::FormatError;
use everstep_format::card::SaveId;
use everstep_format::decision::{Abort, Decision, IndexRef, RefsRef, Totals};
use everstep_format::id::{AttemptId, SessionId};
use everstep_format::key::Key;
use everstep_format::name::{Ordinal, RunName, Step};
use everstep_format::repository::WriterMode;
use everstep_format::session::SessionMark;
use everstep_store::{Class, StoreError};
use futures::FutureExt;

use crate::beat::Beat;
use crate::commit::Purpose;
use crate::register::Registered;
use crate::{Checkpoint, RepoError, Repository, Ticket};

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
    pub(crate) repository: Repository,
    pub(crate) run: RunName,
    pub(crate) id: SessionId,
    pub(crate) job: Option<String>,
    pub(crate) latest: Option<Checkpoint>,
    pub(crate) fence: Claim,
    /// The highest ordinal whose intent this session wrote or read: the next one is the next to claim.
    pub(crate) seen: Ordinal,
    /// Its own attempts that it has not seen decided.
    pub(crate) undecided: BTreeMap<Ordinal, Undecided>,
    /// Saves so far to which other writers were called.
    pub(crate) calls: u64,
    /// It carries on what another process opened, so it does not end with this one.
    pub(crate) adopted: bool,
    /// Other processes have saved in it, or may have.
    pub(crate) shared: bool,
    /// The session's own sign of life; ends when it is dropped.
    pub(crate) beat: Option<Beat>,
}

/// An ordinal and the attempt that claimed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) ordinal: Ordinal,
    pub(crate) attempt: AttemptId,
}

/// An attempt of this session that was not seen decided.
#[derive(Debug)]
pub(crate) struct Undecided {
    pub(crate) id: AttemptId,
    /// Missing as long as its parents are not confirmed.
    pub(crate) attempt: Option<Attempt>,
    /// A commit was sent and its outcome is not known. It may be committed, so it is left alone.
    pub(crate) in_doubt: bool,
    /// `alive/<attempt>`; ends when it is dropped.
    pub(crate) beat: Option<Beat>,
}

/// Which checkpoints an attempt deduplicates against.
#[derive(Debug, Clone, Default)]
pub enum Parents {
    /// The session's latest, if there is one.
    #[default]
    Latest,
    /// The session's latest, if there is one, and these, of any run.
    Also(Vec<Checkpoint>),
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
    /// Where the time went, for people.
    pub stats: Option<serde_json::Value>,
}

/// The outcome of W4.
#[derive(Debug)]
pub enum CommitOutcome {
    /// Read back or answered as our COMMIT.
    Committed(Checkpoint),
    /// Somebody aborted the attempt: a newer session, or garbage collection.
    Conflict(RepoError),
    /// The store gave no answer that can be trusted. The attempt may be committed; nothing was and nothing
    /// will be deleted because of it. Committing the same attempt again is safe and may settle it.
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

    /// The ordinal of this session's fence.
    pub fn fence(&self) -> Ordinal {
        self.fence.ordinal
    }

    /// The repository.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// The newest checkpoint, as resolved at opening (R3) or committed since.
    pub fn latest(&self) -> Option<&Checkpoint> {
        self.latest.as_ref()
    }

    /// What other processes need to take part in saves of this session, from the next one on.
    pub fn ticket(&self) -> Ticket {
        Ticket { run: self.run.clone(), next: SaveId { session: self.id, save: self.calls } }
    }

    /// The name of the next save to which other writers are called; each call gives another one.
    pub fn next_call(&mut self) -> SaveId {
        let save = self.calls;
        self.calls += 1;
        SaveId { session: self.id, save }
    }

    /// Whether other processes have saved in this session, or may have: then the name that [`Session::next_call`] gives may
    /// be one that they have used.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Claims the next ordinal (walking, never by LIST) and confirms parents: W1, W2. What another process of this session
    /// has committed meanwhile is met on the way and is the latest from then on.
    ///
    /// # Errors
    /// [`RepoError::Conflict`] ("fenced by ...") once a newer session has opened the run.
    pub async fn begin(
        &mut self,
        step: Step,
        world_size: u32,
        parents: Parents,
    ) -> Result<Attempt, RepoError> {
        self.start_attempt((step, world_size), &parents).await
    }

    /// Commits an attempt: W4. Everything it refers to must have been put before; it is made durable first.
    ///
    /// # Errors
    /// Only for what never reached the store, such as metadata beyond its limit; the rest is in the outcome.
    pub async fn commit(&mut self, attempt: Attempt, draft: Draft) -> Result<CommitOutcome, RepoError> {
        self.decide(&attempt, draft, None).await
    }

    /// Gives an attempt up: ABORT "failed". Best effort; an undecided attempt does no harm. One whose commit
    /// has an unknown outcome is left alone.
    pub async fn abandon(&mut self, attempt: Attempt, why: &str) {
        let own = self.undecided.get(&attempt.ordinal).filter(|own| own.id == attempt.id);
        if own.is_none_or(|own| own.in_doubt) {
            return;
        }
        let claim = Claim { ordinal: attempt.ordinal, attempt: attempt.id };
        match self.abort(claim, "failed", why).await {
            Ok(()) => drop(self.undecided.remove(&attempt.ordinal)),
            Err(error) => {
                tracing::debug!(run = %self.run, ordinal = %attempt.ordinal, %error, "not aborted yet")
            }
        }
    }

    /// Gives up, in the background, what futures of this session left undecided that were dropped half-way, and says which
    /// attempts these are. One whose commit was under way is left alone. The session can go on at once, whatever the
    /// store does.
    pub fn let_go(&mut self, why: &str) -> Vec<AttemptId> {
        let open = self.undecided.iter_mut().filter(|(_, own)| !own.in_doubt);
        let claims: Vec<Claim> = open
            .map(|(ordinal, own)| {
                own.beat = None;
                Claim { ordinal: *ordinal, attempt: own.id }
            })
            .collect();
        claims.iter().for_each(|claim| self.abort_in_background(*claim, why));
        claims.iter().map(|claim| claim.attempt).collect()
    }

    fn abort_in_background(&self, claim: Claim, why: &str) {
        let abort = Abort { reason: "failed".to_owned(), detail: why.to_owned(), by: Some(self.id) };
        let (repository, run) = (self.repository.clone(), self.run.clone());
        let aborted = async move {
            if let Err(error) = put_abort(&repository, &run, claim, abort).await {
                tracing::debug!(%run, ordinal = %claim.ordinal, %error, "not aborted yet");
            }
        };
        self.repository.world().spawn(aborted.boxed());
    }

    /// Goes back to `target` deliberately: an attempt above the fence whose COMMIT carries a copy of its
    /// index. From then on it is [`Session::latest`].
    ///
    /// # Errors
    /// [`RepoError::Expired`] when `target` was dropped at W2.
    pub async fn rollback(&mut self, target: &Checkpoint) -> Result<CommitOutcome, RepoError> {
        self.copy_of(target, Purpose::Rollback(target.as_parent())).await
    }

    /// Ends the session: ABORT "closed" on its open attempts, then on its fence, then a closing mark, so that
    /// the next one need not wait. One that was adopted goes on where it was opened: only the open attempts of this process
    /// are ended.
    ///
    /// # Errors
    /// [`RepoError::Store`]; the session is over all the same.
    pub async fn close(mut self) -> Result<(), RepoError> {
        self.beat = None;
        let open = std::mem::take(&mut self.undecided).into_iter().filter(|(_, attempt)| !attempt.in_doubt);
        let claims = open.map(|(ordinal, attempt)| Claim { ordinal, attempt: attempt.id });
        let mut outcome = Ok(());
        for claim in claims.chain((!self.adopted).then_some(self.fence)) {
            let aborted = self.abort(claim, "closed", "").await;
            outcome = outcome.and(aborted);
        }
        if self.adopted {
            return outcome;
        }
        outcome.and(self.mark_closed().await)
    }

    async fn mark_closed(&self) -> Result<(), RepoError> {
        let key = Key::session(self.id);
        let mut mark = SessionMark::new(self.id, self.run.clone(), self.fence.ordinal, self.job.clone());
        mark.closed = true;
        let body = mark.to_bytes().map_err(RepoError::object(key.clone()))?;
        Ok(self.repository.store().put(&key, body.into(), Class::Control).await?)
    }

    /// Puts an ABORT on an attempt of this session. One that is decided already stays as it is.
    async fn abort(&self, claim: Claim, reason: &str, detail: &str) -> Result<(), RepoError> {
        let abort = Abort { reason: reason.to_owned(), detail: detail.to_owned(), by: Some(self.id) };
        put_abort(&self.repository, &self.run, claim, abort).await.map(drop)
    }

    /// `Ok` when `attempt` is one that this session began and has not seen decided.
    pub(crate) fn check_own(&self, attempt: &Attempt) -> Result<(), FormatError> {
        let own = self.undecided.get(&attempt.ordinal).is_some_and(|own| own.id == attempt.id);
        if own {
            return Ok(());
        }
        let rule = format!("only an open attempt of session {} can be committed by it", self.id);
        Err(FormatError::invalid("attempt", format!("{} ({})", attempt.ordinal, attempt.id), rule))
    }
}

/// Puts an ABORT unless the attempt is decided; gives back whose decision stands there now.
pub(crate) async fn put_abort(
    repository: &Repository,
    run: &RunName,
    claim: Claim,
    abort: Abort,
) -> Result<Registered, RepoError> {
    if repository.config().writers == WriterMode::SingleWriter {
        // Such a store may let a COMMIT that is still on its way replace the ABORT; the marker beats it all the same.
        repository.mark_expired(run, claim.ordinal, &format!("aborted: {}", abort.reason)).await?;
    }
    let key = Key::decision(run, claim.ordinal);
    let decision = Decision::abort(claim.attempt, abort);
    let body = Bytes::from(decision.to_bytes(run, claim.ordinal).map_err(RepoError::object(key.clone()))?);
    let registered = repository.register(&key, &body).await?;
    match &registered {
        Registered::Ours => repository.remember(run, claim.ordinal, decision.into()),
        Registered::Theirs(_) => {}
        Registered::Unknown(error) => return Err(error.clone().into()),
    }
    Ok(registered)
}
