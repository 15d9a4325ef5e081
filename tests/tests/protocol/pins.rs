//! Pins: checkpoints by reference in the reserved run.

use std::sync::Arc;

use everstep_format::key::Key;
use everstep_format::name::{Ordinal, PinName, RunName};
use everstep_repo::{Checkpoint, Parents, RepoError, Takeover};
use futures::future::join_all;

use crate::stage::{Fault, Stage, job, now, run, save};

fn name(name: &str) -> PinName {
    PinName::new(name).unwrap()
}

async fn resolve(stage: &Stage, reference: &str) -> Result<Checkpoint, RepoError> {
    let resolved = stage.reopen().await.resolve(&reference.parse().unwrap()).await?;
    Ok(resolved.checkpoint)
}

/// Every live pin as `name=ordinal of its origin`.
async fn pins(stage: &Stage) -> Vec<String> {
    let pins = stage.reopen().await.pins().await.unwrap();
    assert!(pins.unreadable.is_empty());
    pins.pins.iter().map(|pinned| format!("{}={}", pinned.name, pinned.of.ordinal)).collect()
}

#[tokio::test]
async fn a_pin_is_a_checkpoint_that_outlives_the_one_it_names() {
    let stage = Stage::new().await;
    let saved = stage.closed_run(&[10, 20]).await;
    let pinned = stage.repository.pin(&name("release-1"), &saved[0]).await.unwrap();
    let manifest = &pinned.checkpoint.manifest;
    assert_eq!(pinned.of, saved[0].as_parent());
    assert_eq!((&manifest.run, manifest.step), (&RunName::pins(), saved[0].manifest.step));
    assert_eq!(manifest.parents, [saved[0].as_parent()]);
    assert_eq!(manifest.rollback_to, None);
    assert_eq!(manifest.owners, saved[0].manifest.owners, "packs stay where they are");
    assert!(pinned.checkpoint.index_key().as_str().starts_with(&format!("index/{}/", manifest.attempt)));

    stage.repository.expire(&run(), saved[0].manifest.ordinal, "keep_last").await.unwrap();
    let found = resolve(&stage, "pin:release-1").await.unwrap();
    assert_eq!(found.manifest, pinned.checkpoint.manifest);
    assert_eq!(stage.shelf.read(&found.index_key()), stage.shelf.read(&saved[0].index_key()));
    assert!(stage.shelf.read(&found.refs_key()).is_some());

    // It is a parent like any other.
    let mut session = stage.session(now("b")).await;
    let parents = Parents::These(vec![found.clone()]);
    let attempt = session.begin(everstep_format::name::Step(30), 1, parents).await.unwrap();
    assert_eq!(attempt.confirmed[0].as_parent(), found.as_parent());
}

#[tokio::test]
async fn the_reserved_run_is_no_run_of_training() {
    let stage = Stage::new().await;
    let saved = stage.closed_run(&[10]).await;
    stage.repository.pin(&name("a"), &saved[0]).await.unwrap();
    assert_eq!(stage.reopen().await.runs().await.unwrap(), [run()]);
    assert_eq!(pins(&stage).await, ["a=2"]);
    let history = stage.reopen().await.history(&RunName::pins()).await.unwrap();
    assert_eq!(history.findings(), vec![]);
}

#[tokio::test]
async fn a_name_that_is_taken_is_refused_and_the_same_pin_again_is_the_same_pin() {
    let stage = Stage::new().await;
    let saved = stage.closed_run(&[10, 20]).await;
    let first = stage.repository.pin(&name("a"), &saved[0]).await.unwrap();
    let error = stage.repository.pin(&name("a"), &saved[1]).await.unwrap_err();
    assert!(matches!(error, RepoError::Refused(_)), "{error}");
    for part in ["llama@ordinal=2", "ckpt-inspect unpin"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    let again = stage.repository.pin(&name("a"), &saved[0]).await.unwrap();
    assert_eq!(again.checkpoint.manifest, first.checkpoint.manifest);
    // A pin of a pin names the checkpoint of training.
    let of_pin = stage.repository.pin(&name("b"), &first.checkpoint).await.unwrap();
    assert_eq!(of_pin.of, saved[0].as_parent());
    assert_eq!(pins(&stage).await, ["a=2", "b=2"]);
}

#[tokio::test]
async fn unpinning_expires_the_pin_even_the_newest_and_frees_its_name() {
    let stage = Stage::new().await;
    let saved = stage.closed_run(&[10, 20]).await;
    let first = stage.repository.pin(&name("a"), &saved[0]).await.unwrap();
    stage.repository.unpin(&name("a"), "test").await.unwrap();
    let Ordinal(ordinal) = first.checkpoint.manifest.ordinal;
    let error = resolve(&stage, &format!("_pins@ordinal={ordinal}")).await.unwrap_err();
    assert!(matches!(error, RepoError::Expired { .. }), "{error}");
    for gone in [
        resolve(&stage, "pin:a").await.unwrap_err(),
        stage.repository.unpin(&name("a"), "").await.unwrap_err(),
    ] {
        assert!(matches!(gone, RepoError::NotFound(_)), "{gone}");
    }
    let history = stage.reopen().await.history(&RunName::pins()).await.unwrap();
    assert_eq!(history.findings(), vec![], "never the newest does not hold here");
    stage.repository.pin(&name("a"), &saved[1]).await.unwrap();
    assert_eq!(pins(&stage).await, ["a=3"]);
}

#[tokio::test]
async fn what_has_expired_cannot_be_pinned() {
    let stage = Stage::new().await;
    let saved = stage.closed_run(&[10, 20]).await;
    stage.repository.expire(&run(), saved[0].manifest.ordinal, "keep_last").await.unwrap();
    let error = stage.repository.pin(&name("a"), &saved[0]).await.unwrap_err();
    assert!(matches!(&error, RepoError::Expired { run, .. } if run.as_str() == "llama"), "{error}");
    assert_eq!(pins(&stage).await, Vec::<String>::new());
    let history = stage.reopen().await.history(&RunName::pins()).await.unwrap();
    assert_eq!(history.decisions.len(), history.intents.len(), "all is settled");
}

#[tokio::test]
async fn many_operators_who_pin_at_once_all_succeed() {
    let stage = Stage::new().await;
    let saved = stage.closed_run(&[10, 20]).await;
    let target = Arc::new(saved[0].clone());
    let pinning = (0..8).map(|number| {
        let target = target.clone();
        let stage = &stage;
        async move { stage.reopen().await.pin(&name(&format!("p{number}")), &target).await }
    });
    for result in join_all(pinning).await {
        result.unwrap();
    }
    assert_eq!(pins(&stage).await.len(), 8);
    let history = stage.reopen().await.history(&RunName::pins()).await.unwrap();
    assert_eq!(history.findings(), vec![]);
}

#[tokio::test]
async fn two_operators_who_want_one_name_never_both_get_it() {
    let stage = Stage::new().await;
    let saved = stage.closed_run(&[10, 20]).await;
    let pinning = saved.iter().map(|target| {
        let stage = &stage;
        async move { stage.reopen().await.pin(&name("a"), target).await }
    });
    let results = join_all(pinning).await;
    let won = results.iter().filter(|result| result.is_ok()).count();
    assert_eq!(won, 1, "{results:?}");
    assert!(results.iter().any(|result| matches!(result, Err(RepoError::Refused(_)))), "{results:?}");
}

#[tokio::test]
async fn an_operator_who_died_half_way_is_taken_over() {
    let stage = Stage::new().await;
    let saved = stage.closed_run(&[10]).await;
    let mut dead =
        stage.reopen().await.open_session(&RunName::pins(), job("x", Takeover::Fail)).await.unwrap();
    dead.begin(everstep_format::name::Step(1), 1, Parents::These(vec![saved[0].clone()])).await.unwrap();
    drop(dead);
    stage.repository.pin(&name("a"), &saved[0]).await.unwrap();
    assert_eq!(pins(&stage).await, ["a=2"]);
}

#[tokio::test]
async fn a_commit_without_an_answer_is_told_as_unknown_and_can_be_asked_for() {
    let stage = Stage::new().await;
    let saved = stage.closed_run(&[10]).await;
    let mut lost = false;
    stage.shelf.script(move |operation, key| {
        let decision = key.contains("_pins/decisions/00000000000000000002");
        lost |= operation == "create" && decision;
        match operation {
            "create" if decision => Some(Fault::ReplyLost),
            "get" if decision && lost => Some(Fault::Lost),
            _ => None,
        }
    });
    let error = stage.repository.pin(&name("a"), &saved[0]).await.unwrap_err();
    let RepoError::Unknown { run, ordinal, .. } = &error else { panic!("{error}") };
    assert!(error.to_string().contains("ckpt-inspect resolve _pins@ordinal=2"), "{error}");
    stage.shelf.heal();
    let state = stage.reopen().await.attempt(run, *ordinal).await.unwrap();
    assert!(matches!(state, everstep_repo::AttemptState::Committed(_)), "{state:?}");
    assert_eq!(pins(&stage).await, ["a=2"]);
    // Asking for the same again finds it.
    stage.repository.pin(&name("a"), &saved[0]).await.unwrap();
}

#[tokio::test]
async fn a_damaged_pin_hides_no_other_and_may_be_any_name() {
    let stage = Stage::new().await;
    let saved = stage.closed_run(&[10]).await;
    stage.repository.pin(&name("a"), &saved[0]).await.unwrap();
    let other = stage.repository.pin(&name("b"), &saved[0]).await.unwrap();
    let key = Key::decision(&RunName::pins(), other.checkpoint.manifest.ordinal);
    stage.shelf.plant(key.as_str(), b"damaged".to_vec());
    resolve(&stage, "pin:a").await.unwrap();
    for reference in ["pin:b", "pin:c"] {
        let error = resolve(&stage, reference).await.unwrap_err();
        assert!(matches!(&error, RepoError::Object { key: bad, .. } if *bad == key), "{error}");
    }
    let list = stage.reopen().await.pins().await.unwrap();
    assert_eq!((list.pins.len(), list.unreadable.len()), (1, 1));
    let error = stage.reopen().await.pin(&name("c"), &saved[0]).await.unwrap_err();
    assert!(matches!(error, RepoError::Object { .. }), "it may be taken: {error}");
}

#[tokio::test]
async fn without_pins_there_is_nothing_to_list_and_nothing_is_made() {
    let stage = Stage::new().await;
    let mut session = stage.session(now("a")).await;
    save(&mut session, 1).await.unwrap();
    assert_eq!(pins(&stage).await, Vec::<String>::new());
    let error = resolve(&stage, "pin:a").await.unwrap_err();
    assert!(matches!(error, RepoError::NotFound(_)), "{error}");
    assert!(stage.shelf.keys("runs/_pins/").is_empty());
}
