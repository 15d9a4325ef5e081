//! S3: the stub, ministack and Ceph conform; rclone, and a stub like it, are refused by the probe. Azure and Google: Azurite
//! and the stub conform.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use everstep_sim::s3_stub::{S3Stub, StubSettings};
use everstep_store::cloud::{Cloud, CloudOptions};
use everstep_store::s3::{Keys, S3Options};
use everstep_store::{ProbeSettings, Store, SystemWorld, Verdict, probe};
use everstep_tests::conformance::every_store_conforms;
use everstep_tests::servers::{
    Server, azurite, google_options, ministack, open, open_cloud, radosgw, rclone, reaching,
};
use futures::FutureExt as _;

async fn server_conforms(server: &'static Server) {
    conforms(&server.bucket(), &server.options()).await;
}

/// Every check gets a root of its own in one bucket.
async fn conforms(bucket: &str, options: &S3Options) {
    let checks = AtomicU32::new(0);
    every_store_conforms(&|| {
        let root = format!("check {}", checks.fetch_add(1, Ordering::Relaxed));
        async move { Arc::new(open(bucket, &root, options.clone()).await) as Arc<dyn Store> }.boxed()
    })
    .await;
}

fn stub_options(stub: &S3Stub) -> S3Options {
    let (access_key, secret_key) = ("AKIDSTUB".to_owned(), "hidden".to_owned());
    reaching(&stub.url(), Keys { access_key, secret_key, token: None, expires: None })
}

#[tokio::test]
async fn the_s3_stub_conforms() {
    let stub = S3Stub::with(StubSettings { page_keys: 300, ..StubSettings::default() });
    conforms("bucket", &stub_options(&stub)).await;
    assert!(stub.seen().iter().all(|request| !request.is_multipart()));
}

#[tokio::test]
async fn ministack_conforms() {
    server_conforms(ministack()).await;
}

#[tokio::test]
async fn ceph_radosgw_conforms() {
    server_conforms(radosgw()).await;
}

/// As [`conforms`], in one container or bucket.
async fn cloud_conforms(cloud: Cloud, bucket: &str, options: &CloudOptions) {
    let checks = AtomicU32::new(0);
    every_store_conforms(&|| {
        let root = format!("check {}", checks.fetch_add(1, Ordering::Relaxed));
        async move { Arc::new(open_cloud(cloud, (bucket, &root), options.clone()).await) as Arc<dyn Store> }
            .boxed()
    })
    .await;
}

#[tokio::test]
async fn azurite_conforms() {
    let server = azurite();
    cloud_conforms(Cloud::Azure, &server.container(), &server.options()).await;
}

#[tokio::test]
async fn googles_stub_conforms() {
    let google = StubSettings { google: true, page_keys: 300, ..StubSettings::default() };
    let stub = S3Stub::with(google);
    cloud_conforms(Cloud::Google, "bucket", &google_options(&stub)).await;
    assert!(stub.seen().iter().all(|request| !request.is_multipart()));
}

async fn is_refused(store: &dyn Store) {
    let report = probe(store, &SystemWorld::new(), ProbeSettings::default()).await.unwrap();
    assert_ne!(report.verdict, Verdict::Atomic, "{report:?}");
}

#[tokio::test]
async fn rclone_is_refused_because_it_ignores_the_condition() {
    let server = rclone();
    is_refused(&server.store(&server.bucket(), "").await).await;
}

#[tokio::test]
async fn a_stub_that_ignores_the_condition_is_refused() {
    let stub = S3Stub::with(StubSettings { ignore_conditions: true, ..StubSettings::default() });
    is_refused(&open("bucket", "", stub_options(&stub)).await).await;
}
