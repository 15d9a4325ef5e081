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

use crate::adopting::fenced_by;
use crate::beat::Beat;
use crate::reading::parse_intent;
use crate::register::Registered;
use crate::session::{Attempt, Claim, Parents, Session, Undecided};
use crate::{Checkpoint, RepoError};

/// How long an undecided attempt counts as alive without a sign of life.
const ATTEMPT_TTL: Duration = Duration::from_secs(24 * 3600);

impl Session {
    pub(crate) async fn start_attempt(
        &mut self,
        (step, world_size): (Step, u32),
        parents: &Parents,
    ) -> Result<Attempt, RepoError> {
        if world_size == 0 {
            return Err(FormatError::invalid("world size", "0", "an attempt has at least one writer").into());
        }
        let id = AttemptId(self.repository.world().random_id());
        let (ordinal, named, body) = loop {
            // Anew for each ordinal: walking to it may have shown a newer checkpoint.
            let named = self.nameable(self.meant_by(parents)).await?;
            let mut intent = Intent::save(self.run.clone(), self.next_ordinal()?, id, self.id);
            intent.parents = named.iter().map(Checkpoint::as_parent).collect();
            intent.step = Some(step);
            intent.world_size = world_size;
            intent.job.clone_from(&self.job);
            if let Some(body) = self.claim(&intent).await? {
                break (intent.ordinal, named, body);
            }
        };
        self.undecided.insert(ordinal, Undecided { id, attempt: None, in_doubt: false, beat: None });
        let confirmed = self.confirm(named).await?;
        let attempt = Attempt { id, ordinal, step, world_size, confirmed };
        // The copy of the intent is for people; only when it was written counts.
        let beat = Beat::start(&self.repository, Key::alive(id), body, ATTEMPT_TTL / 4);
        let known = Undecided { id, attempt: Some(attempt.clone()), in_doubt: false, beat: Some(beat) };
        self.undecided.insert(ordinal, known);
        Ok(attempt)
    }

    fn meant_by(&self, parents: &Parents) -> Vec<Checkpoint> {
        let latest = self.latest.iter().cloned();
        match parents {
            Parents::Latest => latest.collect(),
            Parents::Also(others) => latest.chain(others.iter().cloned()).collect(),
            Parents::These(these) => these.clone(),
        }
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

    /// W1: put-if-absent the intent. Its stored bytes; or `None` when the ordinal was taken and has been walked past.
    async fn claim(&mut self, intent: &Intent) -> Result<Option<Bytes>, RepoError> {
        let key = Key::intent(&self.run, intent.ordinal);
        let body = Bytes::from(intent.to_bytes()?);
        match self.repository.register(&key, &body).await? {
            Registered::Ours => {
                self.seen = intent.ordinal;
                Ok(Some(body))
            }
            Registered::Theirs(bytes) => self.walk_past(&bytes, intent.ordinal).await.map(|()| None),
            Registered::Unknown(error) => Err(error.into()),
        }
    }

    fn next_ordinal(&self) -> Result<Ordinal, FormatError> {
        let used_up =
            || FormatError::invalid("ordinal", self.seen.to_string(), "no ordinal is left after it");
        self.seen.0.checked_add(1).map(Ordinal).ok_or_else(used_up)
    }

    /// An intent that is not ours: a fence ends this session, a save of anybody is stepped over.
    async fn walk_past(&mut self, bytes: &[u8], ordinal: Ordinal) -> Result<(), RepoError> {
        let other = parse_intent(bytes, (&self.run, ordinal), Operation::Write)?;
        if other.kind == IntentKind::Fence {
            return Err(fenced_by(&other));
        }
        if other.session == self.id {
            self.learn(Claim { ordinal, attempt: other.attempt }).await?;
        }
        self.seen = ordinal;
        Ok(())
    }

    /// An attempt of this session that this process did not know of: another one that carries the session on made it, or it
    /// is a claim of ours that was reported as failed and landed after all. Nobody works on it any more, since processes of
    /// one session do not save at the same time.
    async fn learn(&mut self, claim: Claim) -> Result<(), RepoError> {
        self.shared = true;
        if let Some(checkpoint) = self.repository.settled(&self.run, (claim, self.id)).await? {
            self.latest = Some(checkpoint);
        }
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
