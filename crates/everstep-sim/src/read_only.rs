//! A store seen through the rights of a reader: Get and List, nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use everstep_format::key::{Key, Prefix};
use everstep_store::{
    Class, Create, Deleted, Object, Page, Payload, Span, Store, StoreError, StoreErrorKind,
};

/// Refuses whatever would change the store, and counts it.
#[derive(Debug)]
pub struct ReadOnly<S> {
    inner: S,
    refused: Arc<AtomicU64>,
}

impl<S: Store> ReadOnly<S> {
    /// `inner`, to be read only.
    pub fn new(inner: S) -> Self {
        Self { inner, refused: Arc::default() }
    }

    /// Counts the calls that were refused, now and later.
    pub fn refusals(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.refused)
    }

    fn refuse(&self, operation: &'static str, target: &str) -> StoreError {
        self.refused.fetch_add(1, Ordering::Relaxed);
        StoreError::new(
            StoreErrorKind::Denied,
            operation,
            target,
            "403 AccessDenied: only Get and List are allowed",
        )
    }
}

#[async_trait]
impl<S: Store> Store for ReadOnly<S> {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    async fn get(&self, key: &Key, span: Span) -> Result<Object, StoreError> {
        self.inner.get(key, span).await
    }

    async fn put(&self, key: &Key, _: Payload, _: Class) -> Result<(), StoreError> {
        Err(self.refuse("put", key.as_str()))
    }

    async fn create(&self, key: &Key, _: Payload) -> Result<Create, StoreError> {
        Err(self.refuse("create", key.as_str()))
    }

    async fn list(&self, prefix: &Prefix, token: Option<String>) -> Result<Page, StoreError> {
        self.inner.list(prefix, token).await
    }

    async fn delete(&self, keys: &[Key]) -> Result<Vec<Deleted>, StoreError> {
        Err(self.refuse("delete", keys.first().map_or("", Key::as_str)))
    }

    async fn sync(&self) -> Result<(), StoreError> {
        Err(self.refuse("sync", ""))
    }
}
