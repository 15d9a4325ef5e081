//! What must be true once a storm is over.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use everstep_format::key::{Key, Prefix, StoredKind};
use everstep_format::name::{Ordinal, RunName};
use everstep_gc::{Collector, Orders, Policy, Settings};
use everstep_repo::{AttemptState, Repository};
use rayon::ThreadPoolBuilder;

use super::actor::open;
use super::{POLICY, Site};
use crate::states::{is_sound, load};

/// What a storm left.
#[derive(Debug, Default)]
pub(crate) struct Left {
    reported: usize,
    followed: usize,
    attempts: usize,
    committed: usize,
    kept: usize,
    objects: usize,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reported, followed, attempts, committed, kept, objects } = self;
        write!(
            f,
            "{attempts} attempts, {committed} committed, {reported} of them reported and none lost, {followed} \
             followed; after one pass {kept} kept, bit for bit, in {objects} objects, and nothing else"
        )
    }
}

/// After one undisturbed collection: what was reported is COMMIT, what counts loads, and nothing else is left.
pub(crate) fn judge(site: &Site) -> Left {
    site.verify();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        collect(site).await;
        site.verify();
        look(site).await
    })
}

/// Whoever is undecided is dead.
async fn collect(site: &Site) {
    let policy = Policy::from_toml(POLICY).expect("a policy");
    let settings = Settings { idle: Duration::ZERO, ..Settings::default() };
    let mut collector = Collector::new(open(&site.address, site.endpoint.clone()).await, settings);
    collector.collect(Orders::Policy(&policy), &()).await.expect("nothing is in the way");
}

async fn look(site: &Site) -> Left {
    let repository = open(&site.address, site.endpoint.clone()).await;
    let pool = ThreadPoolBuilder::new().num_threads(1).build().expect("a pool");
    let report = std::fs::read_to_string(site.report()).unwrap_or_default();
    let mut left =
        Left { followed: report.lines().filter(|l| l.starts_with("followed")).count(), ..Left::default() };
    let mut committed = BTreeSet::new();
    let mut used = BTreeSet::new();
    for run in repository.runs().await.expect("listed") {
        let mut kept = 0;
        for (ordinal, state) in repository.attempts(&run).await.expect("listed") {
            left.attempts += 1;
            match state {
                AttemptState::Committed(checkpoint) => {
                    load(&repository, &checkpoint, &pool).await;
                    let refs = repository.refs(&checkpoint).await.expect("readable");
                    used.extend(refs.packs().iter().map(Key::pack));
                    used.extend([checkpoint.index_key(), checkpoint.refs_key()]);
                    committed.insert((run.clone(), ordinal));
                    kept += 1;
                }
                AttemptState::Expired(_) => _ = committed.insert((run.clone(), ordinal)),
                AttemptState::Aborted(..) | AttemptState::Fence(_) => {}
                other => panic!("{run} {ordinal}: {other:?}"),
            }
        }
        assert!(kept <= 2, "{kept} of {run} are kept");
        left.kept += kept;
    }
    let reported = reported(&report);
    assert!(
        reported.is_subset(&committed),
        "lost: {:?}",
        reported.difference(&committed).collect::<Vec<_>>()
    );
    let there = objects(&repository).await;
    let garbage: Vec<_> = there.difference(&used).collect();
    assert!(garbage.is_empty(), "left over: {garbage:?}");
    is_sound(&repository, &pool).await;
    Left { reported: reported.len(), committed: committed.len(), objects: there.len(), ..left }
}

/// The checkpoints that a writer was told are committed.
fn reported(report: &str) -> BTreeSet<(RunName, Ordinal)> {
    let saved = report.lines().filter_map(|line| line.strip_prefix("saved "));
    let place = |line: &str| {
        let (run, ordinal) = line.split_once(' ').expect("a run and an ordinal");
        (RunName::new(run).expect("a run name"), Ordinal(ordinal.parse().expect("a number")))
    };
    saved.map(place).collect()
}

/// Packs and tables.
async fn objects(repository: &Repository) -> BTreeSet<Key> {
    let mut found = BTreeSet::new();
    let mut token = None;
    loop {
        let page = repository.store().list(&Prefix::everything(), token).await.expect("listed");
        let keys = page.objects.into_iter().map(|object| object.key);
        found.extend(keys.filter(|key| {
            use StoredKind::{Failed, Index, Pack, Part, Refs};
            matches!(key.kind(), Some(Pack(_) | Index(..) | Refs(..) | Part(..) | Failed(..)))
        }));
        match page.next {
            None => return found,
            next => token = next,
        }
    }
}
