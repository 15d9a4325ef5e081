//! A small S3 in this process, on 127.0.0.1, honest unless a [`Rule`] says otherwise: put, get, range, list, batch delete,
//! conditional put, clock and key checks, and the token services that credentials come from. Every request is kept for
//! assertions. It does not verify signatures; the tests against real servers do.

mod clock;
mod objects;
mod respond;
mod rules;
mod seen;
mod serve;
mod settings;
mod tls;
mod tokens;
mod xml;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use self::objects::Objects;
pub use self::rules::{Action, Gate, Rule};
pub use self::seen::Seen;
pub use self::settings::{Clock, StubSettings};
use self::tls::Certificate;
pub use self::tokens::Minted;
use self::tokens::Tokens;

/// A running stub; it stops when dropped.
#[derive(Debug)]
pub struct S3Stub {
    shared: Arc<Shared>,
    address: SocketAddr,
    authority: Option<String>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What the handle and the connections share.
#[derive(Debug)]
struct Shared {
    settings: StubSettings,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    objects: Objects,
    rules: Vec<Rule>,
    seen: Vec<Seen>,
    tokens: Tokens,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl S3Stub {
    /// Starts a stub with one bucket, `bucket`, and one access key, `AKIDSTUB`.
    pub fn start() -> Self {
        Self::with(StubSettings::default())
    }

    /// Starts a stub with `settings`, on threads of its own, so that it also serves child processes.
    pub fn with(settings: StubSettings) -> Self {
        let certificate = settings.tls.then(Certificate::new);
        let authority = certificate.as_ref().map(|certificate| certificate.pem.clone());
        let listener =
            std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port on 127.0.0.1");
        let address = listener.local_addr().expect("a bound listener has an address");
        let shared = Arc::new(Shared { settings, state: Mutex::default() });
        let (stop, stopped) = oneshot::channel();
        let serving = serve::Serving { listener, certificate, shared: Arc::clone(&shared) };
        #[expect(clippy::disallowed_methods, reason = "the stub lives outside of any simulated world")]
        let thread = std::thread::spawn(move || serving.run(stopped));
        Self { shared, address, authority, stop: Some(stop), thread: Some(thread) }
    }

    /// `http://127.0.0.1:port`, or `https://localhost:port`.
    pub fn url(&self) -> String {
        match self.authority {
            Some(_) => format!("https://localhost:{}", self.address.port()),
            None => format!("http://{}", self.address),
        }
    }

    /// The certificate to trust, as PEM, when the stub speaks TLS.
    pub fn authority(&self) -> Option<&str> {
        self.authority.as_deref()
    }

    /// Adds a fault; of those that match a request, the one added first is taken.
    pub fn rule(&self, rule: Rule) {
        self.shared.state().rules.push(rule);
    }

    /// Ends all faults.
    pub fn clear_rules(&self) {
        self.shared.state().rules.clear();
    }

    /// Every request so far, in order of arrival.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.state().seen.clone()
    }

    /// Raw keys and bytes of everything stored in `bucket`.
    pub fn objects(&self, bucket: &str) -> Vec<(String, Bytes)> {
        self.shared.state().objects.all(bucket)
    }

    /// Stores an object as another client would.
    pub fn store(&self, bucket: &str, key: &str, bytes: impl Into<Bytes>) {
        let now = (self.shared.settings.clock)();
        self.shared.state().objects.store(bucket, key, bytes.into(), now);
    }

    /// Makes keys that are accepted for `lifetime` by the stub's clock, as its token services do.
    pub fn mint(&self, lifetime: Duration) -> Minted {
        let expires = (self.shared.settings.clock)() + lifetime;
        self.shared.state().tokens.mint(expires)
    }

    /// Ends the life of every key minted so far.
    pub fn expire_minted(&self) {
        self.shared.state().tokens.expire_all();
    }
}

impl Drop for S3Stub {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // The receiver is gone only when the thread has ended already.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
