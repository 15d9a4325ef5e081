//! Many ranks at once in memory, some of which fall silent at random: a save is whole or absent, and says who is missing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use everstep_format::name::Rank;
use everstep_repo::{MemoryRendezvous, Rendezvous, StoreRendezvous};
use everstep_save::SaveError;
use everstep_store::{Counts, MemoryStore, Meter, Store};
use everstep_tests::crowd::{Crowd, repository};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn metered() -> (Arc<dyn Store>, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    (Arc::new(Meter::new(MemoryStore::private(), counts.clone())), counts)
}

#[test]
fn ranks_that_fall_silent_are_named_within_the_deadline_and_the_next_save_is_whole() {
    let mut rng = StdRng::seed_from_u64(4);
    for ranks in [8, 64, 512] {
        runtime().block_on(async {
            let (store, _) = metered();
            let repository = repository(store.clone()).await;
            let over_the_store = ranks == 8;
            let rendezvous: Arc<dyn Rendezvous> = match over_the_store {
                true => Arc::new(StoreRendezvous::with_pauses(
                    store,
                    Duration::from_millis(2)..Duration::from_millis(50),
                )),
                false => Arc::new(MemoryRendezvous::new()),
            };
            let mut crowd = Crowd::new(&repository, rendezvous).await;
            let mut outcomes = [0, 0];
            let mut usual = Duration::ZERO;
            for step in 1..=4 {
                // Every second save loses up to three ranks, each somewhere between its first look and its hand-in, or
                // so late that it has handed in.
                let lost = if step % 2 == 0 { rng.random_range(1..=3) } else { 0 };
                let victims: BTreeMap<u32, u64> =
                    (0..lost).map(|_| (rng.random_range(1..ranks), rng.random_range(1..=6))).collect();
                // The living must have time enough on any machine.
                crowd.deadline = match victims.is_empty() {
                    true => Duration::from_secs(60),
                    false => usual * 4 + Duration::from_secs(2),
                };
                let ended = crowd.save(step, ranks, &victims).await;
                usual = if victims.is_empty() { ended.took } else { usual };
                outcomes[usize::from(ended.leader.is_ok())] += 1;
                match &ended.leader {
                    Ok(report) => {
                        assert!(ended.members.values().all(Result::is_ok));
                        assert_eq!(report.checkpoint.manifest.world_size, ranks);
                        crowd.check(report, step, ranks).await;
                    }
                    Err(SaveError::RanksFailed { failed, missing, .. }) => {
                        assert!(failed.is_empty() && !missing.is_empty());
                        assert!(missing.iter().all(|Rank(rank)| victims.contains_key(rank)), "{missing:?}");
                        for (rank, told) in &ended.members {
                            let told = told.as_ref().expect_err("nothing was saved").to_string();
                            let named = format!("{}", missing[0]);
                            assert!(
                                told.contains("handed nothing in") && told.contains(&named),
                                "{rank}: {told}"
                            );
                        }
                        let latest =
                            repository.latest(&everstep_tests::crowd::run()).await.expect("readable");
                        let latest = latest.map(|checkpoint| checkpoint.manifest.step.0);
                        assert_eq!(latest, Some(step - 1), "the last whole save is the newest");
                    }
                    Err(error) => panic!("{error}"),
                }
                eprintln!(
                    "crowd of {ranks}: step {step} without {:?}: {} after {:.1} s",
                    victims.keys().collect::<Vec<_>>(),
                    if ended.leader.is_ok() { "saved" } else { "given up" },
                    ended.took.as_secs_f64()
                );
            }
            assert!(outcomes[1] >= 2, "{outcomes:?}");
            crowd.close().await;
        });
    }
}

#[test]
fn a_save_costs_packs_and_two_requests_for_each_rank() {
    for ranks in [1, 2, 64, 1856] {
        runtime().block_on(async {
            let (store, counts) = metered();
            let repository = repository(store).await;
            let mut crowd = Crowd::new(&repository, Arc::new(MemoryRendezvous::new())).await;
            crowd.deadline = Duration::from_secs(300);
            let nobody = BTreeMap::new();
            // The first save has no parent; the second changes everything; the third nothing.
            for (save, step) in [(1, 1), (2, 2), (3, 2)] {
                let before = counts.snapshot();
                let ended = crowd.save(step, ranks, &nobody).await;
                let report = ended.leader.expect("nothing is in the way");
                let requests = counts.snapshot().since(&before).requests();
                let others = u64::from(ranks) - 1;
                let rest = requests - report.packs - 2 * others;
                eprintln!(
                    "requests of save {save} by {ranks} ranks: {requests} = {} packs + 2 x {others} + {rest}; {:.1} s",
                    report.packs,
                    ended.took.as_secs_f64()
                );
                assert!(rest <= 8, "{rest}");
                assert_eq!(report.packs == 0, save == 3, "an unchanged share stores nothing");
                if ranks <= 64 {
                    crowd.check(&report, step, ranks).await;
                }
            }
            crowd.close().await;
        });
    }
}

#[test]
fn the_world_may_grow_and_shrink_between_saves() {
    runtime().block_on(async {
        let (store, _) = metered();
        let repository = repository(store).await;
        let mut crowd = Crowd::new(&repository, Arc::new(MemoryRendezvous::new())).await;
        for (step, ranks) in (1..).zip([4, 2, 1, 7, 4]) {
            let ended = crowd.save(step, ranks, &BTreeMap::new()).await;
            let report = ended.leader.expect("nothing is in the way");
            assert!(ended.members.values().all(Result::is_ok), "{:?}", ended.members);
            crowd.check(&report, step, ranks).await;
        }
        crowd.close().await;
    });
}
