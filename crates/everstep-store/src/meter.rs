//! Counts what passes: for reports, and for tests such as "no request per known chunk".

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use everstep_format::key::{Key, Prefix};

use crate::{Class, Create, Deleted, Object, Page, Payload, Span, Store, StoreError};

/// Running totals, shared by the decorators of one store. Clone the `Arc`, not the numbers.
#[derive(Debug, Default)]
pub struct Counts {
    gets: AtomicU64,
    puts: AtomicU64,
    creates: AtomicU64,
    lists: AtomicU64,
    deletes: AtomicU64,
    deleted_keys: AtomicU64,
    syncs: AtomicU64,
    failures: AtomicU64,
    retries: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

/// The totals at one moment. Operations count once however often they were tried; tries beyond the first are `retries`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Reads.
    pub gets: u64,
    /// Writes.
    pub puts: u64,
    /// Put-if-absents.
    pub creates: u64,
    /// Pages listed.
    pub lists: u64,
    /// Batch deletes.
    pub deletes: u64,
    /// Keys in batch deletes.
    pub deleted_keys: u64,
    /// Syncs.
    pub syncs: u64,
    /// Operations that failed or whose outcome is unknown.
    pub failures: u64,
    /// Tries beyond the first.
    pub retries: u64,
    /// Bytes that reads returned.
    pub bytes_read: u64,
    /// Bytes of bodies that were stored.
    pub bytes_written: u64,
}

impl Counts {
    /// The totals now.
    pub fn snapshot(&self) -> Snapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Snapshot {
            gets: read(&self.gets),
            puts: read(&self.puts),
            creates: read(&self.creates),
            lists: read(&self.lists),
            deletes: read(&self.deletes),
            deleted_keys: read(&self.deleted_keys),
            syncs: read(&self.syncs),
            failures: read(&self.failures),
            retries: read(&self.retries),
            bytes_read: read(&self.bytes_read),
            bytes_written: read(&self.bytes_written),
        }
    }

    /// Called by the retry decorator for every try beyond the first.
    pub(crate) fn retried(&self) {
        add(&self.retries, 1);
    }

    fn outcome<T>(&self, operation: &AtomicU64, result: &Result<T, StoreError>) {
        add(operation, 1);
        add(&self.failures, u64::from(result.is_err()));
    }
}

impl Snapshot {
    /// Requests of every kind; a sync is none.
    pub fn requests(&self) -> u64 {
        self.gets + self.puts + self.creates + self.lists + self.deletes
    }

    /// What happened since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            gets: self.gets - earlier.gets,
            puts: self.puts - earlier.puts,
            creates: self.creates - earlier.creates,
            lists: self.lists - earlier.lists,
            deletes: self.deletes - earlier.deletes,
            deleted_keys: self.deleted_keys - earlier.deleted_keys,
            syncs: self.syncs - earlier.syncs,
            failures: self.failures - earlier.failures,
            retries: self.retries - earlier.retries,
            bytes_read: self.bytes_read - earlier.bytes_read,
            bytes_written: self.bytes_written - earlier.bytes_written,
        }
    }
}

fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// Counts the operations of the store below it.
#[derive(Debug)]
pub struct Meter<S> {
    inner: S,
    counts: Arc<Counts>,
}

impl<S: Store> Meter<S> {
    /// Counts into `counts`.
    pub fn new(inner: S, counts: Arc<Counts>) -> Self {
        Self { inner, counts }
    }

    /// Where it counts.
    pub fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }
}

#[async_trait]
impl<S: Store> Store for Meter<S> {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    async fn get(&self, key: &Key, span: Span) -> Result<Object, StoreError> {
        let result = self.inner.get(key, span).await;
        self.counts.outcome(&self.counts.gets, &result);
        add(&self.counts.bytes_read, result.as_ref().map_or(0, |object| object.bytes.len() as u64));
        result
    }

    async fn put(&self, key: &Key, body: Payload, class: Class) -> Result<(), StoreError> {
        let bytes = body.len();
        let result = self.inner.put(key, body, class).await;
        self.counts.outcome(&self.counts.puts, &result);
        add(&self.counts.bytes_written, if result.is_ok() { bytes } else { 0 });
        result
    }

    async fn create(&self, key: &Key, body: Payload) -> Result<Create, StoreError> {
        let bytes = body.len();
        let result = self.inner.create(key, body).await;
        self.counts.outcome(&self.counts.creates, &result);
        match result {
            Ok(Create::Created) => add(&self.counts.bytes_written, bytes),
            Ok(Create::Unknown(_)) => add(&self.counts.failures, 1),
            Ok(Create::Exists) | Err(_) => {}
        }
        result
    }

    async fn list(&self, prefix: &Prefix, token: Option<String>) -> Result<Page, StoreError> {
        let result = self.inner.list(prefix, token).await;
        self.counts.outcome(&self.counts.lists, &result);
        result
    }

    async fn delete(&self, keys: &[Key]) -> Result<Vec<Deleted>, StoreError> {
        let result = self.inner.delete(keys).await;
        self.counts.outcome(&self.counts.deletes, &result);
        add(&self.counts.deleted_keys, keys.len() as u64);
        result
    }

    async fn sync(&self) -> Result<(), StoreError> {
        let result = self.inner.sync().await;
        self.counts.outcome(&self.counts.syncs, &result);
        result
    }

    async fn free_space(&self) -> Result<Option<u64>, StoreError> {
        self.inner.free_space().await
    }
}
