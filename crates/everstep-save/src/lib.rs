//! Save: validate, split, hash and deduplicate, encode, upload, index, commit. One writer per attempt.
//!
//! ```text
//! State -> plan (rows and chunks, in name order) -> waves: hash -> known? -> encode -> packs -> uploads
//!                                                                             rows -> index, refs -> commit
//! ```
//! Everything that can be refused is refused before an ordinal is claimed. The packs of a save depend on the state, the
//! parents and the settings, never on the timing of threads or uploads.

mod check;
mod cpu;
mod encode;
pub mod engine;
pub mod error;
mod gather;
mod item;
pub mod known;
pub mod merge;
pub mod options;
mod packer;
mod plan;
mod replica;
pub mod save;
pub mod state;
mod upload;
mod writer;

pub use engine::Engine;
pub use error::SaveError;
pub use known::SaveCache;
pub use options::{Progress, SaveOptions, SaveReport, Settings, Tools};
pub use save::save;
pub use state::{ByteSource, Content, ObjectEntry, Shard, Source, State};
