//! One seed: a cluster, its jobs and their restarts, and everybody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use everstep_format::id::RepositoryId;
use everstep_format::key::Key;
use everstep_format::name::RunName;
use everstep_format::repository::{Chunking, RepositoryConfig, WriterMode};
use everstep_repo::Takeover;
use everstep_sim::{Executor, Lie, Process, SimStore, Weather};
use everstep_store::{Create, Store};
use futures::channel::{mpsc, oneshot};
use rand::RngExt;
use rand::rngs::StdRng;
use rayon::ThreadPool;

use crate::content::BLOCK_ELEMENTS;
use crate::crew::Crew;
use crate::site::{Cluster, Link, Tally};
use crate::trainer::Job;
use crate::{crew, oracle, others, trainer};

/// Longer than any request can be late.
pub(crate) const AFTERMATH: Duration = Duration::from_secs(3 * 3600);

/// What one seed showed.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) fingerprint: u64,
    pub(crate) wrong: Vec<String>,
    pub(crate) tally: Tally,
    /// The history, only when asked for.
    pub(crate) trace: Vec<String>,
}

/// How a seed is played.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Play {
    pub(crate) seed: u64,
    /// What the store lies about to trainers.
    pub(crate) lie: Lie,
    /// Whether to keep the history.
    pub(crate) trace: bool,
}

impl Play {
    /// With a store that keeps its promises.
    pub(crate) fn honest(seed: u64) -> Self {
        Self { seed, lie: Lie::None, trace: false }
    }
}

/// Plays one seed.
pub(crate) fn play(how: Play, pool: &'static ThreadPool) -> Outcome {
    let Play { seed, lie, trace } = how;
    let executor = Executor::new(seed);
    let room = executor.room().clone();
    let store = SimStore::new(&room);
    let cluster = Cluster { room, store, pool, ledger: Arc::default(), lie };
    executor.run(direct(cluster, trace))
}

async fn direct(cluster: Cluster, trace: bool) -> Outcome {
    create_repository(&cluster).await;
    let stop = Arc::new(AtomicBool::new(false));
    let others = start_others(&cluster, &stop);
    let jobs = start_jobs(&cluster).await;
    for ended in jobs {
        let killed = ended.await.is_err();
        cluster.note(|ledger| ledger.tally.killed += u64::from(killed));
    }
    stop.store(true, Ordering::Relaxed);
    for ended in others {
        let killed = ended.await.is_err();
        cluster.note(|ledger| ledger.tally.killed += u64::from(killed));
    }
    cluster.room.sleep(AFTERMATH).await;
    finish(&cluster, trace).await
}

/// A last collection and the judgement, in calm weather.
async fn finish(cluster: &Cluster, trace: bool) -> Outcome {
    let process = cluster.room.process();
    cluster.store.objects().permit_collection(process);
    let site = cluster
        .join(Link { process, weather: Weather::CALM, tries: 1, lie: Lie::None })
        .await
        .expect("a calm store answers");
    // What stops it is in the ledger.
    _ = others::sweep_once(&site).await;
    oracle::judge(&site).await;
    let objects = cluster.store.objects();
    let trace = if trace { objects.history().iter().map(ToString::to_string).collect() } else { Vec::new() };
    cluster.note(|ledger| Outcome {
        fingerprint: objects.fingerprint(),
        wrong: std::mem::take(&mut ledger.wrong),
        tally: ledger.tally,
        trace,
    })
}

/// Without the probe, which has its own tests and needs some fifty calls.
pub(crate) async fn create_repository(cluster: &Cluster) {
    let chunking = Chunking { block_elements: BLOCK_ELEMENTS, ..Chunking::default() };
    let id = RepositoryId([7; 16]);
    let config =
        RepositoryConfig::new(id, chunking, WriterMode::ManyWriters, "2027-01-15T08:00:00Z".to_owned());
    let body = config.to_bytes().expect("a configuration fits");
    let connection = cluster.store.connect(Process::DIRECTOR, Weather::CALM);
    let created = connection.create(&Key::repository(), body.into()).await.expect("a calm store answers");
    assert!(matches!(created, Create::Created));
}

fn start_others(cluster: &Cluster, stop: &others::Stop) -> Vec<oneshot::Receiver<()>> {
    let collector = || {
        let link = link(cluster);
        cluster.store.objects().permit_collection(link.process);
        start(cluster, link, others::sweep(cluster.clone(), link, stop.clone()))
    };
    vec![
        collector(),
        collector(),
        with_link(cluster, |link| others::retain(cluster.clone(), link, stop.clone())),
        with_link(cluster, |link| others::read(cluster.clone(), link, stop.clone())),
    ]
}

pub(crate) fn with_link<F>(cluster: &Cluster, life: impl FnOnce(Link) -> F) -> oneshot::Receiver<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let link = link(cluster);
    start(cluster, link, life(link))
}

/// Starts a process; the receiver hears of its end, or is cancelled by its death.
pub(crate) fn start(
    cluster: &Cluster,
    link: Link,
    life: impl Future<Output = ()> + Send + 'static,
) -> oneshot::Receiver<()> {
    let (ended, wait) = oneshot::channel();
    let task = async move {
        life.await;
        // Nobody waits any more when the simulation is over.
        let _ = ended.send(());
    };
    cluster.room.spawn(link.process, Box::pin(task));
    wait
}

/// A new process with a connection of its own kind.
pub(crate) fn link(cluster: &Cluster) -> Link {
    let process = cluster.room.process();
    let (weather, tries) = cluster.room.draw(|rng| {
        let worst = [0, 10, 40, 120][rng.random_range(0..4)];
        (Weather::drawn(rng, worst), rng.random_range(1..=5))
    });
    Link { process, weather, tries, lie: Lie::None }
}

/// Jobs come one after the other, each a restart of its run whether or not the one before is still there.
async fn start_jobs(cluster: &Cluster) -> Vec<oneshot::Receiver<()>> {
    let mut jobs = Vec::new();
    let count = cluster.room.draw(|rng| rng.random_range(2..=6));
    for _ in 0..count {
        let job = cluster.room.draw(draw_job);
        let mut crew = Crew::new();
        for rank in 1..=job.crew {
            let (tasks, listening) = mpsc::unbounded();
            crew.push(tasks);
            jobs.push(with_link(cluster, |link| crew::follow(cluster.clone(), link, (rank, listening))));
        }
        jobs.push(with_link(cluster, |link| {
            let link = Link { lie: cluster.lie, ..link };
            let life = trainer::run(cluster.clone(), link, (job, crew));
            async move { _ = life.await }
        }));
        cluster.pause(Duration::from_secs(1800)).await;
    }
    jobs
}

fn draw_job(rng: &mut StdRng) -> Job {
    let name = |name: &str| RunName::new(name).expect("a run name");
    let second = rng.random_bool(0.3);
    let takeovers = [Takeover::Now, Takeover::Wait(Duration::from_secs(1200)), Takeover::Fail];
    Job {
        run: name(if second { "finetune" } else { "pretrain" }),
        origin: second.then(|| name("pretrain")),
        label: rng.random_bool(0.7).then(|| format!("job-{}", rng.random_range(0..2))),
        takeover: takeovers[rng.random_range(0..takeovers.len())],
        saves: rng.random_range(1..=5),
        goes_back: rng.random_bool(0.3),
        closes: rng.random_bool(0.7),
        crew: if rng.random_bool(0.2) { rng.random_range(1..=3) } else { 0 },
    }
}
