//! The conformance suite over every backend and decorator.

mod decorators;
mod local;
mod memory;
mod servers;
