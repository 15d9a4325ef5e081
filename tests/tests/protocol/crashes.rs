//! A writer that stops after any of its store calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everstep_format::name::{Ordinal, Step};
use everstep_repo::{AttemptState, RepoError};

use crate::stage::{Fault, Stage, latest, now, run, save};

/// The store dies for good at call `k`; the call itself is lost, or done without an answer.
fn dies_at(stage: &Stage, k: usize, last: Fault) -> Arc<AtomicUsize> {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    stage.shelf.script(move |operation, _| match counter.fetch_add(1, Ordering::Relaxed) {
        n if n < k => None,
        n if n == k && matches!(operation, "create" | "put") => Some(last.clone()),
        _ => Some(Fault::Lost),
    });
    calls
}

async fn open_and_save(stage: &Stage) -> Result<(), RepoError> {
    let mut session = stage.reopen_quietly().await?.open_session(&run(), now("trainer")).await?;
    save(&mut session, 20).await?;
    session.close().await
}

impl Stage {
    async fn reopen_quietly(&self) -> Result<everstep_repo::Repository, RepoError> {
        everstep_repo::Repository::open(self.shelf.clone(), self.world.clone()).await
    }
}

#[tokio::test]
async fn c01_whatever_call_is_the_last_latest_is_the_old_or_the_new_checkpoint() {
    for last in [Fault::Lost, Fault::ReplyLost] {
        let (mut old, mut new) = (0, 0);
        for k in 0.. {
            let stage = Stage::new().await;
            stage.closed_run(&[10]).await;
            let calls = dies_at(&stage, k, last.clone());
            let outcome = open_and_save(&stage).await;
            stage.shelf.heal();
            match latest(&stage).await.unwrap() {
                (_, Step(10)) => old += 1,
                (_, Step(20)) => new += 1,
                other => panic!("the store died at call {k}: latest is {other:?}"),
            }
            // Whoever restarts sees the same, and a COMMIT that was in flight cannot change it any more.
            let before = latest(&stage).await;
            let restarted = stage.session(now("trainer")).await;
            let resolved = restarted.latest().map(|c| (c.manifest.ordinal, c.manifest.step));
            assert_eq!(resolved, before, "the store died at call {k}");
            let history = stage.repository.history(&run()).await.unwrap();
            assert_eq!(history.findings(), vec![], "the store died at call {k}");
            assert!(stage.shelf.take_calls().iter().all(|call| !call.starts_with("delete")), "call {k}");
            if calls.load(Ordering::Relaxed) <= k {
                outcome.unwrap();
                break;
            }
        }
        assert!(old > 10 && new > 1, "old {old}, new {new}: the save was not interrupted where it matters");
    }
}

#[tokio::test]
async fn c01_an_unfinished_step_is_incomplete_and_not_listed_as_a_checkpoint() {
    let stage = Stage::new().await;
    stage.closed_run(&[10]).await;
    let mut session = stage.session(now("trainer")).await;
    let attempt = session.begin(Step(20), 1, everstep_repo::Parents::Latest).await.unwrap();
    drop(session);
    let repository = stage.reopen().await;
    let states = repository.attempts(&run()).await.unwrap();
    let committed: Vec<_> = states.iter().filter(|(_, s)| matches!(s, AttemptState::Committed(_))).collect();
    assert_eq!(committed.len(), 1);
    assert!(matches!(states.last().unwrap(), (o, AttemptState::Undecided(_)) if *o == attempt.ordinal));
    for reference in ["llama@step=20".to_owned(), format!("llama@ordinal={}", attempt.ordinal)] {
        let error = repository.resolve(&reference.parse().unwrap()).await.unwrap_err();
        let RepoError::Incomplete { ordinal, why, .. } = error else { panic!("{reference}: {error}") };
        assert_eq!(ordinal, attempt.ordinal);
        assert!(why.contains("undecided") && why.contains("job trainer"), "{why}");
    }
    assert_eq!(latest(&stage).await, Some((Ordinal(2), Step(10))));
}
