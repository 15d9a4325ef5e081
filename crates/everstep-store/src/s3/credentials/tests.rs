use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use async_trait::async_trait;
use futures::future::BoxFuture;

use super::*;

/// A clock that moves when told to; nothing ever times out by itself.
#[derive(Debug, Default)]
struct HandClock(AtomicU64);

#[async_trait]
impl World for HandClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.elapsed()
    }

    fn elapsed(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::SeqCst))
    }

    async fn sleep(&self, _time: Duration) {
        std::future::pending::<()>().await;
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        bytes.fill(128);
    }

    fn spawn(&self, _task: BoxFuture<'static, ()>) {}
}

/// Gives keys `n` that live for `lifetime`, or fails from the `fails_from`th fetch on.
#[derive(Debug)]
struct Minting {
    clock: Arc<HandClock>,
    lifetime: Duration,
    fetches: Arc<AtomicU32>,
    fails_from: u32,
    same_keys: bool,
}

impl ProvideCredentials for Minting {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(async {
            tokio::task::yield_now().await;
            let n = self.fetches.fetch_add(1, Ordering::SeqCst);
            if n >= self.fails_from {
                return Err(CredentialsError::provider_error("token service is down"));
            }
            let id = if self.same_keys { 0 } else { n };
            let expiry = Some(self.clock.now() + self.lifetime);
            Ok(Credentials::new(format!("key{id}"), "secret", Some(format!("token{id}")), expiry, "minting"))
        })
    }
}

fn minting(fails_from: u32, same_keys: bool) -> (Arc<HandClock>, Arc<AtomicU32>, CredentialCache) {
    let clock = Arc::new(HandClock::default());
    let fetches = Arc::new(AtomicU32::new(0));
    let lifetime = Duration::from_secs(3600);
    let provider =
        Minting { clock: Arc::clone(&clock), lifetime, fetches: Arc::clone(&fetches), fails_from, same_keys };
    let world: Arc<dyn World> = Arc::<HandClock>::clone(&clock);
    (clock, fetches, CredentialCache::new(vec![Source::own(provider)], world))
}

#[tokio::test]
async fn a_hundred_askers_cause_one_fetch() {
    let (_, fetches, cache) = minting(9, false);
    let all = futures::future::join_all((0..100).map(|_| cache.current())).await;
    assert!(all.iter().all(|one| one.as_ref().unwrap().access_key_id() == "key0"));
    assert_eq!(fetches.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_hundred_askers_share_one_failure() {
    let (_, fetches, cache) = minting(0, false);
    let all = futures::future::join_all((0..100).map(|_| cache.current())).await;
    assert!(all.iter().all(Result::is_err));
    assert_eq!(fetches.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn credentials_are_renewed_before_they_end() {
    let (clock, fetches, cache) = minting(9, false);
    cache.current().await.unwrap();
    clock.0.store(3600 - 601, Ordering::SeqCst);
    assert_eq!(cache.current().await.unwrap().access_key_id(), "key0");
    clock.0.store(3600 - 299, Ordering::SeqCst);
    assert_eq!(cache.current().await.unwrap().access_key_id(), "key1");
    assert_eq!(fetches.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn old_credentials_serve_while_their_provider_is_down_but_not_beyond_their_end() {
    let (clock, _, cache) = minting(1, false);
    cache.current().await.unwrap();
    clock.0.store(3600 - 200, Ordering::SeqCst);
    assert_eq!(cache.current().await.unwrap().access_key_id(), "key0");
    clock.0.store(3601, Ordering::SeqCst);
    let error = cache.current().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::CredentialsExpired);
    assert!(
        error.detail.contains("the given provider") && error.detail.contains("token service is down"),
        "{error}"
    );
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[tokio::test]
async fn rejected_credentials_are_fetched_anew_and_getting_the_same_again_is_an_error() {
    let (_, fetches, cache) = minting(9, false);
    let first = cache.current().await.unwrap();
    cache.reject(&first).await;
    assert_eq!(cache.current().await.unwrap().access_key_id(), "key1");
    cache.reject(&first).await;
    assert_eq!(
        cache.current().await.unwrap().access_key_id(),
        "key1",
        "a late rejection of old keys is no reason"
    );
    assert_eq!(fetches.load(Ordering::SeqCst), 2);

    let (_, _, stuck) = minting(9, true);
    stuck.reject(&stuck.current().await.unwrap()).await;
    let error = stuck.current().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::CredentialsExpired);
}
