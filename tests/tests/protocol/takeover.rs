//! Taking a run over: who is spared, who is not, and what a person is told.

use std::time::Duration;

use everstep_format::name::Step;
use everstep_repo::{OpenOptions, Parents, RepoError, Session, Takeover};

use crate::stage::{Fault, Stage, job, now, run, save};

async fn attempt(stage: &Stage, options: OpenOptions) -> Result<Session, RepoError> {
    stage.reopen().await.open_session(&run(), options).await
}

#[tokio::test]
async fn a_live_session_of_another_job_is_spared_by_default() {
    let stage = Stage::new().await;
    let mut live = stage.session(job("a", Takeover::Fail)).await;
    save(&mut live, 1).await.unwrap();
    stage.world.advance(Duration::from_secs(40));
    for label in [job("b", Takeover::Fail), OpenOptions::default()] {
        let error = attempt(&stage, label).await.unwrap_err().to_string();
        for part in [&live.id().to_string(), "job a", "40 s", "--takeover now", "--takeover wait"] {
            assert!(error.contains(part), "{part} is not in {error}");
        }
    }
    assert_eq!(stage.shelf.keys("sessions/").len(), 1, "the refused left no mark");
    save(&mut live, 2).await.unwrap();
}

#[tokio::test]
async fn without_labels_two_sessions_count_as_two_jobs() {
    let stage = Stage::new().await;
    let _live = stage.session(OpenOptions::default()).await;
    assert!(matches!(attempt(&stage, OpenOptions::default()).await, Err(RepoError::Conflict { .. })));
}

#[tokio::test]
async fn the_same_job_a_silent_one_and_a_closed_one_are_taken_over_without_a_word() {
    let stage = Stage::new().await;
    let mut first = stage.session(job("a", Takeover::Fail)).await;
    let second = stage.session(job("a", Takeover::Fail)).await;
    assert!(save(&mut first, 1).await.is_err(), "the label spares a question, not the fence");
    second.close().await.unwrap();
    let third = stage.session(job("b", Takeover::Fail)).await;
    drop(third);
    stage.world.advance(Duration::from_secs(299));
    assert!(attempt(&stage, job("c", Takeover::Fail)).await.is_err());
    stage.world.advance(Duration::from_secs(1));
    stage.session(job("c", Takeover::Fail)).await;
}

#[tokio::test]
async fn a_session_whose_closing_mark_was_lost_is_closed_by_its_fence_alone() {
    let stage = Stage::new().await;
    let session = stage.session(job("a", Takeover::Fail)).await;
    stage.shelf.once("put", "sessions/", Fault::Lost);
    assert!(session.close().await.is_err());
    stage.session(job("b", Takeover::Fail)).await;
}

#[tokio::test]
async fn a_session_that_saved_is_known_by_its_newest_attempt() {
    let stage = Stage::new().await;
    let mut session = stage.session(job("a", Takeover::Fail)).await;
    for step in 0..5 {
        save(&mut session, step).await.unwrap();
    }
    assert!(attempt(&stage, job("b", Takeover::Fail)).await.is_err());
    session.close().await.unwrap();
    stage.session(job("b", Takeover::Fail)).await;
}

#[tokio::test]
async fn now_takes_over_at_once() {
    let stage = Stage::new().await;
    let mut live = stage.session(job("a", Takeover::Fail)).await;
    let _new = stage.session(now("b")).await;
    assert!(live.begin(Step(1), 1, Parents::Latest).await.is_err());
}

#[tokio::test]
async fn waiting_ends_when_the_other_falls_silent_or_time_is_up() {
    let stage = Stage::new().await;
    let live = stage.session(job("a", Takeover::Fail)).await;
    let before = stage.world_seconds();
    let short = attempt(&stage, job("b", Takeover::Wait(Duration::from_secs(100)))).await;
    assert!(matches!(short, Err(RepoError::Conflict { .. })));
    assert_eq!(stage.world_seconds() - before, 100);
    drop(live);
    attempt(&stage, job("b", Takeover::Wait(Duration::from_secs(1000)))).await.unwrap();
    let waited = stage.world_seconds() - before;
    // It gave signs of life for 75 to 100 s, then none for 300 s; a waiting job looks every 15 s.
    assert!((375..=415).contains(&waited), "{waited}");
}

#[tokio::test]
async fn waiting_ends_when_the_other_closes() {
    let stage = Stage::new().await;
    let live = stage.session(job("a", Takeover::Fail)).await;
    let waiting = attempt(&stage, job("b", Takeover::Wait(Duration::from_secs(1000))));
    let (opened, closed) = tokio::join!(waiting, live.close());
    closed.unwrap();
    opened.unwrap();
    assert!(stage.world_seconds() < 100);
}

impl Stage {
    fn world_seconds(&self) -> u64 {
        use everstep_store::World;
        self.world.elapsed().as_secs()
    }
}

/// Whoever opens meanwhile is looked at like any other session.
#[tokio::test]
async fn two_openings_at_once_do_not_fence_each_other_silently() {
    let stage = Stage::new().await;
    let first = stage.repository.clone();
    let second = stage.reopen().await;
    let run = run();
    let (a, b) = tokio::join!(
        first.open_session(&run, job("a", Takeover::Fail)),
        second.open_session(&run, job("b", Takeover::Fail)),
    );
    assert_eq!(usize::from(a.is_ok()) + usize::from(b.is_ok()), 1, "{a:?} {b:?}");
}

#[tokio::test]
async fn an_opening_that_fails_above_its_fence_leaves_nobody_waiting() {
    let stage = Stage::new().await;
    drop(stage.session(job("a", Takeover::Fail)).await);
    stage.shelf.once("create", "decisions", Fault::Denied);
    assert!(matches!(attempt(&stage, now("b")).await, Err(RepoError::Store(_))));
    stage.shelf.heal();
    stage.session(job("c", Takeover::Fail)).await;
}

#[tokio::test]
async fn a_label_beyond_its_limit_is_refused_before_anything_is_written() {
    let stage = Stage::new().await;
    let long = OpenOptions { job: Some("x".repeat(257)), ..OpenOptions::default() };
    assert!(matches!(attempt(&stage, long).await, Err(RepoError::Invalid(_))));
    assert_eq!(stage.shelf.keys(""), ["everstep.json"]);
}
