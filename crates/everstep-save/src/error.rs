//! What can go wrong with a save, and what is left of it.

use std::time::Duration;

use everstep_format::FormatError;
use everstep_format::bounds::Bounds;
use everstep_format::id::SessionId;
use everstep_format::key::Key;
use everstep_format::name::{Ordinal, Rank, RunName, Step};
use everstep_repo::RepoError;
use everstep_store::StoreError;

use crate::merge::list;

/// A failed save. Except for [`SaveError::Unknown`], nothing was committed and the attempt was given up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SaveError {
    /// The protocol, or reading a parent's index, failed.
    #[error(transparent)]
    Repo(RepoError),
    /// Somebody else took the run over, or aborted the attempt.
    #[error(transparent)]
    Conflict(RepoError),
    /// The store gave no answer to the commit that can be trusted. The checkpoint may exist; nothing was deleted.
    #[error(
        "it is unknown whether checkpoint {ordinal} of run {run} was committed ({cause}); once the store answers again, \
         `ckpt-inspect resolve {run}@ordinal={ordinal}` tells"
    )]
    Unknown {
        /// Run.
        run: RunName,
        /// Ordinal.
        ordinal: Ordinal,
        /// The last answer, or what the leader said.
        cause: String,
    },
    /// Ranks failed, or did not hand in their shares in time.
    #[error("{}", ranks_failed(.failed, .missing, *.waited))]
    RanksFailed {
        /// Ranks that gave up, with their reasons.
        failed: Vec<(Rank, String)>,
        /// Ranks that gave no sign, ascending.
        missing: Vec<Rank>,
        /// How long they were given.
        waited: Duration,
    },
    /// What a rank handed in is damaged or gone.
    #[error("the part of rank {rank} cannot be used: {source}")]
    Part {
        /// The rank.
        rank: Rank,
        /// What is wrong with it.
        source: RepoError,
    },
    /// The leader gave the save up.
    #[error("step {step} of run {run} was not saved: {why}")]
    NotCommitted {
        /// Run.
        run: RunName,
        /// Training step.
        step: Step,
        /// What the leader said.
        why: String,
        /// Ranks because of which it failed, as far as ranks are to blame.
        ranks: Vec<Rank>,
    },
    /// The leader gave no sign.
    #[error(
        "rank 0, which leads the saves of session {session}, gave no {what} for save {save} within {:.1} s{trouble}; does \
         it still run, and does it save in a group of this size?",
        .waited.as_secs_f64()
    )]
    LeaderSilent {
        /// The leader's session.
        session: SessionId,
        /// Counts its saves.
        save: u64,
        /// "call" or "outcome".
        what: &'static str,
        /// How long it was given.
        waited: Duration,
        /// What the last look ran into.
        trouble: String,
    },
    /// This rank and the leader are not at the same save.
    #[error("rank {rank} does not fit the save that its leader calls to: {detail}")]
    Misfit {
        /// This rank.
        rank: Rank,
        /// What the leader says and what this rank says.
        detail: String,
    },
    /// A pack, the index or the refs could not be stored.
    #[error("{key}, which holds {holds}, could not be stored: {cause}")]
    Upload {
        /// The object.
        key: Key,
        /// Whose bytes it holds, for people.
        holds: String,
        /// Why.
        cause: Box<StoreError>,
    },
    /// Packs were handed to the store and never answered for: the runtime dropped the tasks.
    #[error(
        "{lost} of {started} uploads ended without an answer; was the runtime shut down during the save?"
    )]
    UploadsLost {
        /// Packs without an answer.
        lost: u64,
        /// Packs handed over.
        started: u64,
    },
    /// The bytes of a tensor could not be read.
    #[error("the bytes of {tensor:?} at {offset} could not be read: {source}")]
    Source {
        /// The tensor.
        tensor: String,
        /// Offset in its source.
        offset: u64,
        /// Why.
        source: std::io::Error,
    },
    /// A tensor or object that cannot be saved as it is described.
    #[error("{name:?} cannot be saved: {detail}")]
    Invalid {
        /// The name, shortened where it is long.
        name: String,
        /// The rule it breaks, expected and found.
        detail: String,
    },
    /// The shards of a tensor leave gaps or overlap.
    #[error("the shards of {tensor:?} do not make up the tensor: {detail}")]
    Coverage {
        /// The tensor.
        tensor: String,
        /// The gap, or the two boxes.
        detail: String,
    },
    /// Two replicas of one box differ.
    #[error(
        "two replicas of {tensor:?} differ in {bounds}: all ranks that hold a box must hold the same bytes"
    )]
    Replicas {
        /// The tensor.
        tensor: String,
        /// The part of the box in which they differ.
        bounds: Bounds,
    },
    /// Two ranks hold replicas of one box that differ.
    #[error(
        "ranks {first} and {second} hold replicas of {tensor:?} that differ in {bounds}: all ranks that hold a box must \
         hold the same bytes"
    )]
    RankReplicas {
        /// The tensor or object.
        tensor: String,
        /// The piece in which they differ.
        bounds: Bounds,
        /// One rank.
        first: Rank,
        /// The other.
        second: Rank,
    },
    /// Two ranks hand in objects of one name for the whole job that differ.
    #[error(
        "ranks {first} and {second} hand in {name:?} for the whole job, and what they have differs: let one rank hand it \
         in, or each its own"
    )]
    RankObjects {
        /// The object.
        name: String,
        /// One rank.
        first: Rank,
        /// The other.
        second: Rank,
    },
    /// Ranks hold a box that none of them stored.
    #[error(
        "{bounds} of {tensor:?} is held by the ranks {ranks}, but the rank that should have stored it holds no such \
         box: all ranks must name the same set of replicas"
    )]
    Unstored {
        /// The tensor or object.
        tensor: String,
        /// The piece.
        bounds: Bounds,
        /// Ranks that hold it, for people.
        ranks: String,
    },
    /// Metadata, index or refs beyond what the format can hold.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// Reasons that a message gives in full; the error itself has all of them.
const REASONS: usize = 4;

fn ranks_failed(failed: &[(Rank, String)], missing: &[Rank], waited: Duration) -> String {
    let mut parts: Vec<String> =
        failed.iter().take(REASONS).map(|(rank, why)| format!("rank {rank} failed: {why}")).collect();
    if failed.len() > REASONS {
        let ranks: Vec<Rank> = failed.iter().skip(REASONS).map(|(rank, _)| *rank).collect();
        parts.push(format!("so did {}", named(&ranks)));
    }
    if !missing.is_empty() {
        let waited = waited.as_secs_f64();
        parts.push(format!("{} handed nothing in within {waited:.1} s of the call", named(missing)));
    }
    parts.join("; ")
}

fn named(ranks: &[Rank]) -> String {
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, list(ranks))
}

impl From<RepoError> for SaveError {
    fn from(error: RepoError) -> Self {
        match error {
            RepoError::Conflict { .. } => Self::Conflict(error),
            other => Self::Repo(other),
        }
    }
}
