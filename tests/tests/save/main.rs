//! Saving, from a state to a commit and back through rows and packs alone.

#![allow(clippy::unwrap_used, reason = "a test")]

mod bench;
mod cost;
mod dedup;
mod failures;
mod read_back;
mod refusals;
mod round_trip;
