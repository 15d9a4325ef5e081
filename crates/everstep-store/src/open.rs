//! From an address to a store: the backend, and around it limit, retry and meter.

use std::sync::Arc;

use crate::address::Address;
use crate::cloud::{CloudOptions, CloudStore};
use crate::limit::{Limit, LimitSettings};
use crate::local::{LocalOptions, LocalStore};
use crate::memory::MemoryStore;
use crate::meter::{Counts, Meter};
use crate::retry::{Retry, RetryPolicy};
use crate::s3::{S3Location, S3Options, S3Store};
use crate::{Store, StoreError, World};

/// How stores are reached. Cloned options count into the same [`Counts`].
#[derive(Debug, Clone, Default)]
pub struct StoreOptions {
    /// Credentials, endpoint and the like of `s3://`.
    pub s3: S3Options,
    /// Credentials, endpoint and the like of `gs://` and `az://`.
    pub cloud: CloudOptions,
    /// Accept a directory on a network file system.
    pub allow_network_fs: bool,
    /// When to try again.
    pub retry: RetryPolicy,
    /// Requests in flight.
    pub limit: LimitSettings,
    /// Where requests and bytes are counted.
    pub counts: Arc<Counts>,
}

/// Opens the store of `address` (see [`Address::parse`]). Nothing is asked of the store itself yet.
///
/// # Errors
/// [`crate::StoreErrorKind::Invalid`] for an address or setting that cannot work, and those of the backend's opening.
pub async fn open(
    address: &str,
    options: &StoreOptions,
    world: Arc<dyn World>,
) -> Result<Arc<dyn Store>, StoreError> {
    match Address::parse(address)? {
        Address::Local(root) => {
            let local = LocalOptions { allow_network_fs: options.allow_network_fs };
            Ok(decorate(LocalStore::open(&root, local)?, options, world))
        }
        Address::Memory(name) => Ok(decorate(MemoryStore::named(&name), options, world)),
        Address::S3 { bucket, root } => {
            let location = S3Location { bucket, root };
            let backend = S3Store::open(location, options.s3.clone(), world.clone()).await?;
            Ok(decorate(backend, options, world))
        }
        Address::Cloud(location) => {
            let backend = CloudStore::open(location, options.cloud.clone(), world.clone()).await?;
            Ok(decorate(backend, options, world))
        }
    }
}

/// Puts limit, retry and meter around a backend. A request that waits to be tried again holds no place in the limit,
/// and is counted once.
pub fn decorate(backend: impl Store, options: &StoreOptions, world: Arc<dyn World>) -> Arc<dyn Store> {
    let limited = Limit::new(backend, options.limit);
    let retried = Retry::new(limited, options.retry, world, options.counts.clone());
    Arc::new(Meter::new(retried, options.counts.clone()))
}
