//! What tests across crates share.

#![allow(clippy::unwrap_used, reason = "nothing here runs outside tests")]

pub mod conformance;
pub mod names;
pub mod servers;
