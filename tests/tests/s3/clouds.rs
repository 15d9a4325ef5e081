//! Google and Azure: the same faults as for S3, the same prefixes, no secret in any message.

use std::sync::Arc;
use std::time::Duration;

use everstep_format::key::{Key, Prefix};
use everstep_sim::s3_stub::{Action, Gate, Rule, S3Stub, StubSettings};
use everstep_store::cloud::{Cloud, CloudCredentials, CloudOptions, CloudStore, Secret};
use everstep_store::{
    Class, Create, Span, Store, StoreErrorKind, StoreOptions, SystemWorld, decorate, list_all,
};
use everstep_tests::servers::{azurite, google_options, open_cloud};
use http::Method;

use crate::stores::{body, key, quick, read};

fn google() -> S3Stub {
    S3Stub::with(StubSettings { google: true, ..StubSettings::default() })
}

async fn bare(options: CloudOptions) -> CloudStore {
    open_cloud(Cloud::Google, ("bucket", ""), options).await
}

async fn decorated(stub: &S3Stub) -> Arc<dyn Store> {
    let settings = StoreOptions { retry: quick(), ..StoreOptions::default() };
    decorate(bare(google_options(stub)).await, &settings, Arc::new(SystemWorld::new()))
}

#[tokio::test]
async fn c13_google_throttling_and_failures_are_got_over() {
    let stub = google();
    for (status, code) in [(429, "TooManyRequests"), (503, "SlowDown"), (500, "InternalError")] {
        stub.rule(Rule::on(Method::PUT, Action::Refuse(status, code)).times(1));
        stub.rule(Rule::on(Method::GET, Action::Refuse(status, code)).times(1));
        stub.rule(Rule::on(Method::DELETE, Action::Refuse(status, code)).times(1));
    }
    let store = decorated(&stub).await;
    store.put(&key(1), body("x"), Class::Bulk).await.unwrap();
    assert_eq!(read(&*store, 1).await, b"x");
    assert!(store.delete(&[key(1), key(2)]).await.unwrap().iter().all(|deleted| deleted.result.is_ok()));
    assert!(stub.objects("bucket").is_empty());
}

#[tokio::test]
async fn c13_google_one_call_is_one_request_whatever_the_answer() {
    let stub = google();
    let store = bare(google_options(&stub)).await;
    for (fault, kind) in [
        (Action::Refuse(503, "SlowDown"), StoreErrorKind::Throttled),
        (Action::Refuse(429, "x"), StoreErrorKind::Throttled),
        (Action::Refuse(500, "InternalError"), StoreErrorKind::Server),
        (Action::Refuse(403, "AccessDenied"), StoreErrorKind::Denied),
        (Action::Refuse(404, "NoSuchBucket"), StoreErrorKind::NotFound),
        (Action::Refuse(507, ""), StoreErrorKind::Full),
        (Action::Drop, StoreErrorKind::Unreachable),
    ] {
        stub.clear_rules();
        let before = stub.seen().len();
        stub.rule(Rule::always(fault.clone()));
        let error = store.put(&key(1), body("x"), Class::Bulk).await.unwrap_err();
        assert_eq!(error.kind, kind, "{fault:?}: {error}");
        assert_eq!(store.get(&key(1), Span::Whole).await.unwrap_err().kind, kind, "{fault:?}");
        assert_eq!(store.list(&Prefix::probes(), None).await.unwrap_err().kind, kind, "{fault:?}");
        let deleted = store.delete(&[key(1)]).await.unwrap().remove(0).result;
        assert_eq!(deleted.unwrap_err().kind, kind, "{fault:?}");
        assert_eq!(stub.seen().len() - before, 4, "{fault:?}: no request was repeated");
    }
}

#[tokio::test]
async fn c14_google_a_create_whose_reply_was_lost_is_unknown_and_never_a_false_answer() {
    for lost in [
        Action::DoThenDrop,
        Action::DoThenAnswer(503, "SlowDown"),
        Action::DoThenAnswer(500, ""),
        Action::DoThenAnswer(409, "Conflict"),
        Action::Answer(200, String::new()),
    ] {
        let stub = google();
        stub.rule(Rule::on(Method::PUT, lost.clone()).times(1));
        let store = bare(google_options(&stub)).await;
        let outcome = store.create(&key(1), body("mine")).await.unwrap();
        assert!(matches!(outcome, Create::Unknown(_)), "{lost:?}: {outcome:?}");
        assert_eq!(stub.seen().len(), 1, "{lost:?}");
    }
    let stub = google();
    stub.rule(Rule::on(Method::PUT, Action::DoThenDrop).times(1));
    let store = decorated(&stub).await;
    let outcome = store.create(&key(1), body("mine")).await.unwrap();
    assert!(matches!(outcome, Create::Exists), "to be resolved by reading: {outcome:?}");
    assert_eq!(read(&*store, 1).await, b"mine");
}

#[tokio::test]
async fn c14_google_a_refused_create_surely_did_nothing() {
    let stub = google();
    let store = bare(google_options(&stub)).await;
    for (status, kind) in [(403, StoreErrorKind::Denied), (400, StoreErrorKind::Invalid)] {
        stub.clear_rules();
        stub.rule(Rule::on(Method::PUT, Action::Refuse(status, "")));
        assert_eq!(store.create(&key(1), body("x")).await.unwrap_err().kind, kind);
    }
}

#[tokio::test]
async fn google_a_store_that_says_nothing_is_given_up_after_the_idle_time_and_a_cut_body_is_never_handed_out()
{
    let stub = google();
    let gate = Gate::closed();
    let text = "0123456789".repeat(50_000);
    stub.store("bucket", key(1).as_str(), text.clone());
    stub.rule(Rule::on(Method::GET, Action::CutBody).times(1));
    let options = CloudOptions { idle_timeout: Duration::from_millis(200), ..google_options(&stub) };
    let store = bare(options).await;
    let error = store.get(&key(1), Span::Whole).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unreachable, "{error}");
    assert_eq!(read(&store, 1).await, text.as_bytes());
    stub.rule(Rule::always(Action::HoldThenDo(gate.clone())));
    let outcome = store.create(&key(2), body("x")).await.unwrap();
    let Create::Unknown(error) = outcome else { panic!("{outcome:?}") };
    assert!(error.detail.contains("nothing moved"), "{error}");
    gate.open();
}

#[tokio::test]
async fn c29_google_and_azure_spell_keys_as_given() {
    let (stub, azure) = (google(), azurite());
    let container = azure.container();
    let roots = ["my run/50%/a+b#c?d~e", "m\u{e4}ggi/\u{6a21}\u{578b}", "x%20y", "a&b<c>'\"=;,@!*()", ""];
    let intent = Key::intent(&"run".parse().unwrap(), everstep_format::name::Ordinal(1));
    for root in roots {
        let google = open_cloud(Cloud::Google, ("bucket", root), google_options(&stub)).await;
        let azure = open_cloud(Cloud::Azure, (&container, root), azure.options()).await;
        for store in [google, azure] {
            store.put(&intent, body(root), Class::Control).await.unwrap();
            assert_eq!(store.get(&intent, Span::Whole).await.unwrap().bytes, root.as_bytes());
            let listed = list_all(&store, &Prefix::runs()).await.unwrap();
            assert_eq!(listed.iter().map(|listed| &listed.key).collect::<Vec<_>>(), [&intent], "{root}");
        }
    }
    let mut expected: Vec<String> = roots.iter().map(|root| format!("{root}/{intent}")).collect();
    expected[4] = intent.to_string();
    expected.sort();
    let stored: Vec<String> = stub.objects("bucket").into_iter().map(|(key, _)| key).collect();
    let mut seen = azure.keys(&container);
    seen.sort();
    assert_eq!((stored, seen), (expected.clone(), expected));
}

#[tokio::test]
async fn azure_wrong_keys_and_missing_containers_are_told_without_the_secret() {
    let azure = azurite();
    let secret = "c2VjcmV0LXRoYXQtbm9ib2R5LXNlZXM=";
    let wrong = CloudOptions {
        credentials: CloudCredentials::AccountKey(Secret(secret.to_owned())),
        ..azure.options()
    };
    assert!(!format!("{wrong:?}").contains(secret));
    let store = open_cloud(Cloud::Azure, (&azure.container(), ""), wrong).await;
    let error = store.put(&key(1), body("x"), Class::Control).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Denied, "{error}");
    assert!(!error.to_string().contains(secret) && error.detail.contains("403"), "{error}");
    let store = open_cloud(Cloud::Azure, ("no-such-container", ""), azure.options()).await;
    let error = store.create(&key(1), body("x")).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::NotFound);
    assert!(error.detail.contains("az://no-such-container"), "{error}");
}

#[tokio::test]
async fn plain_http_and_a_missing_account_are_refused_at_once() {
    let open = |address: &'static str, cloud: CloudOptions| async move {
        let options = StoreOptions { cloud, ..StoreOptions::default() };
        everstep_store::open(address, &options, Arc::new(SystemWorld::new())).await.unwrap_err()
    };
    for address in ["gs://bucket/x", "az://container/x"] {
        let plain = CloudOptions {
            account: Some("a".to_owned()),
            endpoint_url: Some("http://127.0.0.1:9".to_owned()),
            credentials: CloudCredentials::Token(Secret("t".to_owned())),
            ..CloudOptions::default()
        };
        let error = open(address, plain).await;
        assert!(error.kind == StoreErrorKind::Invalid && error.detail.contains("--allow-http"), "{error}");
    }
    let error = open("az://container/x", CloudOptions::default()).await;
    assert!(error.kind == StoreErrorKind::Invalid && error.detail.contains("--account"), "{error}");
}
