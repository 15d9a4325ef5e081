//! One call of the library, from credentials to the last byte: watched for progress, with what the store really answered.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::open::Provider;
use crate::transport::body::{Progress, watch};
use crate::transport::failure::{Failure, Told, chain};
use crate::{StoreErrorKind, World};

/// What the wire gave last.
#[derive(Debug, Clone)]
pub(super) enum Heard {
    /// An answer that claims success, and the object's size where it is the answer to a range.
    Success(Option<u64>),
    /// An answer that does not, and who gave it.
    Refusal { host: String, told: Told },
    /// None: the connection failed, or was not to be made.
    Trouble(StoreErrorKind, String),
}

/// What the service below the library tells the call above it.
#[derive(Debug, Default)]
pub(super) struct Wire {
    /// Counts steps.
    pub(super) progress: Progress,
    heard: Mutex<Option<Heard>>,
}

tokio::task_local! {
    /// The call that a request belongs to: the library has no other way from one to the other for every operation.
    pub(super) static WIRE: Arc<Wire>;
}

impl Wire {
    /// Notes what happened.
    pub(super) fn hear(&self, heard: Option<Heard>) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = heard;
    }

    fn heard(&self) -> Option<Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// One call.
pub(super) struct Exchange<'a> {
    world: &'a dyn World,
    idle: Duration,
    provider: &'a Provider,
    wire: Arc<Wire>,
}

impl<'a> Exchange<'a> {
    /// A call that is given up once nothing has moved for `idle`.
    pub(super) fn new(world: &'a dyn World, idle: Duration, provider: &'a Provider) -> Self {
        Self { world, idle, provider, wire: Arc::default() }
    }

    /// Runs `work` once credentials are at hand.
    pub(super) async fn run<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let whole = async {
            self.provider.authorise().await.map_err(|error| self.no_credentials(&error))?;
            self.wire.hear(None);
            work.await
        };
        let scoped = WIRE.scope(Arc::clone(&self.wire), whole);
        let seconds = self.idle.as_secs_f64();
        let silent = || {
            Failure::new(StoreErrorKind::Unreachable, format!("no answer, and nothing moved for {seconds} s"))
        };
        watch(self.world, self.idle, &self.wire.progress, scoped).await.unwrap_or_else(|| Err(silent()))
    }

    /// The size of the object of which a range was answered.
    pub(super) fn size_heard(&self) -> Option<u64> {
        match self.wire.heard() {
            Some(Heard::Success(size)) => size,
            _ => None,
        }
    }

    /// What an error of the library was in truth.
    pub(super) fn failure(&self, error: &object_store::Error) -> Failure {
        match self.wire.heard() {
            Some(Heard::Refusal { told, .. }) => told.into_failure(self.world.now()),
            Some(Heard::Trouble(StoreErrorKind::Unreachable, detail)) => Failure::of_connection(detail),
            Some(Heard::Trouble(kind, detail)) => Failure::new(kind, detail),
            // It claims to have done what was asked, in words that nobody understands.
            Some(Heard::Success(_)) => {
                Failure::new(StoreErrorKind::Server, format!("not its protocol: {}", chain(error)))
            }
            None => Failure::new(StoreErrorKind::Invalid, chain(error)),
        }
    }

    /// A failure on the way to credentials: of the service that gives them, which may pass, or of a setting.
    fn no_credentials(&self, error: &object_store::Error) -> Failure {
        let source = &self.provider.credentials;
        let (kind, why) = match self.wire.heard() {
            Some(Heard::Refusal { host, told }) if told.status == 429 || told.status >= 500 => {
                (StoreErrorKind::Unreachable, format!("{host} answered {}", told.status))
            }
            Some(Heard::Refusal { host, told }) => {
                (StoreErrorKind::Denied, format!("{host} answered {} {}", told.status, told.message))
            }
            // Whoever gave credentials before will give them again.
            Some(Heard::Trouble(kind, detail)) if self.provider.has_been_authorised() => (kind, detail),
            Some(Heard::Trouble(_, detail)) => (StoreErrorKind::Denied, detail),
            _ => (StoreErrorKind::Denied, chain(error)),
        };
        Failure::new(kind, format!("no credentials from {source}: {why}"))
    }
}
