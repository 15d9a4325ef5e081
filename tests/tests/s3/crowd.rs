//! Many ranks saving at once to a production S3 server, some of which fall silent at random.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use everstep_format::name::Rank;
use everstep_repo::{MemoryRendezvous, Rendezvous, StoreRendezvous};
use everstep_save::SaveError;
use everstep_store::{StoreOptions, SystemWorld};
use everstep_tests::crowd::{Crowd, repository, run};
use everstep_tests::servers::radosgw;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_save_by_8_64_and_512_ranks_is_whole_or_absent_and_names_who_is_missing() {
    let server = radosgw();
    let mut rng = StdRng::seed_from_u64(11);
    for ranks in [8, 64, 512] {
        let options = StoreOptions { s3: server.options(), ..StoreOptions::default() };
        let address = format!("s3://{}/crowd", server.bucket());
        let store = everstep_store::open(&address, &options, Arc::new(SystemWorld::new())).await.unwrap();
        let repository = repository(store.clone()).await;
        let pauses = Duration::from_millis(100)..Duration::from_secs(1);
        let rendezvous: Arc<dyn Rendezvous> = match ranks {
            512 => Arc::new(MemoryRendezvous::new()),
            _ => Arc::new(StoreRendezvous::with_pauses(store, pauses)),
        };
        let mut crowd = Crowd::new(&repository, rendezvous).await;
        crowd.deadline = Duration::from_secs(120);
        let whole = crowd.save(1, ranks, &BTreeMap::new()).await;
        let report = whole.leader.unwrap();
        crowd.check(&report, 1, ranks).await;

        // Silent from their first look on, so that they cannot have handed in.
        let victims: BTreeMap<u32, u64> =
            (0..2).map(|_| (rng.random_range(1..ranks), rng.random_range(1..=2))).collect();
        crowd.deadline = whole.took * 2 + Duration::from_secs(3);
        let ended = crowd.save(2, ranks, &victims).await;
        let error = ended.leader.unwrap_err();
        let SaveError::RanksFailed { missing, .. } = &error else { panic!("{error}") };
        assert_eq!(*missing, victims.keys().copied().map(Rank).collect::<Vec<_>>(), "{error}");
        for told in ended.members.values() {
            let told = told.as_ref().unwrap_err().to_string();
            assert!(told.contains("handed nothing in") && told.contains(&missing[0].to_string()), "{told}");
        }
        let latest = repository.latest(&run()).await.unwrap().unwrap();
        assert_eq!(latest.manifest.ordinal, report.checkpoint.manifest.ordinal, "nothing is committed");

        crowd.deadline = Duration::from_secs(120);
        let again = crowd.save(3, ranks, &BTreeMap::new()).await;
        crowd.check(&again.leader.unwrap(), 3, ranks).await;
        eprintln!(
            "radosgw: {ranks} ranks: saved in {:.1} s, given up without {:?} in {:.1} s, saved in {:.1} s",
            whole.took.as_secs_f64(),
            victims.keys().collect::<Vec<_>>(),
            ended.took.as_secs_f64(),
            again.took.as_secs_f64()
        );
        crowd.close().await;
    }
}
