//! TLS: certificates of one's own, and bodies that need no signature.

use everstep_sim::s3_stub::{S3Stub, StubSettings};

use crate::child::Child;

fn stub(refuse_unsigned: bool) -> S3Stub {
    S3Stub::with(StubSettings { tls: true, refuse_unsigned, ..StubSettings::default() })
}

fn child(stub: &S3Stub) -> Child {
    Child::new()
        .endpoint(&stub.url())
        .https_only()
        .set("AWS_ACCESS_KEY_ID", "AKIDSTUB")
        .set("AWS_SECRET_ACCESS_KEY", "hidden")
}

fn trusting(stub: &S3Stub) -> Child {
    let child = child(stub).file("ca.pem", stub.authority().unwrap());
    let path = child.home().join("ca.pem");
    child.set("AWS_CA_BUNDLE", path.to_str().unwrap())
}

fn unsigned(stub: &S3Stub) -> usize {
    let unsigned = |value: Option<&str>| value == Some("UNSIGNED-PAYLOAD");
    stub.seen().iter().filter(|seen| unsigned(seen.header("x-amz-content-sha256"))).count()
}

#[test]
fn bulk_bodies_go_unsigned_over_https_with_a_trusted_certificate() {
    let stub = stub(false);
    trusting(&stub).run().wrote();
    assert_eq!((unsigned(&stub), stub.objects("bucket").len()), (20, 20));
}

#[test]
fn a_profile_may_name_the_trusted_certificates() {
    let stub = stub(false);
    let child = child(&stub).file("ca.pem", stub.authority().unwrap());
    let config = format!("[default]\nca_bundle = {}\n", child.home().join("ca.pem").display());
    child.file(".aws/config", &config).run().wrote();
}

#[test]
fn a_store_that_wants_signed_bodies_is_asked_once_per_store() {
    let stub = stub(true);
    trusting(&stub).run().wrote();
    assert_eq!((unsigned(&stub), stub.objects("bucket").len()), (4, 20), "four stores were opened");
}

#[test]
fn a_certificate_that_nobody_trusts_is_refused_and_the_way_out_is_told() {
    let stub = stub(false);
    child(&stub).run().failed_with(&["Invalid", "certificate", "AWS_CA_BUNDLE"]);
    assert!(stub.seen().is_empty());
}

#[test]
fn a_bundle_without_or_with_a_damaged_certificate_is_told() {
    let stub = stub(false);
    let with_bundle = |text: &str| {
        let child = child(&stub).file("ca.pem", text);
        let path = child.home().join("ca.pem");
        child.set("AWS_CA_BUNDLE", path.to_str().unwrap()).run()
    };
    with_bundle("nothing").failed_with(&["Invalid", "AWS_CA_BUNDLE", "no certificate"]);
    let damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    with_bundle(damaged).failed_with(&["Invalid", "AWS_CA_BUNDLE", "damaged"]);
    child(&stub).set("AWS_CA_BUNDLE", "/nowhere.pem").run().failed_with(&["Invalid", "/nowhere.pem"]);
}
