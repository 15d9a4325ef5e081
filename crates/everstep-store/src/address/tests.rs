use super::*;

fn s3_root(text: &str) -> String {
    match Address::parse(text).unwrap() {
        Address::S3 { bucket, root } => {
            assert_eq!(bucket, "b");
            root.as_str().to_owned()
        }
        other => panic!("{text} parsed as {other:?}"),
    }
}

fn local(text: &str) -> PathBuf {
    match Address::parse(text).unwrap() {
        Address::Local(path) => path,
        other => panic!("{text} parsed as {other:?}"),
    }
}

fn why_not(text: &str) -> String {
    let error = Address::parse(text).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Invalid, "{text}");
    error.to_string()
}

#[test]
fn c29_odd_characters_of_a_prefix_are_taken_literally() {
    for text in
        ["my run/50%/a+b#c?d~e", "m\u{e4}ggi/\u{6a21}\u{578b}", "x%20y", "a:b", "a\\b", "..a/b..", "e\u{301}"]
    {
        assert_eq!(s3_root(&format!("s3://b/{text}")), text);
        assert_eq!(local(&format!("file:///{text}")), PathBuf::from(format!("/{text}")));
        assert_eq!(local(&format!("/{text}")), PathBuf::from(format!("/{text}")));
        let Address::Memory(root) = Address::parse(&format!("memory://{text}")).unwrap() else {
            panic!("{text}")
        };
        assert_eq!(root.as_str(), text);
    }
}

#[test]
fn c29_slashes_at_the_ends_do_not_make_another_place() {
    for text in ["s3://b/exp", "s3://b/exp/", "s3://b/exp//"] {
        assert_eq!(s3_root(text), "exp");
    }
    for text in ["s3://b", "s3://b/", "s3://b//"] {
        assert_eq!(s3_root(text), "");
    }
    for text in ["/exp", "/exp/", "/exp//", "file:///exp/", "file:/exp//", "//exp"] {
        assert_eq!(local(text), PathBuf::from("/exp"), "{text}");
    }
    assert_eq!(Address::parse("memory://exp").unwrap(), Address::parse("memory://exp//").unwrap());
}

#[test]
fn c29_dots_as_segments_are_refused() {
    for text in [
        "s3://b/a/../b",
        "s3://b/..",
        "s3://b/a/./b",
        "memory://a/../b",
        "memory://.",
        "a/../b",
        "../b",
        "file:///a/..",
    ] {
        assert!(why_not(text).contains("is not accepted"), "{text}");
    }
    assert!(why_not("s3://b/a//b").contains("empty segment"));
}

#[test]
fn paths_may_be_relative_and_start_with_a_dot() {
    assert_eq!(local("ckpt"), PathBuf::from("ckpt"));
    assert_eq!(local("./ckpt"), PathBuf::from("ckpt"));
    assert_eq!(local("file:ckpt/a"), PathBuf::from("ckpt/a"));
    assert_eq!(local("."), PathBuf::from("."));
    assert_eq!(local("/"), PathBuf::from("/"));
    assert_eq!(local("12:30"), PathBuf::from("12:30"));
}

#[test]
fn a_wrong_address_says_what_to_write() {
    assert!(why_not("").contains("empty"));
    assert!(why_not("gs:///x").contains("write gs://bucket/prefix"));
    assert!(why_not("az://key@container/x").contains("credentials do not belong"));
    assert!(why_not("http://host/x").contains("unknown scheme"));
    assert!(why_not("s3:/b/x").contains("two slashes"));
    assert!(why_not("s3:///x").contains("no bucket name"));
    assert!(why_not("file://relative/x").contains("file:ckpt"));
    assert!(why_not("s3://b/a\nb").contains("control character"));
    assert!(why_not(&format!("s3://b/{}", "x".repeat(ROOT_BYTES + 1))).contains("at most"));
}

#[test]
fn a_secret_in_an_address_is_not_repeated() {
    let said = why_not("s3://AKIA:topsecret@bucket/x");
    assert!(said.contains("profile") && !said.contains("topsecret") && !said.contains("AKIA"), "{said}");
}

#[test]
fn a_root_strips_only_what_is_below_it() {
    let root = Root::parse("exp").unwrap();
    assert_eq!(root.strip("exp/runs/a"), Some("runs/a"));
    assert_eq!(root.strip("exp2/runs/a"), None);
    assert_eq!(root.strip("exp"), None);
    assert_eq!(Root::parse("").unwrap().strip("runs/a"), Some("runs/a"));
}

#[test]
fn c29_no_root_puts_a_slash_before_a_key() {
    for (text, key, prefix) in [
        ("", "everstep.json", "runs/"),
        ("/", "everstep.json", "runs/"),
        ("exp//", "exp/everstep.json", "exp/runs/"),
    ] {
        let root = Root::parse(text).unwrap();
        assert_eq!(root.key(&Key::repository()), key);
        assert_eq!(root.prefix(&Prefix::runs()), prefix);
    }
    assert_eq!(Root::parse("").unwrap().prefix(&Prefix::everything()), "");
}

#[test]
fn an_address_prints_as_it_can_be_typed() {
    for text in ["s3://b/a/b", "memory://x", "file:///a b"] {
        assert_eq!(Address::parse(text).unwrap().to_string(), text);
    }
}

#[test]
fn buckets_of_google_and_containers_of_azure_are_told_apart() {
    for (text, cloud) in [("gs://bucket/a/b/", Cloud::Google), ("az://bucket/a/b", Cloud::Azure)] {
        let Address::Cloud(location) = Address::parse(text).unwrap() else { panic!("{text}") };
        assert_eq!(
            (location.cloud, location.bucket.as_str(), location.root.as_str()),
            (cloud, "bucket", "a/b")
        );
        assert_eq!(Address::Cloud(location).to_string(), text.trim_end_matches('/'));
    }
}
