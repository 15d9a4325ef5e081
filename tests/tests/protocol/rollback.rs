//! Going back deliberately.

use everstep_format::key::Key;
use everstep_format::name::{Ordinal, Step};
use everstep_repo::{Checkpoint, CommitOutcome, Parents, RepoError};

use crate::stage::{Fault, Stage, latest, now, run, save};

fn committed(outcome: CommitOutcome) -> Checkpoint {
    match outcome {
        CommitOutcome::Committed(checkpoint) => checkpoint,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_rollback_is_the_newest_checkpoint_and_stands_on_its_own() {
    let stage = Stage::new().await;
    let old = stage.closed_run(&[10, 20, 30]).await;
    let mut session = stage.session(now("b")).await;
    let copy = committed(session.rollback(&old[0]).await.unwrap());
    let manifest = &copy.manifest;
    assert_eq!(manifest.step, Step(10));
    assert_eq!(manifest.rollback_to, Some(old[0].as_parent()));
    assert_eq!(manifest.parents, [old[0].as_parent()]);
    assert_eq!(manifest.owners, old[0].manifest.owners, "packs stay where they are");
    assert_eq!((manifest.totals.new_raw_bytes, manifest.totals.reused_raw_bytes), (0, 300));
    assert_eq!(session.latest().unwrap().manifest.ordinal, manifest.ordinal);
    assert_eq!(latest(&stage).await, Some((manifest.ordinal, Step(10))));
    // Its own copy of the index: expiring the original takes nothing from it.
    stage.repository.expire(&run(), old[0].manifest.ordinal, "test").await.unwrap();
    assert_eq!(stage.shelf.read(&copy.index_key()), stage.shelf.read(&old[0].index_key()));
    assert!(copy.index_key().as_str().starts_with(&format!("index/{}/", manifest.attempt)));
    assert!(stage.shelf.read(&copy.refs_key()).is_some());
    let next = save(&mut session, 11).await.unwrap();
    assert_eq!(next.manifest.parents, [copy.as_parent()]);
}

#[tokio::test]
async fn a_rollback_to_an_expired_checkpoint_fails_cleanly() {
    let stage = Stage::new().await;
    let old = stage.closed_run(&[10, 20]).await;
    let mut session = stage.session(now("b")).await;
    stage.repository.expire(&run(), old[0].manifest.ordinal, "keep_last").await.unwrap();
    let error = session.rollback(&old[0]).await.unwrap_err();
    assert!(
        matches!(error, RepoError::Expired { ordinal, .. } if ordinal == old[0].manifest.ordinal),
        "{error}"
    );
    assert_eq!(latest(&stage).await.unwrap().1, Step(20));
    let Err(RepoError::Incomplete { why, .. }) = stage.repository.checkpoint(&run(), Ordinal(5)).await else {
        panic!("the attempt must be there and decided");
    };
    assert!(why.contains("failed") && why.contains("rollback"), "{why}");
    save(&mut session, 21).await.unwrap();
}

#[tokio::test]
async fn a_rollback_never_copies_a_damaged_index() {
    let stage = Stage::new().await;
    let old = stage.closed_run(&[10, 20]).await;
    let mut session = stage.session(now("b")).await;
    stage.shelf.plant(old[0].index_key().as_str(), "garbage");
    let error = session.rollback(&old[0]).await.unwrap_err();
    assert!(matches!(&error, RepoError::Object { key, .. } if *key == old[0].index_key()), "{error}");
    stage.shelf.steal(&old[0].index_key());
    let error = session.rollback(&old[0]).await.unwrap_err();
    assert!(matches!(&error, RepoError::Missing { key, .. } if *key == old[0].index_key()), "{error}");
}

#[tokio::test]
async fn a_parent_that_expires_between_choice_and_intent_is_dropped() {
    let stage = Stage::new().await;
    let old = stage.closed_run(&[10, 20]).await;
    let mut session = stage.session(now("b")).await;
    let expirer = stage.repository.clone();
    expirer.expire(&run(), old[0].manifest.ordinal, "keep_last").await.unwrap();
    let parents = Parents::These(vec![old[1].clone(), old[0].clone()]);
    let attempt = session.begin(Step(30), 1, parents).await.unwrap();
    let confirmed: Vec<Ordinal> = attempt.confirmed.iter().map(|parent| parent.manifest.ordinal).collect();
    assert_eq!(confirmed, [old[1].manifest.ordinal]);
}

#[tokio::test]
async fn the_marker_is_read_only_after_the_intent_is_durable() {
    let stage = Stage::new().await;
    let old = stage.closed_run(&[10, 20]).await;
    let mut session = stage.session(now("b")).await;
    let key = Key::expired(&run(), old[0].manifest.ordinal);
    stage.shelf.take_calls();
    session.begin(Step(30), 1, Parents::These(vec![old[0].clone()])).await.unwrap();
    let calls = stage.shelf.take_calls();
    let intent = calls.iter().position(|call| call.starts_with("create runs/llama/intents")).unwrap();
    let marker = calls.iter().position(|call| *call == format!("get {key}")).unwrap();
    assert!(intent < marker, "{calls:?}");
    stage.shelf.once("get", "expired", Fault::Lost);
    assert!(session.begin(Step(31), 1, Parents::Latest).await.is_err(), "an unread marker confirms nothing");
}
