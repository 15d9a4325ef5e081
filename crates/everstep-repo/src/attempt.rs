//! Beginning an attempt: W1 (claim the next ordinal by walking) and W2 (confirm parents once the claim is
//! durable).

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use everstep_format::FormatError;
use everstep_format::feature::Operation;
use everstep_format::id::AttemptId;
use everstep_format::intent::{Intent, IntentKind};
use everstep_format::key::Key;
use everstep_format::name::{Ordinal, Step};
use futures::future::try_join_all;

use crate::beat::Beat;
use crate::reading::parse_intent;
use crate::register::Registered;
use crate::session::{Attempt, Session, Undecided};
use crate::{Checkpoint, RepoError};

/// How long an undecided attempt counts as alive without a sign of life.
const ATTEMPT_TTL: Duration = Duration::from_secs(24 * 3600);

impl Session {
    pub(crate) async fn start_attempt(
        &mut self,
        step: Step,
        world_size: u32,
        parents: Vec<Checkpoint>,
    ) -> Result<Attempt, RepoError> {
        if world_size == 0 {
            return Err(FormatError::invalid("world size", "0", "an attempt has at least one writer").into());
        }
        let parents = self.nameable(parents).await?;
        let id = AttemptId(self.repository.world().random_id());
        let mut intent = Intent::save(self.run.clone(), self.seen, id, self.id);
        intent.parents = parents.iter().map(Checkpoint::as_parent).collect();
        intent.step = Some(step);
        intent.world_size = world_size;
        intent.job.clone_from(&self.job);
        let body = self.claim(&mut intent).await?;
        let ordinal = intent.ordinal;
        self.undecided.insert(ordinal, Undecided { id, attempt: None, in_doubt: false, beat: None });
        let confirmed = self.confirm(parents).await?;
        let attempt = Attempt { id, ordinal, step, world_size, confirmed };
        // The copy of the intent is for people; only when it was written counts.
        let beat = Beat::start(&self.repository, Key::alive(id), body, ATTEMPT_TTL / 4);
        let known = Undecided { id, attempt: Some(attempt.clone()), in_doubt: false, beat: Some(beat) };
        self.undecided.insert(ordinal, known);
        Ok(attempt)
    }

    /// The parents that an intent may name: each was read as COMMIT, each once.
    async fn nameable(&self, mut parents: Vec<Checkpoint>) -> Result<Vec<Checkpoint>, RepoError> {
        let mut named = BTreeSet::new();
        parents.retain(|parent| named.insert(parent.as_parent()));
        let read = try_join_all(parents.iter().map(|parent| self.is_commit(parent))).await?;
        let mut read = read.into_iter();
        parents.retain(|_| read.next().unwrap_or(false));
        Ok(parents)
    }

    async fn is_commit(&self, parent: &Checkpoint) -> Result<bool, RepoError> {
        let manifest = &parent.manifest;
        let decided = self.repository.decision(&manifest.run, manifest.ordinal, Operation::Write).await?;
        let committed = decided.and_then(|decided| decided.committed());
        Ok(committed.is_some_and(|committed| committed.manifest.attempt == manifest.attempt))
    }

    /// W1: put-if-absent the intent at the next ordinal, walking past whatever is there. Its stored bytes are
    /// returned.
    async fn claim(&mut self, intent: &mut Intent) -> Result<Bytes, RepoError> {
        loop {
            intent.ordinal = self.next_ordinal()?;
            let key = Key::intent(&self.run, intent.ordinal);
            let body = Bytes::from(intent.to_bytes()?);
            match self.repository.register(&key, &body).await? {
                Registered::Ours => {
                    self.seen = intent.ordinal;
                    return Ok(body);
                }
                Registered::Theirs(bytes) => self.walk_past(&bytes, intent.ordinal)?,
                Registered::Unknown(error) => return Err(error.into()),
            }
        }
    }

    fn next_ordinal(&self) -> Result<Ordinal, FormatError> {
        let used_up =
            || FormatError::invalid("ordinal", self.seen.to_string(), "no ordinal is left after it");
        self.seen.0.checked_add(1).map(Ordinal).ok_or_else(used_up)
    }

    /// An intent that is not ours: a fence ends this session, a save of anybody is stepped over.
    fn walk_past(&mut self, bytes: &[u8], ordinal: Ordinal) -> Result<(), RepoError> {
        let other = parse_intent(bytes, (&self.run, ordinal), Operation::Write)?;
        if other.kind == IntentKind::Fence {
            let job = other.job.map(|job| format!(" (job {job})")).unwrap_or_default();
            let why =
                format!("fenced by session {}{job}, which opened the run after this one", other.session);
            return Err(RepoError::Conflict { run: self.run.clone(), why });
        }
        if other.session == self.id {
            // A claim of ours that was reported as failed and landed after all.
            let late = Undecided { id: other.attempt, attempt: None, in_doubt: false, beat: None };
            self.undecided.entry(ordinal).or_insert(late);
        }
        self.seen = ordinal;
        Ok(())
    }

    /// W2: reads each parent's expired marker, now that the intent that names it is durable. Expired ones are
    /// dropped.
    async fn confirm(&self, mut parents: Vec<Checkpoint>) -> Result<Vec<Checkpoint>, RepoError> {
        let markers = parents.iter().map(|parent| {
            let manifest = &parent.manifest;
            self.repository.is_expired(&manifest.run, manifest.ordinal)
        });
        let mut expired = try_join_all(markers).await?.into_iter();
        parents.retain(|_| !expired.next().unwrap_or(true));
        Ok(parents)
    }
}
