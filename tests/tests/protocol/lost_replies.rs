//! Answers that are lost or lie (C14), and outcomes nobody knows.

use everstep_format::decision::{Abort, Decision};
use everstep_format::key::Key;
use everstep_format::name::{Ordinal, Step};
use everstep_repo::{CommitOutcome, Parents, RepoError, Session};

use crate::stage::{Fault, Stage, latest, now, run, save, upload};

async fn commit_under(stage: &Stage, session: &mut Session, fault: Fault) -> CommitOutcome {
    let attempt = session.begin(Step(20), 1, Parents::Latest).await.unwrap();
    let draft = upload(session, &attempt).await.unwrap();
    stage.shelf.once("create", "decisions", fault);
    session.commit(attempt, draft).await.unwrap()
}

#[tokio::test]
async fn c14_a_commit_whose_reply_was_lost_is_read_back_as_ours() {
    for fault in [Fault::ReplyLost, Fault::ReplyLostThenExists, Fault::FalseExists, Fault::Lost] {
        let stage = Stage::new().await;
        stage.closed_run(&[10]).await;
        let mut session = stage.session(now("trainer")).await;
        let outcome = commit_under(&stage, &mut session, fault.clone()).await;
        let CommitOutcome::Committed(checkpoint) = outcome else { panic!("{fault:?}: {outcome:?}") };
        let Ordinal(ordinal) = checkpoint.manifest.ordinal;
        assert_eq!(latest(&stage).await, Some((Ordinal(ordinal), Step(20))), "{fault:?}");
        let key = format!("runs/llama/decisions/{ordinal:020}");
        assert_eq!(
            stage.shelf.keys(&key),
            std::slice::from_ref(&key),
            "{fault:?}: exactly one commit object"
        );
    }
}

#[tokio::test]
async fn c14_another_writers_decision_is_a_conflict_that_names_it_and_stays_untouched() {
    let stage = Stage::new().await;
    let mut session = stage.session(now("trainer")).await;
    let other = stage.repository.open_session(&"other".parse().unwrap(), now("other")).await.unwrap().id();
    let attempt = session.begin(Step(20), 1, Parents::Latest).await.unwrap();
    let draft = upload(&session, &attempt).await.unwrap();
    let abort = Abort { reason: "superseded".to_owned(), detail: String::new(), by: Some(other) };
    let theirs = Decision::abort(attempt.id, abort).to_bytes(&run(), attempt.ordinal).unwrap();
    stage.shelf.once("create", "decisions", Fault::Beaten(theirs.clone()));
    let key = Key::decision(&run(), attempt.ordinal);
    let outcome = session.commit(attempt, draft).await.unwrap();
    let CommitOutcome::Conflict(error) = outcome else { panic!("{outcome:?}") };
    assert!(error.to_string().contains(&other.to_string()), "{error}");
    assert_eq!(stage.shelf.read(&key).unwrap(), theirs);
    assert!(save(&mut session, 21).await.is_ok(), "a new attempt of the same session is fine");
}

#[tokio::test]
async fn an_intent_whose_reply_was_lost_is_our_own() {
    for fault in [Fault::ReplyLost, Fault::ReplyLostThenExists, Fault::FalseExists, Fault::Lost] {
        let stage = Stage::new().await;
        let mut session = stage.session(now("trainer")).await;
        stage.shelf.once("create", "intents", fault.clone());
        let attempt = session.begin(Step(1), 1, Parents::Latest).await.unwrap();
        assert_eq!(attempt.ordinal, Ordinal(2), "{fault:?}");
        assert_eq!(stage.shelf.keys("runs/llama/intents/").len(), 2, "{fault:?}");
    }
}

#[tokio::test]
async fn a_store_that_dies_at_the_commit_leaves_the_outcome_unknown_and_everything_in_place() {
    let stage = Stage::new().await;
    stage.closed_run(&[10]).await;
    let mut session = stage.session(now("trainer")).await;
    let attempt = session.begin(Step(20), 1, Parents::Latest).await.unwrap();
    let draft = upload(&session, &attempt).await.unwrap();
    stage.shelf.take_calls();
    let mut decided = false;
    stage.shelf.script(move |operation, key| {
        decided |= operation == "create" && key.contains("decisions");
        decided.then_some(Fault::Lost)
    });
    let outcome = session.commit(attempt.clone(), draft.clone()).await.unwrap();
    let CommitOutcome::Unknown(error) = outcome else { panic!("{outcome:?}") };
    assert!(error.to_string().contains("no answer"), "{error}");
    session.abandon(attempt.clone(), "giving up").await;
    let calls = stage.shelf.take_calls();
    assert!(calls.iter().all(|call| !call.starts_with("delete")), "{calls:?}");
    let key = Key::decision(&run(), attempt.ordinal);
    assert!(stage.shelf.read(&key).is_none(), "abandoning it must not decide an attempt in doubt");

    // Resolvable later: committing the very same attempt again settles it.
    stage.shelf.heal();
    let outcome = session.commit(attempt.clone(), draft).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
    assert_eq!(latest(&stage).await, Some((attempt.ordinal, Step(20))));
}

#[tokio::test]
async fn closing_leaves_an_attempt_in_doubt_alone_and_aborts_the_others() {
    let stage = Stage::new().await;
    let mut session = stage.session(now("trainer")).await;
    let doubtful = session.begin(Step(1), 1, Parents::Latest).await.unwrap();
    let open = session.begin(Step(2), 1, Parents::Latest).await.unwrap();
    let draft = upload(&session, &doubtful).await.unwrap();
    stage.shelf.script(|operation, _| (operation != "sync").then_some(Fault::Lost));
    assert!(matches!(session.commit(doubtful.clone(), draft).await.unwrap(), CommitOutcome::Unknown(_)));
    stage.shelf.heal();
    session.close().await.unwrap();
    let repository = stage.reopen().await;
    let why = |error: RepoError| {
        if let RepoError::Incomplete { why, .. } = error { why } else { error.to_string() }
    };
    let first = why(repository.checkpoint(&run(), doubtful.ordinal).await.unwrap_err());
    let second = why(repository.checkpoint(&run(), open.ordinal).await.unwrap_err());
    assert!(first.contains("undecided"), "{first}");
    assert!(second.contains("closed"), "{second}");
}

#[tokio::test]
async fn a_claim_that_failed_and_landed_late_is_aborted_and_stepped_over() {
    let stage = Stage::new().await;
    let mut session = stage.session(now("trainer")).await;
    let mut first = true;
    stage.shelf.script(move |operation, key| match (operation, key.contains("intents")) {
        ("create", true) if std::mem::take(&mut first) => Some(Fault::ReplyLost),
        ("create" | "get", true) => Some(Fault::Lost),
        _ => None,
    });
    let error = session.begin(Step(1), 1, Parents::Latest).await.unwrap_err();
    assert!(matches!(error, RepoError::Store(_)), "{error}");
    stage.shelf.heal();
    let checkpoint = save(&mut session, 2).await.unwrap();
    assert_eq!(checkpoint.manifest.ordinal, Ordinal(3));
    let history = stage.repository.history(&run()).await.unwrap();
    assert_eq!(history.decisions.len(), 2, "the late claim and the checkpoint are decided");
    assert_eq!(history.findings(), vec![]);
}

#[tokio::test]
async fn a_refusal_by_the_store_is_an_error_and_no_doubt() {
    let stage = Stage::new().await;
    let mut session = stage.session(now("trainer")).await;
    let attempt = session.begin(Step(1), 1, Parents::Latest).await.unwrap();
    let draft = upload(&session, &attempt).await.unwrap();
    stage.shelf.once("create", "decisions", Fault::Denied);
    assert!(matches!(session.commit(attempt.clone(), draft.clone()).await, Err(RepoError::Store(_))));
    assert!(matches!(session.commit(attempt, draft).await, Ok(CommitOutcome::Committed(_))));
}

#[tokio::test]
async fn nothing_is_committed_before_it_is_durable() {
    let stage = Stage::new().await;
    let mut session = stage.session(now("trainer")).await;
    let attempt = session.begin(Step(1), 1, Parents::Latest).await.unwrap();
    let draft = upload(&session, &attempt).await.unwrap();
    stage.shelf.once("sync", "", Fault::Lost);
    assert!(session.commit(attempt, draft).await.is_err());
    assert_eq!(latest(&stage).await, None);
}
