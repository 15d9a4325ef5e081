//! Save: validate, split, hash and deduplicate, encode, upload, index, commit. By one process, or by a leader and ranks
//! that hand in their shares.
//!
//! ```text
//! State -> plan (rows and chunks, in name order) -> waves: hash -> known? -> encode -> packs -> uploads
//!          parts of other ranks ->  merge  <-  rows of the own share  <---------------'
//!                                     '-> checks -> index, refs -> commit
//! ```
//! Everything that one rank can refuse is refused before an ordinal is claimed. The packs of a save depend on the state, the
//! parents and the settings, never on the timing of threads or uploads. A leader may also do its own share first and commit
//! later (`halves`).

mod check;
mod cpu;
mod encode;
pub mod engine;
pub mod error;
mod gather;
pub mod group;
mod halves;
mod item;
pub mod known;
mod let_go;
pub mod member;
pub mod merge;
mod muster;
pub mod options;
mod packer;
mod phases;
mod plan;
mod replica;
pub mod save;
mod share;
pub mod state;
mod upload;
mod watch;
mod whole;
mod writer;

pub use engine::Engine;
pub use error::SaveError;
pub use group::{Group, RankSet, Replicas};
pub use halves::{Uncommitted, hand_in};
pub use known::SaveCache;
pub use let_go::{call_off, let_go};
pub use member::{HandedIn, Member, ShareOptions};
pub use options::{Progress, SaveOptions, SaveReport, Settings, Tools};
pub use phases::{LateRank, Phases};
pub use save::save;
pub use state::{ByteSource, Content, ObjectEntry, Owner, Shard, Source, State};
