//! What things cost in requests.

use everstep_format::name::{Ordinal, Step};
use everstep_repo::{CommitOutcome, Parents, Takeover};

use crate::stage::{Stage, job, now, run, save, upload};

fn strip(calls: Vec<String>) -> Vec<String> {
    let shorten = |call: &String| {
        let (operation, key) = call.split_once(' ').unwrap();
        let parts: Vec<&str> = key.split('/').collect();
        let name = match parts.as_slice() {
            ["runs", _, kind, ordinal] if !ordinal.is_empty() => {
                format!("{kind} {}", ordinal.parse::<u64>().unwrap())
            }
            ["runs", ..] => "run".to_owned(),
            [first, ..] => (*first).to_owned(),
            [] => String::new(),
        };
        format!("{operation} {name}").trim().to_owned()
    };
    let mut calls: Vec<String> = calls.iter().map(shorten).collect();
    // The pages of one listing are one request here: the test store's pages are tiny.
    calls.dedup_by(|a, b| a == b && a.starts_with("list"));
    calls
}

#[tokio::test]
async fn a_save_costs_an_intent_a_marker_per_parent_a_sync_and_a_decision_however_long_the_run() {
    let stage = Stage::new().await;
    let mut session = stage.session(now("a")).await;
    for step in 1..=50 {
        let attempt = session.begin(Step(step), 1, Parents::Latest).await.unwrap();
        let begun = strip(stage.shelf.take_calls());
        let draft = upload(&session, &attempt).await.unwrap();
        stage.shelf.take_calls();
        assert!(matches!(session.commit(attempt, draft).await.unwrap(), CommitOutcome::Committed(_)));
        let committed = strip(stage.shelf.take_calls());
        let ordinal = step + 1;
        assert_eq!(committed, ["sync".to_owned(), format!("create decisions {ordinal}")]);
        if step > 1 {
            assert_eq!(begun, [format!("create intents {ordinal}"), format!("get expired {step}")]);
        }
    }
}

#[tokio::test]
async fn opening_and_closing_cost_the_same_however_long_the_run() {
    let stage = Stage::new().await;
    stage.closed_run(&[1, 2, 3]).await;
    let repository = stage.reopen().await;
    stage.shelf.take_calls();
    let session = repository.open_session(&run(), job("b", Takeover::Fail)).await.unwrap();
    let expected = [
        "list run",         // the newest intent
        "get intents 4",    // whose is it
        "get sessions",     // closed?
        "put sessions",     // our mark
        "create intents 5", // R1
        "list run",         // R2: nothing is undecided
        "get decisions 4",  // R3
        "get expired 4",
    ];
    assert_eq!(strip(stage.shelf.take_calls()), expected);
    session.close().await.unwrap();
    assert_eq!(strip(stage.shelf.take_calls()), ["create decisions 5", "put sessions"]);
}

#[tokio::test]
async fn latest_of_a_long_run_is_one_listing_one_decision_and_one_marker() {
    let stage = Stage::new().await;
    stage.closed_run(&(1..=200).collect::<Vec<u64>>()).await;
    let repository = stage.reopen().await;
    stage.shelf.take_calls();
    assert_eq!(repository.latest(&run()).await.unwrap().unwrap().manifest.ordinal, Ordinal(201));
    assert_eq!(strip(stage.shelf.take_calls()), ["list run", "get decisions 201", "get expired 201"]);
    repository.latest(&run()).await.unwrap();
    assert_eq!(strip(stage.shelf.take_calls()), ["list run", "get expired 201"], "decisions never change");
}

#[tokio::test]
async fn latest_below_many_aborted_attempts_reads_each_once() {
    let stage = Stage::new().await;
    stage.closed_run(&[1]).await;
    for _ in 0..40 {
        stage.session(now("a")).await.close().await.unwrap();
    }
    let repository = stage.reopen().await;
    stage.shelf.take_calls();
    assert_eq!(repository.latest(&run()).await.unwrap().unwrap().manifest.step, Step(1));
    let gets =
        strip(stage.shelf.take_calls()).iter().filter(|call| call.starts_with("get decisions")).count();
    assert!((41..=42).contains(&gets), "{gets}");
}

#[tokio::test]
async fn reading_needs_get_and_list_alone() {
    let stage = Stage::new().await;
    stage.closed_run(&[1, 2]).await;
    let repository = stage.reopen().await;
    repository.latest(&run()).await.unwrap();
    repository.runs().await.unwrap();
    repository.attempts(&run()).await.unwrap();
    repository.history(&run()).await.unwrap();
    for reference in ["llama", "llama@step=1", "llama@ordinal=2"] {
        repository.resolve(&reference.parse().unwrap()).await.unwrap();
    }
    let calls = stage.shelf.take_calls();
    assert!(calls.iter().all(|call| call.starts_with("get ") || call.starts_with("list ")), "{calls:?}");
    save(&mut stage.session(now("a")).await, 3).await.unwrap();
}
