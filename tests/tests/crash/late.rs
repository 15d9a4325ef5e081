//! Ranks that come to a save when it is over, and are in step with the others all the same.

use std::sync::Arc;
use std::time::Duration;

use everstep_format::name::{Rank, Step};
use everstep_repo::{OpenOptions, Session};
use everstep_save::{Member, SaveError, ShareOptions};
use everstep_store::{MemoryStore, Store};
use everstep_tests::crowd;
use futures::future::{join, join_all};

use crate::ranks::{Kit, RANKS, VICTIM, bytes, names_the_victim, state};

/// The one that is late.
const LATE: u32 = 3;

struct Job {
    kit: Kit,
    session: Session,
    members: Vec<Member>,
}

impl Job {
    async fn new() -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::private());
        crowd::repository(store.clone()).await;
        let kit = Kit::new(store).await;
        let session = kit.repository.open_session(&crowd::run(), OpenOptions::default()).await.expect("free");
        let member = |_| Member::new(kit.repository.clone(), session.ticket());
        let members = (1..RANKS).map(member).collect();
        Self { kit, session, members }
    }

    /// A save of `step` by the leader and by those ranks that come in time; what the leader hears, and what they do.
    async fn save_without(
        &mut self,
        late: Option<u32>,
        (step, broken): (u64, Option<u32>),
    ) -> (Result<(), SaveError>, Vec<Result<(), SaveError>>) {
        let Self { kit, session, members } = self;
        let kit = &*kit;
        let following = (1..).zip(members).filter(|(rank, _)| Some(*rank) != late);
        let following =
            following.map(|(rank, member)| kit.follow(member, (rank, step), broken == Some(rank)));
        let (led, followed) = join(kit.lead(session, step), join_all(following)).await;
        (led.map(drop), followed)
    }

    async fn save(&mut self, step: u64) {
        let (led, followed) = self.save_without(None, (step, None)).await;
        led.expect("nothing is in the way");
        followed.into_iter().for_each(|told| told.expect("nothing is in the way"));
    }

    async fn comes_late(&mut self, step: u64, limit: Duration) -> SaveError {
        let options = ShareOptions { step: Step(step), group: self.kit.group(LATE).within(limit) };
        let bytes = bytes(step, LATE);
        let state = state(LATE, &bytes, false);
        let member = &mut self.members[LATE as usize - 1];
        member.save(&state, &options, &self.kit.tools()).await.expect_err("there is nothing to take part in")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c04_a_rank_that_comes_once_its_save_has_failed_hears_why_and_joins_the_next() {
    let mut job = Job::new().await;
    job.save(1).await;
    for step in [2, 3] {
        let (led, _) = job.save_without(Some(LATE), (step, Some(VICTIM))).await;
        names_the_victim(&led.expect_err("a rank failed").to_string(), "its source has 39999");
        let told = job.comes_late(step, Duration::from_secs(60)).await;
        assert!(
            matches!(&told, SaveError::NotCommitted { ranks, .. } if *ranks == [Rank(VICTIM)]),
            "step {step}: {told}"
        );
    }
    job.save(4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_answers_a_call_that_was_given_up_does_not_answer_the_next_one() {
    let mut job = Job::new().await;
    let told = job.comes_late(1, Duration::from_millis(50)).await;
    assert!(matches!(told, SaveError::LeaderSilent { what: "call", .. }), "{told}");
    let (led, _) = job.save_without(Some(LATE), (1, Some(VICTIM))).await;
    led.expect_err("a rank failed");
    // Of the same step: the rank walks past the card of the one that failed.
    job.save(1).await;
    job.save(2).await;
}
