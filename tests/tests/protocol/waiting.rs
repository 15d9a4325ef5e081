//! Following a run with Get and List alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use everstep_format::key::Key;
use everstep_format::name::{Ordinal, Step};
use everstep_repo::{Parents, RepoError};
use everstep_store::World;

use crate::stage::{Fault, Stage, now, run, save};

const HOUR: Duration = Duration::from_secs(3600);
const NO_TIME: Duration = Duration::ZERO;

async fn wait(stage: &Stage, after: Option<u64>, timeout: Duration) -> Result<Option<u64>, RepoError> {
    let news = stage.reopen().await.wait(&run(), after.map(Ordinal), timeout).await?;
    Ok(news.map(|checkpoint| checkpoint.manifest.ordinal.0))
}

#[tokio::test]
async fn the_newest_of_several_is_given_and_never_one_that_is_known() {
    let stage = Stage::new().await;
    stage.closed_run(&[10, 20, 30]).await;
    assert_eq!(wait(&stage, None, NO_TIME).await.unwrap(), Some(4));
    assert_eq!(wait(&stage, Some(2), NO_TIME).await.unwrap(), Some(4));
    assert_eq!(wait(&stage, Some(4), NO_TIME).await.unwrap(), None);
    assert_eq!(wait(&stage, Some(9), NO_TIME).await.unwrap(), None);
}

#[tokio::test]
async fn a_checkpoint_that_comes_while_somebody_waits_ends_the_wait() {
    let stage = Stage::new().await;
    let mut session = stage.session(now("a")).await;
    save(&mut session, 10).await.unwrap();
    let follower = stage.reopen().await;
    let waiting = async { follower.wait(&run(), Some(Ordinal(2)), HOUR).await.unwrap() };
    let training = async {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        save(&mut session, 20).await.unwrap();
        // An attempt that is not decided hides nothing.
        session.begin(Step(30), 1, Parents::Latest).await.unwrap();
    };
    let (news, ()) = tokio::join!(waiting, training);
    assert_eq!(news.unwrap().manifest.step, Step(20));
    assert!(stage.world.elapsed() < HOUR, "it did not wait to the end");
}

#[tokio::test]
async fn a_look_costs_one_get_and_one_more_for_each_attempt_that_is_being_saved() {
    let stage = Stage::new().await;
    let mut session = stage.session(now("a")).await;
    save(&mut session, 10).await.unwrap();
    session.begin(Step(20), 1, Parents::Latest).await.unwrap();
    drop(session);
    let follower = stage.reopen().await;
    stage.shelf.take_calls();
    assert!(follower.wait(&run(), Some(Ordinal(2)), Duration::from_secs(600)).await.unwrap().is_none());
    let calls = stage.shelf.take_calls();
    let writes = calls.iter().filter(|call| !call.starts_with("get") && !call.starts_with("list"));
    assert_eq!(writes.count(), 0, "{calls:?}");
    let looks = calls.iter().filter(|call| call.ends_with("intents/00000000000000000004")).count();
    let asked = calls.iter().filter(|call| call.ends_with("decisions/00000000000000000003")).count();
    assert!((40..=90).contains(&looks), "{looks} looks in ten minutes");
    assert_eq!(asked, looks, "one for the open attempt");
    let rest: Vec<&String> =
        calls.iter().filter(|call| !call.ends_with("00000000000000000004") && !call.ends_with("3")).collect();
    assert!(rest.len() < 8, "the LIST at the end, and what it leads to: {rest:?}");
}

#[tokio::test]
async fn only_when_time_is_over_is_a_run_that_does_not_exist_an_error() {
    let stage = Stage::new().await;
    let error = wait(&stage, None, Duration::from_secs(60)).await.unwrap_err();
    assert!(matches!(error, RepoError::NotFound(_)), "{error}");
    let follower = stage.reopen().await;
    let waiting = async { follower.wait(&run(), None, HOUR).await.unwrap() };
    let training = async {
        tokio::task::yield_now().await;
        let mut session = stage.session(now("a")).await;
        save(&mut session, 10).await.unwrap();
    };
    let (news, ()) = tokio::join!(waiting, training);
    assert_eq!(news.unwrap().manifest.step, Step(10));
}

#[tokio::test]
async fn what_expires_under_the_eyes_of_a_follower_leads_to_something_newer() {
    let stage = Stage::new().await;
    let saved = stage.closed_run(&[10, 20, 30]).await;
    // 20 is the newest that the follower sees first; while its marker is read, it expires and 30 is there.
    let decision = Key::decision(&run(), saved[2].manifest.ordinal);
    let hidden = stage.shelf.read(&decision).unwrap();
    stage.shelf.steal(&decision);
    let marker = Key::expired(&run(), saved[1].manifest.ordinal);
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    let name = marker.to_string();
    stage.shelf.script(move |operation, key| {
        if operation != "get" || key != name || count.fetch_add(1, Ordering::Relaxed) > 0 {
            return None;
        }
        Some(Fault::Before(vec![(decision.clone(), hidden.clone()), (marker.clone(), hidden.clone())]))
    });
    assert_eq!(wait(&stage, Some(2), NO_TIME).await.unwrap(), Some(4));
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_follower_far_behind_lists_instead_of_walking() {
    let stage = Stage::new().await;
    stage.closed_run(&(1..=60).collect::<Vec<_>>()).await;
    let follower = stage.reopen().await;
    stage.shelf.take_calls();
    let news = follower.wait(&run(), Some(Ordinal(2)), NO_TIME).await.unwrap().unwrap();
    assert_eq!(news.manifest.ordinal, Ordinal(61));
    let gets = stage.shelf.take_calls().iter().filter(|call| call.starts_with("get")).count();
    assert!(gets <= 36, "{gets}");
}

#[tokio::test]
async fn an_intent_that_was_lost_does_not_hide_what_came_after_it() {
    let stage = Stage::new().await;
    let saved = stage.closed_run(&[10, 20, 30]).await;
    stage.shelf.steal(&Key::intent(&run(), saved[1].manifest.ordinal));
    assert_eq!(wait(&stage, Some(2), Duration::from_secs(30)).await.unwrap(), Some(4));
}

#[tokio::test]
async fn a_store_that_fails_is_an_error_of_the_wait() {
    let stage = Stage::new().await;
    stage.closed_run(&[10]).await;
    let follower = stage.reopen().await;
    stage.shelf.script(|operation, _| (operation == "get").then_some(Fault::Lost));
    let error = follower.wait(&run(), Some(Ordinal(2)), HOUR).await.unwrap_err();
    assert!(matches!(error, RepoError::Store(_)), "{error}");
}
