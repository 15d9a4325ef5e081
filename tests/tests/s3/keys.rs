//! Prefixes with every kind of character (C29), as another client sees them on real servers.

use std::sync::Arc;

use everstep_format::key::{Key, Prefix};
use everstep_format::name::{Ordinal, RunName};
use everstep_store::{Class, Store, StoreErrorKind, StoreOptions, SystemWorld, list_all, open};
use everstep_tests::servers::{Server, ministack, radosgw};

use crate::stores::body;

const ROOTS: [&str; 5] = ["my run/50%/a+b#c?d~e", "mäggi/模型", "x%20y", "exp", "a&b<c>'\"=;,@!*()"];

async fn at(server: &Server, bucket: &str, root: &str) -> Arc<dyn Store> {
    let options = StoreOptions { s3: server.options(), ..StoreOptions::default() };
    open(&format!("s3://{bucket}/{root}"), &options, Arc::new(SystemWorld::new())).await.unwrap()
}

fn intent(run: &str) -> Key {
    let run: RunName = run.parse().unwrap();
    Key::intent(&run, Ordinal(1))
}

async fn keys_are_spelled_as_given(server: &Server) {
    let bucket = server.bucket();
    for root in ROOTS.iter().chain(&[""]) {
        let store = at(server, &bucket, root).await;
        for run in ["run1", "run10"] {
            store.put(&intent(run), body(root), Class::Control).await.unwrap();
        }
        let of_run1 = list_all(&*store, &Prefix::run(&"run1".parse().unwrap())).await.unwrap();
        assert_eq!(of_run1.iter().map(|listed| &listed.key).collect::<Vec<_>>(), [&intent("run1")], "{root}");
    }
    let mut expected: Vec<String> =
        ROOTS.iter().map(|root| format!("{root}/")).chain([String::new()]).collect();
    expected = expected
        .iter()
        .flat_map(|root| ["run1", "run10"].map(|run| format!("{root}{}", intent(run))))
        .collect();
    let mut seen = server.keys(&bucket);
    expected.sort();
    seen.sort();
    assert_eq!(seen, expected);
    let raw = format!("{}/{}", ROOTS[0], intent("run1"));
    assert_eq!(server.client(&["get", &bucket, &raw]), ROOTS[0].as_bytes());

    for root in ROOTS.iter().chain(&[""]) {
        let store = at(server, &bucket, root).await;
        let results = store.delete(&[intent("run1")]).await.unwrap();
        assert!(results.iter().all(|deleted| deleted.result.is_ok()), "{results:?}");
    }
    assert_eq!(server.keys(&bucket).len(), expected.len() / 2, "run10 stays");
}

#[tokio::test]
async fn c29_keys_are_spelled_as_given_on_radosgw() {
    keys_are_spelled_as_given(radosgw()).await;
}

#[tokio::test]
async fn c29_keys_are_spelled_as_given_on_ministack() {
    keys_are_spelled_as_given(ministack()).await;
}

#[tokio::test]
async fn c29_slashes_at_the_ends_make_no_other_place_and_dots_are_refused() {
    let server = ministack();
    let bucket = server.bucket();
    for root in ["exp/", "exp//", "exp", "/exp"] {
        at(server, &bucket, root).await.put(&intent("r"), body("x"), Class::Control).await.unwrap();
    }
    for root in ["", "/"] {
        at(server, &bucket, root).await.put(&intent("r"), body("x"), Class::Control).await.unwrap();
    }
    assert_eq!(server.keys(&bucket), [format!("exp/{}", intent("r")), intent("r").to_string()]);
    let options = StoreOptions { s3: server.options(), ..StoreOptions::default() };
    let refused = open("s3://bucket/a/../b", &options, Arc::new(SystemWorld::new())).await.unwrap_err();
    assert_eq!(refused.kind, StoreErrorKind::Invalid);
}
