//! Which checkpoints of a run stay, and why: a pure function of the policy, the checkpoints and the time.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::num::NonZeroU64;

use everstep_format::name::{Ordinal, PinName, RunName, Step};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::policy::{Best, HumanTime, Mode, Policy, Raw};

mod fit;
mod period;

pub use fit::{Filling, Fit};
use period::Period;

/// A checkpoint to be judged: committed, and not expired.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// Its ordinal.
    pub ordinal: Ordinal,
    /// Its training step.
    pub step: Step,
    /// When it was committed, RFC 3339, by the clock of its writer.
    pub created: &'a str,
    /// What its trainer said of it.
    pub metadata: &'a Map<String, Value>,
    /// Pins that name it.
    pub pins: &'a [PinName],
}

/// The checkpoints of one run.
#[derive(Debug, Clone)]
pub struct Line<'a> {
    /// The run.
    pub run: &'a RunName,
    /// Its checkpoints, ascending.
    pub checkpoints: Vec<Candidate<'a>>,
    /// Deliberate rollbacks: the ordinal of the copy and that of the checkpoint it is a copy of, expired ones as well.
    pub rollbacks: Vec<(Ordinal, Ordinal)>,
}

/// What becomes of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It stays.
    Keep,
    /// It is given the expired marker.
    Expire,
}

/// A reason to keep a checkpoint, or to let it go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// The newest of its run is never expired.
    Newest,
    /// A pin names it.
    Pinned,
    /// Something about it is not understood.
    NotUnderstood,
    /// No table of the policy is for its run.
    NoPolicy,
    /// `keep_all`
    KeepAll,
    /// `tagged`
    Tagged,
    /// `keep_best`
    KeepBest,
    /// `keep_last`
    KeepLast,
    /// `keep_every`
    KeepEvery,
    /// `keep_within`
    KeepWithin,
    /// `hourly`
    Hourly,
    /// `daily`
    Daily,
    /// `weekly`
    Weekly,
    /// `monthly`
    Monthly,
    /// `keep_superseded`
    KeepSuperseded,
    /// `at_least`
    AtLeast,
    /// Let go: no rule keeps it.
    NoRule,
    /// Let go: the run is larger than `max_total_size`.
    MaxTotalSize,
}

impl Rule {
    /// Its name in policies and documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Newest => "newest",
            Self::Pinned => "pinned",
            Self::NotUnderstood => "not_understood",
            Self::NoPolicy => "no_policy",
            Self::KeepAll => "keep_all",
            Self::Tagged => "tagged",
            Self::KeepBest => "keep_best",
            Self::KeepLast => "keep_last",
            Self::KeepEvery => "keep_every",
            Self::KeepWithin => "keep_within",
            Self::Hourly => "hourly",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
            Self::Monthly => "monthly",
            Self::KeepSuperseded => "keep_superseded",
            Self::AtLeast => "at_least",
            Self::NoRule => "no_rule",
            Self::MaxTotalSize => "max_total_size",
        }
    }
}

/// Why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The rule.
    pub rule: Rule,
    /// In words.
    pub why: String,
}

/// A checkpoint, judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// Its ordinal.
    pub ordinal: Ordinal,
    /// What becomes of it.
    pub verdict: Verdict,
    /// All reasons.
    pub reasons: Vec<Reason>,
    /// The rollback that left it behind.
    pub superseded_by: Option<Ordinal>,
}

/// Judges the checkpoints of one run, in their order. When the policy bounds the size of the run, the answer says what
/// must be measured before the verdicts are final.
pub fn judge(policy: &Policy, line: &Line<'_>, now: Timestamp) -> (Vec<Judged>, Option<Fit>) {
    let mut bench = Bench::new(line, now);
    bench.never_expired();
    let Some(table) = policy.table_of(line.run) else {
        let why = format!("no table of the policy is for run {}", line.run);
        (0..line.checkpoints.len()).for_each(|at| bench.keep(at, Rule::NoPolicy, why.clone()));
        return (bench.verdicts(), None);
    };
    bench.apply(table);
    let fit = table.max_total_size.map(|limit| Fit::of(&bench, table, limit.0));
    (bench.verdicts(), fit)
}

/// The run whose checkpoints are looked at.
struct Bench<'a> {
    line: &'a Line<'a>,
    now: Timestamp,
    created: Vec<Option<Timestamp>>,
    superseded_by: Vec<Option<Ordinal>>,
    reasons: Vec<Vec<Reason>>,
}

impl<'a> Bench<'a> {
    fn new(line: &'a Line<'a>, now: Timestamp) -> Self {
        let created = |candidate: &Candidate<'_>| candidate.created.parse::<Timestamp>().ok();
        let left_behind = |candidate: &Candidate<'_>| {
            let mut rollbacks = line.rollbacks.iter();
            let (copy, _) = rollbacks.find(|(copy, of)| (of.0 + 1..copy.0).contains(&candidate.ordinal.0))?;
            Some(*copy)
        };
        Self {
            line,
            now,
            // A clock that runs ahead makes nothing older.
            created: line.checkpoints.iter().map(|c| created(c).map(|time| time.min(now))).collect(),
            superseded_by: line.checkpoints.iter().map(left_behind).collect(),
            reasons: vec![Vec::new(); line.checkpoints.len()],
        }
    }

    fn keep(&mut self, at: usize, rule: Rule, why: impl Into<String>) {
        self.reasons[at].push(Reason { rule, why: why.into() });
    }

    fn candidates(&self) -> impl DoubleEndedIterator<Item = (usize, &'a Candidate<'a>)> + use<'a> {
        self.line.checkpoints.iter().enumerate()
    }

    /// Positions of the line that training goes on from, newest first.
    fn current(&self) -> Vec<usize> {
        let positions = (0..self.line.checkpoints.len()).rev();
        positions.filter(|at| self.superseded_by[*at].is_none()).collect()
    }

    fn never_expired(&mut self) {
        if let Some(newest) = self.line.checkpoints.len().checked_sub(1) {
            self.keep(newest, Rule::Newest, "the newest checkpoint of its run");
        }
        for (at, candidate) in self.candidates() {
            for pin in candidate.pins {
                self.keep(at, Rule::Pinned, format!("pin:{} names it", pin.as_str()));
            }
            if self.created[at].is_none() {
                let why = format!("its time {:?} cannot be read", candidate.created);
                self.keep(at, Rule::NotUnderstood, why);
            }
        }
    }

    fn apply(&mut self, table: &Raw) {
        if table.keep_all {
            (0..self.reasons.len()).for_each(|at| self.keep(at, Rule::KeepAll, "the policy keeps all"));
        }
        table.tagged.iter().for_each(|key| self.tagged(key));
        table.keep_best.iter().for_each(|best| self.best(best));
        if let Some(count) = table.keep_last {
            self.last(count);
        }
        if let Some(steps) = table.keep_every {
            self.every(steps);
        }
        if let Some(age) = table.keep_within {
            self.within(age);
        }
        for (period, count) in Period::of(table) {
            self.newest_of_each(period, count);
        }
        if let Some(age) = table.keep_superseded {
            self.superseded_within(age);
        }
        if let Some(count) = table.at_least {
            self.at_least(count);
        }
    }

    fn tagged(&mut self, key: &str) {
        for (at, candidate) in self.candidates() {
            let value = candidate.metadata.get(key);
            if value.is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false))) {
                self.keep(at, Rule::Tagged, format!("its metadata has {key:?}"));
            }
        }
    }

    /// Also of superseded lines: they may hold the best. What has no number there is never best; of equals the older is.
    fn best(&mut self, best: &Best) {
        let Best { metric, mode, count } = best;
        let value =
            |candidate: &Candidate<'_>| candidate.metadata.get(metric)?.as_f64().filter(|v| !v.is_nan());
        let mut ranked: Vec<(f64, usize)> =
            self.candidates().filter_map(|(at, candidate)| Some((value(candidate)?, at))).collect();
        ranked.sort_by(|(a, _), (b, _)| match mode {
            Mode::Min => a.total_cmp(b),
            Mode::Max => b.total_cmp(a),
        });
        let end = if *mode == Mode::Min { "lowest" } else { "highest" };
        for (place, (value, at)) in (1..=count.get()).zip(ranked) {
            self.keep(at, Rule::KeepBest, format!("{metric} = {value} is number {place} of the {end}"));
        }
    }

    fn last(&mut self, count: NonZeroU64) {
        for (place, at) in (1..=count.get()).zip(self.current()) {
            self.keep(at, Rule::KeepLast, format!("number {place} of the last {count}"));
        }
    }

    fn every(&mut self, steps: NonZeroU64) {
        let mut first: BTreeMap<u64, (Step, usize)> = BTreeMap::new();
        for at in self.current().into_iter().rev() {
            let step = self.line.checkpoints[at].step;
            let entry = first.entry(step.0 / steps).or_insert((step, at));
            if step < entry.0 {
                *entry = (step, at);
            }
        }
        for (span, (_, at)) in first {
            let from = span.saturating_mul(steps.get());
            self.keep(at, Rule::KeepEvery, format!("the first from step {from} on"));
        }
    }

    fn is_younger(&self, at: usize, age: HumanTime) -> bool {
        let age = SignedDuration::try_from(age.0).unwrap_or(SignedDuration::MAX);
        self.created[at].is_some_and(|created| self.now.duration_since(created) <= age)
    }

    fn within(&mut self, age: HumanTime) {
        for at in self.current() {
            if self.is_younger(at, age) {
                self.keep(at, Rule::KeepWithin, format!("younger than {age}"));
            }
        }
    }

    fn superseded_within(&mut self, age: HumanTime) {
        for at in 0..self.reasons.len() {
            if let Some(by) = self.superseded_by[at].filter(|_| self.is_younger(at, age)) {
                let why = format!("left behind by the rollback {by}, and younger than {age}");
                self.keep(at, Rule::KeepSuperseded, why);
            }
        }
    }

    fn newest_of_each(&mut self, period: Period, count: NonZeroU64) {
        let mut seen: Vec<String> = Vec::new();
        for at in self.current() {
            let Some(created) = self.created[at] else { continue };
            let name = period.name_of(created);
            if seen.last() == Some(&name) || seen.contains(&name) {
                continue;
            }
            if seen.len() as u64 == count.get() {
                break;
            }
            self.keep(at, period.rule(), format!("the newest of {name}"));
            seen.push(name);
        }
    }

    fn at_least(&mut self, count: NonZeroU64) {
        let kept = self.reasons.iter().filter(|reasons| !reasons.is_empty()).count() as u64;
        let mut missing = count.get().saturating_sub(kept);
        let mut let_go: Vec<usize> =
            (0..self.reasons.len()).filter(|at| self.reasons[*at].is_empty()).collect();
        // First of the line that goes on, then of those left behind; the newest first.
        let_go.sort_by_key(|at| (self.superseded_by[*at].is_some(), Reverse(*at)));
        for at in let_go {
            if missing == 0 {
                return;
            }
            self.keep(at, Rule::AtLeast, format!("never fewer than {count}"));
            missing -= 1;
        }
    }

    fn verdicts(self) -> Vec<Judged> {
        let judged = self.line.checkpoints.iter().zip(self.reasons).zip(self.superseded_by);
        judged
            .map(|((candidate, mut reasons), superseded_by)| {
                let verdict = if reasons.is_empty() { Verdict::Expire } else { Verdict::Keep };
                if reasons.is_empty() {
                    reasons.push(no_rule(superseded_by));
                }
                Judged { ordinal: candidate.ordinal, verdict, reasons, superseded_by }
            })
            .collect()
    }
}

fn no_rule(superseded_by: Option<Ordinal>) -> Reason {
    let why = match superseded_by {
        Some(by) => format!("left behind by the rollback {by}, and no rule keeps it"),
        None => "no rule keeps it".to_owned(),
    };
    Reason { rule: Rule::NoRule, why }
}

#[cfg(test)]
mod tests;
