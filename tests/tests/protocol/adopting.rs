//! A session that two processes of one job carry on in turns.

use std::time::Duration;

use everstep_format::key::Prefix;
use everstep_format::name::{Ordinal, Step};
use everstep_format::repository::WriterMode;
use everstep_repo::{AttemptState, CommitOutcome, Parents, RepoError, Session, Takeover, Ticket};

use crate::stage::{Fault, Stage, job, latest, now, run, save, upload};

/// The same session in a process without memory.
async fn adopted(stage: &Stage, ticket: &Ticket) -> Session {
    stage.reopen().await.adopt(ticket).await.unwrap()
}

/// Lets background tasks that are due do all they can.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

fn conflict(error: &RepoError, part: impl ToString) -> bool {
    matches!(error, RepoError::Conflict { why, .. } if why.contains(&part.to_string()))
}

async fn counts_of(stage: &Stage) -> Vec<(&'static str, usize)> {
    let attempts = stage.repository.attempts(&run()).await.unwrap();
    let kind = |state: &AttemptState| match state {
        AttemptState::Fence(_) => "fence",
        AttemptState::Committed(_) => "committed",
        AttemptState::Aborted(..) => "aborted",
        _ => "other",
    };
    let kinds = ["fence", "committed", "aborted", "other"].into_iter();
    kinds.map(|name| (name, attempts.iter().filter(|(_, state)| kind(state) == name).count())).collect()
}

#[tokio::test]
async fn processes_of_one_session_that_take_turns_learn_what_the_other_one_committed() {
    let stage = Stage::new().await;
    let mut trainer = stage.session(now("job")).await;
    save(&mut trainer, 1).await.unwrap();
    let mut daemon = adopted(&stage, &trainer.ticket()).await;
    assert_eq!((daemon.id(), daemon.fence()), (trainer.id(), trainer.fence()));
    assert_eq!(daemon.latest().unwrap().manifest.step, Step(1));
    let mut before = Ordinal(2);
    for step in 2..=9 {
        let session = if step % 3 == 0 { &mut trainer } else { &mut daemon };
        let saved = save(session, step).await.unwrap();
        assert_eq!(saved.manifest.parents[0].ordinal, before, "step {step} stands on the one before");
        assert_eq!(session.latest().unwrap().manifest.step, Step(step));
        before = saved.manifest.ordinal;
    }
    assert_eq!(counts_of(&stage).await, [("fence", 1), ("committed", 9), ("aborted", 0), ("other", 0)]);
    assert_eq!(stage.repository.history(&run()).await.unwrap().findings(), vec![]);
}

#[tokio::test]
async fn parents_that_the_caller_adds_stand_beside_the_newest_one_of_the_other_process() {
    let stage = Stage::new().await;
    let base = stage.closed_run(&[1]).await.remove(0);
    let mut trainer = stage.session(now("job")).await;
    let mut daemon = adopted(&stage, &trainer.ticket()).await;
    save(&mut daemon, 2).await.unwrap();
    let attempt = trainer.begin(Step(3), 1, Parents::Also(vec![base])).await.unwrap();
    let steps: Vec<u64> = attempt.confirmed.iter().map(|parent| parent.manifest.step.0).collect();
    assert_eq!(steps, [2, 1]);
}

#[tokio::test]
async fn learning_of_an_attempt_costs_three_requests_and_knowing_costs_none() {
    let stage = Stage::new().await;
    let mut trainer = stage.session(now("job")).await;
    save(&mut trainer, 1).await.unwrap();
    let repository = stage.reopen().await;
    stage.shelf.take_calls();
    let mut daemon = repository.adopt(&trainer.ticket()).await.unwrap();
    let kinds = |calls: Vec<String>| -> Vec<String> {
        let kind = |call: &String| call.rsplit_once('/').map_or(call.clone(), |(kind, _)| kind.to_owned());
        let mut kinds: Vec<String> = calls.iter().map(kind).collect();
        kinds.dedup_by(|a, b| a == b && a.starts_with("list"));
        kinds
    };
    let (intents, decisions, expired) = ("runs/llama/intents", "runs/llama/decisions", "runs/llama/expired");
    let get = |kind: &str| format!("get {kind}");
    let adopting = ["list runs/llama".to_owned(), get(intents), get(intents), get(decisions), get(expired)];
    assert_eq!(kinds(stage.shelf.take_calls()), adopting);
    save(&mut daemon, 2).await.unwrap();
    stage.shelf.take_calls();
    for step in 3..=4 {
        trainer.begin(Step(step), 1, Parents::Latest).await.unwrap();
        let claim = format!("create {intents}");
        let walked = [claim.clone(), get(intents), get(decisions), claim.clone(), get(expired)];
        let known = [claim, get(expired)];
        let expected: &[String] = if step == 3 { &walked } else { &known };
        assert_eq!(kinds(stage.shelf.take_calls()), expected, "step {step}");
    }
}

#[tokio::test]
async fn a_fenced_or_closed_session_cannot_be_adopted_and_an_adopted_one_that_is_fenced_cannot_save() {
    let stage = Stage::new().await;
    let old = stage.session(now("a")).await;
    let mut daemon = adopted(&stage, &old.ticket()).await;
    let new = stage.session(now("b")).await;
    let error = stage.reopen().await.adopt(&old.ticket()).await.unwrap_err();
    assert!(conflict(&error, new.id()) && conflict(&error, "job b"), "{error}");
    let error = save(&mut daemon, 1).await.unwrap_err();
    assert!(conflict(&error, new.id()), "{error}");
    let ticket = new.ticket();
    new.close().await.unwrap();
    let error = stage.reopen().await.adopt(&ticket).await.unwrap_err();
    assert!(conflict(&error, ticket.next.session) && conflict(&error, "closed"), "{error}");
    let unknown = Ticket { run: "elsewhere".parse().unwrap(), ..ticket };
    let error = stage.reopen().await.adopt(&unknown).await.unwrap_err();
    assert!(matches!(error, RepoError::NotFound(_)), "{error}");
}

#[tokio::test]
async fn what_the_other_process_left_open_is_aborted_before_latest_is_resolved() {
    let stage = Stage::new().await;
    let mut trainer = stage.session(now("job")).await;
    save(&mut trainer, 1).await.unwrap();
    let attempt = trainer.begin(Step(2), 1, Parents::Latest).await.unwrap();
    let draft = upload(&trainer, &attempt).await.unwrap();
    let mut daemon = adopted(&stage, &trainer.ticket()).await;
    assert_eq!(daemon.latest().unwrap().manifest.step, Step(1));
    let outcome = trainer.commit(attempt, draft).await.unwrap();
    let CommitOutcome::Conflict(error) = outcome else { panic!("{outcome:?}") };
    assert!(conflict(&error, "has gone on without it"), "{error}");
    // The same for one that is met on the way.
    daemon.begin(Step(3), 1, Parents::Latest).await.unwrap();
    drop(daemon);
    let saved = save(&mut trainer, 4).await.unwrap();
    assert_eq!(saved.manifest.parents[0].ordinal, Ordinal(2));
    assert_eq!(counts_of(&stage).await, [("fence", 1), ("committed", 2), ("aborted", 2), ("other", 0)]);
    assert_eq!(stage.repository.history(&run()).await.unwrap().findings(), vec![]);
}

#[tokio::test]
async fn a_commit_of_which_the_other_process_heard_nothing_is_found() {
    for adopts in [true, false] {
        let stage = Stage::new().await;
        let mut trainer = stage.session(now("job")).await;
        let mut daemon = adopted(&stage, &trainer.ticket()).await;
        let attempt = trainer.begin(Step(1), 1, Parents::Latest).await.unwrap();
        let draft = upload(&trainer, &attempt).await.unwrap();
        stage.shelf.script(|operation, key| match (operation, key.contains("decisions")) {
            ("create", true) => Some(Fault::ReplyLost),
            ("get", true) => Some(Fault::Lost),
            _ => None,
        });
        assert!(matches!(trainer.commit(attempt, draft).await.unwrap(), CommitOutcome::Unknown(_)));
        stage.shelf.heal();
        if adopts {
            daemon = adopted(&stage, &trainer.ticket()).await;
            assert_eq!(daemon.latest().unwrap().manifest.step, Step(1));
        }
        assert_eq!(save(&mut daemon, 2).await.unwrap().manifest.parents[0].ordinal, Ordinal(2));
    }
}

#[tokio::test]
async fn closing_an_adopted_session_leaves_it_open_and_ends_what_this_process_began() {
    let stage = Stage::new().await;
    let mut trainer = stage.session(job("a", Takeover::Fail)).await;
    let mut daemon = adopted(&stage, &trainer.ticket()).await;
    daemon.begin(Step(1), 1, Parents::Latest).await.unwrap();
    daemon.close().await.unwrap();
    let refused = stage.reopen().await.open_session(&run(), job("b", Takeover::Fail)).await;
    assert!(matches!(refused, Err(RepoError::Conflict { .. })), "it lives");
    save(&mut trainer, 2).await.unwrap();
    assert_eq!(counts_of(&stage).await, [("fence", 1), ("committed", 1), ("aborted", 1), ("other", 0)]);
    trainer.close().await.unwrap();
    stage.reopen().await.open_session(&run(), job("b", Takeover::Fail)).await.unwrap();
}

#[tokio::test]
async fn a_session_lives_as_long_as_one_of_its_processes_and_ends_when_it_is_closed() {
    let stage = Stage::new().await;
    let trainer = stage.session(job("a", Takeover::Fail)).await;
    let daemon = adopted(&stage, &trainer.ticket()).await;
    drop(trainer);
    let refuses = async || {
        let opened = stage.reopen().await.open_session(&run(), job("b", Takeover::Fail)).await;
        matches!(opened, Err(RepoError::Conflict { .. }))
    };
    let pass = async |seconds| {
        for _ in 0..seconds / 75 {
            settle().await;
            stage.world.advance(Duration::from_secs(75));
        }
        settle().await;
    };
    pass(600).await;
    assert!(refuses().await, "it is refreshed");
    drop(daemon);
    pass(600).await;
    assert!(!refuses().await, "it fell silent");

    // A sign of life after the end does not bring it back.
    let stage = Stage::new().await;
    let trainer = stage.session(job("a", Takeover::Fail)).await;
    let _daemon = adopted(&stage, &trainer.ticket()).await;
    trainer.close().await.unwrap();
    settle().await;
    stage.world.advance(Duration::from_secs(75));
    settle().await;
    stage.reopen().await.open_session(&run(), job("b", Takeover::Fail)).await.unwrap();
}

#[tokio::test]
async fn in_single_writer_mode_no_marker_is_put_beside_what_the_other_process_committed() {
    let stage = Stage::made_for(WriterMode::SingleWriter).await;
    let mut trainer = stage.session(now("job")).await;
    save(&mut trainer, 1).await.unwrap();
    let mut daemon = adopted(&stage, &trainer.ticket()).await;
    save(&mut daemon, 2).await.unwrap();
    save(&mut trainer, 3).await.unwrap();
    assert!(stage.shelf.keys(Prefix::expired(&run()).as_str()).is_empty());
}

/// Carries a session on at step 2 with a store that dies at call `k`, and then back at step 3; whether step 2 was reported
/// and whether it is there, and whether call `k` was made.
async fn dies_at(k: usize, last: Fault) -> (bool, bool, bool) {
    let stage = Stage::new().await;
    let mut trainer = stage.session(now("job")).await;
    save(&mut trainer, 1).await.unwrap();
    let repository = stage.reopen().await;
    let calls = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = calls.clone();
    stage.shelf.script(move |operation, _| {
        match counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            n if n < k => None,
            n if n == k && matches!(operation, "create" | "put") => Some(last.clone()),
            _ => Some(Fault::Lost),
        }
    });
    let reported = match repository.adopt(&trainer.ticket()).await {
        Ok(mut daemon) => save(&mut daemon, 2).await.is_ok(),
        Err(_) => false,
    };
    let reached = calls.load(std::sync::atomic::Ordering::Relaxed) > k;
    stage.shelf.heal();
    let third = save(&mut trainer, 3).await.unwrap();
    let committed = stage.repository.history(&run()).await.unwrap();
    assert_eq!(committed.findings(), vec![]);
    let there = committed.checkpoints().any(|checkpoint| checkpoint.manifest.step == Step(2));
    let before = committed.checkpoints().filter(|checkpoint| checkpoint.manifest.step < Step(3)).last();
    assert_eq!(third.manifest.parents[0].ordinal, before.unwrap().manifest.ordinal, "call {k}");
    assert_eq!(latest(&stage).await.unwrap().1, Step(3));
    (reported, there, reached)
}

#[tokio::test]
async fn c01_whatever_call_of_an_adopted_session_is_the_last_the_first_process_goes_on_from_the_newest() {
    for last in [Fault::Lost, Fault::ReplyLost] {
        let mut seen = [0, 0];
        for k in 0.. {
            let (reported, there, reached) = dies_at(k, last.clone()).await;
            assert!(there || !reported, "call {k}");
            seen[usize::from(there)] += 1;
            if !reached {
                assert!(reported);
                break;
            }
        }
        assert!(seen.iter().all(|count| *count > 0), "{last:?}: {seen:?}");
    }
}
