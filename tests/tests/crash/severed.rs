//! A store that fails from call k on, for every k, before and after the call is carried out. Simulated clock, so that no
//! retry waits.

use std::sync::Arc;

use everstep_repo::{InitOptions, Repository};
use everstep_sim::{CrashStore, Death, Executor, Moment, Process, Room, SimStore, SimWorld, Weather};
use everstep_store::Store;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::states::{NEW, OLD, judge, save, save_in_halves};

const SEED: u64 = 1;

fn connection(store: &SimStore, process: Process) -> Arc<dyn Store> {
    Arc::new(store.connect(process, Weather::CALM))
}

fn world(room: &Room, process: Process) -> Arc<SimWorld> {
    Arc::new(SimWorld::new(room, process))
}

/// How `NEW` is saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    AtOnce,
    InHalves,
    /// The second half never comes.
    FirstHalf,
}

async fn save_new(repository: &Repository, how: How, pool: &ThreadPool) -> bool {
    match how {
        How::AtOnce => save(repository, NEW, pool).await.is_ok(),
        _ => matches!(save_in_halves(repository, (NEW, how == How::InHalves), pool).await, Ok(Some(_))),
    }
}

/// Saves `OLD`, then `NEW` through a store that dies at `at`, and judges what is left: the version that is `latest`, the
/// calls that were made, and whether the save was reported as done.
fn crash(at: Option<(u64, Moment)>, how: How, pool: &'static ThreadPool) -> (u64, u64, bool) {
    let executor = Executor::new(SEED);
    let room = executor.room().clone();
    let store = SimStore::new(&room);
    executor.run(async move {
        let setup = room.process();
        let options = InitOptions { single_writer: false, ..InitOptions::default() };
        let repository = Repository::init(connection(&store, setup), world(&room, setup), options).await;
        save(&repository.expect("a repository"), OLD, pool).await.expect("the old checkpoint");
        let victim = room.process();
        let inner = connection(&store, victim);
        let failing = Arc::new(match at {
            None => CrashStore::counting(inner),
            Some(at) => CrashStore::dying(inner, at, Death::Severed),
        });
        let done = match Repository::open(failing.clone(), world(&room, victim)).await {
            Ok(repository) => save_new(&repository, how, pool).await,
            Err(_) => false,
        };
        room.kill(victim);
        let heir = room.process();
        let repository =
            Repository::open(connection(&store, heir), world(&room, heir)).await.expect("it opens");
        (judge(&repository, pool).await, failing.calls(), done)
    })
}

fn pool() -> &'static ThreadPool {
    let pool = ThreadPoolBuilder::new().num_threads(1).use_current_thread().build().expect("a pool");
    Box::leak(Box::new(pool))
}

fn leaves_the_old_or_the_new_checkpoint(how: How) {
    let pool = pool();
    let (version, calls, done) = crash(None, how, pool);
    assert!(done && version == NEW, "undisturbed, the save succeeds");
    let mut versions = Vec::new();
    for call in 1..=calls {
        for moment in [Moment::Before, Moment::After] {
            let (version, _, done) = crash(Some((call, moment)), how, pool);
            assert!(!done || version == NEW, "call {call} ({moment:?}): reported as done, and not there");
            versions.push(version);
        }
    }
    let old = versions.iter().take_while(|version| **version == OLD).count();
    assert!(
        versions[old..].iter().all(|version| *version == NEW),
        "one write makes the difference: {versions:?}"
    );
    assert!(
        old > 0 && old < versions.len() && !old.is_multiple_of(2),
        "and it is one call: {old} of {versions:?}"
    );
    eprintln!(
        "crash: {calls} calls, each before and after; the checkpoint appears at call {}",
        old.div_ceil(2)
    );
}

#[test]
fn c01_a_store_that_fails_at_any_call_leaves_the_old_or_the_new_checkpoint() {
    leaves_the_old_or_the_new_checkpoint(How::AtOnce);
}

#[test]
fn c01_so_does_one_that_fails_at_any_call_of_a_save_in_two_halves() {
    leaves_the_old_or_the_new_checkpoint(How::InHalves);
}

#[test]
fn c01_a_process_that_vanishes_between_the_halves_leaves_the_old_checkpoint() {
    let (version, _, done) = crash(None, How::FirstHalf, pool());
    assert_eq!((version, done), (OLD, false));
}
