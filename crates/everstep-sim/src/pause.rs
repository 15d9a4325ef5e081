//! A store whose caller stops at one of its calls while something else happens.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use everstep_format::key::{Key, Prefix};
use everstep_store::{Class, Create, Deleted, Object, Page, Payload, Span, Store, StoreError};
use futures::future::BoxFuture;
use futures::lock::Mutex;

use crate::crash::Moment;

/// What happens meanwhile.
type Interlude = BoxFuture<'static, ()>;

/// Where a caller stops.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// The call of this number; the first is 1.
    Call(u64, Moment),
    /// Before the first create of a key that contains this.
    Create(String),
}

/// Counts the calls to a store, and lets something else happen from beginning to end at one of them.
pub struct PauseStore {
    inner: Arc<dyn Store>,
    calls: AtomicU64,
    at: Place,
    interlude: Mutex<Option<Interlude>>,
}

impl fmt::Debug for PauseStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PauseStore").field("at", &self.at).finish_non_exhaustive()
    }
}

impl PauseStore {
    /// Lets `interlude` happen at call `at` (the first is 1), before or after that is carried out.
    pub fn new(inner: Arc<dyn Store>, (call, moment): (u64, Moment), interlude: Interlude) -> Self {
        Self::at(inner, Place::Call(call, moment), interlude)
    }

    /// Lets `interlude` happen before the first create of a key that contains `part`.
    pub fn before_create(inner: Arc<dyn Store>, part: &str, interlude: Interlude) -> Self {
        Self::at(inner, Place::Create(part.to_owned()), interlude)
    }

    fn at(inner: Arc<dyn Store>, at: Place, interlude: Interlude) -> Self {
        Self { inner, calls: AtomicU64::new(0), at, interlude: Mutex::new(Some(interlude)) }
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    async fn pass<T>(&self, call: impl Future<Output = T>) -> T {
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        if self.at == Place::Call(number, Moment::Before) {
            self.happen().await;
        }
        let answer = call.await;
        if self.at == Place::Call(number, Moment::After) {
            self.happen().await;
        }
        answer
    }

    async fn happen(&self) {
        if let Some(interlude) = self.interlude.lock().await.take() {
            interlude.await;
        }
    }
}

#[async_trait]
impl Store for PauseStore {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    async fn get(&self, key: &Key, span: Span) -> Result<Object, StoreError> {
        self.pass(self.inner.get(key, span)).await
    }

    async fn put(&self, key: &Key, body: Payload, class: Class) -> Result<(), StoreError> {
        self.pass(self.inner.put(key, body, class)).await
    }

    async fn create(&self, key: &Key, body: Payload) -> Result<Create, StoreError> {
        if matches!(&self.at, Place::Create(part) if key.as_str().contains(part)) {
            self.happen().await;
        }
        self.pass(self.inner.create(key, body)).await
    }

    async fn list(&self, prefix: &Prefix, token: Option<String>) -> Result<Page, StoreError> {
        self.pass(self.inner.list(prefix, token)).await
    }

    async fn delete(&self, keys: &[Key]) -> Result<Vec<Deleted>, StoreError> {
        self.pass(self.inner.delete(keys)).await
    }

    async fn sync(&self) -> Result<(), StoreError> {
        self.pass(self.inner.sync()).await
    }
}
