//! What a check found.

use std::fmt;

use everstep_format::name::{Ordinal, RunName, Step};

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing: garbage, strays. Nothing is lost and nothing need be done.
    Note,
    /// Something is not as it should be, and no checkpoint is hurt.
    Warning,
    /// Something was written by a newer version and could not be judged.
    Unsupported,
    /// Bytes of the repository are wrong or gone.
    Damage,
}

impl Severity {
    /// A stable name for scripts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Unsupported => "unsupported",
            Self::Damage => "damage",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A checkpoint that a finding hurts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hurt {
    /// Its run.
    pub run: RunName,
    /// Its ordinal.
    pub ordinal: Ordinal,
    /// Its step; unknown when its decision cannot be read.
    pub step: Option<Step>,
}

impl fmt::Display for Hurt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@ordinal={}", self.run, self.ordinal)?;
        self.step.map_or(Ok(()), |step| write!(f, " (step {step})"))
    }
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// The object, or the prefix, as the store spells it.
    pub object: String,
    /// Tensors and objects whose bytes it holds, sorted, each once; empty when none are known.
    pub tensors: Vec<String>,
    /// Checkpoints that cannot be restored whole because of it, sorted.
    pub hurts: Vec<Hurt>,
    /// What is wrong, in one sentence without a full stop.
    pub what: String,
    /// What a sound repository has there.
    pub expected: String,
    /// What was there.
    pub found: String,
    /// What to do.
    pub advice: String,
}

/// How much was looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Objects met in listings.
    pub objects: u64,
    /// Attempts of all runs.
    pub attempts: u64,
    /// Unexpired checkpoints judged.
    pub checkpoints: u64,
    /// Packs that these use.
    pub packs: u64,
    /// Distinct chunks that these use.
    pub chunks: u64,
    /// Bytes of those packs.
    pub pack_bytes: u64,
    /// Bytes read and hashed.
    pub bytes_read: u64,
}

/// The outcome of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// What was found, worst first, then by object.
    pub findings: Vec<Finding>,
    /// How much was looked at.
    pub counts: Counts,
}

/// What a check comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Whatever was looked at is as it must be.
    Sound,
    /// No damage was found, but something could not be judged: a newer version wrote it.
    Unsupported,
    /// Bytes are wrong or gone.
    Damaged,
}

impl Verdict {
    /// A stable name for scripts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sound => "sound",
            Self::Unsupported => "unsupported",
            Self::Damaged => "damaged",
        }
    }
}

impl Report {
    /// The verdict, by the worst finding.
    pub fn verdict(&self) -> Verdict {
        match self.findings.iter().map(|finding| finding.severity).max() {
            Some(Severity::Damage) => Verdict::Damaged,
            Some(Severity::Unsupported) => Verdict::Unsupported,
            _ => Verdict::Sound,
        }
    }

    /// Whether everything could be judged and no damage was found.
    pub fn is_sound(&self) -> bool {
        self.verdict() == Verdict::Sound
    }

    /// The findings that are damage.
    pub fn damage(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.severity == Severity::Damage)
    }
}
