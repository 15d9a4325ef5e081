//! What the store's answers are turned into.

use everstep_format::key::Prefix;
use everstep_sim::s3_stub::{Action, Rule, S3Stub, StubSettings};
use everstep_store::s3::S3Options;
use everstep_store::{Class, Span, Store, StoreErrorKind};
use http::Method;

use crate::stores::{bare, body, key, options};

#[tokio::test]
async fn every_failed_key_of_a_batch_is_told_and_a_missing_answer_is_no_success() {
    let stub = S3Stub::start();
    let document = format!(
        "<DeleteResult><Deleted><Key>{}</Key></Deleted><Error><Key>{}</Key><Code>AccessDenied</Code>\
         <Message>locked</Message></Error><Error><Key>{}</Key><Code>SlowDown</Code></Error></DeleteResult>",
        key(1),
        key(2),
        key(3)
    );
    stub.rule(Rule::on(Method::POST, Action::Answer(200, document)));
    let results = bare(options(&stub)).await.delete(&[key(1), key(2), key(3), key(4)]).await.unwrap();
    let kinds: Vec<_> =
        results.iter().map(|deleted| deleted.result.as_ref().err().map(|error| error.kind)).collect();
    let expected =
        [None, Some(StoreErrorKind::Denied), Some(StoreErrorKind::Throttled), Some(StoreErrorKind::Server)];
    assert_eq!(kinds, expected);
    assert!(results[1].result.as_ref().unwrap_err().to_string().contains("locked"));
}

#[tokio::test]
async fn a_batch_delete_is_hashed_the_old_way_that_every_store_knows() {
    let stub = S3Stub::with(StubSettings { refuse_checksums: true, ..StubSettings::default() });
    stub.store("bucket", key(1).as_str(), "x");
    let results = bare(options(&stub)).await.delete(&[key(1)]).await.unwrap();
    assert!(results[0].result.is_ok(), "{results:?}");
    assert!(stub.seen()[0].header("content-md5").is_some());
    assert!(stub.objects("bucket").is_empty());
}

#[tokio::test]
async fn a_store_without_batch_deletes_is_asked_key_by_key_from_then_on() {
    let stub = S3Stub::with(StubSettings { no_batch_delete: true, ..StubSettings::default() });
    let store = bare(options(&stub)).await;
    for round in 1..=2 {
        stub.store("bucket", key(1).as_str(), "x");
        stub.rule(Rule::on(Method::DELETE, Action::Refuse(403, "AccessDenied")).at(key(3).as_str()).times(1));
        let results = store.delete(&[key(1), key(2), key(3)]).await.unwrap();
        let kinds: Vec<_> =
            results.iter().map(|deleted| deleted.result.as_ref().err().map(|error| error.kind)).collect();
        assert_eq!(kinds, [None, None, Some(StoreErrorKind::Denied)]);
        assert!(stub.objects("bucket").is_empty());
        assert_eq!(stub.seen().len(), 1 + 3 * round, "the batch was tried once");
    }
}

#[tokio::test]
async fn a_listing_that_says_more_but_not_where_is_an_error_and_no_loop() {
    let stub = S3Stub::start();
    let endless = "<ListBucketResult><IsTruncated>true</IsTruncated>\
                   <NextContinuationToken>again</NextContinuationToken></ListBucketResult>";
    for document in ["<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>", endless] {
        stub.clear_rules();
        stub.rule(Rule::on(Method::GET, Action::Answer(200, document.to_owned())));
        let store = bare(options(&stub)).await;
        let error = store.list(&Prefix::everything(), Some("again".to_owned())).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Server, "{error}");
    }
}

#[tokio::test]
async fn a_listing_that_is_no_listing_is_an_error() {
    let stub = S3Stub::start();
    for document in
        ["<Error><Code>InternalError</Code></Error>", "<html>welcome to the hotel</html>", "nonsense"]
    {
        stub.clear_rules();
        stub.rule(Rule::on(Method::GET, Action::Answer(200, document.to_owned())));
        let error = bare(options(&stub)).await.list(&Prefix::everything(), None).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Server, "{document}: {error}");
    }
}

#[tokio::test]
async fn entries_that_no_key_of_ours_can_be_are_strays() {
    let stub = S3Stub::start();
    for name in ["README.md", "runs/", "runs/a/intents/1", "notes & more"] {
        stub.store("bucket", name, "x");
    }
    let page = bare(options(&stub)).await.list(&Prefix::everything(), None).await.unwrap();
    assert_eq!(page.strays, ["README.md", "notes & more", "runs/"]);
    assert_eq!(page.objects.len(), 1);
}

#[tokio::test]
async fn a_missing_bucket_is_named() {
    let stub = S3Stub::with(StubSettings { buckets: vec!["other".to_owned()], ..StubSettings::default() });
    let store = bare(options(&stub)).await;
    let read = store.get(&key(1), Span::Whole).await.unwrap_err();
    let written = store.put(&key(1), body("x"), Class::Bulk).await.unwrap_err();
    for error in [read, written] {
        assert_eq!(error.kind, StoreErrorKind::NotFound);
        assert!(error.to_string().contains("no bucket bucket"), "{error}");
    }
}

#[tokio::test]
async fn a_bucket_in_another_region_is_told_with_its_region() {
    let stub = S3Stub::with(StubSettings { region: Some("eu-west-9".to_owned()), ..StubSettings::default() });
    let error = bare(options(&stub)).await.get(&key(1), Span::Whole).await.unwrap_err();
    assert!(error.to_string().contains("--region eu-west-9"), "{error}");
    let right = S3Options { region: Some("eu-west-9".to_owned()), ..options(&stub) };
    bare(right).await.put(&key(1), body("x"), Class::Bulk).await.unwrap();
}

#[tokio::test]
async fn encryption_key_and_storage_class_go_with_the_objects_they_are_for() {
    let stub = S3Stub::start();
    let store = bare(S3Options {
        kms_key: Some("key-1".to_owned()),
        storage_class: Some("STANDARD_IA".to_owned()),
        ..options(&stub)
    })
    .await;
    store.put(&key(1), body("x"), Class::Bulk).await.unwrap();
    store.create(&key(2), body("x")).await.unwrap();
    let seen = stub.seen();
    for request in &seen {
        assert_eq!(request.header("x-amz-server-side-encryption"), Some("aws:kms"));
        assert_eq!(request.header("x-amz-server-side-encryption-aws-kms-key-id"), Some("key-1"));
    }
    let classes: Vec<_> = seen.iter().map(|request| request.header("x-amz-storage-class")).collect();
    assert_eq!(classes, [Some("STANDARD_IA"), None]);
}

#[tokio::test]
async fn bodies_are_signed_over_plain_http() {
    let stub = S3Stub::with(StubSettings { refuse_unsigned: true, ..StubSettings::default() });
    let store = bare(options(&stub)).await;
    for class in [Class::Bulk, Class::Control] {
        store.put(&key(1), body("x"), class).await.unwrap();
    }
    assert_eq!(stub.seen().len(), 2);
}
