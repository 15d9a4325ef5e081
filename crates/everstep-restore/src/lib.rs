//! Restore: select, plan, fetch, decode and verify, place.
//!
//! A [`CheckpointReader`] knows one checkpoint. [`restore`] fills many caller-owned buffers at once, each with a box of a
//! stored tensor, whatever the sharding that wrote it; [`CheckpointReader::read_box`] reads one; objects come as values.
//! Reads are proportional to what is asked for: chunks that no box touches are never fetched, and a chunk that many boxes
//! touch is fetched once. Every chunk is checked against its BLAKE3 before a call that used it succeeds.

mod copy;
mod entry;
mod error;
mod estimate;
mod fetch;
mod object;
mod options;
mod place;
mod plan;
mod reader;
mod restore;
mod schema;
mod select;

pub use entry::Entry;
pub use error::{Difference, RestoreError};
pub use estimate::Estimate;
pub use object::{Content, StoredObject};
pub use options::{Progress, RestoreOptions, RestoreReport, Settings, Target, Tools};
pub use reader::CheckpointReader;
pub use restore::restore;
pub use select::Selection;
