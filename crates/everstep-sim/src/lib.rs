//! The test world: a deterministic executor with a simulated clock, a store that fails in every way a store can fail, and
//! a store that dies at its k-th call. Never shipped.
//!
//! One seed decides everything: which task runs next, how long a request travels, what becomes of it, every random
//! number that the code under test draws. The same seed gives the same history, call by call.

pub mod crash;
pub mod executor;
pub mod faults;
pub mod objects;
pub mod pause;
pub mod read_only;
pub mod s3_stub;
pub mod store;
pub mod world;

pub use crash::{CrashStore, Death, Moment};
pub use executor::{Executor, Process, Room};
pub use faults::{Fate, Weather};
pub use objects::{Event, Objects};
pub use pause::PauseStore;
pub use read_only::ReadOnly;
pub use store::{Connection, Lie, SimStore};
pub use world::SimWorld;
