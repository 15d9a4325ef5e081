//! Which endpoint, region and style of address are used (C18).

use std::sync::Arc;

use everstep_sim::s3_stub::{S3Stub, StubSettings};
use everstep_store::s3::S3Options;
use everstep_store::{StoreErrorKind, SystemWorld};

use crate::child::Child;
use crate::stores::{open, options};

fn with_keys() -> Child {
    Child::new().set("AWS_ACCESS_KEY_ID", "AKIDSTUB").set("AWS_SECRET_ACCESS_KEY", "hidden")
}

#[test]
fn c18_the_endpoint_comes_from_either_variable_or_the_profile() {
    let stub = S3Stub::start();
    with_keys().set("AWS_ENDPOINT_URL_S3", &stub.url()).run().wrote();
    with_keys().set("AWS_ENDPOINT_URL", &stub.url()).run().wrote();
    let nobody = "http://127.0.0.1:9";
    with_keys().set("AWS_ENDPOINT_URL_S3", &stub.url()).set("AWS_ENDPOINT_URL", nobody).run().wrote();
    let config = format!("[default]\nendpoint_url = {}\n", stub.url());
    with_keys().file(".aws/config", &config).run().wrote();
    let config =
        format!("[default]\nservices = here\n[services here]\ns3 =\n  endpoint_url = {}\n", stub.url());
    with_keys().file(".aws/config", &config).run().wrote();
    with_keys().set("AWS_ENDPOINT_URL_S3", nobody).endpoint(&stub.url()).run().wrote();
    assert_eq!(stub.seen().len(), 6 * 20);
}

#[tokio::test]
async fn c18_plain_http_is_refused_unless_allowed() {
    let stub = S3Stub::start();
    let refused = S3Options { allow_http: false, ..options(&stub) };
    let error = open(refused, Arc::new(SystemWorld::new())).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Invalid);
    assert!(error.to_string().contains("--allow-http"), "{error}");
    assert!(stub.seen().is_empty());
}

#[test]
fn c18_plain_http_by_variable_is_refused_too() {
    let child = with_keys().set("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9").https_only();
    child.run().failed_with(&["Invalid", "--allow-http"]);
}

#[test]
fn c18_a_bucket_with_dots_goes_into_the_path() {
    let stub =
        S3Stub::with(StubSettings { buckets: vec!["ckpt.team.prod".to_owned()], ..StubSettings::default() });
    with_keys().endpoint(&stub.url()).address("s3://ckpt.team.prod/exp").run().wrote();
    assert!(stub.seen().iter().all(|seen| seen.raw_path.starts_with("/ckpt.team.prod/exp/")));
}

#[test]
fn c18_the_region_comes_from_option_variable_or_profile_and_any_will_do_for_an_own_endpoint() {
    let region_of = |child: Child| {
        let stub = S3Stub::start();
        child.endpoint(&stub.url()).run().wrote();
        stub.seen()[0].region().unwrap().to_owned()
    };
    let profile = "[default]\nregion = profile-1\n";
    assert_eq!(region_of(with_keys()), "us-east-1");
    assert_eq!(region_of(with_keys().file(".aws/config", profile)), "profile-1");
    assert_eq!(
        region_of(with_keys().file(".aws/config", profile).set("AWS_REGION", "variable-1")),
        "variable-1"
    );
    assert_eq!(region_of(with_keys().set("AWS_REGION", "variable-1").region("option-1")), "option-1");
}

#[test]
fn c18_without_endpoint_a_missing_region_is_told_with_every_source() {
    let said = with_keys().run();
    said.failed_with(&[
        "Invalid",
        "--region",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "profile",
        "instance metadata",
    ]);
}

#[test]
fn requests_go_through_the_proxy_of_the_environment() {
    let proxy = S3Stub::start();
    with_keys().set("HTTP_PROXY", &proxy.url()).endpoint("http://store.invalid").run().wrote();
    assert_eq!(proxy.objects("bucket").len(), 20);
    let hosts: Vec<_> = proxy.seen().iter().map(|seen| seen.header("host").map(str::to_owned)).collect();
    assert!(hosts.iter().all(|host| host.as_deref() == Some("store.invalid")), "{hosts:?}");
}
