//! Decorators change when and how often, never what.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use everstep_format::key::{Key, Prefix};
use everstep_store::{
    Class, Counts, Create, Deleted, Limit, LimitSettings, MemoryStore, Meter, Object, Page, Payload, Retry,
    RetryPolicy, Span, Store, StoreError, StoreErrorKind, SystemWorld,
};
use everstep_tests::conformance::every_store_conforms;
use futures::FutureExt as _;

/// A store that refuses two of three calls with 503.
#[derive(Debug)]
struct Hiccups {
    inner: MemoryStore,
    calls: AtomicU32,
}

impl Hiccups {
    fn new() -> Self {
        Self { inner: MemoryStore::private(), calls: AtomicU32::new(0) }
    }

    fn refuse(&self, operation: &'static str, key: impl std::fmt::Display) -> Result<(), StoreError> {
        if self.calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) {
            return Ok(());
        }
        Err(StoreError::new(StoreErrorKind::Throttled, operation, key, "503 SlowDown"))
    }
}

#[async_trait]
impl Store for Hiccups {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    async fn get(&self, key: &Key, span: Span) -> Result<Object, StoreError> {
        self.refuse("get", key)?;
        self.inner.get(key, span).await
    }

    async fn put(&self, key: &Key, body: Payload, class: Class) -> Result<(), StoreError> {
        self.refuse("put", key)?;
        self.inner.put(key, body, class).await
    }

    async fn create(&self, key: &Key, body: Payload) -> Result<Create, StoreError> {
        self.refuse("create", key)?;
        self.inner.create(key, body).await
    }

    async fn list(&self, prefix: &Prefix, token: Option<String>) -> Result<Page, StoreError> {
        self.refuse("list", prefix)?;
        self.inner.list(prefix, token).await
    }

    async fn delete(&self, keys: &[Key]) -> Result<Vec<Deleted>, StoreError> {
        self.refuse("delete", "a batch")?;
        self.inner.delete(keys).await
    }

    async fn sync(&self) -> Result<(), StoreError> {
        self.inner.sync().await
    }
}

fn impatient() -> RetryPolicy {
    let wait = Duration::from_micros(10);
    RetryPolicy { attempts: 1000, first_wait: wait, longest_wait: wait, ..RetryPolicy::default() }
}

fn retried(inner: impl Store) -> impl Store {
    Retry::new(inner, impatient(), Arc::new(SystemWorld::new()), Arc::default())
}

fn limited(inner: impl Store, max: usize) -> impl Store {
    Limit::new(inner, LimitSettings { min: 1, start: max, max })
}

async fn conforms(store: impl Fn() -> Arc<dyn Store> + Sync) {
    every_store_conforms(&|| {
        let store = store();
        async { store }.boxed()
    })
    .await;
}

#[tokio::test]
async fn retry_conforms() {
    conforms(|| Arc::new(retried(MemoryStore::private()))).await;
}

#[tokio::test]
async fn c13_retry_over_a_store_that_refuses_two_of_three_calls_conforms() {
    conforms(|| Arc::new(retried(Hiccups::new()))).await;
}

#[tokio::test]
async fn limit_conforms() {
    conforms(|| Arc::new(limited(MemoryStore::private(), 64))).await;
}

#[tokio::test]
async fn limit_to_one_request_conforms() {
    conforms(|| Arc::new(limited(MemoryStore::private(), 1))).await;
}

#[tokio::test]
async fn meter_conforms() {
    conforms(|| Arc::new(Meter::new(MemoryStore::private(), Arc::default()))).await;
}

#[tokio::test]
async fn all_decorators_over_hiccups_conform() {
    conforms(|| Arc::new(Meter::new(retried(limited(Hiccups::new(), 8)), Arc::default()))).await;
}

#[tokio::test]
async fn the_meter_counts_calls_and_bytes_once_however_often_they_were_tried() {
    let counts = Arc::new(Counts::default());
    let retry = Retry::new(Hiccups::new(), impatient(), Arc::new(SystemWorld::new()), counts.clone());
    let store = Meter::new(retry, counts.clone());
    let key = Key::repository();
    store.put(&key, vec![1; 10].into(), Class::Bulk).await.unwrap();
    assert!(matches!(store.create(&key, vec![1; 100].into()).await.unwrap(), Create::Exists));
    store.get(&key, Span::Range { start: 2, len: 3 }).await.unwrap();
    store.list(&Prefix::everything(), None).await.unwrap();
    store.delete(&[key.clone(), key.clone()]).await.unwrap();
    store.get(&key, Span::Whole).await.unwrap_err();
    let seen = counts.snapshot();
    assert_eq!(
        (seen.puts, seen.creates, seen.gets, seen.lists, seen.deletes, seen.deleted_keys),
        (1, 1, 2, 1, 1, 2)
    );
    assert_eq!((seen.bytes_written, seen.bytes_read, seen.failures), (10, 3, 1));
    assert_eq!((seen.requests(), seen.retries), (6, 10), "two more tries before each call but the first");
}
