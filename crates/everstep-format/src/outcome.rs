//! `cards/<session>/<save>.outcome`: what became of an attempt of several writers. Advisory: the decision is what counts.

use serde::{Deserialize, Serialize};

use crate::card::{SaveId, check_cause, cut};
use crate::id::{AttemptId, SessionId};
use crate::name::{Ordinal, Rank};
use crate::{FormatError, limits, sealed};

const MAGIC: &str = "everstep-outcome";

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// It is a checkpoint.
    Committed,
    /// It is none and never will be.
    Failed,
    /// The store gave the leader no answer that can be trusted.
    Unknown,
}

/// What the leader says became of an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    magic: String,
    /// Integer format version.
    pub version: u32,
    /// The session, as in the key.
    pub session: SessionId,
    /// Counts the saves of the session, as in the key.
    pub save: u64,
    /// The attempt.
    pub attempt: AttemptId,
    /// Its ordinal.
    pub ordinal: Ordinal,
    /// How it ended.
    pub ending: Ending,
    /// Why, unless it was committed; for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The ranks because of which it failed, ascending, at most [`limits::OUTCOME_RANKS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<Rank>,
    /// Fields of later versions.
    #[serde(flatten)]
    pub extra: serde_json::Map<String, serde_json::Value>,
}

impl Outcome {
    /// `attempt` of `save` was committed; [`Outcome::ended`] for everything else.
    pub fn committed(save: SaveId, attempt: AttemptId, ordinal: Ordinal) -> Self {
        Self {
            magic: MAGIC.to_owned(),
            version: crate::repository::FORMAT_VERSION,
            session: save.session,
            save: save.save,
            attempt,
            ordinal,
            ending: Ending::Committed,
            why: String::new(),
            ranks: Vec::new(),
            extra: serde_json::Map::new(),
        }
    }

    /// The same attempt with another ending; `why` is cut to [`limits::CAUSE_BYTES`], `ranks` to
    /// [`limits::OUTCOME_RANKS`].
    #[must_use]
    pub fn ended(self, ending: Ending, why: &str, ranks: &[Rank]) -> Self {
        let ranks = ranks.iter().take(limits::OUTCOME_RANKS).copied().collect();
        Self { ending, why: cut(why), ranks, ..self }
    }

    /// Which save it is about.
    pub fn id(&self) -> SaveId {
        SaveId { session: self.session, save: self.save }
    }

    /// The stored bytes.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        sealed::seal("outcome", self)
    }

    /// Reads the outcome of `save`.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] also when it is about another save; [`FormatError::Unsupported`],
    /// [`FormatError::TooLarge`].
    pub fn from_bytes(bytes: &[u8], save: SaveId) -> Result<Self, FormatError> {
        let outcome: Self = sealed::open_as("outcome", MAGIC, bytes)?;
        sealed::expect("outcome", "session", &save.session, &outcome.session)?;
        sealed::expect("outcome", "save", &save.save, &outcome.save)?;
        check_cause(&outcome.why)?;
        FormatError::within("ranks named", outcome.ranks.len() as u64, limits::OUTCOME_RANKS as u64)?;
        Ok(outcome)
    }
}
