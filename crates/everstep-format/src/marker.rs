//! `runs/<run>/expired/<ordinal>`: a write-once marker that beats COMMIT.

use serde::{Deserialize, Serialize};

use crate::FormatError;
use crate::name::{Ordinal, RunName};
use crate::sealed;

const MAGIC: &str = "everstep-expired";

/// Says that a checkpoint no longer counts. Its presence alone decides; its contents are for people.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Expired {
    magic: String,
    /// Integer format version.
    pub version: u32,
    /// The run, as in the key.
    pub run: RunName,
    /// The ordinal, as in the key.
    pub ordinal: Ordinal,
    /// Who expired it and why.
    pub reason: String,
    /// Wall-clock time, RFC 3339, informational.
    pub created: String,
    /// Fields of later versions.
    #[serde(flatten)]
    pub extra: serde_json::Map<String, serde_json::Value>,
}

impl Expired {
    /// A marker for `run`, `ordinal`.
    pub fn new(run: RunName, ordinal: Ordinal, reason: String, created: String) -> Self {
        Self {
            magic: MAGIC.to_owned(),
            version: crate::repository::FORMAT_VERSION,
            run,
            ordinal,
            reason,
            created,
            extra: serde_json::Map::new(),
        }
    }

    /// The stored bytes.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        sealed::seal("expired marker", self)
    }

    /// Reads the marker stored under `run` and `ordinal`.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`], [`FormatError::Unsupported`].
    pub fn from_bytes(bytes: &[u8], run: &RunName, ordinal: Ordinal) -> Result<Self, FormatError> {
        let marker: Self = sealed::open_as("expired marker", MAGIC, bytes)?;
        sealed::expect("expired marker", "run", run, &marker.run)?;
        sealed::expect("expired marker", "ordinal", &ordinal, &marker.ordinal)?;
        Ok(marker)
    }
}
