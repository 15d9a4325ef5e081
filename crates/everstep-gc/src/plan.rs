//! What a collection would do: a value that can be shown, kept in a file, and carried out later.

use std::collections::BTreeMap;

use everstep_format::id::{AttemptId, RepositoryId};
use everstep_format::name::{Ordinal, RunName, Step};
use everstep_repo::{Checkpoint, Repository};
use serde::{Deserialize, Serialize};

use crate::GcError;
use crate::judge::{Judged, Reason, Verdict};
use crate::policy::Policy;
use crate::report::Tally;

/// What a plan calls itself.
pub const SCHEMA: &str = "everstep.gc-plan/1";
/// Bytes of a plan: some 400 for each checkpoint.
pub const PLAN_BYTES: u64 = 1 << 30;

/// A plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// [`SCHEMA`].
    pub schema: String,
    /// The repository that it is for.
    pub repository: RepositoryId,
    /// When it was made, RFC 3339.
    pub made: String,
    /// The share of the attempts that it is for.
    pub shard: String,
    /// What it was made by; asked again before anything is done.
    pub policy: Policy,
    /// Every checkpoint, by run and ordinal.
    pub checkpoints: Vec<Planned>,
    /// Undecided attempts that would be aborted.
    pub abort: Vec<Abandoned>,
    /// Leases that would be ended.
    pub end_leases: Vec<AttemptId>,
    /// What goes that was garbage before.
    pub garbage: Tally,
    /// All that goes.
    pub frees: Tally,
    /// Objects of dead attempts that stay, because something uses them.
    pub shared: Tally,
    /// Signs of life and cards of sessions long gone that go as well; they are not in `frees`.
    #[serde(default)]
    pub records: Tally,
}

/// One checkpoint of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// Its run.
    pub run: RunName,
    /// Its ordinal.
    pub ordinal: Ordinal,
    /// Its attempt.
    pub attempt: AttemptId,
    /// Its training step.
    pub step: Step,
    /// When it was committed.
    pub created: String,
    /// Whether it stays.
    pub verdict: Verdict,
    /// Why.
    pub reasons: Vec<Reason>,
    /// The rollback that left it behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<Ordinal>,
    /// What its expiry frees, if those before it in the plan go as well. What others use is not counted.
    pub frees: Tally,
}

/// An undecided attempt that nothing was heard of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abandoned {
    /// Its run.
    pub run: RunName,
    /// Its ordinal.
    pub ordinal: Ordinal,
    /// Its attempt.
    pub attempt: AttemptId,
    /// For how long, in seconds.
    pub silent_seconds: u64,
}

impl Planned {
    pub(crate) fn of(checkpoint: &Checkpoint, judged: &Judged, frees: Tally) -> Self {
        let manifest = &checkpoint.manifest;
        Self {
            run: manifest.run.clone(),
            ordinal: manifest.ordinal,
            attempt: manifest.attempt,
            step: manifest.step,
            created: manifest.created.clone(),
            verdict: judged.verdict,
            reasons: judged.reasons.clone(),
            superseded_by: judged.superseded_by,
            frees,
        }
    }
}

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// [`GcError::Plan`] for anything else.
    pub fn from_json(bytes: &[u8]) -> Result<Self, GcError> {
        let plan: Self = serde_json::from_slice(bytes)
            .map_err(|error| GcError::Plan(format!("this is no plan of `ckpt-gc plan`: {error}")))?;
        if plan.schema == SCHEMA {
            return Ok(plan);
        }
        Err(GcError::Plan(format!("this plan is {:?}; this version carries out {SCHEMA:?}", plan.schema)))
    }

    /// The checkpoints that it expires.
    pub fn expired(&self) -> impl Iterator<Item = &Planned> {
        self.checkpoints.iter().filter(|planned| planned.verdict == Verdict::Expire)
    }

    pub(crate) fn check_is_for(&self, repository: &Repository) -> Result<(), GcError> {
        let id = repository.config().id;
        if self.repository == id {
            return Ok(());
        }
        Err(GcError::Plan(format!("this plan is for repository {}, and this is {id}", self.repository)))
    }

    /// The attempts that it expires, by where they are.
    pub(crate) fn to_expire(&self) -> BTreeMap<(&RunName, Ordinal), AttemptId> {
        self.expired().map(|planned| ((&planned.run, planned.ordinal), planned.attempt)).collect()
    }

    pub(crate) fn aborts(&self, attempt: AttemptId) -> bool {
        self.abort.iter().any(|abandoned| abandoned.attempt == attempt)
    }
}
