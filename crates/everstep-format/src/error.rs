//! What can be wrong with stored bytes or with a name that is to be stored.

use crate::repository;

/// A finding about bytes or names. The object's key is added by whoever fetched the bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// Bytes that do not say what they must.
    #[error("{what} is damaged at byte {offset}: expected {expected}, found {found}")]
    Corrupt {
        /// The structure that was read, e.g. "pack header".
        what: &'static str,
        /// Byte offset within that structure.
        offset: u64,
        /// What a sound structure has there.
        expected: String,
        /// What was there.
        found: String,
    },
    /// A declared or actual size beyond a named limit of [`crate::limits`].
    #[error("{what} is {found}, beyond the limit of {limit}")]
    TooLarge {
        /// What was measured.
        what: &'static str,
        /// The limit.
        limit: u64,
        /// The size found.
        found: u64,
    },
    /// Sound, but written by a newer Everstep than this one, or by a draft.
    #[error(
        "{what} {found} is not supported by this version (it understands {supported}); {}",
        remedy(found)
    )]
    Unsupported {
        /// What kind of thing: "format version", "read feature", "codec".
        what: &'static str,
        /// The value met.
        found: String,
        /// The values understood.
        supported: String,
    },
    /// A name, shape or other input that must not be stored.
    #[error("{what} {found:?} is not valid: {expected}")]
    Invalid {
        /// What kind of input.
        what: &'static str,
        /// The input, shortened where it is long.
        found: String,
        /// The rule it breaks.
        expected: String,
    },
}

fn remedy(found: &str) -> &'static str {
    if found == repository::DRAFT {
        "export it with the program that wrote it, and import that into a new repository"
    } else {
        "upgrade Everstep"
    }
}

impl FormatError {
    /// Whether this is something that a draft wrote, before the format was released: no newer Everstep reads it, either.
    pub fn is_of_a_draft(&self) -> bool {
        matches!(self, Self::Unsupported { found, .. } if found == repository::DRAFT)
    }

    /// Shorthand for [`FormatError::Corrupt`].
    pub fn corrupt(
        what: &'static str,
        offset: u64,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self::Corrupt { what, offset, expected: expected.into(), found: found.into() }
    }

    /// Shorthand for [`FormatError::Invalid`].
    pub fn invalid(what: &'static str, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::Invalid { what, found: found.into(), expected: expected.into() }
    }

    /// `Ok` when `found <= limit`, else [`FormatError::TooLarge`].
    pub fn within(what: &'static str, found: u64, limit: u64) -> Result<(), Self> {
        if found <= limit { Ok(()) } else { Err(Self::TooLarge { what, limit, found }) }
    }
}
