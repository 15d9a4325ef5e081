//! Retention policies: what to keep of which runs. Written as TOML, carried by plans as JSON.

use std::fmt;
use std::num::NonZeroU64;

use everstep_format::name::RunName;
use everstep_format::pattern::Pattern;
use serde::{Deserialize, Serialize};

use crate::GcError;
use crate::judge::Rule;

mod human;
mod many;

pub use human::{HumanSize, HumanTime};

/// Bytes of a policy file.
pub const POLICY_BYTES: usize = 1 << 20;

/// What is given up first when a run is too large, if the policy does not say.
const SACRIFICE: [Rule; 9] = [
    Rule::KeepSuperseded,
    Rule::KeepWithin,
    Rule::Hourly,
    Rule::Daily,
    Rule::Weekly,
    Rule::Monthly,
    Rule::KeepEvery,
    Rule::KeepLast,
    Rule::KeepBest,
];

/// A checked policy: tables, of which the first that matches a run counts for it. Other runs keep everything.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The tables, in order.
    #[serde(rename = "policy")]
    pub tables: Vec<Table>,
}

/// What to keep of the runs that it matches. A checkpoint stays when any rule keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Raw", into = "Raw")]
pub struct Table {
    rules: Raw,
}

/// The fields of a table as they are written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    /// Globs over names of runs.
    #[serde(deserialize_with = "many::one_or_many")]
    pub runs: Vec<Glob>,
    /// Everything.
    #[serde(default, skip_serializing_if = "is_false")]
    pub keep_all: bool,
    /// The newest so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_last: Option<NonZeroU64>,
    /// The first of each span of so many training steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_every: Option<NonZeroU64>,
    /// Those younger than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_within: Option<HumanTime>,
    /// The newest of each of the last so many hours (UTC) that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hourly: Option<NonZeroU64>,
    /// The same of days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daily: Option<NonZeroU64>,
    /// The same of ISO weeks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weekly: Option<NonZeroU64>,
    /// The same of months.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monthly: Option<NonZeroU64>,
    /// The best by a metric of the metadata.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "many::one_or_many")]
    pub keep_best: Vec<Best>,
    /// Those whose metadata has one of these keys, with anything but null and false.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "many::one_or_many")]
    pub tagged: Vec<String>,
    /// Of lines that a rollback left behind, those younger than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_superseded: Option<HumanTime>,
    /// However few the rules keep, the newest so many stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<NonZeroU64>,
    /// What the checkpoints of one run may take together, shared packs counted once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_total_size: Option<HumanSize>,
    /// Rules in the order in which they are given up to get below that. A rule that is not named is never given up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sacrifice: Vec<Rule>,
}

/// The best by one metric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Best {
    /// The key in the metadata.
    pub metric: String,
    /// Which end is good.
    pub mode: Mode,
    /// How many.
    #[serde(default = "one")]
    pub count: NonZeroU64,
}

/// Which end of a metric is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The smallest.
    Min,
    /// The largest.
    Max,
}

/// A pattern with its spelling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Glob {
    text: String,
    pattern: Pattern,
}

impl TryFrom<String> for Glob {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let pattern = Pattern::new(&text).map_err(|error| error.to_string())?;
        Ok(Self { text, pattern })
    }
}

impl From<Glob> for String {
    fn from(glob: Glob) -> Self {
        glob.text
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn one() -> NonZeroU64 {
    NonZeroU64::MIN
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

impl Policy {
    /// Reads a policy file.
    ///
    /// # Errors
    /// [`GcError::Policy`] with line, column and what is accepted there.
    pub fn from_toml(text: &str) -> Result<Self, GcError> {
        Self::read(text, |text| toml::from_str(text).map_err(|error| error.to_string()))
    }

    /// Reads a policy as plans and programs carry it: the same tables, in JSON.
    ///
    /// # Errors
    /// As [`Policy::from_toml`].
    pub fn from_json(text: &str) -> Result<Self, GcError> {
        Self::read(text, |text| serde_json::from_str(text).map_err(|error| error.to_string()))
    }

    fn read(text: &str, parse: impl Fn(&str) -> Result<Self, String>) -> Result<Self, GcError> {
        if text.len() > POLICY_BYTES {
            let found = text.len();
            return Err(GcError::Policy(format!(
                "a policy has at most {POLICY_BYTES} bytes, this has {found}"
            )));
        }
        let policy = parse(text).map_err(GcError::Policy)?;
        if policy.tables.is_empty() {
            return Err(GcError::Policy("a policy has at least one [[policy]] table".to_owned()));
        }
        Ok(policy)
    }

    /// The table that counts for `run`. The run of pins has none: pins are given up by name.
    pub fn table_of(&self, run: &RunName) -> Option<&Table> {
        if run.is_pins() {
            return None;
        }
        self.tables.iter().find(|table| table.runs.iter().any(|glob| glob.pattern.matches(run.as_str())))
    }
}

impl std::ops::Deref for Table {
    type Target = Raw;

    fn deref(&self) -> &Raw {
        &self.rules
    }
}

impl From<Table> for Raw {
    fn from(table: Table) -> Self {
        table.rules
    }
}

impl TryFrom<Raw> for Table {
    type Error = String;

    fn try_from(rules: Raw) -> Result<Self, String> {
        if rules.runs.is_empty() {
            return Err("`runs` names no run: write `runs = \"*\"` for all".to_owned());
        }
        if !rules.keeps_something() {
            return Err(
                "no rule keeps anything: add one, such as `keep_last = 2` or `keep_all = true`".to_owned()
            );
        }
        rules.check_sacrifice()?;
        Ok(Self { rules })
    }
}

impl Raw {
    fn keeps_something(&self) -> bool {
        let counts = [self.keep_last, self.keep_every, self.hourly, self.daily, self.weekly, self.monthly];
        self.keep_all
            || counts.iter().any(Option::is_some)
            || self.keep_within.is_some()
            || self.at_least.is_some()
            || !self.keep_best.is_empty()
            || !self.tagged.is_empty()
    }

    fn check_sacrifice(&self) -> Result<(), String> {
        if !self.sacrifice.is_empty() && self.max_total_size.is_none() {
            return Err("`sacrifice` says nothing without `max_total_size`".to_owned());
        }
        for (position, rule) in self.sacrifice.iter().enumerate() {
            if !SACRIFICE.contains(rule) && *rule != Rule::Tagged {
                return Err(format!("`sacrifice`: {} is never given up", rule.name()));
            }
            if self.sacrifice[..position].contains(rule) {
                return Err(format!("`sacrifice`: {} is there twice", rule.name()));
            }
        }
        Ok(())
    }

    /// The rules in the order in which they are given up.
    pub(crate) fn order_of_sacrifice(&self) -> &[Rule] {
        if self.sacrifice.is_empty() { &SACRIFICE } else { &self.sacrifice }
    }
}

#[cfg(test)]
mod tests;
