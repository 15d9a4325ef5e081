//! `runs/<run>/decisions/<ordinal>`: the write-once register of an attempt. COMMIT carries the manifest.

use serde::{Deserialize, Serialize};

use crate::FormatError;
use crate::feature::Requires;
use crate::id::{AttemptId, ContentHash, SessionId};
use crate::intent::{ParentRef, check_parents};
use crate::limits;
use crate::name::{Ordinal, PinName, RunName, Step};
use crate::row::{Kind, Location, Row};
use crate::sealed;

/// The magic of a decision.
pub const MAGIC: &str = "everstep-decision";

/// The index of a checkpoint: which bytes, and the hashes that make every part of it trustworthy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexRef {
    /// BLAKE3 of the whole file; also its name.
    pub blake3: ContentHash,
    /// Bytes of the file.
    pub len: u64,
    /// Rows.
    pub rows: u64,
    /// Where the footer starts: parquet metadata, its length and the closing magic, to the end of the file.
    pub footer_offset: u64,
    /// BLAKE3 of the bytes from `footer_offset` to the end. The footer carries the ranges and hashes of the row groups.
    pub footer_blake3: ContentHash,
}

/// The list of packs that the index uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefsRef {
    /// BLAKE3 of the whole file; also its name.
    pub blake3: ContentHash,
    /// Bytes of the file.
    pub len: u64,
    /// Packs listed.
    pub packs: u64,
}

/// Sums over a checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Named tensors.
    pub tensors: u64,
    /// Named objects (each rank's counted).
    pub objects: u64,
    /// Distinct chunks.
    pub chunks: u64,
    /// Of these, chunks stored by this attempt.
    pub chunks_new: u64,
    /// Raw bytes of all tensors and objects.
    pub raw_bytes: u64,
    /// Raw bytes of the distinct chunks that were referenced instead of stored.
    pub reused_raw_bytes: u64,
    /// Raw bytes of the distinct chunks stored by this attempt.
    pub new_raw_bytes: u64,
    /// Bytes those take in packs, as encoded.
    pub new_stored_bytes: u64,
}

/// What a COMMIT in the reserved run of pins says beside its copy of an index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// The name by which it is found.
    pub name: PinName,
    /// The checkpoint of training that was pinned. Unlike the parent it is never itself a pin.
    pub of: ParentRef,
}

impl Totals {
    /// The sums over `rows`, sorted, of the checkpoint of attempt `own`; `chunks` are the distinct ones that the rows refer
    /// to, each with its raw length and location. Bytes of an unknown type are not counted.
    pub fn of(rows: &[Row], chunks: impl Iterator<Item = (u64, Location)>, own: AttemptId) -> Self {
        let mut totals = Self::default();
        for state in rows.chunk_by(|a, b| a.name == b.name && a.rank == b.rank) {
            match state[0].kind {
                Kind::Tensor => totals.tensors += 1,
                Kind::Object => totals.objects += 1,
            }
            let bytes = state.iter().filter_map(Row::byte_len);
            totals.raw_bytes = bytes.fold(totals.raw_bytes, u64::saturating_add);
        }
        for (raw_len, location) in chunks {
            totals.chunks += 1;
            if location.pack.attempt == own {
                totals.chunks_new += 1;
                totals.new_raw_bytes += raw_len;
                totals.new_stored_bytes += location.stored_len;
            } else {
                totals.reused_raw_bytes += raw_len;
            }
        }
        totals
    }
}

/// What a COMMIT says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The run, as in the key.
    pub run: RunName,
    /// The ordinal, as in the key.
    pub ordinal: Ordinal,
    /// Training step.
    pub step: Step,
    /// The attempt.
    pub attempt: AttemptId,
    /// The session that wrote it.
    pub session: SessionId,
    /// Confirmed parents.
    pub parents: Vec<ParentRef>,
    /// Writers.
    pub world_size: u32,
    /// Where the index is.
    pub index: IndexRef,
    /// Where the refs are.
    pub refs: RefsRef,
    /// Attempts that own packs in refs, sorted.
    pub owners: Vec<AttemptId>,
    /// The checkpoint that this one is a copy of, when it is a deliberate rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback_to: Option<ParentRef>,
    /// Name and origin of a pin; in the reserved run of pins, and only there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<Pin>,
    /// Sums.
    pub totals: Totals,
    /// The user's metadata: metrics, git commit, anything JSON.
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// Wall-clock time of the commit, RFC 3339, informational.
    pub created: String,
    /// Tool and version that wrote it.
    pub tool: String,
    /// Where the time of the save went, for people: readers take whatever it is and rely on nothing in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<serde_json::Value>,
}

/// Why an attempt was aborted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abort {
    /// One of the words of the specification: "closed", "superseded", "failed", "abandoned".
    pub reason: String,
    /// More, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// The session that wrote the ABORT, when it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<SessionId>,
}

/// The outcome of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// A checkpoint.
    Commit(Box<Manifest>),
    /// None.
    Abort(Abort),
}

/// The decision of one attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The attempt that is decided.
    pub attempt: AttemptId,
    /// Features per operation.
    pub requires: Requires,
    /// COMMIT or ABORT.
    pub verdict: Verdict,
    /// Fields of later versions.
    pub extra: serde_json::Map<String, serde_json::Value>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Word {
    Commit,
    Abort,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    magic: String,
    version: u32,
    requires: Requires,
    decision: Word,
    run: RunName,
    ordinal: Ordinal,
    attempt: AttemptId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    manifest: Option<Box<Manifest>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    abort: Option<Abort>,
    #[serde(flatten)]
    extra: serde_json::Map<String, serde_json::Value>,
}

impl Decision {
    /// A COMMIT.
    pub fn commit(manifest: Manifest) -> Self {
        Self {
            attempt: manifest.attempt,
            requires: Requires::default(),
            verdict: Verdict::Commit(Box::new(manifest)),
            extra: serde_json::Map::new(),
        }
    }

    /// An ABORT of `attempt`.
    pub fn abort(attempt: AttemptId, abort: Abort) -> Self {
        Self {
            attempt,
            requires: Requires::default(),
            verdict: Verdict::Abort(abort),
            extra: serde_json::Map::new(),
        }
    }

    /// The stored bytes of the decision of `run`, `ordinal`.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`], e.g. for user metadata above [`limits::METADATA_BYTES`].
    pub fn to_bytes(&self, run: &RunName, ordinal: Ordinal) -> Result<Vec<u8>, FormatError> {
        let (decision, manifest, abort) = match &self.verdict {
            Verdict::Commit(manifest) => (Word::Commit, Some(manifest.clone()), None),
            Verdict::Abort(abort) => (Word::Abort, None, Some(abort.clone())),
        };
        if let Some(manifest) = &manifest {
            check_metadata(&manifest.metadata)?;
        }
        let stored = Stored {
            magic: MAGIC.to_owned(),
            version: crate::repository::FORMAT_VERSION,
            requires: self.requires.clone(),
            decision,
            run: run.clone(),
            ordinal,
            attempt: self.attempt,
            manifest,
            abort,
            extra: self.extra.clone(),
        };
        sealed::seal("decision", &stored)
    }

    /// Reads the decision stored under `run` and `ordinal`.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] also when it names another run, ordinal or attempt than its manifest;
    /// [`FormatError::Unsupported`] for another format version.
    pub fn from_bytes(bytes: &[u8], run: &RunName, ordinal: Ordinal) -> Result<Self, FormatError> {
        let stored: Stored = sealed::open_as("decision", MAGIC, bytes)?;
        sealed::expect("decision", "run", run, &stored.run)?;
        sealed::expect("decision", "ordinal", &ordinal, &stored.ordinal)?;
        let verdict = match (stored.decision, stored.manifest, stored.abort) {
            (Word::Commit, Some(manifest), None) => Verdict::Commit(manifest),
            (Word::Abort, None, Some(abort)) => Verdict::Abort(abort),
            _ => {
                let expected = "COMMIT with a manifest or ABORT with a reason";
                return Err(FormatError::corrupt("decision", 0, expected, "another combination of fields"));
            }
        };
        if let Verdict::Commit(manifest) = &verdict {
            sealed::expect("manifest", "run", run, &manifest.run)?;
            sealed::expect("manifest", "ordinal", &ordinal, &manifest.ordinal)?;
            sealed::expect("manifest", "attempt", &stored.attempt, &manifest.attempt)?;
            manifest.check_sizes()?;
            manifest.check_pin()?;
        }
        Ok(Self { attempt: stored.attempt, requires: stored.requires, verdict, extra: stored.extra })
    }
}

impl Manifest {
    /// Every checkpoint of the reserved run has a name and an origin, no other has.
    fn check_pin(&self) -> Result<(), FormatError> {
        let named = self.pin.as_ref().is_some_and(|pin| !pin.of.run.is_pins());
        if if self.run.is_pins() { named } else { self.pin.is_none() } {
            return Ok(());
        }
        let expected = "a pin with name and origin in the run of pins, and none elsewhere";
        Err(FormatError::corrupt("manifest", 0, expected, format!("{:?} in run {}", self.pin, self.run)))
    }

    fn check_sizes(&self) -> Result<(), FormatError> {
        FormatError::within("parents of an attempt", self.parents.len() as u64, limits::PARENTS as u64)?;
        check_parents("manifest", (&self.run, self.ordinal), &self.parents)?;
        FormatError::within("refs", self.refs.packs, limits::REFS_ENTRIES)?;
        if !self.owners.is_sorted_by(|a, b| a < b) {
            return Err(FormatError::corrupt("manifest", 0, "owners in order, each once", "another order"));
        }
        self.index.check_sizes("manifest")
    }
}

impl IndexRef {
    /// `Ok` when `what`, which was read from outside, asks for no more than an index may have.
    pub(crate) fn check_sizes(&self, what: &'static str) -> Result<(), FormatError> {
        FormatError::within("index", self.len, limits::INDEX_BYTES)?;
        let footer = self.len.checked_sub(self.footer_offset).ok_or_else(|| {
            let found = format!("{} of {}", self.footer_offset, self.len);
            FormatError::corrupt(what, 0, "a footer inside the index", found)
        })?;
        FormatError::within("index footer", footer, limits::INDEX_FOOTER_BYTES)
    }
}

/// `Ok` when user metadata is small enough for a manifest.
///
/// # Errors
/// [`FormatError::TooLarge`].
pub fn check_metadata(metadata: &serde_json::Map<String, serde_json::Value>) -> Result<(), FormatError> {
    let bytes = serde_json::to_vec(metadata)
        .map_err(|e| FormatError::invalid("metadata", e.to_string(), "a JSON object"))?;
    FormatError::within("user metadata", bytes.len() as u64, limits::METADATA_BYTES)
}
