//! A store that refuses to put some objects.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use everstep_format::key::{Key, Prefix, StoredKind};
use everstep_store::{
    Class, Create, Deleted, Object, Page, Payload, Span, Store, StoreError, StoreErrorKind,
};

/// Which objects are refused.
pub type Refuses = fn(&StoredKind) -> bool;

/// Passes everything on but the puts that it refuses, as a store does whose permissions have been changed.
#[derive(Debug)]
pub struct RefusingStore {
    inner: Arc<dyn Store>,
    refuses: Mutex<Refuses>,
}

impl RefusingStore {
    /// Refuses nothing yet.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, refuses: Mutex::new(|_| false) }
    }

    /// From now on refuses these, and nothing else.
    pub fn refuse(&self, refuses: Refuses) {
        *self.refuses.lock().unwrap_or_else(PoisonError::into_inner) = refuses;
    }
}

#[async_trait]
impl Store for RefusingStore {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    async fn get(&self, key: &Key, span: Span) -> Result<Object, StoreError> {
        self.inner.get(key, span).await
    }

    async fn put(&self, key: &Key, body: Payload, class: Class) -> Result<(), StoreError> {
        let refuses = *self.refuses.lock().unwrap_or_else(PoisonError::into_inner);
        if key.kind().is_some_and(|kind| refuses(&kind)) {
            return Err(StoreError::new(StoreErrorKind::Denied, "put", key, "403 AccessDenied"));
        }
        self.inner.put(key, body, class).await
    }

    async fn create(&self, key: &Key, body: Payload) -> Result<Create, StoreError> {
        self.inner.create(key, body).await
    }

    async fn list(&self, prefix: &Prefix, token: Option<String>) -> Result<Page, StoreError> {
        self.inner.list(prefix, token).await
    }

    async fn delete(&self, keys: &[Key]) -> Result<Vec<Deleted>, StoreError> {
        self.inner.delete(keys).await
    }

    async fn sync(&self) -> Result<(), StoreError> {
        self.inner.sync().await
    }
}
