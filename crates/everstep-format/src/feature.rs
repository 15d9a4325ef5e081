//! Named features per operation: what one must understand to read, write on top of, or collect around an attempt.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::FormatError;

/// The operations that features are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Restoring or inspecting.
    Read,
    /// Saving on top (taking it as a parent, walking over it).
    Write,
    /// Collecting garbage in its neighbourhood.
    Gc,
}

/// The features an attempt requires, per operation. Empty in format 1 unless a feature is used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requires {
    /// Needed to read.
    #[serde(default)]
    pub read: BTreeSet<String>,
    /// Needed to write.
    #[serde(default)]
    pub write: BTreeSet<String>,
    /// Needed to collect garbage.
    #[serde(default)]
    pub gc: BTreeSet<String>,
}

/// The features that this version understands, for every operation.
pub const UNDERSTOOD: &[&str] = &[];

impl Requires {
    /// `Ok` if this version understands all that `operation` asks for.
    ///
    /// # Errors
    /// [`FormatError::Unsupported`] naming the first feature that is not understood.
    pub fn check(&self, operation: Operation) -> Result<(), FormatError> {
        let (what, wanted) = match operation {
            Operation::Read => ("read feature", &self.read),
            Operation::Write => ("write feature", &self.write),
            Operation::Gc => ("gc feature", &self.gc),
        };
        match wanted.iter().find(|feature| !UNDERSTOOD.contains(&feature.as_str())) {
            None => Ok(()),
            Some(feature) => Err(FormatError::Unsupported {
                what,
                found: feature.clone(),
                supported: if UNDERSTOOD.is_empty() { "none yet".to_owned() } else { UNDERSTOOD.join(", ") },
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_stops_only_the_operation_that_needs_it() {
        let unknown = BTreeSet::from(["delta-bases".to_owned()]);
        let requires = Requires { gc: unknown, ..Requires::default() };
        assert!(requires.check(Operation::Read).is_ok());
        assert!(requires.check(Operation::Write).is_ok());
        let error = requires.check(Operation::Gc).unwrap_err();
        assert!(matches!(&error, FormatError::Unsupported { what: "gc feature", .. }));
        assert!(error.to_string().contains("delta-bases"), "{error}");
    }
}
