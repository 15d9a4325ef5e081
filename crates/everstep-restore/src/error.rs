//! What can go wrong in a restore.

use std::fmt;

use everstep_format::dtype::Dtype;
use everstep_format::key::Key;
use everstep_format::name::Rank;
use everstep_repo::RepoError;

/// Names shown in full in a message; the error itself carries all of them.
const SHOWN: usize = 8;

/// A failed restore.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The checkpoint, its index or the store failed.
    #[error(transparent)]
    Repo(#[from] RepoError),
    /// A stored object is damaged or gone. What was already placed must not be used.
    #[error("{key} is damaged: {detail}; it hurts {}; run `ckpt-inspect verify --deep`", names(.tensors))]
    Corrupt {
        /// The object.
        key: Key,
        /// Which chunk at which offset, what was expected and what was found.
        detail: String,
        /// Every tensor and object of the checkpoint that needs it, sorted.
        tensors: Vec<String>,
    },
    /// What is asked for and what is stored do not fit. No target was touched.
    #[error("{}", mismatch(.missing, .unexpected, .differences, .hint))]
    SchemaMismatch {
        /// Asked for, not stored.
        missing: Vec<String>,
        /// Stored within the scope, not asked for.
        unexpected: Vec<String>,
        /// Asked for and stored, with another type or shape.
        differences: Vec<Difference>,
        /// What would make names match.
        hint: Option<String>,
    },
    /// There is no tensor or object of that name.
    #[error("{name:?} is not in this checkpoint{}", nearest(.similar))]
    NotFound {
        /// The name.
        name: String,
        /// Stored names that resemble it.
        similar: Vec<String>,
    },
    /// Stored by a newer version with an element type that this one does not know.
    #[error("tensor {name:?} has dtype {dtype:?}, which this version cannot load; upgrade Everstep")]
    UnknownDtype {
        /// The tensor.
        name: String,
        /// The stored type.
        dtype: String,
    },
    /// A request that cannot be met whatever is stored.
    #[error("{name:?}: {problem}")]
    Invalid {
        /// The tensor or object.
        name: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// State that belongs to ranks was asked for in another way than it was stored.
    #[error("{name:?} is kept per rank, {}; {}", ranks(.stored), wrong_rank(.asked))]
    World {
        /// The object.
        name: String,
        /// Ranks that have it, sorted.
        stored: Vec<Rank>,
        /// The rank asked for.
        asked: Option<Rank>,
    },
    /// State that belongs to ranks was saved by other ranks than those that want it.
    #[error(
        "{name:?} is kept per rank: saved for {} ({}), asked for by {asked}; say what becomes of it by asking for the \
         objects of single ranks",
        .stored.len(), ranks(.stored)
    )]
    WorldSize {
        /// The object.
        name: String,
        /// Ranks that have it, sorted.
        stored: Vec<Rank>,
        /// Ranks that want it.
        asked: u32,
    },
}

/// A tensor that is stored otherwise than asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Difference {
    /// Another element type.
    Dtype {
        /// The tensor.
        name: String,
        /// As stored.
        stored: Dtype,
        /// As asked for.
        wanted: Dtype,
    },
    /// Another global shape.
    Shape {
        /// The tensor.
        name: String,
        /// As stored.
        stored: Vec<u64>,
        /// As asked for.
        wanted: Vec<u64>,
    },
    /// Stored as an object, asked for as a tensor.
    Object {
        /// The object.
        name: String,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dtype { name, stored, wanted } => {
                write!(f, "{name:?} is stored as {stored}, wanted as {wanted}")
            }
            Self::Shape { name, stored, wanted } => {
                write!(f, "{name:?} is stored with shape {stored:?}, wanted with {wanted:?}")
            }
            Self::Object { name } => write!(f, "{name:?} is stored as an object, wanted as a tensor"),
        }
    }
}

fn list(shown: impl ExactSizeIterator<Item = String>) -> String {
    let rest = shown.len().saturating_sub(SHOWN);
    let mut text = shown.take(SHOWN).collect::<Vec<_>>().join(", ");
    if rest > 0 {
        text.push_str(&format!(" and {rest} more"));
    }
    text
}

fn names(names: &[String]) -> String {
    if names.is_empty() { "no tensor".to_owned() } else { list(names.iter().map(|name| format!("{name:?}"))) }
}

fn nearest(similar: &[String]) -> String {
    if similar.is_empty() { String::new() } else { format!("; it has {}", names(similar)) }
}

fn ranks(stored: &[Rank]) -> String {
    match stored {
        [] => "but no rank has it".to_owned(),
        stored => format!("stored for {}", list(stored.iter().map(|rank| format!("rank {rank}")))),
    }
}

fn wrong_rank(asked: &Option<Rank>) -> String {
    match asked {
        Some(rank) => format!("rank {rank} has none: the checkpoint was saved by another world size"),
        None => "say whose is wanted".to_owned(),
    }
}

fn mismatch(
    missing: &[String],
    unexpected: &[String],
    differences: &[Difference],
    hint: &Option<String>,
) -> String {
    let mut parts = Vec::new();
    if !differences.is_empty() {
        parts.push(list(differences.iter().map(Difference::to_string)));
    }
    if !missing.is_empty() {
        parts.push(format!("not stored: {}", names(missing)));
    }
    if !unexpected.is_empty() {
        parts.push(format!("stored but not asked for: {}", names(unexpected)));
    }
    let hint = hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
    format!("the state does not fit the checkpoint: {}{hint}", parts.join("; "))
}
