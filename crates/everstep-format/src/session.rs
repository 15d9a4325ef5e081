//! `sessions/<id>`: an advisory sign of life of one opening of a run. It may be lost or stale without harm.

use serde::{Deserialize, Serialize};

use crate::FormatError;
use crate::id::SessionId;
use crate::name::{Ordinal, RunName};
use crate::sealed;

const MAGIC: &str = "everstep-session";

/// A sign of life. When it was last written is told by the store's clock, never by its contents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionMark {
    magic: String,
    /// Integer format version.
    pub version: u32,
    /// The session.
    pub session: SessionId,
    /// The run it writes.
    pub run: RunName,
    /// Its fence.
    pub fence: Ordinal,
    /// Label of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Set once the session has ended by itself.
    pub closed: bool,
    /// Fields of later versions.
    #[serde(flatten)]
    pub extra: serde_json::Map<String, serde_json::Value>,
}

impl SessionMark {
    /// A sign of life of `session`.
    pub fn new(session: SessionId, run: RunName, fence: Ordinal, job: Option<String>) -> Self {
        Self {
            magic: MAGIC.to_owned(),
            version: crate::repository::FORMAT_VERSION,
            session,
            run,
            fence,
            job,
            closed: false,
            extra: serde_json::Map::new(),
        }
    }

    /// The stored bytes.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        sealed::seal("session mark", self)
    }

    /// Reads the mark of `session`.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`], [`FormatError::Unsupported`].
    pub fn from_bytes(bytes: &[u8], session: SessionId) -> Result<Self, FormatError> {
        let mark: Self = sealed::open_as("session mark", MAGIC, bytes)?;
        sealed::expect("session mark", "session", &session, &mark.session)?;
        Ok(mark)
    }
}
