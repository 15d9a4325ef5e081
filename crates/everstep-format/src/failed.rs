//! `index/<attempt>/failed-<rank>.json`: why a writer gave its share up. Advisory: it only spares the leader its deadline.

use serde::{Deserialize, Serialize};

use crate::FormatError;
use crate::card::{check_cause, cut};
use crate::id::AttemptId;
use crate::name::Rank;
use crate::sealed;

const MAGIC: &str = "everstep-failed";

/// A writer that gave up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failed {
    magic: String,
    /// Integer format version.
    pub version: u32,
    /// The attempt, as in the key.
    pub attempt: AttemptId,
    /// The writer, as in the key.
    pub rank: Rank,
    /// Why; for people.
    pub why: String,
    /// Fields of later versions.
    #[serde(flatten)]
    pub extra: serde_json::Map<String, serde_json::Value>,
}

impl Failed {
    /// `rank` gave up its share of `attempt`; `why` is cut to [`crate::limits::CAUSE_BYTES`].
    pub fn new(attempt: AttemptId, rank: Rank, why: &str) -> Self {
        Self {
            magic: MAGIC.to_owned(),
            version: crate::repository::FORMAT_VERSION,
            attempt,
            rank,
            why: cut(why),
            extra: serde_json::Map::new(),
        }
    }

    /// The stored bytes.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        sealed::seal("failure", self)
    }

    /// Reads the failure of `rank` in `attempt`.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] also when it is about another writer; [`FormatError::Unsupported`],
    /// [`FormatError::TooLarge`].
    pub fn from_bytes(bytes: &[u8], attempt: AttemptId, rank: Rank) -> Result<Self, FormatError> {
        let failed: Self = sealed::open_as("failure", MAGIC, bytes)?;
        sealed::expect("failure", "attempt", &attempt, &failed.attempt)?;
        sealed::expect("failure", "rank", &rank, &failed.rank)?;
        check_cause(&failed.why)?;
        Ok(failed)
    }
}
