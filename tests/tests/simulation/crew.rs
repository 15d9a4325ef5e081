//! The other ranks of a job, each a process of its own that may fail, freeze or die by itself.

use std::time::Duration;

use everstep_format::name::{Rank, RunName, Step};
use everstep_repo::{RepoError, Ticket};
use everstep_save::{Group, HandedIn, Member, SaveCache, SaveError, ShareOptions};
use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::content::Weights;
use crate::site::{Cluster, Link, Told};

/// How long ranks wait for each other: now and then less than bad weather lasts.
pub(crate) const DEADLINE: Duration = Duration::from_secs(200);

/// One save that a rank is to take part in, as its trainer knows of it without being told.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) run: RunName,
    pub(crate) ticket: Ticket,
    pub(crate) step: u64,
    /// For the ledger.
    pub(crate) save: u64,
    pub(crate) weights: Weights,
    pub(crate) ranks: u32,
}

/// Where the tasks of rank 1, 2, ... go.
pub(crate) type Crew = Vec<UnboundedSender<Task>>;

/// The life of `rank`: one task after the other, until the leader is gone.
pub(crate) async fn follow(cluster: Cluster, link: Link, (rank, mut tasks): (u32, UnboundedReceiver<Task>)) {
    let Ok(site) = cluster.join(link).await else { return };
    let cache = SaveCache::default();
    let mut member: Option<Member> = None;
    while let Some(task) = tasks.next().await {
        let Task { run, ticket, step, save, weights, ranks } = task;
        let member = member.get_or_insert_with(|| Member::new(site.repository.clone(), ticket));
        let group = Group::new(Rank(rank), ranks).within(DEADLINE);
        let options = ShareOptions { step: Step(step), group };
        let bytes = weights.bytes();
        let state = weights.share(&bytes, (rank, ranks));
        let outcome = member.save(&state, &options, &site.save_tools(&cache)).await;
        let told = judge(&cluster, outcome);
        cluster.note(|ledger| ledger.saves.push((save, run, told)));
    }
}

/// What a rank may rely on: that it was committed, or that it never will be. Everything else says nothing.
fn judge(cluster: &Cluster, outcome: Result<HandedIn, SaveError>) -> Told {
    cluster.note(|ledger| match outcome {
        Ok(handed_in) => {
            ledger.tally.heard_committed += 1;
            Told::Committed(handed_in.ordinal)
        }
        Err(SaveError::NotCommitted { why, .. }) => {
            ledger.tally.heard_failed += 1;
            Told::Failed(why)
        }
        Err(SaveError::LeaderSilent { .. }) => {
            ledger.tally.leaders_silent += 1;
            Told::Unknown
        }
        Err(
            SaveError::Unknown { .. }
            | SaveError::Misfit { .. }
            | SaveError::Upload { .. }
            | SaveError::Repo(RepoError::Store(_) | RepoError::Expired { .. }),
        ) => Told::Unknown,
        Err(error) => {
            ledger.wrong.push(format!("a rank failed in an unforeseen way: {error}"));
            Told::Unknown
        }
    })
}
