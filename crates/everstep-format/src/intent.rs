//! `runs/<run>/intents/<ordinal>`: the claim of one ordinal by one attempt.

use serde::{Deserialize, Serialize};

use crate::FormatError;
use crate::feature::Requires;
use crate::id::{AttemptId, SessionId};
use crate::limits;
use crate::name::{Ordinal, RunName, Step};
use crate::sealed;

/// The magic of an intent.
pub const MAGIC: &str = "everstep-intent";

/// A committed checkpoint named as parent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ParentRef {
    /// Its run.
    pub run: RunName,
    /// Its ordinal in that run.
    pub ordinal: Ordinal,
    /// Its attempt.
    pub attempt: AttemptId,
}

/// What an intent is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IntentKind {
    /// Saving a checkpoint.
    Save,
    /// Ending every older session of the run; its decision is ABORT by definition.
    Fence,
}

/// A claim of one ordinal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Intent {
    magic: String,
    /// Integer format version.
    pub version: u32,
    /// Features per operation.
    pub requires: Requires,
    /// The run, as in the key.
    pub run: RunName,
    /// The ordinal, as in the key.
    pub ordinal: Ordinal,
    /// The attempt that claims it.
    pub attempt: AttemptId,
    /// The session that the attempt belongs to.
    pub session: SessionId,
    /// SAVE or FENCE.
    pub kind: IntentKind,
    /// Parents named, each read as COMMIT before this was written.
    pub parents: Vec<ParentRef>,
    /// Training step; absent for a fence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
    /// Writers of the attempt; 0 for a fence.
    pub world_size: u32,
    /// Label of the job that opened the session. Advisory: it never decides safety.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Fields of later versions.
    #[serde(flatten)]
    pub extra: serde_json::Map<String, serde_json::Value>,
}

/// `Ok` when an attempt that has this place may have these parents: each was committed before the place was claimed. Only
/// what is stored can be asked: a session that was overtaken asks for a place below a parent, and does not get it.
pub(crate) fn check_parents(
    what: &'static str,
    (run, ordinal): (&RunName, Ordinal),
    parents: &[ParentRef],
) -> Result<(), FormatError> {
    let is_later = |parent: &&ParentRef| parent.run == *run && parent.ordinal >= ordinal;
    match parents.iter().find(is_later) {
        None => Ok(()),
        Some(later) => {
            let expected = format!("parents before ordinal {ordinal} of run {run}");
            Err(FormatError::corrupt(what, 0, expected, format!("ordinal {} of it", later.ordinal)))
        }
    }
}

/// What is wrong with an intent that cannot be parsed, when it is of a kind that a later version may know.
fn unknown_kind(bytes: &[u8]) -> Option<FormatError> {
    #[derive(Deserialize)]
    struct Kind {
        kind: String,
    }
    let Kind { kind } = sealed::open_as("intent", MAGIC, bytes).ok()?;
    let known: Result<IntentKind, serde_json::Error> = serde_json::from_value(kind.clone().into());
    let supported = "save or fence".to_owned();
    known.is_err().then_some(FormatError::Unsupported { what: "kind of intent", found: kind, supported })
}

impl Intent {
    fn base(
        run: RunName,
        ordinal: Ordinal,
        attempt: AttemptId,
        session: SessionId,
        kind: IntentKind,
    ) -> Self {
        Self {
            magic: MAGIC.to_owned(),
            version: crate::repository::FORMAT_VERSION,
            requires: Requires::default(),
            run,
            ordinal,
            attempt,
            session,
            kind,
            parents: Vec::new(),
            step: None,
            world_size: 0,
            job: None,
            extra: serde_json::Map::new(),
        }
    }

    /// A fence of `session`.
    pub fn fence(run: RunName, ordinal: Ordinal, attempt: AttemptId, session: SessionId) -> Self {
        Self::base(run, ordinal, attempt, session, IntentKind::Fence)
    }

    /// A save by `session`; parents, step, world size and label are set by the caller.
    pub fn save(run: RunName, ordinal: Ordinal, attempt: AttemptId, session: SessionId) -> Self {
        Self::base(run, ordinal, attempt, session, IntentKind::Save)
    }

    /// The stored bytes.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        self.check()?;
        sealed::seal("intent", self)
    }

    /// Reads the intent stored under `run` and `ordinal`.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] also when it names another run or ordinal; [`FormatError::Unsupported`].
    pub fn from_bytes(bytes: &[u8], run: &RunName, ordinal: Ordinal) -> Result<Self, FormatError> {
        let intent: Self =
            sealed::open_as("intent", MAGIC, bytes).map_err(|error| unknown_kind(bytes).unwrap_or(error))?;
        sealed::expect("intent", "run", run, &intent.run)?;
        sealed::expect("intent", "ordinal", &ordinal, &intent.ordinal)?;
        intent.check()?;
        check_parents("intent", (run, ordinal), &intent.parents)?;
        Ok(intent)
    }

    /// Sizes, and that a save has a step and a fence has nothing to save.
    fn check(&self) -> Result<(), FormatError> {
        FormatError::within("parents of an attempt", self.parents.len() as u64, limits::PARENTS as u64)?;
        let label = self.job.as_ref().map_or(0, String::len);
        FormatError::within("bytes of a job's label", label as u64, limits::LABEL_BYTES as u64)?;
        let sound = match self.kind {
            IntentKind::Save => self.step.is_some() && self.world_size > 0,
            IntentKind::Fence => self.step.is_none() && self.world_size == 0 && self.parents.is_empty(),
        };
        if sound {
            return Ok(());
        }
        let found = format!("{:?}, step {:?}, world size {}", self.kind, self.step, self.world_size);
        Err(FormatError::corrupt("intent", 0, "a save with step and writers, or a fence without", found))
    }
}
