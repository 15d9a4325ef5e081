//! What every store, bare or decorated, must do. One suite for all of them: a new backend passes it or is not one.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use everstep_format::id::{AttemptId, ContentHash, PackId, SessionId};
use everstep_format::key::{Key, PackAddress, Prefix};
use everstep_format::name::{Ordinal, Rank, RunName};
use everstep_store::{Class, Create, Payload, Span, Store, StoreError, StoreErrorKind, list_all};
use futures::future::{BoxFuture, FutureExt as _, join_all};
use futures::stream::{self, StreamExt as _};

type SharedStore = Arc<dyn Store>;
type Check = fn(SharedStore) -> BoxFuture<'static, ()>;

/// Makes an empty store; called once per check.
pub type Factory<'a> = &'a (dyn Fn() -> BoxFuture<'a, Arc<dyn Store>> + Sync);

macro_rules! checks {
    ($($name:ident),* $(,)?) => {
        &[$((stringify!($name), |store| $name(store).boxed())),*]
    };
}

const CHECKS: &[(&str, Check)] = checks![
    a_whole_object_comes_back,
    a_range_is_exact,
    a_range_beyond_the_end_is_truncated,
    a_range_without_bytes_or_beyond_all_numbers_is_invalid,
    an_object_beyond_the_limit_is_too_large,
    what_is_not_there_is_not_found_by_name,
    another_put_replaces_the_bytes,
    the_same_put_again_changes_nothing,
    segments_follow_each_other,
    an_empty_object_is_an_object,
    twenty_mebibytes_survive,
    a_create_wins_once,
    a_create_does_not_touch_what_a_put_wrote,
    of_contended_creates_one_wins,
    after_a_delete_a_create_wins_again,
    a_listing_is_in_key_order,
    a_prefix_does_not_match_its_longer_neighbours,
    an_empty_prefix_lists_nothing,
    a_listing_tells_size_and_time,
    what_is_written_is_listed_at_once_and_what_is_deleted_is_not,
    more_objects_than_a_page_or_a_batch_holds,
    a_delete_answers_for_every_key_in_order,
    deleting_nothing_is_fine,
    a_sync_follows_puts_and_may_be_repeated,
    concurrent_puts_all_arrive,
    a_reader_sees_the_old_or_the_new_bytes_and_no_mixture,
    the_longest_keys_fit,
    a_store_describes_itself,
    the_probe_finds_creates_atomic,
];

/// Runs every check, each on a store of its own.
///
/// # Panics
/// With the names of the checks that failed.
pub async fn every_store_conforms(fresh: Factory<'_>) {
    let mut failed = Vec::new();
    for (name, check) in CHECKS {
        let store = fresh().await;
        if AssertUnwindSafe(check(store)).catch_unwind().await.is_err() {
            failed.push(*name);
        }
    }
    assert!(failed.is_empty(), "{} of {} checks failed: {}", failed.len(), CHECKS.len(), failed.join(", "));
}

fn key(number: u32) -> Key {
    Key::probe(SessionId([0x5a; 16]), number)
}

fn run(name: &str) -> RunName {
    name.parse().expect("a run name")
}

fn body(text: &str) -> Payload {
    Payload::from(text.as_bytes().to_vec())
}

async fn put(store: &SharedStore, key: &Key, text: &str) {
    store.put(key, body(text), Class::Bulk).await.unwrap();
}

async fn read(store: &SharedStore, key: &Key) -> Bytes {
    store.get(key, Span::Whole).await.unwrap().bytes
}

async fn range(store: &SharedStore, key: &Key, start: u64, len: u64) -> Result<Bytes, StoreError> {
    store.get(key, Span::Range { start, len }).await.map(|object| object.bytes)
}

async fn keys(store: &SharedStore, prefix: &Prefix) -> Vec<String> {
    list_all(&**store, prefix).await.unwrap().iter().map(|listed| listed.key.to_string()).collect()
}

/// `work` for every number at once, 32 in flight.
async fn for_each<F: Future<Output = ()>>(numbers: std::ops::Range<u32>, work: impl Fn(u32) -> F) {
    stream::iter(numbers.map(work)).buffer_unordered(32).collect::<Vec<()>>().await;
}

async fn a_whole_object_comes_back(store: SharedStore) {
    for class in [Class::Bulk, Class::Control] {
        store.put(&key(1), body("some bytes"), class).await.unwrap();
        assert_eq!(read(&store, &key(1)).await, "some bytes");
    }
}

async fn a_range_is_exact(store: SharedStore) {
    put(&store, &key(1), "0123456789").await;
    for (start, len, expected) in [(0, 10, "0123456789"), (0, 1, "0"), (9, 1, "9"), (3, 4, "3456")] {
        assert_eq!(range(&store, &key(1), start, len).await.unwrap(), expected);
    }
}

async fn a_range_beyond_the_end_is_truncated(store: SharedStore) {
    put(&store, &key(1), "0123456789").await;
    for (start, len) in [(0, 11), (9, 2), (10, 1), (1000, 1), (0, 1 << 40)] {
        let error = range(&store, &key(1), start, len).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Truncated, "{len} from {start}: {error}");
        assert_eq!(error.key, key(1).as_str());
    }
}

async fn a_range_without_bytes_or_beyond_all_numbers_is_invalid(store: SharedStore) {
    put(&store, &key(1), "0123456789").await;
    for (start, len) in [(0, 0), (3, 0), (u64::MAX, 2)] {
        let error = range(&store, &key(1), start, len).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Invalid, "{len} from {start}: {error}");
    }
}

async fn an_object_beyond_the_limit_is_too_large(store: SharedStore) {
    put(&store, &key(1), "0123456789").await;
    for limit in [10, 11, u64::MAX] {
        assert_eq!(store.get(&key(1), Span::AtMost(limit)).await.unwrap().bytes, "0123456789");
    }
    for limit in [0, 9] {
        let error = store.get(&key(1), Span::AtMost(limit)).await.unwrap_err();
        assert_eq!((error.kind, error.key.as_str()), (StoreErrorKind::TooLarge, key(1).as_str()), "{error}");
    }
    assert_eq!(store.get(&key(2), Span::AtMost(9)).await.unwrap_err().kind, StoreErrorKind::NotFound);
}

async fn what_is_not_there_is_not_found_by_name(store: SharedStore) {
    put(&store, &key(1), "x").await;
    let whole = store.get(&key(2), Span::Whole).await.unwrap_err();
    let part = range(&store, &key(2), 0, 1).await.unwrap_err();
    for error in [whole, part] {
        assert_eq!((error.kind, error.operation), (StoreErrorKind::NotFound, "get"), "{error}");
        assert_eq!(error.key, key(2).as_str());
        assert!(error.to_string().contains(key(2).as_str()), "{error}");
    }
}

async fn another_put_replaces_the_bytes(store: SharedStore) {
    for text in ["a longer text", "short", "", "as long as needed"] {
        store.put(&key(1), body(text), Class::Control).await.unwrap();
        assert_eq!(read(&store, &key(1)).await, text);
    }
    assert_eq!(keys(&store, &Prefix::everything()).await.len(), 1);
}

async fn the_same_put_again_changes_nothing(store: SharedStore) {
    for _ in 0..3 {
        put(&store, &key(1), "the same").await;
    }
    assert_eq!(read(&store, &key(1)).await, "the same");
}

async fn segments_follow_each_other(store: SharedStore) {
    let segments = ["header", "", "table", "payload"].map(|text| Bytes::from_static(text.as_bytes()));
    let body = Payload(segments.to_vec());
    store.put(&key(1), body.clone(), Class::Bulk).await.unwrap();
    store.create(&key(2), body).await.unwrap();
    for number in [1, 2] {
        assert_eq!(read(&store, &key(number)).await, "headertablepayload");
        assert_eq!(range(&store, &key(number), 5, 3).await.unwrap(), "rta");
    }
}

async fn an_empty_object_is_an_object(store: SharedStore) {
    store.put(&key(1), Payload::default(), Class::Bulk).await.unwrap();
    assert!(matches!(store.create(&key(2), Payload::default()).await.unwrap(), Create::Created));
    assert!(matches!(store.create(&key(2), body("x")).await.unwrap(), Create::Exists));
    for number in [1, 2] {
        assert_eq!(read(&store, &key(number)).await.len(), 0);
        let error = range(&store, &key(number), 0, 1).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Truncated, "{error}");
    }
    let sizes = list_all(&*store, &Prefix::probes()).await.unwrap();
    assert_eq!(sizes.iter().map(|listed| listed.size).collect::<Vec<_>>(), [0, 0]);
}

async fn twenty_mebibytes_survive(store: SharedStore) {
    let bytes: Vec<u8> =
        (0..5u32 << 20).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    store.put(&key(1), bytes.clone().into(), Class::Bulk).await.unwrap();
    store.sync().await.unwrap();
    assert_eq!(ContentHash::of(&read(&store, &key(1)).await), ContentHash::of(&bytes));
    let tail = range(&store, &key(1), bytes.len() as u64 - 16, 16).await.unwrap();
    assert_eq!(tail, bytes[bytes.len() - 16..]);
}

async fn a_create_wins_once(store: SharedStore) {
    assert!(matches!(store.create(&key(1), body("first")).await.unwrap(), Create::Created));
    for text in ["first", "second"] {
        assert!(matches!(store.create(&key(1), body(text)).await.unwrap(), Create::Exists));
    }
    assert_eq!(read(&store, &key(1)).await, "first");
}

async fn a_create_does_not_touch_what_a_put_wrote(store: SharedStore) {
    put(&store, &key(1), "put").await;
    assert!(matches!(store.create(&key(1), body("create")).await.unwrap(), Create::Exists));
    assert_eq!(read(&store, &key(1)).await, "put");
}

async fn of_contended_creates_one_wins(store: SharedStore) {
    for number in 0..3 {
        let bodies: Vec<Vec<u8>> = (0..20).map(|who| vec![who; 64 << 10]).collect();
        let target = key(number);
        let outcomes = join_all(bodies.iter().map(|body| store.create(&target, body.clone().into()))).await;
        let won = |who: &usize| matches!(outcomes[*who], Ok(Create::Created));
        let winners: Vec<usize> = (0..bodies.len()).filter(won).collect();
        assert_eq!(winners.len(), 1, "{outcomes:?}");
        assert!(read(&store, &target).await == bodies[winners[0]], "the winner's bytes");
    }
}

async fn after_a_delete_a_create_wins_again(store: SharedStore) {
    store.create(&key(1), body("first")).await.unwrap();
    store.delete(&[key(1)]).await.unwrap();
    assert!(matches!(store.create(&key(1), body("second")).await.unwrap(), Create::Created));
    assert_eq!(read(&store, &key(1)).await, "second");
}

async fn a_listing_is_in_key_order(store: SharedStore) {
    let sorted = ["runs/a-b/x", "runs/a.b", "runs/a/b", "runs/a/c/d", "runs/a0", "runs/ab", "sessions/1"];
    for text in sorted.iter().rev() {
        put(&store, &Key::listed(text).unwrap(), text).await;
    }
    assert_eq!(keys(&store, &Prefix::everything()).await, sorted);
    assert_eq!(keys(&store, &Prefix::runs()).await, sorted[..6]);
    let ordinals = [3, 20, 100, 9, u64::MAX].map(Ordinal);
    for ordinal in ordinals {
        put(&store, &Key::intent(&run("z"), ordinal), "x").await;
    }
    let expected = [3, 9, 20, 100, u64::MAX].map(|n| Key::intent(&run("z"), Ordinal(n)).to_string());
    assert_eq!(keys(&store, &Prefix::intents(&run("z"))).await, expected);
}

async fn a_prefix_does_not_match_its_longer_neighbours(store: SharedStore) {
    for name in ["run1", "run10", "run1-a", "run1.a", "run"] {
        put(&store, &Key::intent(&run(name), Ordinal(1)), name).await;
    }
    assert_eq!(keys(&store, &Prefix::run(&run("run1"))).await, ["runs/run1/intents/00000000000000000001"]);
    let gone: Vec<Key> = list_all(&*store, &Prefix::run(&run("run1")))
        .await
        .unwrap()
        .into_iter()
        .map(|listed| listed.key)
        .collect();
    store.delete(&gone).await.unwrap();
    assert_eq!(keys(&store, &Prefix::runs()).await.len(), 4);
    assert_eq!(read(&store, &Key::intent(&run("run10"), Ordinal(1))).await, "run10");
}

async fn an_empty_prefix_lists_nothing(store: SharedStore) {
    assert!(keys(&store, &Prefix::everything()).await.is_empty());
    put(&store, &key(1), "x").await;
    let page = store.list(&Prefix::runs(), None).await.unwrap();
    assert!(page.objects.is_empty() && page.next.is_none() && page.strays.is_empty());
}

async fn a_listing_tells_size_and_time(store: SharedStore) {
    put(&store, &key(1), "0123456789").await;
    let listed = list_all(&*store, &Prefix::probes()).await.unwrap().remove(0);
    assert_eq!((listed.key, listed.size), (key(1), 10));
    // The store's clock need not be ours; but it is no empty field.
    let year_2000 = SystemTime::UNIX_EPOCH + Duration::from_secs(946_684_800);
    assert!(listed.modified > year_2000);
}

async fn what_is_written_is_listed_at_once_and_what_is_deleted_is_not(store: SharedStore) {
    for number in 0..10 {
        put(&store, &key(number), "x").await;
        assert!(keys(&store, &Prefix::probes()).await.contains(&key(number).to_string()));
        store.delete(&[key(number)]).await.unwrap();
        assert!(keys(&store, &Prefix::probes()).await.is_empty());
        assert_eq!(store.get(&key(number), Span::Whole).await.unwrap_err().kind, StoreErrorKind::NotFound);
    }
}

async fn more_objects_than_a_page_or_a_batch_holds(store: SharedStore) {
    const OBJECTS: u32 = 1100;
    for_each(0..OBJECTS, |number| {
        let store = store.clone();
        async move { put(&store, &key(number), "x").await }
    })
    .await;
    let listed = keys(&store, &Prefix::probes()).await;
    assert!(listed.is_sorted());
    assert_eq!(listed.iter().collect::<BTreeSet<_>>().len(), OBJECTS as usize);
    let with_missing: Vec<Key> = (0..OBJECTS + 100).map(key).collect();
    let results = store.delete(&with_missing).await.unwrap();
    assert!(results.iter().map(|deleted| &deleted.key).eq(&with_missing));
    assert!(results.iter().all(|deleted| deleted.result.is_ok()));
    assert!(keys(&store, &Prefix::probes()).await.is_empty());
}

async fn a_delete_answers_for_every_key_in_order(store: SharedStore) {
    put(&store, &key(2), "x").await;
    put(&store, &key(4), "stays").await;
    let asked = [key(3), key(2), key(1)];
    let results = store.delete(&asked).await.unwrap();
    assert!(results.iter().map(|deleted| &deleted.key).eq(&asked));
    assert!(results.iter().all(|deleted| deleted.result.is_ok()), "what was not there counts as deleted");
    assert_eq!(keys(&store, &Prefix::probes()).await, [key(4).to_string()]);
}

async fn deleting_nothing_is_fine(store: SharedStore) {
    assert!(store.delete(&[]).await.unwrap().is_empty());
}

async fn a_sync_follows_puts_and_may_be_repeated(store: SharedStore) {
    store.sync().await.unwrap();
    for number in 0..5 {
        put(&store, &key(number), "x").await;
    }
    store.delete(&[key(0)]).await.unwrap();
    for _ in 0..2 {
        store.sync().await.unwrap();
    }
    assert_eq!(keys(&store, &Prefix::probes()).await.len(), 4);
}

async fn concurrent_puts_all_arrive(store: SharedStore) {
    for_each(0..100, |number| {
        let store = store.clone();
        async move { put(&store, &key(number), &format!("body {number}")).await }
    })
    .await;
    for_each(0..100, |number| {
        let store = store.clone();
        async move { assert_eq!(read(&store, &key(number)).await, format!("body {number}")) }
    })
    .await;
}

async fn a_reader_sees_the_old_or_the_new_bytes_and_no_mixture(store: SharedStore) {
    let text = |number: u8| Payload::from(vec![number; 100_000]);
    store.put(&key(1), text(0), Class::Control).await.unwrap();
    let writing = async {
        for number in 1..20 {
            store.put(&key(1), text(number), Class::Control).await.unwrap();
        }
    };
    let reading = async {
        for _ in 0..20 {
            let bytes = read(&store, &key(1)).await;
            assert_eq!(bytes.len(), 100_000);
            assert!(bytes.iter().all(|byte| *byte == bytes[0]), "two writes mixed");
        }
    };
    futures::join!(writing, reading);
    assert_eq!(read(&store, &key(1)).await[0], 19);
}

async fn the_longest_keys_fit(store: SharedStore) {
    let attempt = AttemptId([0xff; 16]);
    let longest_run = run(&"r".repeat(everstep_format::limits::RUN_NAME_BYTES));
    let pack = PackAddress { attempt, rank: Rank(u32::MAX), pack: PackId([0xff; 32]) };
    let longest = [
        Key::decision(&longest_run, Ordinal(u64::MAX)),
        Key::pack(&pack),
        Key::index(attempt, ContentHash([0xff; 32])),
        Key::part(attempt, Rank(u32::MAX), ContentHash([0xff; 32])),
    ];
    for key in &longest {
        assert!(matches!(store.create(key, body(key.as_str())).await.unwrap(), Create::Created), "{key}");
        assert_eq!(read(&store, key).await, key.as_str());
    }
    assert_eq!(keys(&store, &Prefix::decisions(&longest_run)).await, [longest[0].to_string()]);
    assert_eq!(keys(&store, &Prefix::packs_of(attempt, Rank(u32::MAX))).await, [longest[1].to_string()]);
    assert_eq!(keys(&store, &Prefix::everything()).await.len(), longest.len());
    store.delete(&longest).await.unwrap();
}

async fn a_store_describes_itself(store: SharedStore) {
    assert!(!store.describe().is_empty());
    assert_ne!(store.free_space().await.unwrap(), Some(0));
}

async fn the_probe_finds_creates_atomic(store: SharedStore) {
    let world = everstep_store::SystemWorld::new();
    let report = everstep_store::probe(&*store, &world, Default::default()).await.unwrap();
    assert_eq!(report.verdict, everstep_store::Verdict::Atomic, "{report:?}");
    assert!(keys(&store, &Prefix::everything()).await.is_empty(), "the probe cleans up");
}
