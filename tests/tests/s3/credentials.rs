//! Where credentials come from (C18), and that they are renewed and fetched once (C16).

use std::time::Duration;

use everstep_sim::s3_stub::{Action, Gate, Rule, S3Stub, StubSettings};

use crate::child::Child;

/// The keys that requests for objects were signed with, each once, in order.
fn signers(stub: &S3Stub) -> Vec<String> {
    let mut keys: Vec<String> = stub
        .seen()
        .iter()
        .filter(|seen| seen.raw_path.starts_with("/bucket"))
        .filter_map(|seen| Some(seen.access_key()?.to_owned()))
        .collect();
    keys.dedup();
    keys
}

fn requests_to(stub: &S3Stub, path: &str) -> usize {
    stub.seen().iter().filter(|seen| seen.raw_path == path).count()
}

fn stub_of(key: &str) -> S3Stub {
    S3Stub::with(StubSettings { access_keys: vec![key.to_owned()], ..StubSettings::default() })
}

#[test]
fn c18_keys_in_the_environment() {
    let stub = stub_of("AKIDENV");
    let child = Child::new()
        .endpoint(&stub.url())
        .set("AWS_ACCESS_KEY_ID", "AKIDENV")
        .set("AWS_SECRET_ACCESS_KEY", "hidden")
        .set("AWS_SESSION_TOKEN", "session-env");
    child.run().wrote();
    assert_eq!(signers(&stub), ["AKIDENV"]);
    assert_eq!(stub.seen()[0].header("x-amz-security-token"), Some("session-env"));
}

const STATIC_PROFILES: &str = "[default]\naws_access_key_id = AKIDDEFAULT\naws_secret_access_key = hidden\n\
                               [research]\naws_access_key_id = AKIDRESEARCH\naws_secret_access_key = hidden\n";

#[test]
fn c18_a_static_profile_by_variable_and_by_default() {
    let stub = stub_of("AKIDRESEARCH");
    let child = Child::new().endpoint(&stub.url()).file(".aws/credentials", STATIC_PROFILES);
    child.set("AWS_PROFILE", "research").run().wrote();
    assert_eq!(signers(&stub), ["AKIDRESEARCH"]);

    let stub = stub_of("AKIDDEFAULT");
    Child::new().endpoint(&stub.url()).file(".aws/credentials", STATIC_PROFILES).run().wrote();
    assert_eq!(signers(&stub), ["AKIDDEFAULT"]);
}

#[test]
fn c18_a_profile_named_by_option_beats_keys_in_the_environment() {
    let stub = stub_of("AKIDRESEARCH");
    let child = Child::new()
        .endpoint(&stub.url())
        .file(".aws/credentials", STATIC_PROFILES)
        .set("AWS_ACCESS_KEY_ID", "AKIDENV")
        .set("AWS_SECRET_ACCESS_KEY", "hidden");
    child.profile("research").run().wrote();
    assert_eq!(signers(&stub), ["AKIDRESEARCH"]);
}

#[test]
fn c18_a_profile_that_is_not_there_is_named() {
    let child = Child::new().endpoint("http://127.0.0.1:9").profile("reserch");
    child.file(".aws/credentials", STATIC_PROFILES).run().failed_with(&["Denied", "profile reserch"]);
}

#[test]
fn c18_a_profile_that_assumes_a_role() {
    let stub = S3Stub::start();
    let config =
        "[profile role]\nrole_arn = arn:aws:iam::1:role/stub\nsource_profile = default\nregion = us-east-1\n";
    let child = Child::new()
        .endpoint(&stub.url())
        .file(".aws/credentials", STATIC_PROFILES)
        .file(".aws/config", config)
        .set("AWS_ENDPOINT_URL_STS", &stub.url());
    child.profile("role").run().wrote();
    assert_eq!(signers(&stub), ["ASIASTUB0000"]);
}

#[test]
fn c18_a_profile_with_single_sign_on() {
    let stub = S3Stub::start();
    let config = "[profile sso]\nsso_session = stub-session\nsso_account_id = 1\nsso_role_name = stub\n\
                  [sso-session stub-session]\nsso_region = us-east-1\nsso_start_url = https://stub.invalid/start\n";
    let token = r#"{"accessToken":"stub-sso-token","expiresAt":"2100-01-01T00:00:00Z","region":"us-east-1"}"#;
    let child = Child::new()
        .endpoint(&stub.url())
        .file(".aws/config", config)
        // The name is the SHA-1 of the session's name.
        .file(".aws/sso/cache/1284532e24c57876ecd3255b25c3588ddd59a31c.json", token)
        .set("AWS_ENDPOINT_URL_SSO", &stub.url())
        .set("AWS_PROFILE", "sso");
    child.run().wrote();
    assert_eq!(signers(&stub), ["ASIASTUB0000"]);
    assert_eq!(requests_to(&stub, "/federation/credentials"), 1);
}

#[test]
fn c18_a_profile_with_single_sign_on_that_has_ended_says_so() {
    let config = "[profile sso]\nsso_session = stub-session\nsso_account_id = 1\nsso_role_name = stub\n\
                  [sso-session stub-session]\nsso_region = us-east-1\nsso_start_url = https://stub.invalid/start\n";
    let child = Child::new().endpoint("http://127.0.0.1:9").file(".aws/config", config).profile("sso");
    child.run().failed_with(&["Denied", "profile sso", "SSO"]);
}

#[test]
fn c18_a_credential_process() {
    let stub = stub_of("AKIDPROCESS");
    let keys = r#"{"Version": 1, "AccessKeyId": "AKIDPROCESS", "SecretAccessKey": "hidden"}"#;
    let child = Child::new().endpoint(&stub.url()).file("keys.json", keys);
    let config = format!("[default]\ncredential_process = cat {}/keys.json\n", child.home().display());
    child.file(".aws/config", &config).run().wrote();
    assert_eq!(signers(&stub), ["AKIDPROCESS"]);
}

#[test]
fn c16_c18_a_web_identity_is_renewed_from_a_token_file_that_never_changes() {
    let stub = S3Stub::with(StubSettings { requests_per_key: Some(8), ..StubSettings::default() });
    let child = Child::new().endpoint(&stub.url()).file("token", "stub-identity");
    let token = child.home().join("token");
    let child = child
        .set("AWS_WEB_IDENTITY_TOKEN_FILE", token.to_str().unwrap())
        .set("AWS_ROLE_ARN", "arn:aws:iam::1:role/stub")
        .set("AWS_ROLE_SESSION_NAME", "everstep")
        .set("AWS_ENDPOINT_URL_STS", &stub.url());
    child.run().wrote();
    assert_eq!(stub.objects("bucket").len(), 20);
    let keys = requests_to(&stub, "/");
    assert!((3..=4).contains(&keys), "twenty requests of four stores, eight per key, took {keys} keys");
}

#[test]
fn c18_a_web_identity_that_is_refused_names_its_provider() {
    let stub = S3Stub::start();
    let child = Child::new().endpoint(&stub.url()).file("token", "somebody-else");
    let token = child.home().join("token");
    let child = child
        .set("AWS_WEB_IDENTITY_TOKEN_FILE", token.to_str().unwrap())
        .set("AWS_ROLE_ARN", "arn:aws:iam::1:role/stub")
        .set("AWS_ENDPOINT_URL_STS", &stub.url());
    child.run().failed_with(&["Denied", "environment:", "web identity:", "InvalidIdentityToken"]);
}

#[test]
fn c18_a_container() {
    let stub = S3Stub::start();
    let url = format!("{}/container/credentials", stub.url());
    Child::new().endpoint(&stub.url()).set("AWS_CONTAINER_CREDENTIALS_FULL_URI", &url).run().wrote();
    assert_eq!(signers(&stub), ["ASIASTUB0000"]);
    assert_eq!(requests_to(&stub, "/container/credentials"), 1, "one fetch for four stores of one process");
}

#[test]
fn c18_instance_metadata_and_never_through_a_proxy() {
    let (stub, proxy) = (S3Stub::start(), S3Stub::start());
    let child = Child::new()
        .endpoint("http://store.invalid")
        .set("HTTP_PROXY", &proxy.url())
        .set("AWS_EC2_METADATA_SERVICE_ENDPOINT", &stub.url());
    // The keys are the stub's; the proxy stands in for a store that does not know them.
    child.run().failed_with(&["InvalidAccessKeyId"]);
    assert_eq!(signers(&proxy), ["ASIASTUB0000"]);
    assert!(proxy.seen().iter().all(|seen| !seen.raw_path.starts_with("/latest")));
}

const SOURCES: [&str; 5] = ["environment:", "profile:", "web identity:", "container:", "instance metadata:"];

#[test]
fn c18_nothing_found_is_told_within_five_seconds_with_every_source() {
    let said = Child::new().endpoint("http://127.0.0.1:9").run();
    said.failed_with(&SOURCES);
    said.failed_with(&["Denied", "no credentials"]);
    assert!(said.time < Duration::from_secs(5), "{said:?}");
}

#[test]
fn c18_a_metadata_service_that_never_answers_is_not_waited_for() {
    let stub = S3Stub::start();
    let gate = Gate::closed();
    stub.rule(Rule::always(Action::HoldThenDo(gate.clone())).at("/latest"));
    let said = Child::new().endpoint(&stub.url()).set("AWS_EC2_METADATA_SERVICE_ENDPOINT", &stub.url()).run();
    gate.open();
    said.failed_with(&SOURCES);
    assert!(said.time < Duration::from_secs(5), "{said:?}");
}
