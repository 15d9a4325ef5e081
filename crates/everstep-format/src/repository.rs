//! `everstep.json`: what a repository is, written once when it is made.

use serde::{Deserialize, Serialize};

use crate::FormatError;
use crate::feature::Requires;
use crate::id::RepositoryId;
use crate::limits;
use crate::pattern::Pattern;
use crate::sealed;

/// The magic of `everstep.json`.
pub const MAGIC: &str = "everstep-repository";

/// The integer format version that this crate writes and reads. 0 was a draft, which nothing but its own programs reads.
pub const FORMAT_VERSION: u32 = 1;

/// The format version as people read it.
pub const FORMAT_VERSION_NAME: &str = "1";

/// What is found where a draft wrote the version, before the format was released.
pub(crate) const DRAFT: &str = "0, of a draft from before the format was released,";

/// `Ok` for a version that this crate reads.
///
/// # Errors
/// [`FormatError::Unsupported`].
pub fn check_version(version: u64) -> Result<(), FormatError> {
    if version == u64::from(FORMAT_VERSION) {
        return Ok(());
    }
    let found = if version == 0 { DRAFT.to_owned() } else { version.to_string() };
    Err(FormatError::Unsupported { what: "format version", found, supported: FORMAT_VERSION_NAME.to_owned() })
}

/// How tensors are cut into chunks; fixed for the life of a repository, or dedup between its checkpoints would end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunking {
    /// Elements of a grid block.
    pub block_elements: u64,
    /// Raw bytes of a grid block at most.
    pub block_bytes: u64,
    /// Overrides per name pattern (glob), first match wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<ChunkingOverride>,
}

/// Another block size for tensors whose name matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkingOverride {
    /// Glob over tensor names.
    pub pattern: String,
    /// Elements of a grid block.
    pub block_elements: u64,
}

impl Chunking {
    /// `Ok` when blocks have at least one element and fit a chunk, and every pattern can be read.
    ///
    /// # Errors
    /// [`FormatError::Invalid`], [`FormatError::TooLarge`].
    pub fn check(&self) -> Result<(), FormatError> {
        FormatError::within("bytes of a grid block", self.block_bytes, limits::CHUNK_RAW_BYTES)?;
        FormatError::within(
            "chunking overrides",
            self.overrides.len() as u64,
            limits::CHUNKING_OVERRIDES as u64,
        )?;
        let elements = self.overrides.iter().map(|rule| rule.block_elements);
        if self.block_bytes < 16 || elements.chain([self.block_elements]).any(|n| n == 0) {
            let found = format!("{} elements, {} bytes", self.block_elements, self.block_bytes);
            return Err(FormatError::invalid(
                "grid block",
                found,
                "at least 1 element, also in overrides, and 16 bytes",
            ));
        }
        self.overrides.iter().try_for_each(|rule| Pattern::new(&rule.pattern).map(drop))
    }
}

impl Default for Chunking {
    fn default() -> Self {
        Self { block_elements: limits::GRID_ELEMENTS, block_bytes: limits::GRID_BYTES, overrides: Vec::new() }
    }
}

/// What the probe found out about the store's put-if-absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriterMode {
    /// Contended creates had exactly one winner: any number of writers.
    ManyWriters,
    /// The user asked for it by name: one process at a time, for everything.
    SingleWriter,
}

/// The contents of `everstep.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RepositoryConfig {
    magic: String,
    /// Integer format version.
    pub version: u32,
    /// The version as people read it.
    pub version_name: String,
    /// Features required since creation.
    pub requires: Requires,
    /// The repository's id.
    pub id: RepositoryId,
    /// Block sizes.
    pub chunking: Chunking,
    /// What the store was found to be, or what the user asked for.
    pub writers: WriterMode,
    /// Wall-clock time of creation, RFC 3339, informational.
    pub created: String,
    /// Tool and version that made it.
    pub tool: String,
    /// Fields of later versions.
    #[serde(flatten)]
    pub extra: serde_json::Map<String, serde_json::Value>,
}

/// What is wrong with a configuration that cannot be parsed, when it has a mode that a later version may know.
fn unknown_writers(bytes: &[u8]) -> Option<FormatError> {
    #[derive(Deserialize)]
    struct Mode {
        writers: String,
    }
    let Mode { writers } = sealed::open_as("everstep.json", MAGIC, bytes).ok()?;
    let known: Result<WriterMode, serde_json::Error> = serde_json::from_value(writers.clone().into());
    let supported = "many-writers or single-writer".to_owned();
    known.is_err().then_some(FormatError::Unsupported { what: "mode of writers", found: writers, supported })
}

impl RepositoryConfig {
    /// A new repository's configuration.
    pub fn new(id: RepositoryId, chunking: Chunking, writers: WriterMode, created: String) -> Self {
        Self {
            magic: MAGIC.to_owned(),
            version: FORMAT_VERSION,
            version_name: FORMAT_VERSION_NAME.to_owned(),
            requires: Requires::default(),
            id,
            chunking,
            writers,
            created,
            tool: tool(),
            extra: serde_json::Map::new(),
        }
    }

    /// The stored bytes.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`]; [`FormatError::Invalid`] for a chunking that cannot work.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        self.chunking.check()?;
        sealed::seal("everstep.json", self)
    }

    /// Reads `everstep.json`.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`], [`FormatError::Unsupported`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        let config: Self = sealed::open_as("everstep.json", MAGIC, bytes)
            .map_err(|error| unknown_writers(bytes).unwrap_or(error))?;
        config.chunking.check()?;
        Ok(config)
    }
}

/// Name and version of this software, as written into manifests.
pub fn tool() -> String {
    format!("everstep {}", env!("CARGO_PKG_VERSION"))
}
