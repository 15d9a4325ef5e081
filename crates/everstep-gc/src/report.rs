//! What a pass did.

use std::collections::BTreeMap;

use everstep_format::id::AttemptId;
use everstep_format::key::Key;
use everstep_format::name::{Ordinal, RunName};
use everstep_store::StoreError;
use serde::{Deserialize, Serialize};

/// Failed deletes named one by one; the rest is counted.
const FAILURES_NAMED: usize = 20;

/// Objects and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Tally {
    /// One more object.
    pub fn count(&mut self, bytes: u64) {
        self.add(Self { objects: 1, bytes });
    }

    /// The sum.
    pub fn add(&mut self, other: Self) {
        self.objects = self.objects.saturating_add(other.objects);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Objects that should be gone and are not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failures {
    /// How many, and their bytes.
    pub tally: Tally,
    /// The first of them, with what the store said.
    pub named: Vec<(Key, String)>,
}

impl Failures {
    pub(crate) fn count(&mut self, key: Key, bytes: u64, error: &StoreError) {
        self.tally.count(bytes);
        if self.named.len() < FAILURES_NAMED {
            self.named.push((key, error.to_string()));
        }
    }

    fn add(&mut self, other: Self) {
        self.tally.add(other.tally);
        let room = FAILURES_NAMED.saturating_sub(self.named.len());
        self.named.extend(other.named.into_iter().take(room));
    }
}

/// A checkpoint that a plan expires and that stayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its run.
    pub run: RunName,
    /// Its ordinal.
    pub ordinal: Ordinal,
    /// Why.
    pub why: String,
}

/// What a pass did, or would do.
#[derive(Debug, Clone, Default)]
pub struct Collected {
    /// Checkpoints that stay, of all runs.
    pub kept: u64,
    /// Checkpoints that were given the expired marker.
    pub expired: Vec<(RunName, Ordinal)>,
    /// Checkpoints that a plan expires and that stayed.
    pub skipped: Vec<Skipped>,
    /// Undecided attempts that were aborted.
    pub aborted: Vec<(RunName, Ordinal)>,
    /// Leases that were ended because nothing was heard of their readers.
    pub leases_ended: u64,
    /// Ended leases that were removed.
    pub leases_removed: u64,
    /// Dead attempts that were looked at.
    pub attempts: u64,
    /// Dead attempts that were skipped: nothing was left of them long ago.
    pub attempts_skipped: u64,
    /// Packs deleted.
    pub packs: Tally,
    /// Indexes, refs and parts deleted.
    pub tables: Tally,
    /// Signs of life and cards of sessions long gone, deleted.
    pub records: Tally,
    /// Objects of dead attempts that stay, because something uses them.
    pub shared: Tally,
    /// Deletes that failed.
    pub failed: Failures,
    /// Attempts found empty for good.
    pub marked_swept: u64,
    /// Passes thrown away because others collected at the same time.
    pub restarts: u32,
    /// By attempt what goes; only in a plan.
    pub(crate) by_cause: BTreeMap<Option<AttemptId>, Tally>,
}

impl Collected {
    /// Everything that was deleted.
    pub fn freed(&self) -> Tally {
        let mut freed = self.packs;
        freed.add(self.tables);
        freed
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.packs.add(other.packs);
        self.tables.add(other.tables);
        self.records.add(other.records);
        self.shared.add(other.shared);
        self.failed.add(other.failed);
        self.marked_swept += other.marked_swept;
        for (cause, tally) in other.by_cause {
            self.by_cause.entry(cause).or_default().add(tally);
        }
    }
}
