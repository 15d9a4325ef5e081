//! Names and numbers that people and protocols use: runs, ordinals, steps, ranks.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{FormatError, limits};

/// The run that pins are attempts of.
const PINS: &str = "_pins";

/// A run's name: `[a-z0-9._-]`, starting with a letter or digit, at most 128 bytes.
///
/// Names that start with `_` are reserved for the protocol and cannot be made with [`RunName::new`]; the only one
/// there is so far is [`RunName::pins`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunName(String);

impl RunName {
    /// Checks and wraps a name that somebody chose.
    ///
    /// # Errors
    /// [`FormatError::Invalid`] with the rule that `name` breaks.
    pub fn new(name: &str) -> Result<Self, FormatError> {
        check_name("run name", name, "; put hierarchy into the repository's address")?;
        Ok(Self(name.to_owned()))
    }

    /// A name that was stored or listed, or that refers to what is there: also that of the reserved run.
    ///
    /// # Errors
    /// As [`RunName::new`].
    pub fn stored(name: &str) -> Result<Self, FormatError> {
        if name == PINS { Ok(Self::pins()) } else { Self::new(name) }
    }

    /// The reserved run of pins, `_pins`.
    pub fn pins() -> Self {
        Self(PINS.to_owned())
    }

    /// Whether this is the reserved run of pins, which is no run of training.
    pub fn is_pins(&self) -> bool {
        self.0 == PINS
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for RunName {
    type Err = FormatError;
    fn from_str(name: &str) -> Result<Self, FormatError> {
        Self::new(name)
    }
}

impl TryFrom<String> for RunName {
    type Error = FormatError;
    fn try_from(name: String) -> Result<Self, FormatError> {
        Self::stored(&name)
    }
}

impl From<RunName> for String {
    fn from(name: RunName) -> String {
        name.0
    }
}

/// A pin's name, by the rule of run names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PinName(String);

impl PinName {
    /// Checks and wraps a name.
    ///
    /// # Errors
    /// [`FormatError::Invalid`] with the rule that `name` breaks.
    pub fn new(name: &str) -> Result<Self, FormatError> {
        check_name("name of a pin", name, "")?;
        Ok(Self(name.to_owned()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PinName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for PinName {
    type Error = FormatError;
    fn try_from(name: String) -> Result<Self, FormatError> {
        Self::new(&name)
    }
}

impl From<PinName> for String {
    fn from(name: PinName) -> String {
        name.0
    }
}

/// The one rule for names that people give and keys or references carry.
fn check_name(what: &'static str, name: &str, advice: &str) -> Result<(), FormatError> {
    let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"._-".contains(&c);
    let first_ok = name.bytes().next().is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if first_ok && name.len() <= limits::RUN_NAME_BYTES && name.bytes().all(allowed) {
        return Ok(());
    }
    let shown: String = name.chars().take(limits::RUN_NAME_BYTES).collect();
    let rule = format!(
        "it must have 1 to {} characters of a-z 0-9 . _ - and start with a letter or digit{advice}",
        limits::RUN_NAME_BYTES
    );
    Err(FormatError::invalid(what, shown, rule))
}

/// The run-wide, dense, increasing number of an attempt. The first is 1. One that is read is never 0 nor above
/// [`Ordinal::LAST`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Ordinal(pub u64);

impl TryFrom<u64> for Ordinal {
    type Error = FormatError;
    fn try_from(number: u64) -> Result<Self, FormatError> {
        if (Self::FIRST..=Self::LAST).contains(&Self(number)) {
            return Ok(Self(number));
        }
        let rule = format!("it must be {} to {}", Self::FIRST, Self::LAST);
        Err(FormatError::invalid("ordinal", number.to_string(), rule))
    }
}

impl From<Ordinal> for u64 {
    fn from(ordinal: Ordinal) -> u64 {
        ordinal.0
    }
}

impl Ordinal {
    /// The first ordinal of a run.
    pub const FIRST: Self = Self(1);

    /// The last one that a key may have: far beyond any run, and never so high that counting on overflows.
    pub const LAST: Self = Self(limits::ORDINALS);

    /// The ordinal after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Ordinal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A training step, chosen by the trainer. Several checkpoints may carry the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Step(pub u64);

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The number of one writer within an attempt, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rank(pub u32);

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_names_keep_to_characters_that_every_store_and_file_system_has() {
        for good in ["a", "7", "llama-7b-pretrain", "v1.2_x", "a..b", "con", "a.", &"r".repeat(128)] {
            assert_eq!(RunName::new(good).unwrap().as_str(), good);
        }
        let long = "r".repeat(129);
        let huge = "\u{e9}".repeat(1 << 20);
        let bad = [
            "", ".", "..", "-a", "_pins", "A", "a/b", "a b", "a\0", "\u{e9}", "a@b", "pin:x", "a\n", &long,
            &huge,
        ];
        for bad in bad {
            let error = RunName::new(bad).unwrap_err();
            assert!(matches!(error, FormatError::Invalid { .. }), "{error:?}");
            assert!(error.to_string().len() < 2000, "a message stays readable");
        }
    }

    #[test]
    fn the_reserved_run_can_be_read_but_not_chosen() {
        assert_eq!(RunName::stored("_pins").unwrap(), RunName::pins());
        assert!(RunName::pins().is_pins() && !RunName::new("pins").unwrap().is_pins());
        assert_eq!(serde_json::from_str::<RunName>("\"_pins\"").unwrap(), RunName::pins());
        for bad in ["_pins", "_other", "_"] {
            assert!(RunName::new(bad).is_err() && bad.parse::<RunName>().is_err(), "{bad}");
            assert!(PinName::new(bad).is_err(), "{bad}");
        }
        assert!(RunName::stored("_other").is_err() && RunName::stored("_pins/x").is_err());
        assert_eq!(PinName::new("release-1.0").unwrap().as_str(), "release-1.0");
    }

    #[test]
    fn a_stored_run_name_is_checked_like_a_typed_one() {
        assert!(serde_json::from_str::<RunName>("\"../x\"").is_err());
        assert_eq!(serde_json::to_string(&RunName::new("a").unwrap()).unwrap(), "\"a\"");
    }

    #[test]
    fn an_ordinal_that_no_key_can_have_is_not_read_either() {
        for good in ["1", "1000000000000000000"] {
            assert_eq!(serde_json::from_str::<Ordinal>(good).unwrap().to_string(), good);
        }
        for bad in ["0", "1000000000000000001", "18446744073709551615", "18446744073709551616", "-1", "1.0"] {
            assert!(serde_json::from_str::<Ordinal>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ordinals_count_on_without_overflow() {
        assert_eq!(Ordinal::FIRST.next(), Ordinal(2));
        assert_eq!(Ordinal(u64::MAX).next(), Ordinal(u64::MAX));
    }
}
