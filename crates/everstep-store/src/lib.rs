//! The outside world: keys to bytes, clock, randomness. Nothing here knows what a checkpoint is.
//!
//! One narrow trait, [`Store`]; backends `local` (`file://`), `memory`, `s3` and
//! `cloud` (`gs://`, `az://`); decorators `limit`, `retry` and `meter`
//! around them, put together by [`open`]. Every backend and decorator passes one conformance suite. [`probe`] finds out
//! whether a store's put-if-absent can be trusted.

pub mod address;
pub mod cloud;
pub mod doctor;
pub mod error;
pub mod limit;
pub mod local;
pub mod memory;
pub mod meter;
mod open;
pub mod probe;
pub mod retry;
pub mod s3;
pub mod store;
#[cfg(test)]
mod testing;
mod transport;
pub mod world;

pub use address::Address;
pub use cloud::{CloudLocation, CloudOptions};
pub use error::{StoreError, StoreErrorKind};
pub use limit::{Limit, LimitSettings};
pub use local::{LocalOptions, LocalStore};
pub use memory::MemoryStore;
pub use meter::{Counts, Meter, Snapshot};
pub use open::{StoreOptions, decorate, open};
pub use probe::{ProbeReport, ProbeSettings, Verdict, probe};
pub use retry::{Retry, RetryPolicy};
pub use s3::{S3Location, S3Options};
pub use store::{Class, Create, Deleted, Listed, Object, Page, Payload, Span, Store, list_all};
pub use world::{SystemWorld, World};
