//! Order, strays, references (C27) and expiry.

use everstep_format::key::Key;
use everstep_format::name::{Ordinal, Step};
use everstep_repo::{AttemptState, Checkpoint, RepoError, Resolved};
use serde_json::json;

use crate::stage::{Fault, Stage, latest, now, run, save, save_with};

async fn resolve(stage: &Stage, reference: &str) -> Result<Resolved, RepoError> {
    stage.reopen().await.resolve(&reference.parse().unwrap()).await
}

#[tokio::test]
async fn c27_steps_are_numbers_and_strays_are_ignored() {
    let stage = Stage::new().await;
    stage.closed_run(&[999, 1000, 9000, 10000, 900_000]).await;
    let decisions = "runs/llama/decisions";
    let strays =
        [".DS_Store", "checkpoint-476000-1", "tmp123/x", "README", "runs/README", "runs/llama/README"];
    let inside = ["00000000000000000007.tmp", "7", "+0000000000000000007", "99999999999999999999"];
    let planted: Vec<String> = strays
        .iter()
        .map(|s| (*s).to_owned())
        .chain(inside.iter().map(|s| format!("{decisions}/{s}")))
        .collect();
    for stray in &planted {
        stage.shelf.plant(stray, "not ours");
    }
    let first = stage.shelf.read(&Key::decision(&run(), Ordinal(2))).unwrap();
    stage.shelf.plant(Key::decision(&run(), Ordinal(2)).as_str(), first);

    assert_eq!(latest(&stage).await.unwrap().1, Step(900_000));
    let attempts = stage.repository.attempts(&run()).await.unwrap();
    let steps: Vec<u64> = attempts
        .iter()
        .filter_map(
            |(_, state)| if let AttemptState::Committed(c) = state { Some(c.manifest.step.0) } else { None },
        )
        .collect();
    assert_eq!(steps, [999, 1000, 9000, 10000, 900_000]);
    assert_eq!(stage.repository.runs().await.unwrap(), [run()]);
    let mut session = stage.session(now("b")).await;
    save(&mut session, 900_001).await.unwrap();
    assert!(planted.iter().all(|stray| stage.shelf.keys(stray).contains(stray)), "strays stay");
}

#[tokio::test]
async fn a_step_saved_twice_means_the_newer_one_and_says_so() {
    let stage = Stage::new().await;
    let old = stage.closed_run(&[1, 2, 2, 2, 3]).await;
    let resolved = resolve(&stage, "llama@step=2").await.unwrap();
    assert_eq!(resolved.checkpoint.manifest.ordinal, old[3].manifest.ordinal);
    assert_eq!(resolved.also, [old[2].manifest.ordinal, old[1].manifest.ordinal]);
    stage.repository.expire(&run(), old[3].manifest.ordinal, "test").await.unwrap();
    let resolved = resolve(&stage, "llama@step=2").await.unwrap();
    assert_eq!(resolved.checkpoint.manifest.ordinal, old[2].manifest.ordinal);
    assert_eq!(resolved.also, [old[1].manifest.ordinal]);
}

#[tokio::test]
async fn the_best_metric_counts_numbers_only_and_ties_go_to_the_newest() {
    let stage = Stage::new().await;
    let mut session = stage.session(now("a")).await;
    let losses =
        [json!(0.5), json!(1), json!("NaN"), json!(0.5), json!(null), json!([0.1]), json!(-2), json!(1.0)];
    for (step, loss) in (1u64..).zip(losses) {
        let serde_json::Value::Object(metadata) = json!({ "loss": loss }) else { unreachable!() };
        save_with(&mut session, step, metadata).await.unwrap();
    }
    save(&mut session, 9).await.unwrap();
    let step = |resolved: Resolved| resolved.checkpoint.manifest.step.0;
    assert_eq!(step(resolve(&stage, "llama@min=loss").await.unwrap()), 7);
    assert_eq!(step(resolve(&stage, "llama@max=loss").await.unwrap()), 8, "1 and 1.0 tie");
    let ordinal = Ordinal(8);
    stage.repository.expire(&run(), ordinal, "test").await.unwrap();
    assert_eq!(step(resolve(&stage, "llama@min=loss").await.unwrap()), 4, "0.5 twice");
    let error = resolve(&stage, "llama@min=accuracy").await.unwrap_err();
    assert!(matches!(&error, RepoError::NotFound(what) if what.contains("accuracy")), "{error}");
}

#[tokio::test]
async fn references_to_nothing_say_what_is_not_there() {
    let stage = Stage::new().await;
    stage.session(now("a")).await.close().await.unwrap();
    for (reference, expected) in [
        ("gpt", "run gpt"),
        ("gpt@step=1", "run gpt"),
        ("llama", "nothing has been committed"),
        ("llama@step=7", "step 7"),
        ("llama@ordinal=9", "attempt 9"),
        ("pin:base", "pin base"),
    ] {
        let error = resolve(&stage, reference).await.unwrap_err();
        assert!(
            matches!(&error, RepoError::NotFound(what) if what.contains(expected)),
            "{reference}: {error}"
        );
    }
    let error = resolve(&stage, "llama@ordinal=1").await.unwrap_err();
    assert!(matches!(&error, RepoError::Incomplete { why, .. } if why.contains("closed")), "{error}");
    assert_eq!(stage.reopen().await.latest(&run()).await.unwrap().map(|c: Checkpoint| c.manifest.step), None);
}

#[tokio::test]
async fn the_newest_checkpoint_is_never_expired_and_expiring_twice_is_fine() {
    let stage = Stage::new().await;
    let old = stage.closed_run(&[1, 2]).await;
    let ordinal = |n: usize| old[n].manifest.ordinal;
    let error = stage.repository.expire(&run(), ordinal(1), "test").await.unwrap_err();
    assert!(matches!(error, RepoError::Refused(_)), "{error}");
    for _ in 0..2 {
        stage.repository.expire(&run(), ordinal(0), "test").await.unwrap();
    }
    for reference in ["llama@step=1".to_owned(), format!("llama@ordinal={}", ordinal(0))] {
        let error = resolve(&stage, &reference).await.unwrap_err();
        assert!(matches!(error, RepoError::Expired { .. }), "{reference}: {error}");
    }
    assert!(matches!(
        stage.repository.expire(&run(), Ordinal(1), "x").await,
        Err(RepoError::Incomplete { .. })
    ));
    assert!(matches!(stage.repository.expire(&run(), Ordinal(77), "x").await, Err(RepoError::NotFound(_))));
    let states = stage.repository.attempts(&run()).await.unwrap();
    assert!(matches!(states[1].1, AttemptState::Expired(_)), "{states:?}");
}

/// Between the listing and the look at its newest checkpoint, a newer one is committed and that one expires.
#[tokio::test]
async fn a_checkpoint_that_expires_while_latest_is_resolved_leads_to_the_newer_one() {
    let stage = Stage::new().await;
    stage.closed_run(&[1]).await;
    let mut session = stage.session(now("b")).await;
    let checkpoint = save(&mut session, 2).await.unwrap();
    let key = Key::decision(&run(), checkpoint.manifest.ordinal);
    let hidden = stage.shelf.read(&key).unwrap();
    stage.shelf.steal(&key);
    let marker = (Key::expired(&run(), Ordinal(2)), hidden.clone());
    stage.shelf.once("get", "decisions", Fault::Before(vec![(key, hidden), marker]));
    stage.shelf.take_calls();
    assert_eq!(latest(&stage).await, Some((checkpoint.manifest.ordinal, Step(2))));
    let calls = stage.shelf.take_calls();
    let old_marker = Key::expired(&run(), Ordinal(2)).to_string();
    let looks = calls.iter().filter(|call| **call == format!("get {old_marker}")).count();
    assert_eq!(looks, 1, "the old one was looked at once and left behind: {calls:?}");
}
