//! Every maximum of the format, with its arithmetic. A length read from outside is checked against one of these before
//! anything is allocated for it.

use std::ops::RangeInclusive;

/// Bytes of a run's name.
pub const RUN_NAME_BYTES: usize = 128;
/// Attempts of a run: one per millisecond for 31 million years; a listed ordinal above it is a stray.
pub const ORDINALS: u64 = 1_000_000_000_000_000_000;
/// Bytes of a tensor's or object's name (a 200-level module path is below 4 KiB; names never become keys).
pub const STATE_NAME_BYTES: usize = 16 * 1024;
/// Dimensions of a tensor (NumPy and PyTorch stop at 64).
pub const DIMENSIONS: usize = 64;
/// Bytes of a sealed JSON object. A decision with 4,096 owners and 64 KiB of user metadata stays below 1 MiB.
pub const JSON_BYTES: u64 = 4 << 20;
/// Bytes of user metadata in a manifest, as JSON.
pub const METADATA_BYTES: u64 = 1 << 20;
/// Parents of one attempt.
pub const PARENTS: usize = 16;
/// Raw bytes of one chunk.
pub const CHUNK_RAW_BYTES: u64 = 32 << 20;
/// Stored bytes of one chunk: raw, plus the planes header; an encoder never stores more than that.
pub const CHUNK_STORED_BYTES: u64 = CHUNK_RAW_BYTES + 4096;
/// Bytes of a pack: one PUT, never a multipart upload.
pub const PACK_BYTES: u64 = 64 << 20;
/// Chunks in a pack: 64 MiB of chunks of 512 B is 131,072.
pub const PACK_CHUNKS: u64 = 131_072;
/// A chunk of at least this many raw bytes is a pack of its own.
pub const OWN_PACK_BYTES: u64 = 4 << 20;
/// Default size at which a pack of small chunks is closed.
pub const PACK_TARGET_BYTES: u64 = 8 << 20;
/// Default elements of a grid block: 4 MiB of bf16, 8 MiB of its fp32 master.
pub const GRID_ELEMENTS: u64 = 2 << 20;
/// Raw bytes of a grid block, whatever the type.
pub const GRID_BYTES: u64 = 8 << 20;
/// A piece below this many bytes shares a chunk with its neighbours in name order.
pub const SHARED_PIECE_BYTES: u64 = 512;
/// A shared chunk is closed once it has this many bytes.
pub const SHARED_CHUNK_BYTES: u64 = 4096;
/// Payloads in a pack start at multiples of this.
pub const PACK_ALIGNMENT: u64 = 64;
/// Bytes of an index file: 4 million rows of 48 bytes are 190 MB; ten times that.
pub const INDEX_BYTES: u64 = 2 << 30;
/// Bytes of an index footer: 3,000 row groups of 20 columns of some 250 bytes.
pub const INDEX_FOOTER_BYTES: u64 = 16 << 20;
/// Rows of one row group of the index.
pub const INDEX_GROUP_ROWS: usize = 16 * 1024;
/// Row groups of an index.
pub const INDEX_GROUPS: usize = 16 * 1024;
/// Columns of an index, with the inner levels of lists and columns of later versions: this version has 25 elements.
pub const INDEX_COLUMNS: u64 = 256;
/// Bytes of one row group as stored.
pub const INDEX_GROUP_BYTES: u64 = 64 << 20;
/// Bytes before compression at which a writer closes a row group: 16 Ki rows with names of 300 bytes are 8 MiB.
pub const INDEX_GROUP_TARGET_BYTES: usize = 8 << 20;
/// Bytes of all pages of one row group before compression: four times what a writer aims at.
pub const INDEX_GROUP_RAW_BYTES: u64 = 32 << 20;
/// Bytes of the name of an element type.
pub const DTYPE_NAME_BYTES: usize = 64;
/// An index up to this size is read in one request.
pub const INDEX_SMALL_BYTES: u64 = 4 << 20;
/// Entries of a refs object: 64 MiB packs of a 1 PB checkpoint are 16 million.
pub const REFS_ENTRIES: u64 = 16 << 20;
/// Bytes of an encoded value (an object's canonical form).
pub const VALUE_BYTES: u64 = 256 << 20;
/// Values within an encoded value, keys included: some 32 bytes of memory each, so 128 MiB.
pub const VALUE_ITEMS: u64 = 4 << 20;
/// Nesting depth of an encoded value.
pub const VALUE_DEPTH: usize = 128;
/// Overrides of the block size in `everstep.json`.
pub const CHUNKING_OVERRIDES: usize = 256;
/// Bytes of a job's label.
pub const LABEL_BYTES: usize = 256;
/// Bytes of the reason that a writer or leader gives for its failure: an error with its cause, not a log.
pub const CAUSE_BYTES: usize = 4096;
/// Ranks that an outcome names: whoever must act on more looks at the job, not at ranks.
pub const OUTCOME_RANKS: usize = 4096;
/// Seconds within which a lease must show a sign of life, at least and at most: so long a dead reader can keep data.
pub const LEASE_TTL_SECONDS: RangeInclusive<u64> = 60..=30 * 24 * 3600;
/// Bytes of a glob pattern.
pub const PATTERN_BYTES: u64 = 4096;
/// Corners looked at while checking that a tensor's boxes cover it: 100,000 boxes of a grid take some 400,000.
pub const COVER_STEPS: u64 = 32 << 20;
