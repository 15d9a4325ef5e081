//! What became of one attempt, and deciding one that nobody else decides.

use everstep_format::key::Key;
use everstep_format::name::{Ordinal, Step};
use everstep_repo::{AttemptState, CommitOutcome, Parents, RepoError};

use crate::stage::{Fault, Stage, now, run, save, upload};

#[tokio::test]
async fn every_fate_of_an_attempt_is_told() {
    let stage = Stage::new().await;
    let mut session = stage.session(now("a")).await;
    save(&mut session, 10).await.unwrap();
    save(&mut session, 20).await.unwrap();
    let failed = session.begin(Step(30), 1, Parents::Latest).await.unwrap();
    session.abandon(failed, "disk full").await;
    session.begin(Step(40), 1, Parents::Latest).await.unwrap();
    stage.repository.expire(&run(), Ordinal(2), "test").await.unwrap();
    stage.shelf.plant(Key::decision(&run(), Ordinal(6)).as_str(), b"damaged".to_vec());
    let repository = stage.reopen().await;
    let run = run();
    let attempt = |n| repository.attempt(&run, Ordinal(n));
    assert!(matches!(attempt(1).await.unwrap(), AttemptState::Fence(_)));
    assert!(matches!(attempt(2).await.unwrap(), AttemptState::Expired(_)));
    assert!(matches!(attempt(3).await.unwrap(), AttemptState::Committed(_)));
    assert!(
        matches!(attempt(4).await.unwrap(), AttemptState::Aborted(_, abort) if abort.detail == "disk full")
    );
    assert!(
        matches!(attempt(5).await.unwrap(), AttemptState::Undecided(intent) if intent.step == Some(Step(40)))
    );
    assert!(matches!(attempt(6).await.unwrap(), AttemptState::Damaged(_)));
    assert!(matches!(attempt(7).await, Err(RepoError::NotFound(_))));
    stage.shelf.script(|operation, _| (operation == "get").then_some(Fault::Lost));
    assert!(matches!(stage.repository.attempt(&run, Ordinal(5)).await, Err(RepoError::Store(_))));
}

#[tokio::test]
async fn an_undecided_attempt_is_aborted_once_and_its_writer_fails_cleanly() {
    let stage = Stage::new().await;
    let mut session = stage.session(now("a")).await;
    let attempt = session.begin(Step(10), 1, Parents::Latest).await.unwrap();
    let draft = upload(&session, &attempt).await.unwrap();
    let repository = stage.reopen().await;
    for _ in 0..2 {
        let state = repository.abort_undecided(&run(), attempt.ordinal, "by hand").await.unwrap();
        let AttemptState::Aborted(_, abort) = state else { panic!("{state:?}") };
        assert_eq!((abort.reason.as_str(), abort.by), ("operator", None));
    }
    let outcome = session.commit(attempt, draft).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Conflict(_)), "{outcome:?}");
    save(&mut session, 20).await.unwrap();
    session.close().await.unwrap();
    assert_eq!(stage.reopen().await.history(&run()).await.unwrap().findings(), vec![]);
}

#[tokio::test]
async fn a_commit_that_came_first_stands() {
    let stage = Stage::new().await;
    let mut session = stage.session(now("a")).await;
    let attempt = session.begin(Step(10), 1, Parents::Latest).await.unwrap();
    let draft = upload(&session, &attempt).await.unwrap();
    let repository = stage.reopen().await;
    let ordinal = attempt.ordinal;
    let checkpoint = match session.commit(attempt, draft).await.unwrap() {
        CommitOutcome::Committed(checkpoint) => checkpoint,
        other => panic!("{other:?}"),
    };
    let state = repository.abort_undecided(&run(), ordinal, "").await.unwrap();
    assert!(matches!(state, AttemptState::Committed(found) if found.manifest == checkpoint.manifest));
    // Also when it lands between the look and the ABORT.
    let key = Key::decision(&run(), Ordinal(3));
    let late = session.begin(Step(20), 1, Parents::Latest).await.unwrap();
    let draft = upload(&session, &late).await.unwrap();
    assert!(matches!(session.commit(late, draft).await.unwrap(), CommitOutcome::Committed(_)));
    let committed = stage.shelf.read(&key).unwrap();
    stage.shelf.steal(&key);
    stage.shelf.once("create", "decisions", Fault::Beaten(committed.to_vec()));
    let state = stage.reopen().await.abort_undecided(&run(), Ordinal(3), "").await.unwrap();
    assert!(matches!(state, AttemptState::Committed(_)), "{state:?}");
}
