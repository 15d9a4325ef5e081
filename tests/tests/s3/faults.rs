//! Throttling, failures, lost replies (C13, C14), and connections that stand still.

use std::time::{Duration, Instant};

use everstep_sim::s3_stub::{Action, Gate, Rule, S3Stub};
use everstep_store::s3::S3Options;
use everstep_store::{Class, Create, Span, Store, StoreErrorKind};
use futures::future::join_all;
use http::Method;

use crate::stores::{bare, body, decorated, key, options, quick, read};

#[tokio::test]
async fn c13_throttling_failures_and_resets_are_got_over_by_sixteen_writers_at_once() {
    let stub = S3Stub::start();
    for number in 0..16 {
        let at = format!("{}?", key(number));
        stub.rule(Rule::on(Method::PUT, Action::Refuse(503, "SlowDown")).at(&at).times(3));
    }
    stub.rule(Rule::on(Method::PUT, Action::ResetMidBody).at(&format!("{}?", key(3))).after(3).times(1));
    stub.rule(
        Rule::on(Method::PUT, Action::RefuseWith200("InternalError"))
            .at(&format!("{}?", key(4)))
            .after(3)
            .times(1),
    );
    stub.rule(Rule::on(Method::GET, Action::Refuse(500, "InternalError")).times(1));
    let store = decorated(&stub).await;

    let text = |number: u32| format!("object {number} ").repeat(40_000);
    let (numbers, store) = (0..16u32, &store);
    join_all(numbers.clone().map(|number| async move {
        store.put(&key(number), body(&text(number)), Class::Bulk).await.unwrap();
    }))
    .await;
    for number in numbers {
        assert_eq!(read(&**store, number).await, text(number).as_bytes());
        let tries = stub.seen().iter().filter(|seen| seen.raw_path.ends_with(key(number).as_str())).count();
        assert!(tries - 1 <= quick().attempts as usize, "{tries} tries of one put");
    }
    assert!(stub.seen().iter().all(|request| !request.is_multipart()));
}

#[tokio::test]
async fn c13_a_store_that_throttles_for_ever_gives_one_error_with_status_tries_time_and_key() {
    let stub = S3Stub::start();
    stub.rule(Rule::always(Action::Refuse(503, "SlowDown")));
    let error = decorated(&stub).await.put(&key(1), body("x"), Class::Bulk).await.unwrap_err();
    assert_eq!((error.kind, error.attempts), (StoreErrorKind::Throttled, quick().attempts));
    let text = error.to_string();
    for part in ["503", "SlowDown", "tried 6 times", key(1).as_str()] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    assert_eq!(stub.seen().len(), 6);
}

#[tokio::test]
async fn c14_a_create_that_landed_but_was_not_answered_is_found_by_reading_back() {
    for lost in
        [Action::DoThenDrop, Action::DoThenAnswer(409, "BlobAlreadyExists"), Action::DoThenAnswer(500, "")]
    {
        let stub = S3Stub::start();
        stub.rule(Rule::on(Method::PUT, lost.clone()).times(1));
        let bare = bare(options(&stub)).await;
        let outcome = bare.create(&key(1), body("mine")).await.unwrap();
        assert!(matches!(outcome, Create::Unknown(_)), "{lost:?}: {outcome:?}");

        stub.rule(Rule::on(Method::PUT, lost.clone()).after(0).times(1));
        let store = decorated(&stub).await;
        let outcome = store.create(&key(2), body("mine")).await.unwrap();
        assert!(matches!(outcome, Create::Exists), "{lost:?}: {outcome:?}");
        for number in [1, 2] {
            assert_eq!(read(&*store, number).await, b"mine");
        }
        assert_eq!(stub.objects("bucket").len(), 2);
    }
}

#[tokio::test]
async fn c14_a_passing_conflict_that_stored_nothing_is_tried_again() {
    let stub = S3Stub::start();
    stub.rule(Rule::on(Method::PUT, Action::Refuse(409, "ConditionalRequestConflict")).times(1));
    let outcome = decorated(&stub).await.create(&key(1), body("mine")).await.unwrap();
    assert!(matches!(outcome, Create::Created), "{outcome:?}");
}

#[tokio::test]
async fn c14_what_another_writer_stored_first_is_told_and_stays() {
    let stub = S3Stub::start();
    stub.store("bucket", key(1).as_str(), "theirs");
    stub.rule(Rule::on(Method::PUT, Action::Drop).times(1));
    let store = decorated(&stub).await;
    let outcome = store.create(&key(1), body("mine")).await.unwrap();
    assert!(matches!(outcome, Create::Exists), "{outcome:?}");
    assert_eq!(read(&*store, 1).await, b"theirs");
}

#[tokio::test]
async fn a_refused_create_surely_did_nothing() {
    let stub = S3Stub::start();
    let store = bare(options(&stub)).await;
    for (status, code, kind) in [
        (403, "AccessDenied", StoreErrorKind::Denied),
        (400, "InvalidRequest", StoreErrorKind::Invalid),
        (501, "NotImplemented", StoreErrorKind::Invalid),
        (507, "", StoreErrorKind::Full),
    ] {
        stub.clear_rules();
        stub.rule(Rule::on(Method::PUT, Action::Refuse(status, code)));
        assert_eq!(store.create(&key(1), body("x")).await.unwrap_err().kind, kind, "{status} {code}");
    }
}

#[tokio::test]
async fn a_store_that_accepts_and_then_says_nothing_is_given_up_after_the_idle_time() {
    let stub = S3Stub::start();
    let gate = Gate::closed();
    stub.rule(Rule::always(Action::HoldThenDo(gate.clone())));
    let idle_timeout = Duration::from_millis(200);
    let store = bare(S3Options { idle_timeout, ..options(&stub) }).await;
    #[expect(clippy::disallowed_methods, reason = "the idle time is real time here")]
    let started = Instant::now();
    let outcome = store.create(&key(1), body("x")).await.unwrap();
    assert!(started.elapsed() >= idle_timeout);
    let Create::Unknown(error) = outcome else { panic!("{outcome:?}") };
    assert!(error.kind == StoreErrorKind::Unreachable && error.detail.contains("nothing moved"), "{error}");
    let error = store.get(&key(1), Span::Whole).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unreachable);
    gate.open();
}

#[tokio::test]
async fn a_body_that_ends_early_is_read_again_and_never_handed_out_short() {
    let stub = S3Stub::start();
    let text = "0123456789".repeat(50_000);
    stub.store("bucket", key(1).as_str(), text.clone());
    stub.rule(Rule::on(Method::GET, Action::CutBody).times(2));
    let store = bare(options(&stub)).await;
    let error = store.get(&key(1), Span::Whole).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unreachable, "{error}");
    assert_eq!(read(&*decorated(&stub).await, 1).await, text.as_bytes());
}

#[tokio::test]
async fn nobody_listening_is_unreachable_with_the_cause() {
    let stub = S3Stub::start();
    let options = options(&stub);
    drop(stub);
    let error = bare(options).await.get(&key(1), Span::Whole).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unreachable);
    assert!(error.detail.contains("onnection refused"), "{error}");
}
