//! The policies of `docs/permissions.md`, as they stand there, on Ceph's S3 gateway.

use everstep::doctor::{Check, Health, diagnose};
use everstep::{
    Bounds, Dtype, Error, ErrorKind, Options, Replicas, Repository, Saved, Severity, Shard, Source, State,
    Step, Takeover, WriterOptions,
};
use everstep_format::key::{Key, Prefix};
use everstep_store::s3::S3Options;
use everstep_store::{Class, Span, Store, StoreErrorKind, StoreOptions, list_all};
use everstep_tests::servers::{Server, open, radosgw, reaching};
use serde_json::Value;

use crate::stores::{body, key};

/// The JSON blocks of the page, for our bucket and the gateway's users.
fn policy(bucket: &str) -> String {
    let page = include_str!("../../../docs/permissions.md");
    let blocks: Vec<Value> = page
        .split("```json\n")
        .skip(1)
        .map(|rest| {
            let block = rest.split("```").next().unwrap();
            let block = block.replace("my-bucket", bucket);
            serde_json::from_str(&block.replace("arn:aws:iam::123456789012:user/", "arn:aws:iam:::user/"))
                .unwrap()
        })
        .collect();
    assert_eq!(blocks.len(), 3, "trainer, reader, operator");
    let mut whole = blocks[0].clone();
    let statements: Vec<Value> =
        blocks.iter().flat_map(|block| block["Statement"].as_array().unwrap().clone()).collect();
    whole["Statement"] = statements.into();
    whole.to_string()
}

/// A bucket with the policies, and the options of each role.
fn roles(server: &Server) -> (String, [S3Options; 3]) {
    let bucket = server.bucket();
    let options = ["trainer", "reader", "operator"].map(|name| reaching(&server.url, server.user(name)));
    server.client(&["policy", &bucket, &policy(&bucket)]);
    (bucket, options)
}

fn with(s3: &S3Options) -> Options {
    Options { store: StoreOptions { s3: s3.clone(), ..StoreOptions::default() }, ..Options::default() }
}

fn save(repository: &Repository, job: &str, step: u64) -> Result<(), Error> {
    let bytes: Vec<u8> = (0..4096).map(|number: u32| number.to_le_bytes()[0]).collect();
    let (shape, bounds) = (vec![1024], Bounds::whole(&[1024]));
    let source = Source::Memory(&bytes);
    let replicas = Replicas::None;
    let shard =
        Shard { name: "w".to_owned(), dtype: Dtype::I32, shape, bounds, alias_of: None, replicas, source };
    let takeover = Some(Takeover::Now);
    let options = WriterOptions { job: Some(job.to_owned()), takeover, ..WriterOptions::default() };
    let mut writer = repository.run("gpt")?.writer(options)?;
    let state = State { shards: vec![shard], objects: vec![] };
    writer.save(Step(step), &state, Saved::default())?;
    // The writer is not closed: the next one takes the run over.
    std::mem::forget(writer);
    Ok(())
}

fn of(checks: &[Check], name: &str) -> Health {
    checks.iter().find(|check| check.name == name).unwrap_or_else(|| panic!("{name}: {checks:#?}")).health
}

#[test]
fn the_documented_policies_allow_what_they_say_and_nothing_else() {
    let server = radosgw();
    let (bucket, [trainer, reader, operator]) = roles(server);
    let address = format!("s3://{bucket}/checkpoints");

    // The trainer makes, saves, takes over, restores.
    let repository = Repository::init(&address, &with(&trainer), Default::default()).unwrap();
    save(&repository, "first", 1).unwrap();
    save(&repository, "second", 2).unwrap();
    let latest = repository.run("gpt").unwrap().latest().unwrap().unwrap();
    assert_eq!(latest.read("w", None).unwrap().len(), 4096);

    // The reader lists, shows, verifies and restores; it cannot write, and is told so.
    let seen = Repository::open(&address, &with(&reader)).unwrap();
    assert_eq!(seen.runs().unwrap().len(), 1);
    let run = seen.run("gpt").unwrap();
    assert!(run.attempts().unwrap().len() >= 4);
    let latest = run.latest().unwrap().unwrap();
    assert_eq!(latest.manifest().step, Step(2));
    assert_eq!(latest.read("w", None).unwrap().len(), 4096);
    assert!(
        seen.check(true, None, &())
            .unwrap()
            .findings
            .iter()
            .all(|finding| finding.severity != Severity::Damage)
    );
    let refused = save(&seen, "reader", 3).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{refused}");
    let refused = Repository::init(&format!("{address}/other"), &with(&reader), Default::default());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::PermissionDenied);

    // What the doctor says to each.
    let checks = diagnose(&address, &with(&trainer)).unwrap();
    let expected = [("list", Health::Sound), ("read", Health::Sound), ("write", Health::Sound)];
    for (name, health) in expected {
        assert_eq!(of(&checks, name), health, "{checks:#?}");
    }
    assert_eq!(of(&checks, "delete"), Health::Warning);
    assert_eq!((of(&checks, "create"), of(&checks, "repository")), (Health::Sound, Health::Sound));
    let checks = diagnose(&address, &with(&reader)).unwrap();
    assert_eq!((of(&checks, "write"), of(&checks, "read")), (Health::Warning, Health::Sound), "{checks:#?}");
    let checks = diagnose(&address, &with(&operator)).unwrap();
    assert_eq!(
        (of(&checks, "delete"), of(&checks, "lifecycle")),
        (Health::Sound, Health::Sound),
        "{checks:#?}"
    );
}

#[tokio::test]
async fn under_the_documented_policies_only_the_operator_deletes_and_nobody_leaves_the_prefix() {
    let server = radosgw();
    let (bucket, [trainer, reader, operator]) = roles(server);
    let below = async |options: &S3Options| open(&bucket, "checkpoints", options.clone()).await;
    let (trainer, reader, operator) = (below(&trainer).await, below(&reader).await, below(&operator).await);
    for number in 1..4 {
        trainer.put(&key(number), body("x"), Class::Control).await.unwrap();
    }
    let denied = |result: Result<(), everstep_store::StoreError>| result.unwrap_err().kind;
    for store in [&trainer, &reader] {
        let results = match store.delete(&[key(1), key(2)]).await {
            Err(error) => vec![Err(error)],
            Ok(results) => results.into_iter().map(|deleted| deleted.result).collect(),
        };
        assert!(results.into_iter().all(|result| denied(result) == StoreErrorKind::Denied));
    }
    assert_eq!(denied(reader.put(&key(9), body("x"), Class::Bulk).await), StoreErrorKind::Denied);
    assert_eq!(reader.create(&key(9), body("x")).await.unwrap_err().kind, StoreErrorKind::Denied);
    // What is not there is not there, rather than forbidden: readers rest on it.
    for store in [&trainer, &reader, &operator] {
        let error = store.get(&Key::repository(), Span::Whole).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::NotFound, "{error}");
        let outside = open(&bucket, "elsewhere", reaching(&server.url, server.user("trainer"))).await;
        let error = outside.put(&key(1), body("x"), Class::Bulk).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Denied);
        assert_eq!(outside.list(&Prefix::runs(), None).await.unwrap_err().kind, StoreErrorKind::Denied);
    }
    assert!(
        operator
            .delete(&[key(1), key(2), key(3)])
            .await
            .unwrap()
            .iter()
            .all(|deleted| deleted.result.is_ok())
    );
    assert!(list_all(&operator, &Prefix::probes()).await.unwrap().is_empty());
}

#[test]
fn c29_the_doctor_warns_of_rules_that_would_delete_checkpoints() {
    let server = radosgw();
    let bucket = server.bucket();
    let rules = serde_json::json!({ "Rules": [
        { "ID": "tidy", "Status": "Enabled", "Filter": { "Prefix": "exp" }, "Expiration": { "Days": 30 } },
        { "ID": "logs", "Status": "Enabled", "Filter": { "Prefix": "logs/" }, "Expiration": { "Days": 1 } },
    ]});
    server.client(&["lifecycle", &bucket, &rules.to_string()]);
    let look = |root: &str| diagnose(&format!("s3://{bucket}/{root}"), &with(&server.options())).unwrap();
    let checks = look("exp/a");
    let lifecycle = checks.iter().find(|check| check.name == "lifecycle").unwrap();
    assert_eq!(lifecycle.health, Health::Warning);
    assert!(lifecycle.found.contains("tidy") && !lifecycle.found.contains("logs"), "{lifecycle:?}");
    assert_eq!((of(&checks, "versions"), of(&checks, "create")), (Health::Sound, Health::Sound));
    let checks = look("other");
    assert_eq!(of(&checks, "lifecycle"), Health::Sound);
    server.client(&["versions", &bucket]);
    let checks = look("other");
    // This gateway lets every racing create win once it keeps versions; that must not go unseen.
    assert_eq!((of(&checks, "versions"), of(&checks, "create")), (Health::Warning, Health::Refused));
}
