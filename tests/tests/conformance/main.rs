//! The conformance suite over every backend and decorator.

#![allow(clippy::unwrap_used, reason = "nothing here runs outside tests")]

mod decorators;
mod local;
mod memory;
mod servers;
