//! Stores and worlds for these tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use everstep_format::id::SessionId;
use everstep_format::key::Key;
use everstep_sim::s3_stub::{Clock, S3Stub};
use everstep_store::address::Root;
use everstep_store::s3::{Keys, S3Location, S3Options, S3Store};
use everstep_store::{
    Counts, Payload, Retry, RetryPolicy, Span, Store, StoreError, StoreOptions, SystemWorld, World, decorate,
};
use everstep_tests::servers::reaching;
use futures::future::BoxFuture;

/// The stub's own access key.
pub(crate) const STUB_KEY: &str = "AKIDSTUB";
/// What no error may show.
pub(crate) const SECRET: &str = "hidden-secret-key";

/// Options that reach `stub` with its own key.
pub(crate) fn options(stub: &S3Stub) -> S3Options {
    let (access_key, secret_key) = (STUB_KEY.to_owned(), SECRET.to_owned());
    let keys = Keys { access_key, secret_key, token: None, expires: None };
    S3Options { idle_timeout: Duration::from_secs(10), ..reaching(&stub.url(), keys) }
}

/// Opens the root of the stub's bucket, without retries.
pub(crate) async fn bare(options: S3Options) -> S3Store {
    open(options, Arc::new(SystemWorld::new())).await.unwrap()
}

/// Opens the root of the stub's bucket in `world`.
pub(crate) async fn open(options: S3Options, world: Arc<dyn World>) -> Result<S3Store, StoreError> {
    let location = S3Location { bucket: "bucket".to_owned(), root: Root::parse("").unwrap() };
    S3Store::open(location, options, world).await
}

/// Retries at once, for a while.
pub(crate) fn quick() -> RetryPolicy {
    RetryPolicy {
        attempts: 6,
        budget: Duration::from_secs(20),
        first_wait: Duration::from_millis(1),
        longest_wait: Duration::from_millis(8),
    }
}

/// As trainers use it: limited, retried, metered.
pub(crate) async fn decorated(stub: &S3Stub) -> Arc<dyn Store> {
    let settings = StoreOptions { retry: quick(), ..StoreOptions::default() };
    decorate(bare(options(stub)).await, &settings, Arc::new(SystemWorld::new()))
}

/// Retried in `world`.
pub(crate) fn retried(store: S3Store, world: Arc<dyn World>) -> Retry<S3Store> {
    Retry::new(store, quick(), world, Arc::new(Counts::default()))
}

/// The `number`th key.
pub(crate) fn key(number: u32) -> Key {
    Key::probe(SessionId([7; 16]), number)
}

/// A body.
pub(crate) fn body(text: &str) -> Payload {
    Payload::from(text.as_bytes().to_vec())
}

/// Reads a whole object.
pub(crate) async fn read(store: &dyn Store, number: u32) -> Vec<u8> {
    store.get(&key(number), Span::Whole).await.unwrap().bytes.to_vec()
}

/// The real world with a wall clock that can be set apart.
#[derive(Debug)]
pub(crate) struct ShiftedWorld {
    real: SystemWorld,
    seconds: AtomicI64,
}

impl ShiftedWorld {
    /// A clock `seconds` ahead.
    pub(crate) fn ahead(seconds: i64) -> Arc<Self> {
        Arc::new(Self { real: SystemWorld::new(), seconds: AtomicI64::new(seconds) })
    }

    /// Moves the clock.
    pub(crate) fn advance(&self, seconds: i64) {
        self.seconds.fetch_add(seconds, Ordering::SeqCst);
    }

    /// The clock, for a stub that agrees with it.
    pub(crate) fn clock(self: &Arc<Self>) -> Clock {
        let world = Arc::clone(self);
        Arc::new(move || world.now())
    }
}

/// A world whose every wait takes no time, and moves the clock of another.
#[derive(Debug)]
pub(crate) struct JumpingWorld(pub(crate) Arc<ShiftedWorld>, pub(crate) i64);

#[async_trait]
impl World for ShiftedWorld {
    fn now(&self) -> SystemTime {
        let shift = self.seconds.load(Ordering::SeqCst);
        let by = Duration::from_secs(shift.unsigned_abs());
        if shift < 0 { self.real.now() - by } else { self.real.now() + by }
    }

    fn elapsed(&self) -> Duration {
        self.real.elapsed()
    }

    async fn sleep(&self, time: Duration) {
        self.real.sleep(time).await;
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.real.fill_random(bytes);
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.real.spawn(task);
    }
}

#[async_trait]
impl World for JumpingWorld {
    fn now(&self) -> SystemTime {
        self.0.now()
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    async fn sleep(&self, _time: Duration) {
        self.0.advance(self.1);
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.0.fill_random(bytes);
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.spawn(task);
    }
}
