//! What tests across crates share.

#![allow(clippy::unwrap_used, reason = "nothing here runs outside tests")]

pub mod binaries;
pub mod conformance;
pub mod crowd;
pub mod large;
pub mod names;
pub mod refusing;
pub mod servers;
