//! Marks that a session writes while it lives, and their end.

use std::time::Duration;

use everstep_format::name::Step;
use everstep_repo::{Parents, Takeover};

use crate::stage::{Fault, Stage, job, run, save};

/// Lets background tasks that are due do all they can.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_session_refreshes_its_mark_every_quarter_of_the_limit_and_stays_alive() {
    let stage = Stage::new().await;
    let session = stage.session(job("a", Takeover::Fail)).await;
    stage.shelf.take_calls();
    for _ in 0..8 {
        settle().await;
        stage.world.advance(Duration::from_secs(75));
    }
    settle().await;
    assert_eq!(stage.shelf.take_calls(), vec![format!("put sessions/{}", session.id()); 8]);
    let error = stage.reopen().await.open_session(&run(), job("b", Takeover::Fail)).await.unwrap_err();
    assert!(error.to_string().contains("0 s old"), "{error}");
}

#[tokio::test]
async fn a_failed_refresh_is_not_fatal_and_the_next_one_is_written() {
    let stage = Stage::new().await;
    let mut session = stage.session(job("a", Takeover::Fail)).await;
    settle().await;
    stage.shelf.once("put", "sessions/", Fault::Lost);
    for _ in 0..2 {
        stage.world.advance(Duration::from_secs(75));
        settle().await;
    }
    save(&mut session, 1).await.unwrap();
    stage.shelf.heal();
    let error = stage.reopen().await.open_session(&run(), job("b", Takeover::Fail)).await.unwrap_err();
    assert!(error.to_string().contains("0 s old"), "{error}");
}

#[tokio::test]
async fn marks_end_with_the_session_whether_it_is_closed_or_dropped() {
    for close in [true, false] {
        let stage = Stage::new().await;
        let mut session = stage.session(job("a", Takeover::Fail)).await;
        session.begin(Step(1), 1, Parents::Latest).await.unwrap();
        settle().await;
        if close {
            session.close().await.unwrap();
        } else {
            drop(session);
        }
        settle().await;
        stage.shelf.take_calls();
        stage.world.advance(Duration::from_secs(48 * 3600));
        settle().await;
        assert_eq!(stage.shelf.take_calls(), Vec::<String>::new(), "closed: {close}");
    }
}

#[tokio::test]
async fn only_an_attempt_open_for_hours_writes_a_sign_of_life() {
    let stage = Stage::new().await;
    let mut session = stage.session(job("a", Takeover::Fail)).await;
    save(&mut session, 1).await.unwrap();
    let long = session.begin(Step(2), 1, Parents::Latest).await.unwrap();
    for _ in 0..2 {
        settle().await;
        stage.world.advance(Duration::from_secs(6 * 3600));
    }
    settle().await;
    assert_eq!(stage.shelf.keys("alive/"), [format!("alive/{}", long.id)]);
    let calls = stage.shelf.take_calls();
    assert_eq!(calls.iter().filter(|call| call.starts_with("put alive/")).count(), 2);
}
