use everstep_format::id::SessionId;

use super::*;
use crate::StoreErrorKind;
use crate::testing::{Fault, Scripted, StillWorld};

const SLOW_DOWN: Fault = Fault::Refused(StoreErrorKind::Throttled);
const DENIED: Fault = Fault::Refused(StoreErrorKind::Denied);

fn key(number: u32) -> Key {
    Key::probe(SessionId([7; 16]), number)
}

fn body() -> Payload {
    Payload::from(b"body".to_vec())
}

struct Setting {
    store: Retry<Scripted>,
    world: Arc<StillWorld>,
}

fn setting(script: impl IntoIterator<Item = Fault>, then: Option<Fault>) -> Setting {
    setting_with(RetryPolicy::default(), Scripted::new(script, then), 1)
}

fn setting_with(policy: RetryPolicy, inner: Scripted, seed: u64) -> Setting {
    let world = Arc::new(StillWorld::new(seed));
    Setting { store: Retry::new(inner, policy, world.clone(), Arc::default()), world }
}

#[tokio::test]
async fn c13_three_times_503_and_then_fine_is_fine_for_every_operation() {
    let three =
        || [SLOW_DOWN, Fault::Refused(StoreErrorKind::Server), Fault::Refused(StoreErrorKind::Unreachable)];
    let Setting { store, world } = setting(three(), None);
    store.put(&key(1), body(), Class::Bulk).await.unwrap();
    assert_eq!((store.inner.calls(), world.waits().len()), (4, 3));
    assert_eq!(store.counts.snapshot().retries, 3);
    for _ in 0..2 {
        store.inner.again(three());
        assert_eq!(store.get(&key(1), Span::Whole).await.unwrap().bytes, "body");
        store.inner.again(three());
        assert!(matches!(store.create(&key(2), body()).await.unwrap(), Create::Created));
        store.inner.again(three());
        assert_eq!(store.list(&Prefix::probes(), None).await.unwrap().objects.len(), 2);
        store.inner.again(three());
        assert!(store.delete(&[key(2)]).await.unwrap()[0].result.is_ok());
    }
}

#[tokio::test]
async fn c13_503_for_ever_is_one_error_with_tries_time_key_and_last_answer() {
    let Setting { store, world } = setting([], Some(SLOW_DOWN));
    let error = store.put(&key(1), body(), Class::Control).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Throttled);
    assert_eq!(error.attempts, RetryPolicy::default().attempts);
    assert_eq!(error.attempts, store.inner.calls());
    assert_eq!(error.elapsed, world.elapsed());
    assert!(error.elapsed > Duration::ZERO);
    let said = error.to_string();
    assert!(
        said.contains(key(1).as_str()) && said.contains("503 SlowDown") && said.contains("tried 10 times"),
        "{said}"
    );
}

#[tokio::test]
async fn c13_waits_are_random_below_a_doubling_ceiling() {
    let policy = RetryPolicy { budget: Duration::MAX, ..RetryPolicy::default() };
    let mut all = Vec::new();
    for seed in 0..40 {
        let Setting { store, world } = setting_with(policy, Scripted::new([], Some(SLOW_DOWN)), seed);
        store.put(&key(1), body(), Class::Bulk).await.unwrap_err();
        all.push(world.waits());
    }
    let first_waits: std::collections::BTreeSet<_> = all.iter().map(|waits| waits[0]).collect();
    assert!(
        first_waits.len() > 30,
        "clients that fail together must not come back together: {first_waits:?}"
    );
    let ceilings = [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 15_000].map(Duration::from_millis);
    for (number, ceiling) in ceilings.into_iter().enumerate() {
        let longest = all.iter().map(|waits| waits[number]).max().unwrap();
        assert!(longest <= ceiling && longest > ceiling / 2, "wait {number}: {longest:?} of {ceiling:?}");
    }
}

#[tokio::test]
async fn no_try_starts_after_the_budget() {
    let policy = RetryPolicy { attempts: u32::MAX, budget: Duration::from_secs(5), ..RetryPolicy::default() };
    let Setting { store, world } = setting_with(policy, Scripted::new([], Some(SLOW_DOWN)), 3);
    let error = store.get(&key(1), Span::Whole).await.unwrap_err();
    assert!(world.elapsed() <= policy.budget && error.attempts > 3);
}

#[tokio::test]
async fn what_cannot_pass_is_not_tried_again() {
    let Setting { store, world } = setting([], Some(DENIED));
    let error = store.get(&key(1), Span::Whole).await.unwrap_err();
    assert_eq!((error.attempts, store.inner.calls()), (1, 1));
    assert!(world.waits().is_empty());
}

#[tokio::test]
async fn c14_a_create_whose_reply_was_lost_says_exists_so_that_the_caller_reads_back() {
    let Setting { store, .. } = setting([Fault::ReplyLost], None);
    assert!(matches!(store.create(&key(1), body()).await.unwrap(), Create::Exists));
    assert_eq!(store.get(&key(1), Span::Whole).await.unwrap().bytes, "body");
}

#[tokio::test]
async fn c14_after_an_ambiguous_try_no_failure_claims_that_nothing_was_stored() {
    for then in [SLOW_DOWN, DENIED, Fault::Refused(StoreErrorKind::CredentialsExpired)] {
        let Setting { store, .. } = setting([Fault::ReplyLost], Some(then));
        match store.create(&key(1), body()).await {
            Ok(Create::Unknown(error)) => assert!(error.attempts > 1),
            other => panic!("{then:?} gave {other:?}"),
        }
    }
}

#[tokio::test]
async fn c14_replies_lost_for_ever_end_as_unknown() {
    let Setting { store, .. } = setting([], Some(Fault::ReplyLost));
    // The memory store says Exists underneath, but that answer never arrives.
    assert!(matches!(store.create(&key(1), body()).await, Ok(Create::Unknown(_))));
}

#[tokio::test]
async fn a_create_that_was_only_ever_refused_is_an_error_and_not_unknown() {
    let Setting { store, .. } = setting([], Some(SLOW_DOWN));
    assert_eq!(store.create(&key(1), body()).await.unwrap_err().kind, StoreErrorKind::Throttled);
}

#[tokio::test]
async fn a_batch_delete_tries_only_the_failed_keys_again() {
    let Setting { store, .. } = setting([Fault::KeysEndingWith('3')], None);
    let keys: Vec<Key> = (0..20).map(key).collect();
    let results = store.delete(&keys).await.unwrap();
    assert_eq!(store.inner.batches(), [20, 2]);
    assert_eq!(results.iter().map(|deleted| deleted.key.clone()).collect::<Vec<_>>(), keys);
    assert!(results.iter().all(|deleted| deleted.result.is_ok()));
}

#[tokio::test]
async fn c32_a_key_that_cannot_be_deleted_is_named_and_the_others_are_done() {
    let Setting { store, .. } = setting([], Some(Fault::KeysEndingWith('3')));
    let results = store.delete(&(0..4).map(key).collect::<Vec<_>>()).await.unwrap();
    let errors: Vec<&StoreError> =
        results.iter().filter_map(|deleted| deleted.result.as_ref().err()).collect();
    assert_eq!(errors.len(), 1);
    assert_eq!((errors[0].key.as_str(), errors[0].attempts), (key(3).as_str(), 10));
}

#[tokio::test]
async fn a_batch_delete_that_is_never_answered_fails_as_a_whole() {
    let Setting { store, .. } = setting([], Some(SLOW_DOWN));
    assert_eq!(store.delete(&[key(1)]).await.unwrap_err().attempts, 10);
}

#[tokio::test]
async fn a_failed_sync_is_not_papered_over_by_another_try() {
    let Setting { store, .. } = setting([Fault::Refused(StoreErrorKind::Server)], None);
    store.sync().await.unwrap_err();
    assert_eq!(store.inner.calls(), 1);
}
