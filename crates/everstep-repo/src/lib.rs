//! Runs, attempts, decisions: the protocol and nothing else.
//!
//! Every rule has its letter in `format-spec/`: R1-R3 open a run for writing, W1, W2, W4 save, the reader's
//! rules read.

mod adopting;
mod attempt;
mod beat;
pub mod checkpoint;
mod collecting;
mod commit;
mod copying;
pub mod error;
pub mod history;
mod latest;
pub mod lease;
mod listing;
mod loading;
mod opening;
pub mod pin;
pub mod reading;
mod register;
pub mod rendezvous;
pub mod repository;
mod resolving;
pub mod session;
mod settling;
mod takeover;
mod waiting;

pub use checkpoint::{Checkpoint, IndexReader, explain_missing};
pub use error::RepoError;
pub use history::{Finding, History};
pub use lease::{Lease, LeaseOptions};
pub use pin::{Pinned, Pins};
pub use reading::{Decided, Fate};
pub use rendezvous::{MemoryRendezvous, Rendezvous, Report, Spent, StoreRendezvous, Ticket};
pub use repository::{AttemptState, InitOptions, Repository, Resolved};
pub use session::{Attempt, CommitOutcome, Draft, OpenOptions, Parents, Session, Takeover};
