//! Google Cloud Storage and Azure, both through `object_store`, over the same connections as S3: one adapter, since they
//! differ only in how they are opened and in how many keys a delete may name.
//!
//! A call here is one try: the library's own retries are off, because it would repeat a put-if-absent whose reply was lost
//! and take its own object for another's. What the store really answered is heard by [`service`], below the library.

mod exchange;
mod open;
mod options;
mod reading;
mod service;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use everstep_format::key::{Key, Prefix};
use futures::StreamExt as _;
use object_store::list::PaginatedListOptions;
use object_store::path::Path;
use object_store::{ObjectMeta, PutMode, PutPayload};

use self::exchange::Exchange;
pub use self::options::{CloudCredentials, CloudOptions, Secret};
use crate::address::Root;
use crate::transport::body::FRAME_BYTES;
use crate::transport::failure::{Failure, kind_of_status};
use crate::{
    Class, Create, Deleted, Listed, Object, Page, Payload, Span, Store, StoreError, StoreErrorKind, World,
};

/// Requests in flight of one delete.
const DELETES: usize = 16;

/// Which cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cloud {
    /// `gs://bucket/prefix`
    Google,
    /// `az://container/prefix`
    Azure,
}

/// Where a repository lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudLocation {
    /// Whose cloud.
    pub cloud: Cloud,
    /// The bucket or container.
    pub bucket: String,
    /// The prefix of every key.
    pub root: Root,
}

impl CloudLocation {
    /// The address for people.
    pub(crate) fn url(&self) -> String {
        let scheme = match self.cloud {
            Cloud::Google => "gs",
            Cloud::Azure => "az",
        };
        format!("{scheme}://{}/{}", self.bucket, self.root.as_str())
    }
}

/// A repository's keys below one prefix of one bucket or container.
pub struct CloudStore {
    provider: open::Provider,
    location: CloudLocation,
    options: CloudOptions,
    world: Arc<dyn World>,
}

impl CloudStore {
    /// Resolves endpoint, account and credentials; asks nothing of the store itself.
    ///
    /// # Errors
    /// Invalid for a setting that cannot work, Denied when no credentials are found.
    pub async fn open(
        location: CloudLocation,
        options: CloudOptions,
        world: Arc<dyn World>,
    ) -> Result<Self, StoreError> {
        let provider = open::Provider::new(&location, &options)?;
        let store = Self { provider, location, options, world };
        let authorised = store.exchange().run(async { Ok(()) }).await;
        authorised.map_err(|failure| failure.into_error("open", &store.location.url()))?;
        Ok(store)
    }

    /// Where credentials come from and where requests go, for people.
    pub fn connection(&self) -> (&str, &str) {
        (&self.provider.credentials, &self.provider.endpoint)
    }

    fn exchange(&self) -> Exchange<'_> {
        Exchange::new(&*self.world, self.options.idle_timeout, &self.provider)
    }

    /// The raw name of `key`; roots are parsed so that none is refused.
    fn path(&self, key: &Key) -> Result<Path, Failure> {
        let parsed = Path::parse(self.location.root.key(key));
        parsed.map_err(|error| Failure::new(StoreErrorKind::Invalid, error.to_string()))
    }

    async fn write(&self, key: &Key, body: &Payload, mode: PutMode) -> Result<(), Failure> {
        let path = self.path(key)?;
        let exchange = self.exchange();
        let put = self.provider.objects().put_opts(&path, framed(body), mode.into());
        exchange.run(async { put.await.map(|_| ()).map_err(|error| exchange.failure(&error)) }).await
    }

    /// One try at a page.
    async fn try_list(&self, prefix: &Prefix, token: Option<String>) -> Result<Page, Failure> {
        let raw = self.location.root.prefix(prefix);
        let raw = (!raw.is_empty()).then_some(raw.as_str());
        let options = PaginatedListOptions { page_token: token.clone(), ..PaginatedListOptions::default() };
        let exchange = self.exchange();
        let ask = self.provider.pages().list_paginated(raw, options);
        let answer = exchange.run(async { ask.await.map_err(|error| exchange.failure(&error)) }).await?;
        in_order(&answer.result.objects)?;
        let mut page = Page { next: answer.page_token, ..Page::default() };
        if page.next.is_some() && page.next == token {
            let detail = "the listing goes on, but the store does not say where";
            return Err(Failure::new(StoreErrorKind::Server, detail));
        }
        answer.result.objects.into_iter().for_each(|meta| self.sort_in(&mut page, meta));
        Ok(page)
    }

    fn sort_in(&self, page: &mut Page, meta: ObjectMeta) {
        let full = meta.location.as_ref();
        match self.location.root.strip(full).and_then(Key::listed) {
            Some(key) => {
                page.objects.push(Listed { key, size: meta.size, modified: meta.last_modified.into() });
            }
            None => page.strays.push(full.to_owned()),
        }
    }

    /// One request of the store, with as many keys as it takes.
    async fn try_delete(&self, keys: &[Key]) -> Result<Vec<Deleted>, Failure> {
        let paths = keys.iter().map(|key| self.path(key).map(Ok)).collect::<Result<Vec<_>, _>>()?;
        let exchange = self.exchange();
        let answers = self.provider.objects().delete_stream(futures::stream::iter(paths).boxed());
        let answers = exchange.run(async { Ok(answers.collect::<Vec<_>>().await) }).await?;
        if answers.len() == keys.len() {
            let pairs = keys.iter().zip(answers);
            return Ok(pairs.map(|(key, answer)| self.deleted(&exchange, key, answer)).collect());
        }
        // A request that failed as a whole gives one error, however many keys it named.
        let unanswered = || Failure::new(StoreErrorKind::Server, "the store did not answer for every key");
        let error = answers.into_iter().find_map(Result::err);
        Err(error.map_or_else(unanswered, |error| exchange.failure(&error)))
    }

    fn deleted(&self, exchange: &Exchange<'_>, key: &Key, answer: object_store::Result<Path>) -> Deleted {
        let result = match answer {
            Ok(_) => Ok(()),
            Err(error) => match key_status(&error) {
                Some(404) => Ok(()),
                Some(status) => Err(Failure::new(kind_of_status(status), error.to_string())),
                None => match exchange.failure(&error) {
                    failure if failure.code == "NoSuchKey" || failure.code == "BlobNotFound" => Ok(()),
                    failure => Err(failure),
                },
            },
        };
        let result = result.map_err(|failure| self.error(failure, "delete", key.as_str()));
        Deleted { key: key.clone(), result }
    }

    /// The error for callers; a missing bucket is named, since the key alone would mislead.
    fn error(&self, mut failure: Failure, operation: &'static str, key: &str) -> StoreError {
        if failure.code == "NoSuchBucket" || failure.code == "ContainerNotFound" {
            failure.detail = format!("there is no {}: {}", self.location.url(), failure.detail);
        }
        failure.into_error(operation, key)
    }
}

/// The status of one key in a batch, which the library tells in words alone.
fn key_status(error: &object_store::Error) -> Option<u16> {
    let text = error.to_string();
    let (_, rest) = text.split_once("Bulk delete request failed for key")?;
    let (_, code) = rest.rsplit_once("(code: ")?;
    code.trim_end_matches(')').parse().ok()
}

/// The body in small pieces, so that a slow link still shows progress.
fn framed(body: &Payload) -> PutPayload {
    let frames = |segment: &Bytes| {
        let segment = segment.clone();
        let starts = (0..segment.len()).step_by(FRAME_BYTES);
        starts.map(move |start| segment.slice(start..segment.len().min(start + FRAME_BYTES)))
    };
    body.0.iter().flat_map(frames).collect()
}

/// The protocol needs key order; accounts with a hierarchical namespace list folder by folder.
fn in_order(objects: &[ObjectMeta]) -> Result<(), Failure> {
    if objects.is_sorted_by(|a, b| a.location.as_ref() < b.location.as_ref()) {
        return Ok(());
    }
    let detail = "the store lists keys out of order (an account with a hierarchical namespace does): use one that \
                  does not";
    Err(Failure::new(StoreErrorKind::Invalid, detail))
}

#[async_trait]
impl Store for CloudStore {
    fn describe(&self) -> String {
        match self.provider.own_endpoint {
            true => format!("{} at {}", self.location.url(), self.provider.endpoint),
            false => self.location.url(),
        }
    }

    async fn get(&self, key: &Key, span: Span) -> Result<Object, StoreError> {
        let read = self.try_get(key, span).await;
        read.map(|bytes| Object { bytes }).map_err(|failure| self.error(failure, "get", key.as_str()))
    }

    async fn put(&self, key: &Key, body: Payload, _class: Class) -> Result<(), StoreError> {
        let put = self.write(key, &body, PutMode::Overwrite).await;
        put.map_err(|failure| self.error(failure, "put", key.as_str()))
    }

    async fn create(&self, key: &Key, body: Payload) -> Result<Create, StoreError> {
        match self.write(key, &body, PutMode::Create).await {
            Ok(()) => Ok(Create::Created),
            Err(failure) if exists(&failure) => Ok(Create::Exists),
            Err(failure) if failure.is_refusal() => Err(self.error(failure, "create", key.as_str())),
            Err(failure) => Ok(Create::Unknown(self.error(failure, "create", key.as_str()))),
        }
    }

    async fn list(&self, prefix: &Prefix, token: Option<String>) -> Result<Page, StoreError> {
        let page = self.try_list(prefix, token).await;
        page.map_err(|failure| self.error(failure, "list", prefix.as_str()))
    }

    async fn delete(&self, keys: &[Key]) -> Result<Vec<Deleted>, StoreError> {
        let batches: Vec<Vec<Key>> = keys.chunks(self.provider.delete_keys()).map(<[Key]>::to_vec).collect();
        let delete = |batch: Vec<Key>| async move {
            let results = self.try_delete(&batch).await;
            results.unwrap_or_else(|failure| self.all_failed(&batch, &failure))
        };
        let results: Vec<_> = futures::stream::iter(batches).map(delete).buffered(DELETES).collect().await;
        Ok(results.into_iter().flatten().collect())
    }

    async fn sync(&self) -> Result<(), StoreError> {
        // A PUT that was answered is durable.
        Ok(())
    }
}

impl CloudStore {
    fn all_failed(&self, keys: &[Key], failure: &Failure) -> Vec<Deleted> {
        let result = |key: &Key| Err(self.error(failure.clone(), "delete", key.as_str()));
        keys.iter().map(|key| Deleted { key: key.clone(), result: result(key) }).collect()
    }
}

/// Whether a put-if-absent was refused because an object is there. Azure says so with 409, and means other things by other
/// codes of that status.
fn exists(failure: &Failure) -> bool {
    match failure.status {
        Some(412) => true,
        Some(409) => failure.code == "BlobAlreadyExists",
        _ => false,
    }
}

impl fmt::Debug for CloudStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CloudStore").field(&self.describe()).finish()
    }
}
