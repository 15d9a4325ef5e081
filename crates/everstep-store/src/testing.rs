//! Doubles for the tests of this crate: a world whose time passes only when somebody waits, and a store that fails by a
//! script.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use everstep_format::key::{Key, Prefix};
use futures::future::BoxFuture;

use crate::{
    Class, Create, Deleted, MemoryStore, Object, Page, Payload, Span, Store, StoreError, StoreErrorKind,
    World,
};

/// Virtual time and a seeded random sequence. Waits are over at once and remembered.
#[derive(Debug)]
pub(crate) struct StillWorld {
    seed: Mutex<u64>,
    waits: Mutex<Vec<Duration>>,
}

impl StillWorld {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed: Mutex::new(seed), waits: Mutex::default() }
    }

    pub(crate) fn waits(&self) -> Vec<Duration> {
        self.waits.lock().unwrap().clone()
    }
}

#[async_trait]
impl World for StillWorld {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.elapsed()
    }

    fn elapsed(&self) -> Duration {
        self.waits.lock().unwrap().iter().sum()
    }

    async fn sleep(&self, time: Duration) {
        self.waits.lock().unwrap().push(time);
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        let mut seed = self.seed.lock().unwrap();
        for byte in bytes {
            // The step of the "splitmix" generator; plenty for jitter.
            *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (*seed ^ (*seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            *byte = mixed.to_le_bytes()[7];
        }
    }

    fn spawn(&self, _task: BoxFuture<'static, ()>) {
        panic!("nothing here runs in the background");
    }
}

/// What goes wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The store does nothing and says so.
    Refused(StoreErrorKind),
    /// The store does it, and the reply is lost.
    ReplyLost,
    /// The call works, but the keys of a batch that end with this digit fail.
    KeysEndingWith(char),
}

/// A memory store whose calls fail by a script; with the script at its end, `then` applies for ever.
#[derive(Debug)]
pub(crate) struct Scripted {
    inner: MemoryStore,
    script: Mutex<VecDeque<Fault>>,
    then: Option<Fault>,
    /// Keys per delete call.
    batches: Mutex<Vec<usize>>,
    calls: Mutex<u32>,
}

impl Scripted {
    pub(crate) fn new(script: impl IntoIterator<Item = Fault>, then: Option<Fault>) -> Self {
        Self {
            inner: MemoryStore::private(),
            script: Mutex::new(script.into_iter().collect()),
            then,
            batches: Mutex::default(),
            calls: Mutex::new(0),
        }
    }

    /// Appends to the script.
    pub(crate) fn again(&self, faults: impl IntoIterator<Item = Fault>) {
        self.script.lock().unwrap().extend(faults);
    }

    pub(crate) fn calls(&self) -> u32 {
        *self.calls.lock().unwrap()
    }

    pub(crate) fn batches(&self) -> Vec<usize> {
        self.batches.lock().unwrap().clone()
    }

    fn next(&self) -> Option<Fault> {
        *self.calls.lock().unwrap() += 1;
        self.script.lock().unwrap().pop_front().or(self.then)
    }
}

fn fault(kind: StoreErrorKind, operation: &'static str, key: impl std::fmt::Display) -> StoreError {
    StoreError::new(kind, operation, key, "503 SlowDown")
}

#[async_trait]
impl Store for Scripted {
    fn describe(&self) -> String {
        "scripted".to_owned()
    }

    async fn get(&self, key: &Key, span: Span) -> Result<Object, StoreError> {
        match self.next() {
            Some(Fault::Refused(kind)) => Err(fault(kind, "get", key)),
            _ => self.inner.get(key, span).await,
        }
    }

    async fn put(&self, key: &Key, body: Payload, class: Class) -> Result<(), StoreError> {
        match self.next() {
            Some(Fault::Refused(kind)) => Err(fault(kind, "put", key)),
            Some(Fault::ReplyLost) => {
                self.inner.put(key, body, class).await?;
                Err(fault(StoreErrorKind::Unreachable, "put", key))
            }
            _ => self.inner.put(key, body, class).await,
        }
    }

    async fn create(&self, key: &Key, body: Payload) -> Result<Create, StoreError> {
        match self.next() {
            Some(Fault::Refused(kind)) => Err(fault(kind, "create", key)),
            Some(Fault::ReplyLost) => {
                self.inner.create(key, body).await?;
                Ok(Create::Unknown(fault(StoreErrorKind::Unreachable, "create", key)))
            }
            _ => self.inner.create(key, body).await,
        }
    }

    async fn list(&self, prefix: &Prefix, token: Option<String>) -> Result<Page, StoreError> {
        match self.next() {
            Some(Fault::Refused(kind)) => Err(fault(kind, "list", prefix)),
            _ => self.inner.list(prefix, token).await,
        }
    }

    async fn delete(&self, keys: &[Key]) -> Result<Vec<Deleted>, StoreError> {
        self.batches.lock().unwrap().push(keys.len());
        let mut results = match self.next() {
            Some(Fault::Refused(kind)) => return Err(fault(kind, "delete", "scripted")),
            Some(Fault::KeysEndingWith(digit)) => (digit, self.inner.delete(keys).await?),
            _ => return self.inner.delete(keys).await,
        };
        for deleted in results.1.iter_mut().filter(|deleted| deleted.key.as_str().ends_with(results.0)) {
            deleted.result = Err(fault(StoreErrorKind::Server, "delete", &deleted.key));
        }
        Ok(results.1)
    }

    async fn sync(&self) -> Result<(), StoreError> {
        match self.next() {
            Some(Fault::Refused(kind)) => Err(fault(kind, "sync", "scripted")),
            _ => Ok(()),
        }
    }
}
