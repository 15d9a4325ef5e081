//! Opening, unknown features, damage, missing objects.

use everstep_format::feature::Requires;
use everstep_format::key::Key;
use everstep_format::name::{Ordinal, PinName, RunName, Step};
use everstep_format::repository::WriterMode;
use everstep_format::{FormatError, sealed};
use everstep_repo::{AttemptState, Checkpoint, InitOptions, Parents, RepoError, Repository};
use serde_json::{Map, Value, json};

use crate::stage::{Fault, Stage, bare, now, run, save};

/// Rewrites a sealed object the way a later version would have written it.
fn from_the_future(stage: &Stage, key: &Key, change: impl FnOnce(&mut Map<String, Value>)) {
    let mut fields: Map<String, Value> = sealed::open("test", &stage.shelf.read(key).unwrap()).unwrap();
    change(&mut fields);
    stage.shelf.plant(key.as_str(), sealed::seal("test", &fields).unwrap());
}

fn requiring(operation: &str) -> impl FnOnce(&mut Map<String, Value>) {
    let requires = json!({ operation: ["quantum"] });
    |fields| drop(fields.insert("requires".to_owned(), requires))
}

fn unsupported(error: &RepoError, key: &Key) -> bool {
    matches!(error, RepoError::Object { key: found, source: FormatError::Unsupported { .. } } if found == key)
}

#[tokio::test]
async fn init_records_what_the_probe_found_and_refuses_a_second_one() {
    let (shelf, world) = bare();
    let repository = Repository::init(shelf.clone(), world.clone(), InitOptions::default()).await.unwrap();
    assert_eq!(repository.config().writers, WriterMode::ManyWriters);
    assert_eq!(shelf.keys(""), ["everstep.json"], "the probe cleaned up");
    assert_eq!(Repository::open(shelf.clone(), world.clone()).await.unwrap().config(), repository.config());
    let error = Repository::init(shelf, world, InitOptions::default()).await.unwrap_err();
    assert!(matches!(error, RepoError::Refused(_)), "{error}");
}

#[tokio::test]
async fn a_store_without_atomic_create_is_refused_unless_asked_for_by_name() {
    let (shelf, world) = bare();
    // Everybody is told that they won: what a store does that ignores the condition.
    shelf.script(|operation, key| {
        (operation == "create" && key.contains("probe")).then_some(Fault::FalseExists)
    });
    let error = Repository::init(shelf.clone(), world.clone(), InitOptions::default()).await.unwrap_err();
    assert!(matches!(error, RepoError::Refused(_)), "{error}");
    assert_eq!(shelf.keys("everstep.json"), Vec::<String>::new());
    let options = InitOptions { single_writer: true, ..InitOptions::default() };
    let repository = Repository::init(shelf, world, options).await.unwrap();
    assert_eq!(repository.config().writers, WriterMode::SingleWriter);
}

#[tokio::test]
async fn a_place_without_a_repository_is_not_found() {
    let (shelf, world) = bare();
    let error = Repository::open(shelf, world).await.unwrap_err();
    assert!(matches!(&error, RepoError::NotFound(what) if what.contains("memory://shelf")), "{error}");
}

#[tokio::test]
async fn a_repository_of_a_later_version_is_unsupported_whatever_its_fields() {
    let stage = Stage::new().await;
    let open = || Repository::open(stage.shelf.clone(), stage.world.clone());
    from_the_future(&stage, &Key::repository(), requiring("write"));
    let repository = open().await.unwrap();
    let error = repository.open_session(&run(), now("a")).await.unwrap_err();
    assert!(unsupported(&error, &Key::repository()), "{error}");
    from_the_future(&stage, &Key::repository(), |fields| {
        fields.insert("version".to_owned(), json!(9));
        fields.remove("chunking");
    });
    assert!(unsupported(&open().await.unwrap_err(), &Key::repository()));
}

#[tokio::test]
async fn c25_an_object_beyond_the_limit_of_its_kind_is_damage_and_hides_nothing_else() {
    let stage = Stage::new().await;
    let old = stage.closed_run(&[1, 2]).await;
    let huge = vec![b' '; 5 << 20];
    let victim = old[0].manifest.ordinal;
    stage.shelf.plant(Key::decision(&run(), victim).as_str(), huge.clone());
    let repository = Repository::open(stage.shelf.clone(), stage.world.clone()).await.unwrap();
    let error = repository.checkpoint(&run(), victim).await.unwrap_err();
    assert!(matches!(error, RepoError::Object { .. }), "{error}");
    let states = repository.attempts(&run()).await.unwrap();
    let state = |wanted: Ordinal| &states.iter().find(|(ordinal, _)| *ordinal == wanted).unwrap().1;
    assert!(matches!(state(victim), AttemptState::Damaged(_)));
    assert!(matches!(state(old[1].manifest.ordinal), AttemptState::Committed(_)));
    // The presence of a marker decides, whatever it contains.
    stage.shelf.plant(Key::expired(&run(), victim).as_str(), huge);
    assert!(repository.is_expired(&run(), victim).await.unwrap());
}

#[tokio::test]
async fn a_decision_with_an_unknown_read_feature_stops_readers_and_is_never_skipped() {
    let stage = Stage::new().await;
    let old = stage.closed_run(&[1, 2]).await;
    let key = Key::decision(&run(), old[1].manifest.ordinal);
    from_the_future(&stage, &key, requiring("read"));
    // Its shape may have changed as well: features are looked at before anything else.
    from_the_future(&stage, &key, |fields| {
        drop(fields.insert("manifest".to_owned(), json!({"later": true})))
    });
    let repository = stage.reopen().await;
    assert!(unsupported(&repository.latest(&run()).await.unwrap_err(), &key));
    assert!(unsupported(&repository.resolve(&"llama@step=1".parse().unwrap()).await.unwrap_err(), &key));
    let history = repository.history(&run()).await.unwrap();
    assert!(unsupported(&history.unreadable[0].1, &key));
    assert_eq!(history.findings(), vec![]);
    assert!(repository.checkpoint(&run(), old[0].manifest.ordinal).await.is_ok(), "others still load");
}

#[tokio::test]
async fn what_a_newer_version_wrote_is_listed_as_such_and_hides_nothing_else() {
    let stage = Stage::new().await;
    let old = stage.closed_run(&[1, 2, 3]).await;
    let key = Key::decision(&run(), old[1].manifest.ordinal);
    from_the_future(&stage, &key, |fields| drop(fields.insert("version".to_owned(), json!(9))));
    let repository = stage.reopen().await;
    let states = repository.attempts(&run()).await.unwrap();
    let state = |of: &Checkpoint| &states.iter().find(|(o, _)| *o == of.manifest.ordinal).unwrap().1;
    assert!(matches!(state(&old[1]), AttemptState::Newer(error) if unsupported(error, &key)));
    for known in [&old[0], &old[2]] {
        assert!(matches!(state(known), AttemptState::Committed(_)));
    }
    // Whoever needs it is refused; whoever does not, is not.
    let ordinal = old[1].manifest.ordinal;
    assert!(unsupported(&repository.attempt(&run(), ordinal).await.unwrap_err(), &key));
    assert!(unsupported(&repository.checkpoint(&run(), ordinal).await.unwrap_err(), &key));
    assert!(unsupported(&repository.resolve(&"llama@step=1".parse().unwrap()).await.unwrap_err(), &key));
    assert_eq!(repository.latest(&run()).await.unwrap().unwrap().manifest.ordinal, old[2].manifest.ordinal);
}

#[tokio::test]
async fn a_pin_of_a_newer_version_hides_no_other_and_may_be_any_name() {
    let stage = Stage::new().await;
    let saved = stage.closed_run(&[1]).await;
    let name = |name: &str| PinName::new(name).unwrap();
    stage.repository.pin(&name("a"), &saved[0]).await.unwrap();
    let newer = stage.repository.pin(&name("b"), &saved[0]).await.unwrap();
    let key = Key::decision(&RunName::pins(), newer.checkpoint.manifest.ordinal);
    from_the_future(&stage, &key, requiring("read"));
    let repository = stage.reopen().await;
    let pins = repository.pins().await.unwrap();
    assert_eq!((pins.pins.len(), pins.unreadable.len()), (1, 1));
    assert!(unsupported(&pins.unreadable[0], &key));
    assert!(repository.pinned(&name("a")).await.is_ok());
    assert!(unsupported(&repository.pinned(&name("c")).await.unwrap_err(), &key));
    assert!(unsupported(&repository.pin(&name("c"), &saved[0]).await.unwrap_err(), &key));
}

#[tokio::test]
async fn an_unknown_write_feature_stops_writers_but_not_readers() {
    let stage = Stage::new().await;
    let old = stage.closed_run(&[1]).await;
    let key = Key::decision(&run(), old[0].manifest.ordinal);
    from_the_future(&stage, &key, requiring("write"));
    assert!(stage.reopen().await.latest(&run()).await.unwrap().is_some());
    let mut session = stage.session(now("b")).await;
    let error = session.begin(Step(2), 1, Parents::Latest).await.unwrap_err();
    assert!(unsupported(&error, &key), "{error}");
    assert!(session.begin(Step(2), 1, Parents::These(Vec::new())).await.is_ok());
}

#[tokio::test]
async fn an_unknown_write_feature_of_an_intent_stops_whoever_walks_over_it() {
    let stage = Stage::new().await;
    let mut session = stage.session(now("a")).await;
    session.begin(Step(1), 1, Parents::Latest).await.unwrap();
    let key = Key::intent(&run(), Ordinal(2));
    from_the_future(&stage, &key, requiring("write"));
    let error = stage.reopen().await.open_session(&run(), now("b")).await.unwrap_err();
    assert!(unsupported(&error, &key), "R2 has to abort it: {error}");
    let next = Key::intent(&run(), Ordinal(4));
    let copy = stage.shelf.read(&key).unwrap();
    stage.shelf.plant(next.as_str(), copy);
    from_the_future(&stage, &next, |fields| drop(fields.insert("ordinal".to_owned(), json!(4))));
    let error = stage.reopen().await.open_session(&run(), now("c")).await.unwrap_err();
    assert!(unsupported(&error, &key) || unsupported(&error, &next), "{error}");
}

#[tokio::test]
async fn a_rollback_keeps_what_its_index_requires() {
    let stage = Stage::new().await;
    let old = stage.closed_run(&[1, 2]).await;
    from_the_future(&stage, &Key::decision(&run(), old[0].manifest.ordinal), requiring("gc"));
    let mut session = stage.session(now("b")).await;
    session.rollback(&old[0]).await.unwrap();
    let ordinal = session.latest().unwrap().manifest.ordinal;
    let bytes = stage.shelf.read(&Key::decision(&run(), ordinal)).unwrap();
    let fields: Map<String, Value> = sealed::open("test", &bytes).unwrap();
    let requires: Requires = serde_json::from_value(fields["requires"].clone()).unwrap();
    assert!(requires.gc.contains("quantum"));
}

#[tokio::test]
async fn c06_a_damaged_decision_is_named_and_never_passed_over() {
    let stage = Stage::new().await;
    let old = stage.closed_run(&[1, 2]).await;
    let key = Key::decision(&run(), old[1].manifest.ordinal);
    let sound = stage.shelf.read(&key).unwrap().to_vec();
    let flipped = |at: usize| {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        bytes
    };
    let half = sound[..sound.len() / 2].to_vec();
    for damaged in [flipped(0), flipped(sound.len() / 2), flipped(sound.len() - 1), half, Vec::new()] {
        stage.shelf.plant(key.as_str(), damaged);
        let repository = stage.reopen().await;
        let error = repository.latest(&run()).await.unwrap_err();
        assert!(matches!(&error, RepoError::Object { key: found, .. } if *found == key), "{error}");
        assert!(repository.checkpoint(&run(), old[0].manifest.ordinal).await.is_ok());
        let error = repository.open_session(&run(), now("b")).await.unwrap_err();
        assert!(matches!(&error, RepoError::Object { .. }), "{error}");
    }
}

#[tokio::test]
async fn an_object_that_is_gone_is_explained_by_the_marker_or_called_missing() {
    let stage = Stage::new().await;
    let old = stage.closed_run(&[1, 2]).await;
    let key = old[0].index_key();
    let explain = || stage.repository.explain_missing(&old[0], &key);
    let error = explain().await;
    assert!(matches!(&error, RepoError::Missing { key: found, .. } if *found == key), "{error}");
    stage.repository.expire(&run(), old[0].manifest.ordinal, "test").await.unwrap();
    let error = explain().await;
    assert!(matches!(&error, RepoError::Expired { .. }), "{error}");
    stage.shelf.script(|_, _| Some(Fault::Lost));
    assert!(matches!(explain().await, RepoError::Store(_)), "no answer is no verdict");
}

#[tokio::test]
async fn user_metadata_beyond_its_limit_is_refused_before_the_commit_and_can_be_mended() {
    let stage = Stage::new().await;
    let mut session = stage.session(now("a")).await;
    let attempt = session.begin(Step(1), 1, Parents::Latest).await.unwrap();
    let mut draft = crate::stage::upload(&session, &attempt).await.unwrap();
    draft.metadata.insert("notes".to_owned(), json!("x".repeat(2 << 20)));
    let error = session.commit(attempt.clone(), draft.clone()).await.unwrap_err();
    assert!(matches!(error, RepoError::Invalid(FormatError::TooLarge { .. })), "{error}");
    draft.metadata.clear();
    session.commit(attempt, draft).await.unwrap();
    save(&mut session, 2).await.unwrap();
}
