//! The stored format of Everstep: bytes to types and back, nothing else.
//!
//! Deliberately absent: I/O, async, clocks, randomness, configuration. Whoever reads a repository needs only this crate
//! and a way to fetch byte ranges. `format-spec/` is the normative text; the modules follow its pages.

pub mod bounds;
pub mod card;
pub mod codec;
pub mod decision;
pub mod dtype;
pub mod error;
pub mod failed;
pub mod feature;
pub mod grid;
pub mod id;
pub mod index;
pub mod intent;
pub mod invariant;
pub mod key;
pub mod lease;
pub mod limits;
pub mod marker;
pub mod name;
pub mod outcome;
pub mod pack;
pub mod panics;
pub mod pattern;
pub mod reference;
pub mod refs;
pub mod repository;
pub mod row;
pub mod sealed;
pub mod session;
mod strict;
pub mod swept;
pub mod value;

pub use error::FormatError;
pub use index::part;
