//! A store whose process dies at its k-th call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use everstep_format::key::{Key, Prefix};
use everstep_store::{
    Class, Create, Deleted, Object, Page, Payload, Span, Store, StoreError, StoreErrorKind,
};

/// When the process dies, relative to the call it dies at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The call does nothing.
    Before,
    /// The call is carried out; nobody hears the answer.
    After,
}

/// How it dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// From then on every call fails and does nothing: the process lives on without its store.
    Severed,
    /// SIGKILL.
    Killed,
    /// As a killed process looks to others: no call is ever answered again. For a rank among others of this process.
    Silent,
}

/// Counts the calls to a store, and dies at one of them.
#[derive(Debug)]
pub struct CrashStore {
    inner: Arc<dyn Store>,
    calls: AtomicU64,
    at: Option<(u64, Moment)>,
    death: Death,
}

impl CrashStore {
    /// Only counts.
    pub fn counting(inner: Arc<dyn Store>) -> Self {
        Self { inner, calls: AtomicU64::new(0), at: None, death: Death::Severed }
    }

    /// Dies at call `call` (the first is 1).
    pub fn dying(inner: Arc<dyn Store>, at: (u64, Moment), death: Death) -> Self {
        Self { inner, calls: AtomicU64::new(0), at: Some(at), death }
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Counts a call; whether it is carried out and whether it is answered.
    fn admit(&self) -> Admission {
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        match self.at {
            Some((at, Moment::After)) if number == at => Admission::Unanswered,
            Some((at, _)) if number >= at => {
                self.die();
                Admission::Refused
            }
            _ => Admission::Fine,
        }
    }

    fn die(&self) {
        if self.death == Death::Killed {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL)
                .expect("a process may kill itself");
        }
    }

    async fn fall_silent(&self) {
        if self.death == Death::Silent {
            futures::future::pending::<()>().await;
        }
    }

    async fn pass<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        match self.admit() {
            Admission::Fine => Some(call.await),
            Admission::Refused => {
                self.fall_silent().await;
                None
            }
            Admission::Unanswered => {
                drop(call.await);
                self.die();
                self.fall_silent().await;
                None
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    Fine,
    Unanswered,
    Refused,
}

fn severed(operation: &'static str, key: impl std::fmt::Display) -> StoreError {
    StoreError::new(StoreErrorKind::Unreachable, operation, key, "the connection is gone")
}

#[async_trait]
impl Store for CrashStore {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    async fn get(&self, key: &Key, span: Span) -> Result<Object, StoreError> {
        self.pass(self.inner.get(key, span)).await.unwrap_or_else(|| Err(severed("get", key)))
    }

    async fn put(&self, key: &Key, body: Payload, class: Class) -> Result<(), StoreError> {
        self.pass(self.inner.put(key, body, class)).await.unwrap_or_else(|| Err(severed("put", key)))
    }

    async fn create(&self, key: &Key, body: Payload) -> Result<Create, StoreError> {
        let answer = self.pass(self.inner.create(key, body)).await;
        answer.unwrap_or_else(|| Ok(Create::Unknown(severed("create", key))))
    }

    async fn list(&self, prefix: &Prefix, token: Option<String>) -> Result<Page, StoreError> {
        self.pass(self.inner.list(prefix, token)).await.unwrap_or_else(|| Err(severed("list", prefix)))
    }

    async fn delete(&self, keys: &[Key]) -> Result<Vec<Deleted>, StoreError> {
        self.pass(self.inner.delete(keys)).await.unwrap_or_else(|| Err(severed("delete", "keys")))
    }

    async fn sync(&self) -> Result<(), StoreError> {
        self.pass(self.inner.sync()).await.unwrap_or_else(|| Err(severed("sync", "")))
    }
}
