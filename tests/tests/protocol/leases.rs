//! Leases: durable before the marker is read, refreshed, ended by themselves or by silence.

use std::time::Duration;

use everstep_format::key::Key;
use everstep_format::lease::{Lease as Stored, LeaseEnd};
use everstep_repo::{Lease, LeaseOptions, RepoError};

use crate::stage::{Fault, Stage, run};

/// Lets background tasks that are due do all they can.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

fn stored(stage: &Stage, lease: &Lease) -> Stored {
    Stored::from_bytes(&stage.shelf.read(&Key::lease(lease.id())).unwrap(), lease.id()).unwrap()
}

fn ends(stage: &Stage) -> Vec<String> {
    stage.shelf.keys("leases/").into_iter().filter(|key| key.ends_with(".end")).collect()
}

#[tokio::test]
async fn a_lease_is_durable_before_the_marker_of_its_checkpoint_is_read() {
    let stage = Stage::new().await;
    let checkpoints = stage.closed_run(&[10, 20]).await;
    let options = LeaseOptions { holder: Some("eval".to_owned()), ..LeaseOptions::default() };
    let lease = stage.repository.lease(&checkpoints[0], options).await.unwrap();
    let calls = stage.shelf.take_calls();
    let ordinal = checkpoints[0].manifest.ordinal;
    let expected = [
        format!("get {}", Key::decision(&run(), ordinal)),
        format!("create {}", Key::lease(lease.id())),
        format!("get {}", Key::expired(&run(), ordinal)),
    ];
    assert_eq!(calls, expected);
    let found = stored(&stage, &lease);
    assert_eq!((found.parent, found.ttl), (checkpoints[0].as_parent(), 24 * 3600));
    assert_eq!(found.holder.as_deref(), Some("eval"));

    let id = lease.id();
    lease.end().await.unwrap();
    let end = stage.shelf.read(&Key::lease_end(id)).unwrap();
    assert_eq!(LeaseEnd::from_bytes(&end, id).unwrap().reason, "closed");
    assert!(stage.shelf.read(&Key::lease(id)).is_some(), "only a collector deletes");
}

#[tokio::test]
async fn a_lease_on_what_has_expired_meanwhile_is_refused_and_ended() {
    let stage = Stage::new().await;
    let checkpoints = stage.closed_run(&[10, 20]).await;
    stage.repository.expire(&run(), checkpoints[0].manifest.ordinal, "keep_last").await.unwrap();
    let error = stage.repository.lease(&checkpoints[0], LeaseOptions::default()).await.unwrap_err();
    assert!(matches!(error, RepoError::Expired { .. }), "{error}");
    assert_eq!(stage.shelf.keys("leases/").len(), 2, "the lease and its end");
    assert_eq!(ends(&stage).len(), 1);
}

#[tokio::test]
async fn whatever_fails_after_the_lease_may_be_there_ends_it() {
    for (operation, part) in [("get", "expired"), ("create", "leases")] {
        let stage = Stage::new().await;
        let checkpoints = stage.closed_run(&[10]).await;
        stage.shelf.script(move |called, key| {
            let hit = called == operation && key.contains(part) && !key.ends_with(".end");
            hit.then_some(Fault::Lost)
        });
        let error = stage.repository.lease(&checkpoints[0], LeaseOptions::default()).await.unwrap_err();
        assert!(matches!(error, RepoError::Store(_)), "{error}");
        stage.shelf.heal();
        let left = stage.shelf.keys("leases/");
        assert!(left.iter().any(|key| key.ends_with(".end")), "{operation} {part}: {left:?}");
    }
}

#[tokio::test]
async fn a_lost_reply_is_no_second_lease() {
    for fault in [Fault::ReplyLost, Fault::ReplyLostThenExists, Fault::FalseExists] {
        let stage = Stage::new().await;
        let checkpoints = stage.closed_run(&[10]).await;
        stage.shelf.once("create", "leases", fault.clone());
        let lease = stage.repository.lease(&checkpoints[0], LeaseOptions::default()).await.unwrap();
        assert_eq!(stage.shelf.keys("leases/"), [Key::lease(lease.id()).to_string()], "{fault:?}");
    }
}

#[tokio::test]
async fn a_lease_shows_life_every_quarter_of_its_time_and_falls_silent_when_dropped() {
    let stage = Stage::new().await;
    let checkpoints = stage.closed_run(&[10]).await;
    let options = LeaseOptions { ttl: Duration::from_secs(1200), holder: None };
    let lease = stage.repository.lease(&checkpoints[0], options).await.unwrap();
    let alive = format!("put {}", Key::alive(lease.id()));
    stage.shelf.take_calls();
    for _ in 0..3 {
        settle().await;
        stage.world.advance(Duration::from_secs(300));
    }
    settle().await;
    assert_eq!(stage.shelf.take_calls(), vec![alive; 3]);
    drop(lease);
    settle().await;
    stage.world.advance(Duration::from_secs(3000));
    settle().await;
    assert_eq!(stage.shelf.take_calls(), Vec::<String>::new());
    assert_eq!(ends(&stage).len(), 0, "its end is left to its time to live");
}

#[tokio::test]
async fn times_out_of_bounds_and_checkpoints_of_elsewhere_are_refused_before_anything_is_written() {
    let stage = Stage::new().await;
    let checkpoints = stage.closed_run(&[10]).await;
    for seconds in [0, 59, 31 * 24 * 3600] {
        let options = LeaseOptions { ttl: Duration::from_secs(seconds), holder: None };
        let error = stage.repository.lease(&checkpoints[0], options).await.unwrap_err();
        assert!(matches!(error, RepoError::Invalid(_)), "{error}");
    }
    let elsewhere = Stage::new().await;
    let error = elsewhere.repository.lease(&checkpoints[0], LeaseOptions::default()).await.unwrap_err();
    assert!(matches!(error, RepoError::NotFound(_)), "{error}");
    assert!(stage.shelf.keys("leases/").is_empty() && elsewhere.shelf.keys("leases/").is_empty());
}
