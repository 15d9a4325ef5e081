//! W4: the one write that makes a checkpoint.

use std::collections::BTreeSet;

use bytes::Bytes;
use everstep_format::FormatError;
use everstep_format::decision::{Abort, Decision, Manifest, Pin};
use everstep_format::feature::{Operation, Requires};
use everstep_format::id::AttemptId;
use everstep_format::intent::ParentRef;
use everstep_format::key::Key;
use everstep_format::name::Ordinal;
use everstep_format::repository::tool;
use everstep_store::{StoreError, StoreErrorKind};

use crate::reading::{Decided, Fate, parse_decision};
use crate::register::Registered;
use crate::repository::rfc3339;
use crate::session::{Attempt, CommitOutcome, Draft, Session};
use crate::{Checkpoint, RepoError};

/// Why a COMMIT carries a copy of another checkpoint's index.
#[derive(Debug, Clone)]
pub(crate) enum Purpose {
    /// To go back to it.
    Rollback(ParentRef),
    /// To keep it under a name.
    Pin(Pin),
}

impl Purpose {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Rollback(_) => "rollback",
            Self::Pin(_) => "pinning",
        }
    }
}

/// What a copy adds to a COMMIT.
#[derive(Debug, Clone)]
pub(crate) struct CopyOf {
    pub(crate) purpose: Purpose,
    /// What the copied index requires.
    pub(crate) requires: Requires,
}

impl Session {
    pub(crate) async fn decide(
        &mut self,
        attempt: &Attempt,
        draft: Draft,
        copy_of: Option<CopyOf>,
    ) -> Result<CommitOutcome, RepoError> {
        self.check_own(attempt)?;
        let decision = self.decision_of(attempt, draft, copy_of)?;
        let key = Key::decision(&self.run, attempt.ordinal);
        let body = Bytes::from(decision.to_bytes(&self.run, attempt.ordinal)?);
        // What the COMMIT refers to must outlive a power cut before the COMMIT does.
        self.repository.store().sync().await?;
        // In doubt from here on: whoever drops this future half-way must not take the attempt for undecided.
        let doubted_before = self.set_doubt(attempt.ordinal, true);
        let registered = self.repository.register(&key, &body).await;
        self.set_doubt(attempt.ordinal, doubted_before);
        match registered? {
            Registered::Ours => Ok(self.committed(attempt.ordinal, decision.into())),
            Registered::Theirs(bytes) => Ok(self.decided_before(attempt, &bytes)),
            Registered::Unknown(error) => Ok(self.unknown(attempt.ordinal, error)),
        }
    }

    fn decision_of(
        &self,
        attempt: &Attempt,
        draft: Draft,
        copy_of: Option<CopyOf>,
    ) -> Result<Decision, FormatError> {
        // What W2 confirmed is what this session remembers, not what came back from the caller.
        let own =
            self.undecided.get(&attempt.ordinal).and_then(|own| own.attempt.as_ref()).unwrap_or(attempt);
        let (purpose, requires) = copy_of.map(|copy| (copy.purpose, copy.requires)).unzip();
        let (rollback_to, pin) = match purpose {
            None => (None, None),
            Some(Purpose::Rollback(target)) => (Some(target), None),
            Some(Purpose::Pin(pin)) => (None, Some(pin)),
        };
        let mut decision = Decision::commit(Manifest {
            run: self.run.clone(),
            ordinal: own.ordinal,
            step: own.step,
            attempt: own.id,
            session: self.id,
            parents: own.confirmed.iter().map(Checkpoint::as_parent).collect(),
            world_size: own.world_size,
            index: draft.index,
            refs: draft.refs,
            owners: permitted_owners(own, draft.owners)?,
            rollback_to,
            pin,
            totals: draft.totals,
            metadata: draft.metadata,
            created: rfc3339(self.repository.world().as_ref()),
            tool: tool(),
            stats: draft.stats,
        });
        decision.requires = requires.unwrap_or_default();
        Ok(decision)
    }

    fn committed(&mut self, ordinal: Ordinal, decided: Decided) -> CommitOutcome {
        self.undecided.remove(&ordinal);
        self.repository.remember(&self.run, ordinal, decided.clone());
        match decided.fate {
            Fate::Commit(manifest) => {
                let checkpoint = Checkpoint { manifest };
                if self.latest.as_ref().is_none_or(|latest| latest.manifest.ordinal < ordinal) {
                    self.latest = Some(checkpoint.clone());
                }
                CommitOutcome::Committed(checkpoint)
            }
            Fate::Abort(abort) => self.aborted(ordinal, &abort),
        }
    }

    /// The register was taken: by an earlier COMMIT of this very attempt, or by somebody's ABORT.
    fn decided_before(&mut self, attempt: &Attempt, bytes: &[u8]) -> CommitOutcome {
        let ordinal = attempt.ordinal;
        match parse_decision(bytes, (&self.run, ordinal), Operation::Write) {
            Ok(decided) if decided.attempt == attempt.id => self.committed(ordinal, decided),
            Ok(decided) => {
                self.undecided.remove(&ordinal);
                let why = format!("attempt {ordinal} was decided for another attempt, {}", decided.attempt);
                CommitOutcome::Conflict(RepoError::Conflict { run: self.run.clone(), why })
            }
            // It is decided, but nobody can read how.
            Err(error) => {
                let key = Key::decision(&self.run, ordinal);
                let error = StoreError::new(StoreErrorKind::Server, "create", key, error.to_string());
                self.unknown(ordinal, error)
            }
        }
    }

    fn aborted(&self, ordinal: Ordinal, abort: &Abort) -> CommitOutcome {
        let by = abort.by.map_or_else(|| "garbage collection".to_owned(), |by| format!("session {by}"));
        let detail = if abort.detail.is_empty() { String::new() } else { format!(": {}", abort.detail) };
        let why = format!(
            "attempt {ordinal} was aborted by {by} ({}{detail}) before it could commit",
            abort.reason
        );
        CommitOutcome::Conflict(RepoError::Conflict { run: self.run.clone(), why })
    }

    fn unknown(&mut self, ordinal: Ordinal, error: StoreError) -> CommitOutcome {
        self.set_doubt(ordinal, true);
        CommitOutcome::Unknown(error)
    }

    /// Gives back what it was before.
    fn set_doubt(&mut self, ordinal: Ordinal, in_doubt: bool) -> bool {
        let attempt = self.undecided.get_mut(&ordinal);
        attempt.is_some_and(|attempt| std::mem::replace(&mut attempt.in_doubt, in_doubt))
    }
}

/// The owners, sorted: W3 lets an index refer only to the attempt's own packs and to those of confirmed
/// parents.
fn permitted_owners(attempt: &Attempt, mut owners: Vec<AttemptId>) -> Result<Vec<AttemptId>, FormatError> {
    let of_parents = attempt.confirmed.iter().flat_map(|parent| &parent.manifest.owners);
    let permitted: BTreeSet<AttemptId> = of_parents.copied().chain([attempt.id]).collect();
    if let Some(stranger) = owners.iter().find(|owner| !permitted.contains(owner)) {
        let rule = "packs belong to the attempt itself or stand in the index of a confirmed parent";
        return Err(FormatError::invalid("owner of packs", stranger.to_string(), rule));
    }
    owners.sort_unstable();
    owners.dedup();
    Ok(owners)
}
