//! Keys that end during an upload, clocks that differ, signatures that age (C16).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use everstep_sim::s3_stub::{Action, Rule, S3Stub, StubSettings};
use everstep_store::s3::{S3Credentials, S3Options};
use everstep_store::{Class, Span, Store, StoreErrorKind, World};
use http::Method;

use crate::stores::{JumpingWorld, SECRET, ShiftedWorld, bare, body, key, open, options, retried};

/// Asks the stub for keys of two seconds; fails from the `fails_from`th time on.
#[derive(Debug)]
struct TwoSeconds {
    stub: Arc<S3Stub>,
    fetches: Arc<AtomicU32>,
    fails_from: u32,
}

impl ProvideCredentials for TwoSeconds {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        if self.fetches.fetch_add(1, Ordering::SeqCst) >= self.fails_from {
            return future::ProvideCredentials::ready(Err(CredentialsError::provider_error(
                "vending machine broken",
            )));
        }
        let minted = self.stub.mint(Duration::from_secs(2));
        let expires = Some(minted.expires);
        let keys = Credentials::new(minted.access_key, SECRET, Some(minted.token), expires, "stub");
        future::ProvideCredentials::ready(Ok(keys))
    }
}

fn with_provider(stub: &Arc<S3Stub>, fails_from: u32) -> (Arc<AtomicU32>, S3Options) {
    let fetches = Arc::new(AtomicU32::new(0));
    let provider = TwoSeconds { stub: Arc::clone(stub), fetches: Arc::clone(&fetches), fails_from };
    let credentials = S3Credentials::Provider(SharedCredentialsProvider::new(provider));
    (fetches, S3Options { credentials, ..options(stub) })
}

#[tokio::test]
async fn c16_keys_of_two_seconds_outlast_a_save_of_six() {
    let world = ShiftedWorld::ahead(0);
    let stub = Arc::new(S3Stub::with(StubSettings { clock: world.clock(), ..StubSettings::default() }));
    let (fetches, options) = with_provider(&stub, u32::MAX);
    let store = open(options, Arc::<ShiftedWorld>::clone(&world)).await.unwrap();
    for number in 0..60 {
        if number % 10 == 9 {
            world.advance(1);
        }
        store.put(&key(number), body("x"), Class::Bulk).await.unwrap();
    }
    assert_eq!(stub.objects("bucket").len(), 60);
    let refusals = stub.seen().iter().filter(|request| request.status == Some(400)).count();
    assert_eq!(refusals, 0, "keys are renewed before they end");
    assert!((3..=7).contains(&fetches.load(Ordering::SeqCst)), "{fetches:?}");
}

#[tokio::test]
async fn c16_keys_that_the_store_ends_early_are_renewed_and_nothing_fails() {
    let stub = Arc::new(S3Stub::with(StubSettings { requests_per_key: Some(7), ..StubSettings::default() }));
    let (_, mut options) = with_provider(&stub, u32::MAX);
    options.idle_timeout = Duration::from_secs(10);
    let store = bare(options).await;
    for number in 0..60 {
        store.put(&key(number), body("x"), Class::Bulk).await.unwrap();
        store.get(&key(number), Span::Whole).await.unwrap();
    }
    assert!(stub.seen().iter().any(|request| request.status == Some(400)), "some keys were refused");
}

#[tokio::test]
async fn c16_a_provider_that_fails_is_named_at_once_and_no_secret_is_shown() {
    let stub = Arc::new(S3Stub::start());
    let (_, options) = with_provider(&stub, 1);
    let store = bare(options).await;
    store.put(&key(1), body("x"), Class::Bulk).await.unwrap();
    stub.expire_minted();
    let error = store.put(&key(2), body("x"), Class::Bulk).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::CredentialsExpired);
    let text = format!("{error} {error:?}");
    assert!(text.contains("the given provider") && text.contains("vending machine broken"), "{text}");
    assert!(!text.contains(SECRET) && !text.contains("session-"), "{text}");
}

#[tokio::test]
async fn c16_every_try_is_signed_anew_also_after_a_pause_of_sixteen_minutes() {
    let world = ShiftedWorld::ahead(0);
    let stub = S3Stub::with(StubSettings { clock: world.clock(), ..StubSettings::default() });
    stub.rule(Rule::on(Method::PUT, Action::Refuse(503, "SlowDown")).times(1));
    let store = open(options(&stub), Arc::<ShiftedWorld>::clone(&world)).await.unwrap();
    let pausing: Arc<dyn World> = Arc::new(JumpingWorld(world, 16 * 60));
    retried(store, pausing).put(&key(1), body("x"), Class::Bulk).await.unwrap();
    let seen = stub.seen();
    assert_eq!(seen.iter().map(|request| request.status).collect::<Vec<_>>(), [Some(503), Some(200)]);
    for header in ["x-amz-date", "authorization"] {
        assert_ne!(seen[0].header(header), seen[1].header(header), "{header}");
    }
}

#[tokio::test]
async fn c16_a_clock_that_is_twenty_minutes_off_is_corrected_by_the_stores() {
    for off in [20 * 60, -20 * 60] {
        let stub = S3Stub::start();
        let store = open(options(&stub), ShiftedWorld::ahead(off)).await.unwrap();
        for number in 0..3 {
            store.put(&key(number), body("x"), Class::Bulk).await.unwrap();
        }
        let refused = stub.seen().iter().filter(|request| request.status == Some(403)).count();
        assert_eq!(refused, 1, "only the first request is signed by the wrong clock");
    }
}

#[tokio::test]
async fn c16_a_clock_that_cannot_be_corrected_gives_one_error_with_the_difference() {
    let stub = S3Stub::start();
    stub.rule(Rule::always(Action::Refuse(403, "RequestTimeTooSkewed")));
    let store = open(options(&stub), ShiftedWorld::ahead(20 * 60)).await.unwrap();
    let error = store.put(&key(1), body("x"), Class::Bulk).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Denied);
    assert!(error.to_string().contains("clock differs by ~20 min"), "{error}");
    assert_eq!(stub.seen().len(), 2);
}
