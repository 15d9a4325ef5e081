//! The outside world: keys to bytes, clock, randomness. Nothing here knows what a checkpoint is.

pub mod error;
pub mod store;
pub mod world;

pub use error::{StoreError, StoreErrorKind};
pub use store::{Class, Create, Deleted, Listed, Object, Page, Payload, Span, Store};
pub use world::{SystemWorld, World};
