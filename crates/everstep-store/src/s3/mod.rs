//! S3 and what speaks its protocol, by the vendor's own SDK: its credentials, its signatures, its exact status codes.
//!
//! A call here is one try (and one more after new credentials or a corrected clock, both of which follow a plain
//! refusal); repeating it is the business of the retry decorator, so that every try is signed anew.

mod batch;
mod client;
mod credentials;
mod errors;
mod get;
mod inspect;
mod options;
mod put;

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use aws_sdk_s3::Client;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use everstep_format::key::{Key, Prefix};

use self::batch::DELETE_KEYS;
use self::client::{Connect, Connected};
use self::credentials::CredentialCache;
use self::errors::Failure;
pub use self::options::{Checksums, Keys, S3Credentials, S3Location, S3Options};
use self::put::Put;
use crate::transport::body::{Progress, watch};
use crate::{Class, Create, Deleted, Object, Page, Payload, Span, Store, StoreError, StoreErrorKind, World};

/// A repository's keys below one prefix of one bucket.
pub struct S3Store {
    client: Client,
    credentials: Arc<CredentialCache>,
    region: String,
    path_style: bool,
    endpoint: Option<String>,
    location: S3Location,
    options: S3Options,
    world: Arc<dyn World>,
    unsigned_bulk: AtomicBool,
    /// The store has said that it knows no batch delete.
    single_deletes: AtomicBool,
}

impl S3Store {
    /// Resolves endpoint, region and credentials; asks nothing of the store itself.
    ///
    /// # Errors
    /// Invalid for a setting that cannot work, Denied when no credentials are found, with every place tried.
    pub async fn open(
        location: S3Location,
        options: S3Options,
        world: Arc<dyn World>,
    ) -> Result<Self, StoreError> {
        options.check(&location)?;
        let connect = Connect { location: &location, options: &options, world: &world };
        let Connected { client, credentials, region, path_style, endpoint, https } = connect.run().await?;
        let unsigned_bulk = AtomicBool::new(https && options.unsigned_bulk);
        let single_deletes = AtomicBool::new(false);
        Ok(Self {
            client,
            credentials,
            region,
            path_style,
            endpoint,
            location,
            options,
            world,
            unsigned_bulk,
            single_deletes,
        })
    }

    fn may_leave_unsigned(&self) -> bool {
        self.unsigned_bulk.load(Ordering::Relaxed)
    }

    fn sign_all_bodies(&self) {
        if self.unsigned_bulk.swap(false, Ordering::Relaxed) {
            tracing::info!(store = %self.describe(), "the store wants signed bodies; all are signed from now on");
        }
    }

    /// Makes a call, and once more with new credentials or by the store's clock when that was what it was refused for.
    async fn authorised<T, F>(&self, call: impl Fn() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let failed = |error: StoreError| Failure::new(error.kind, error.detail);
        let used = self.credentials.current().await.map_err(failed)?;
        match call().await {
            Err(failure) if failure.is_expired() => {
                self.credentials.reject(&used).await;
                self.credentials.current().await.map_err(failed)?;
                call().await
            }
            // The SDK has read the store's clock from that answer, and signs by it from now on.
            Err(failure) if failure.is_skewed() => call().await,
            result => result,
        }
    }
}

/// Waits for an answer, as long as something moves.
async fn watched<T, E>(
    store: &S3Store,
    progress: &Progress,
    call: impl Future<Output = Result<T, SdkError<E, HttpResponse>>>,
) -> Result<T, Failure>
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    match watch(&*store.world, store.options.idle_timeout, progress, call).await {
        Some(result) => result.map_err(|error| Failure::of(&error, store.world.now())),
        None => Err(idle(store)),
    }
}

fn idle(store: &S3Store) -> Failure {
    let seconds = store.options.idle_timeout.as_secs_f64();
    Failure::new(StoreErrorKind::Unreachable, format!("no answer, and nothing moved for {seconds} s"))
}

#[async_trait]
impl Store for S3Store {
    fn describe(&self) -> String {
        match &self.endpoint {
            Some(endpoint) => format!("{} at {endpoint}", self.location.url()),
            None => self.location.url(),
        }
    }

    async fn get(&self, key: &Key, span: Span) -> Result<Object, StoreError> {
        let read = self.authorised(|| self.try_get(key, span)).await;
        read.map(|bytes| Object { bytes }).map_err(|failure| self.error(failure, "get", key.as_str()))
    }

    async fn put(&self, key: &Key, body: Payload, class: Class) -> Result<(), StoreError> {
        let put = Put { key, payload: &body, class, if_absent: false };
        self.write(&put).await.map_err(|failure| self.error(failure, "put", key.as_str()))
    }

    async fn create(&self, key: &Key, body: Payload) -> Result<Create, StoreError> {
        let put = Put { key, payload: &body, class: Class::Control, if_absent: true };
        match self.write(&put).await {
            Ok(()) => Ok(Create::Created),
            Err(failure) if failure.status == Some(412) => Ok(Create::Exists),
            Err(failure) if failure.is_refusal() => Err(self.error(failure, "create", key.as_str())),
            Err(failure) => Ok(Create::Unknown(self.error(failure, "create", key.as_str()))),
        }
    }

    async fn list(&self, prefix: &Prefix, token: Option<String>) -> Result<Page, StoreError> {
        let page = self.authorised(|| self.try_list(prefix, token.as_deref())).await;
        page.map_err(|failure| self.error(failure, "list", prefix.as_str()))
    }

    async fn delete(&self, keys: &[Key]) -> Result<Vec<Deleted>, StoreError> {
        let mut all = Vec::with_capacity(keys.len());
        for batch in keys.chunks(DELETE_KEYS) {
            all.extend(self.delete_batch(batch).await?);
        }
        Ok(all)
    }

    async fn sync(&self) -> Result<(), StoreError> {
        // A PUT that was answered is durable.
        Ok(())
    }
}

impl S3Store {
    /// The error for callers; a missing bucket is named, since the key alone would mislead.
    fn error(&self, mut failure: Failure, operation: &'static str, key: &str) -> StoreError {
        if failure.code == "NoSuchBucket" {
            failure.detail = format!("there is no bucket {}: {}", self.location.bucket, failure.detail);
        }
        failure.into_error(operation, key)
    }
}

impl fmt::Debug for S3Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("S3Store").field(&self.describe()).finish()
    }
}
