//! `swept/<run>/<ordinal>`: garbage collection found nothing left of a dead attempt, long after it died. Advisory.

use serde::{Deserialize, Serialize};

use crate::FormatError;
use crate::id::AttemptId;
use crate::name::{Ordinal, RunName};
use crate::sealed;

const MAGIC: &str = "everstep-swept";

/// Lets later passes skip an attempt. Its contents are for people; whoever skips looks at the decision or marker as well.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Swept {
    magic: String,
    /// Integer format version.
    pub version: u32,
    /// The run, as in the key.
    pub run: RunName,
    /// The ordinal, as in the key.
    pub ordinal: Ordinal,
    /// The attempt of which nothing was left.
    pub attempt: AttemptId,
    /// Wall-clock time, RFC 3339, informational.
    pub created: String,
    /// Fields of later versions.
    #[serde(flatten)]
    pub extra: serde_json::Map<String, serde_json::Value>,
}

impl Swept {
    /// A mark for `attempt`, at `run` and `ordinal`.
    pub fn new(run: RunName, ordinal: Ordinal, attempt: AttemptId, created: String) -> Self {
        Self {
            magic: MAGIC.to_owned(),
            version: crate::repository::FORMAT_VERSION,
            run,
            ordinal,
            attempt,
            created,
            extra: serde_json::Map::new(),
        }
    }

    /// The stored bytes.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        sealed::seal("swept mark", self)
    }

    /// Reads the mark stored under `run` and `ordinal`.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`], [`FormatError::Unsupported`].
    pub fn from_bytes(bytes: &[u8], run: &RunName, ordinal: Ordinal) -> Result<Self, FormatError> {
        let mark: Self = sealed::open_as("swept mark", MAGIC, bytes)?;
        sealed::expect("swept mark", "run", run, &mark.run)?;
        sealed::expect("swept mark", "ordinal", &ordinal, &mark.ordinal)?;
        Ok(mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_says_what_its_key_says_or_is_damaged() {
        let run = RunName::new("gpt").unwrap();
        let mark = Swept::new(run.clone(), Ordinal(3), AttemptId([7; 16]), "2026-01-01T00:00:00Z".to_owned());
        let bytes = mark.to_bytes().unwrap();
        assert_eq!(Swept::from_bytes(&bytes, &run, Ordinal(3)).unwrap(), mark);
        assert!(matches!(Swept::from_bytes(&bytes, &run, Ordinal(4)), Err(FormatError::Corrupt { .. })));
    }
}
