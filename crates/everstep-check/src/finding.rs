//! Building findings.

use std::fmt;

use everstep_format::FormatError;
use everstep_format::decision::Manifest;

use crate::reading::sides;
use crate::report::{Finding, Hurt, Severity};

const LOST: &str = "restore another checkpoint, or put the object back from a copy of the store";

impl Finding {
    fn new(severity: Severity, object: impl fmt::Display, what: impl Into<String>) -> Self {
        Self {
            severity,
            object: object.to_string(),
            tensors: Vec::new(),
            hurts: Vec::new(),
            what: what.into(),
            expected: String::new(),
            found: String::new(),
            advice: String::new(),
        }
    }

    pub(crate) fn damage(object: impl fmt::Display, what: impl Into<String>) -> Self {
        Self::new(Severity::Damage, object, what).advise(LOST)
    }

    pub(crate) fn warning(object: impl fmt::Display, what: impl Into<String>) -> Self {
        Self::new(Severity::Warning, object, what)
    }

    pub(crate) fn note(object: impl fmt::Display, what: impl Into<String>) -> Self {
        Self::new(Severity::Note, object, what)
    }

    /// Of bytes that could not be read as what they must be: damage, unless a newer version wrote them.
    pub(crate) fn unreadable(object: impl fmt::Display, error: &FormatError) -> Self {
        let (expected, found) = sides(error);
        let finding = match error {
            _ if error.is_of_a_draft() => Self::new(
                Severity::Unsupported,
                object,
                "it was written by a draft, before the format was released, and cannot be judged",
            )
            .advise("check with the program that wrote it"),
            FormatError::Unsupported { .. } => Self::new(
                Severity::Unsupported,
                object,
                "it was written by a newer version and cannot be judged",
            )
            .advise("check with a newer Everstep"),
            _ => Self::damage(object, "it is damaged"),
        };
        finding.expect(expected, found)
    }

    pub(crate) fn expect(mut self, expected: impl Into<String>, found: impl Into<String>) -> Self {
        (self.expected, self.found) = (expected.into(), found.into());
        self
    }

    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self
    }

    pub(crate) fn hurting(mut self, hurts: impl IntoIterator<Item = Hurt>) -> Self {
        self.hurts.extend(hurts);
        self
    }
}

impl Hurt {
    pub(crate) fn of(manifest: &Manifest) -> Self {
        Self { run: manifest.run.clone(), ordinal: manifest.ordinal, step: Some(manifest.step) }
    }
}
