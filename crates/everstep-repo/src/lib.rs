//! Runs, attempts, decisions: the protocol and nothing else.
//!
//! Every rule has its letter in `format-spec/`: R1-R3 open a run for writing, W1, W2, W4 save, the reader's rules read.

pub mod checkpoint;
pub mod error;
pub mod repository;
pub mod session;

pub use checkpoint::{Checkpoint, IndexReader};
pub use error::RepoError;
pub use repository::{AttemptState, InitOptions, Repository, Resolved};
pub use session::{Attempt, CommitOutcome, Draft, OpenOptions, Parents, Session, Takeover};
