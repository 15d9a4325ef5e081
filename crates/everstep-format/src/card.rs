//! `cards/<session>/<save>.card`: what every writer of an attempt must know before it may write. Advisory: whoever loses
//! it loses one save.

use serde::{Deserialize, Serialize};

use crate::FormatError;
use crate::decision::IndexRef;
use crate::id::{AttemptId, SessionId};
use crate::intent::ParentRef;
use crate::limits;
use crate::name::{Ordinal, RunName, Step};
use crate::sealed;

const MAGIC: &str = "everstep-card";

/// A confirmed parent and its index, so that its chunks can be looked up without reading its decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentIndex {
    /// The checkpoint.
    pub parent: ParentRef,
    /// Where its index is.
    pub index: IndexRef,
}

/// The attempt that a card calls to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CalledAttempt {
    /// Its id.
    pub id: AttemptId,
    /// Its ordinal.
    pub ordinal: Ordinal,
    /// Parents that passed W2; nothing else may be referenced.
    pub parents: Vec<ParentIndex>,
}

/// One save of a session by several writers: the attempt, or why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Card {
    magic: String,
    /// Integer format version.
    pub version: u32,
    /// The session, as in the key.
    pub session: SessionId,
    /// Counts the saves of the session, as in the key.
    pub save: u64,
    /// The run.
    pub run: RunName,
    /// Training step.
    pub step: Step,
    /// Writers, the leader among them: ranks 0 to this less one.
    pub world_size: u32,
    /// The attempt; absent when the save was called off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<CalledAttempt>,
    /// Why the save was called off before there was an attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off: Option<String>,
    /// Fields of later versions.
    #[serde(flatten)]
    pub extra: serde_json::Map<String, serde_json::Value>,
}

/// Which save of which session a card or an outcome is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SaveId {
    /// The session of the leader.
    pub session: SessionId,
    /// Counts its saves.
    pub save: u64,
}

/// What is saved, whether or not there is an attempt at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occasion {
    /// Which save.
    pub save: SaveId,
    /// The run.
    pub run: RunName,
    /// Training step.
    pub step: Step,
    /// Writers.
    pub world_size: u32,
}

impl Card {
    fn new(occasion: Occasion, attempt: Option<CalledAttempt>, off: Option<String>) -> Self {
        let Occasion { save: SaveId { session, save }, run, step, world_size } = occasion;
        Self {
            magic: MAGIC.to_owned(),
            version: crate::repository::FORMAT_VERSION,
            session,
            save,
            run,
            step,
            world_size,
            attempt,
            off,
            extra: serde_json::Map::new(),
        }
    }

    /// Calls the writers to `attempt`.
    pub fn calling(occasion: Occasion, attempt: CalledAttempt) -> Self {
        Self::new(occasion, Some(attempt), None)
    }

    /// Says that there will be no attempt; `why` is cut to [`limits::CAUSE_BYTES`].
    pub fn off(occasion: Occasion, why: &str) -> Self {
        Self::new(occasion, None, Some(cut(why)))
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
        self.check()?;
        sealed::seal("card", self)
    }

    /// Reads the card of `save`.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] also when it is about another save; [`FormatError::Unsupported`].
    pub fn from_bytes(bytes: &[u8], save: SaveId) -> Result<Self, FormatError> {
        let card: Self = sealed::open_as("card", MAGIC, bytes)?;
        sealed::expect("card", "session", &save.session, &card.session)?;
        sealed::expect("card", "save", &save.save, &card.save)?;
        card.check()?;
        Ok(card)
    }

    fn check(&self) -> Result<(), FormatError> {
        let parents = self.attempt.as_ref().map_or(&[][..], |attempt| &attempt.parents);
        FormatError::within("parents of an attempt", parents.len() as u64, limits::PARENTS as u64)?;
        parents.iter().try_for_each(|parent| parent.index.check_sizes("card"))?;
        check_cause(self.off.as_deref().unwrap_or_default())?;
        if self.world_size > 0 && self.attempt.is_some() != self.off.is_some() {
            return Ok(());
        }
        let found = format!("attempt {:?}, off {:?}, world size {}", self.attempt, self.off, self.world_size);
        Err(FormatError::corrupt("card", 0, "writers, and either an attempt or why there is none", found))
    }
}

/// `Ok` when a reason that was read is no longer than [`cut`] makes it.
pub(crate) fn check_cause(why: &str) -> Result<(), FormatError> {
    FormatError::within("bytes of a reason", why.len() as u64, limits::CAUSE_BYTES as u64)
}

/// `why`, cut to [`limits::CAUSE_BYTES`] between two characters.
pub(crate) fn cut(why: &str) -> String {
    why[..why.floor_char_boundary(limits::CAUSE_BYTES)].to_owned()
}
