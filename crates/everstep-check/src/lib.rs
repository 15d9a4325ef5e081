//! A read-only walk that judges every invariant of a repository. Used by `ckpt-inspect verify` and by the tests.
//!
//! ```text
//! LIST runs/ -> intents, decisions, markers -> LIST everything -> per checkpoint: index, refs -> per pack: table, bytes
//! ```
//! Decisions are listed before packs are: whatever a decision refers to was there before it, so a save that commits
//! meanwhile never looks like damage. [`check`] never stops at the first damage: whatever is wrong becomes a [`Finding`]
//! that names the object, the tensors and the checkpoints it hurts, and what to do. Only a store that cannot be read ends
//! the walk.

mod blame;
mod contents;
mod finding;
mod garbage;
mod history;
mod leases;
mod options;
mod packs;
mod reading;
mod report;
mod reuse;
mod walk;

pub use options::{CheckError, CheckOptions, Progress, Settings, Tools};
pub use report::{Counts, Finding, Hurt, Report, Severity, Verdict};
pub use walk::check;
