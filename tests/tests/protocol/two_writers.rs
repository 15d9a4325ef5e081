//! Fences, zombies and races (C28).

use std::sync::Arc;

use everstep_format::decision::Decision;
use everstep_format::id::{AttemptId, SessionId};
use everstep_format::intent::Intent;
use everstep_format::key::{Key, Prefix};
use everstep_format::name::{Ordinal, Step};
use everstep_format::repository::WriterMode;
use everstep_repo::{AttemptState, CommitOutcome, Parents, RepoError};
use tokio::sync::Barrier;

use crate::stage::{Stage, latest, now, run, save, upload};

fn names(error: &RepoError, session: impl ToString) -> bool {
    matches!(error, RepoError::Conflict { why, .. } if why.contains(&session.to_string()))
}

#[tokio::test]
async fn a_newer_session_fences_the_older_one() {
    let stage = Stage::new().await;
    let mut old = stage.session(now("a")).await;
    save(&mut old, 1).await.unwrap();
    let mut new = stage.session(now("b")).await;
    assert_eq!(new.latest().unwrap().manifest.step, Step(1));
    let error = save(&mut old, 2).await.unwrap_err();
    assert!(names(&error, new.id()) && error.to_string().contains("job b"), "{error}");
    assert!(save(&mut old, 2).await.is_err(), "and it stays fenced");
    save(&mut new, 2).await.unwrap();
}

#[tokio::test]
async fn a_paused_writer_that_wakes_up_after_a_takeover_cannot_commit() {
    let stage = Stage::new().await;
    let mut zombie = stage.session(now("a")).await;
    save(&mut zombie, 1).await.unwrap();
    let attempt = zombie.begin(Step(2), 1, Parents::Latest).await.unwrap();
    let draft = upload(&zombie, &attempt).await.unwrap();
    let new = stage.session(now("b")).await;
    let outcome = zombie.commit(attempt, draft).await.unwrap();
    let CommitOutcome::Conflict(error) = outcome else { panic!("{outcome:?}") };
    assert!(names(&error, new.id()), "{error}");
    assert_eq!(latest(&stage).await.unwrap().1, Step(1));
}

#[tokio::test]
async fn a_zombies_claim_above_the_fence_is_stepped_over() {
    let stage = Stage::new().await;
    let mut session = stage.session(now("a")).await;
    let other = stage.session_of("other").await;
    let mut stranger = Intent::save(run(), Ordinal(2), AttemptId([7; 16]), other);
    (stranger.step, stranger.world_size) = (Some(Step(9)), 1);
    stage.shelf.plant(Key::intent(&run(), Ordinal(2)).as_str(), stranger.to_bytes().unwrap());
    assert_eq!(save(&mut session, 1).await.unwrap().manifest.ordinal, Ordinal(3));
}

/// Where create overwrites, a COMMIT that was on its way when its attempt was aborted can replace the ABORT.
#[tokio::test]
async fn in_single_writer_mode_a_late_commit_that_replaces_an_abort_does_not_count() {
    let stage = Stage::made_for(WriterMode::SingleWriter).await;
    let mut dead = stage.session(now("a")).await;
    let good = save(&mut dead, 1).await.unwrap();
    let attempt = dead.begin(Step(2), 1, Parents::Latest).await.unwrap();
    stage.session(now("b")).await;
    assert_eq!(latest(&stage).await.unwrap().1, Step(1));

    let mut manifest = good.manifest.as_ref().clone();
    (manifest.ordinal, manifest.attempt, manifest.step) = (attempt.ordinal, attempt.id, Step(2));
    let late = Decision::commit(manifest).to_bytes(&run(), attempt.ordinal).unwrap();
    stage.shelf.plant(Key::decision(&run(), attempt.ordinal).as_str(), late);
    assert_eq!(latest(&stage).await.unwrap().1, Step(1));
}

#[tokio::test]
async fn where_create_is_atomic_an_abort_writes_no_marker() {
    let stage = Stage::new().await;
    let mut dead = stage.session(now("a")).await;
    dead.begin(Step(1), 1, Parents::Latest).await.unwrap();
    stage.session(now("b")).await;
    assert!(stage.shelf.keys(Prefix::expired(&run()).as_str()).is_empty());
}

impl Stage {
    async fn session_of(&self, other: &str) -> SessionId {
        let run = other.parse().unwrap();
        self.repository.open_session(&run, now(other)).await.unwrap().id()
    }
}

#[tokio::test]
async fn a_session_commits_only_its_own_open_attempts() {
    let stage = Stage::new().await;
    let mut first = stage.session(now("a")).await;
    let foreign = first.begin(Step(1), 1, Parents::Latest).await.unwrap();
    let draft = upload(&first, &foreign).await.unwrap();
    let mut second = stage.session(now("b")).await;
    stage.shelf.take_calls();
    let error = second.commit(foreign, draft.clone()).await.unwrap_err();
    assert!(matches!(error, RepoError::Invalid(_)), "{error}");
    assert_eq!(stage.shelf.take_calls(), Vec::<String>::new());
    let own = second.begin(Step(1), 1, Parents::Latest).await.unwrap();
    let error = second.commit(own, draft).await.unwrap_err();
    assert!(error.to_string().contains("owner of packs"), "packs of an attempt that is no parent: {error}");
}

/// Both sessions are open when both save: the one with the older fence always loses.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c28_of_two_open_sessions_exactly_one_commits_per_round() {
    let stage = Arc::new(Stage::new().await);
    for round in 0..100 {
        let older = stage.session(now("a")).await;
        let newer = stage.session(now("b")).await;
        let winner = newer.id();
        let start = Arc::new(Barrier::new(2));
        let tasks = [older, newer].map(|mut session| {
            let start = start.clone();
            async move {
                start.wait().await;
                save(&mut session, round).await
            }
        });
        let [older, newer] = tasks;
        let (older, newer) = tokio::join!(spawned(older), spawned(newer));
        let error = older.unwrap_err();
        assert!(names(&error, winner), "round {round}: {error}");
        let committed = newer.unwrap().manifest.ordinal;
        assert_eq!(latest(&stage).await, Some((committed, Step(round))));
    }
    let history = stage.repository.history(&run()).await.unwrap();
    assert_eq!(history.checkpoints().count(), 100);
    assert_eq!(history.findings(), vec![]);
}

/// Nothing is agreed: opening, claiming and committing race freely.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c28_racing_jobs_never_both_commit_one_attempt_and_the_loser_is_told_by_whom() {
    let stage = Arc::new(Stage::new().await);
    for round in 0..100 {
        let jobs = ["a", "b"].map(|label| {
            let stage = stage.clone();
            spawned(async move {
                let mut session = stage.session(now(label)).await;
                let id = session.id();
                (id, save(&mut session, round).await)
            })
        });
        let [a, b] = jobs;
        let (a, b) = tokio::join!(a, b);
        match (&a.1, &b.1) {
            (Err(error), Ok(_)) => assert!(names(error, b.0), "round {round}: {error}"),
            (Ok(_), Err(error)) => assert!(names(error, a.0), "round {round}: {error}"),
            // One after the other, not mixed: the second opened when the first had committed.
            (Ok(first), Ok(second)) => assert_ne!(first.manifest.ordinal, second.manifest.ordinal),
            (Err(a), Err(b)) => panic!("round {round}: nobody won: {a}; {b}"),
        }
    }
    let history = stage.repository.history(&run()).await.unwrap();
    assert_eq!(history.findings(), vec![]);
    let attempts = stage.repository.attempts(&run()).await.unwrap();
    assert!(attempts.iter().all(|(_, state)| !matches!(state, AttemptState::Expired(_))));
}

#[expect(clippy::disallowed_methods, reason = "the race needs two threads")]
async fn spawned<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> T {
    tokio::spawn(task).await.unwrap()
}

#[tokio::test]
async fn c28_different_runs_do_not_see_each_other() {
    let stage = Stage::new().await;
    let (run1, run10) = ("run1".parse().unwrap(), "run10".parse().unwrap());
    let mut first = stage.repository.open_session(&run1, now("a")).await.unwrap();
    let mut second = stage.repository.open_session(&run10, now("b")).await.unwrap();
    let one = save(&mut first, 1).await.unwrap();
    save(&mut second, 7).await.unwrap();
    assert_eq!(stage.repository.latest(&run1).await.unwrap().unwrap().manifest.step, Step(1));
    assert_eq!(stage.repository.latest(&run10).await.unwrap().unwrap().manifest.step, Step(7));
    assert_eq!(stage.repository.runs().await.unwrap(), [run1, run10]);
    // A checkpoint of one run can be a parent in the other.
    let attempt = second.begin(Step(8), 1, Parents::These(vec![one.clone(), one])).await.unwrap();
    assert_eq!(attempt.confirmed.len(), 1);
    assert_eq!(attempt.confirmed[0].manifest.run.as_str(), "run1");
}
