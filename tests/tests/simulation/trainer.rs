//! A training job: opens its run, goes on from `latest`, trains, saves, now and then goes back, and ends or just stops.

use std::time::Duration;

use everstep_format::name::{Ordinal, Rank, RunName, Step};
use everstep_repo::{
    AttemptState, Checkpoint, CommitOutcome, OpenOptions, Parents, RepoError, Session, Takeover,
};
use everstep_save::{Group, SaveCache, SaveError, SaveOptions};
use rand::RngExt;

use crate::content::{Loaded, Weights, describe, load};
use crate::crew::{Crew, DEADLINE, Task};
use crate::site::{Cluster, Link, Site, Told};

/// What a job does.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) run: RunName,
    /// Where a run without checkpoints starts from.
    pub(crate) origin: Option<RunName>,
    pub(crate) label: Option<String>,
    pub(crate) takeover: Takeover,
    pub(crate) saves: u32,
    pub(crate) goes_back: bool,
    pub(crate) closes: bool,
    /// Ranks beside the leader.
    pub(crate) crew: u32,
}

/// Why a job ended early. The supervisor starts another one whatever it was.
#[derive(Debug)]
pub(crate) enum End {
    Done,
    /// Somebody else has the run.
    Fenced,
    /// The store failed longer than the job's patience.
    Trouble,
}

/// Runs `job` to its end.
pub(crate) async fn run(cluster: Cluster, link: Link, (job, crew): (Job, Crew)) -> End {
    match life(&cluster, link, (&job, crew)).await {
        Ok(end) => end,
        Err(RepoError::Conflict { .. }) => End::Fenced,
        Err(RepoError::Store(_)) => End::Trouble,
        Err(error) => {
            cluster.wrong(format!("a job of run {} met {error}", job.run));
            End::Trouble
        }
    }
}

async fn life(cluster: &Cluster, link: Link, (job, crew): (&Job, Crew)) -> Result<End, RepoError> {
    let site = cluster.join(link).await?;
    let takeover_after = Duration::from_secs(300);
    let options = OpenOptions { job: job.label.clone(), takeover: job.takeover, takeover_after };
    let session = site.repository.open_session(&job.run, options).await?;
    let latest = session.latest().map(|checkpoint| checkpoint.manifest.ordinal);
    cluster.note(|ledger| {
        ledger.tally.takeovers += u64::from(session.fence() > Ordinal::FIRST);
        ledger.opened.push((job.run.clone(), session.fence(), latest));
    });
    let Some((weights, parents)) = start(&site, &session, job).await? else { return Ok(End::Trouble) };
    let cache = SaveCache::default();
    let mut trainer = Trainer { site, session, job, crew, weights, parents, cache, step: 0 };
    if job.goes_back && !trainer.go_back().await? {
        return Ok(End::Fenced);
    }
    for _ in 0..job.saves {
        cluster.pause(Duration::from_secs(600)).await;
        if let Some(end) = trainer.save().await {
            return Ok(end);
        }
    }
    if job.closes {
        trainer.session.close().await?;
    }
    Ok(End::Done)
}

/// The state to go on from, and the parents of the first save.
async fn start(site: &Site, session: &Session, job: &Job) -> Result<Option<(Weights, Parents)>, RepoError> {
    if let Some(latest) = session.latest() {
        // Only a newer session can commit, and only that lets `latest` expire.
        return Ok(resume(site, latest).await.map(|weights| (weights, Parents::Latest)));
    }
    let origin = match &job.origin {
        None => None,
        Some(run) => match site.repository.latest(run).await {
            Err(RepoError::NotFound(_)) => None,
            other => other?,
        },
    };
    let Some(origin) = origin else {
        return Ok(Some((site.cluster.room.draw(Weights::fresh), Parents::Latest)));
    };
    site.cluster.note(|ledger| ledger.tally.across_runs += 1);
    Ok(resume(site, &origin).await.map(|weights| (weights, Parents::These(vec![origin]))))
}

/// Loads a checkpoint; `None` when the store, or expiry by others, is in the way.
pub(crate) async fn resume(site: &Site, checkpoint: &Checkpoint) -> Option<Weights> {
    use everstep_restore::RestoreError::Repo;
    match load(site, checkpoint).await {
        Loaded::Whole(weights) => {
            site.cluster.note(|ledger| ledger.tally.restored += 1);
            return Some(weights);
        }
        Loaded::Failed(Repo(RepoError::Store(_))) => {}
        Loaded::Failed(Repo(RepoError::Expired { .. })) => {
            site.cluster.note(|ledger| ledger.tally.expired_during_restore += 1);
        }
        Loaded::Failed(error) => {
            site.cluster.wrong(format!("{} cannot be loaded: {error}", describe(checkpoint)))
        }
        Loaded::Wrong(what) => site.cluster.wrong(format!("{what} holds other bytes than were saved")),
    }
    None
}

struct Trainer<'j> {
    site: Site,
    session: Session,
    job: &'j Job,
    crew: Crew,
    weights: Weights,
    parents: Parents,
    cache: SaveCache,
    step: u64,
}

impl Trainer<'_> {
    /// A deliberate rollback to any older checkpoint; `false` when somebody else has the run.
    async fn go_back(&mut self) -> Result<bool, RepoError> {
        let Some(target) = self.older().await? else { return Ok(true) };
        let cluster = self.site.cluster.clone();
        match self.session.rollback(&target).await {
            Ok(CommitOutcome::Committed(copy)) => {
                cluster.note(|ledger| ledger.tally.rollbacks += 1);
                match resume(&self.site, &copy).await {
                    Some(weights) => self.weights = weights,
                    None => return Ok(false),
                }
                Ok(true)
            }
            Ok(CommitOutcome::Conflict(_) | CommitOutcome::Unknown(_)) => Ok(false),
            Err(RepoError::Expired { .. }) => {
                cluster.note(|ledger| ledger.tally.dropped_rollbacks += 1);
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    async fn older(&self) -> Result<Option<Checkpoint>, RepoError> {
        let attempts = self.site.repository.attempts(&self.job.run).await?;
        let mut checkpoints: Vec<Checkpoint> =
            attempts
                .into_iter()
                .filter_map(|(_, state)| {
                    if let AttemptState::Committed(checkpoint) = state { Some(checkpoint) } else { None }
                })
                .collect();
        checkpoints.pop();
        if checkpoints.is_empty() {
            return Ok(None);
        }
        // Time passes between choosing a target and going there.
        let chosen = self.site.cluster.room.draw(|rng| rng.random_range(0..checkpoints.len()));
        self.site.cluster.pause(Duration::from_secs(900)).await;
        Ok(Some(checkpoints.swap_remove(chosen)))
    }

    /// One step and one save; `Some` when the job must end.
    async fn save(&mut self) -> Option<End> {
        let cluster = self.site.cluster.clone();
        cluster.room.draw(|rng| self.weights.train(rng));
        let save: u64 = cluster.room.draw(|rng| rng.random());
        self.step += 1;
        let ranks = self.call_crew(save);
        let bytes = self.weights.bytes();
        let state = self.weights.share(&bytes, (0, ranks));
        let parents = std::mem::take(&mut self.parents);
        let metadata = self.weights.metadata(save);
        let group = Group::new(Rank(0), ranks).within(DEADLINE);
        let options = SaveOptions { step: Step(self.step), parents, metadata, group, counts: None };
        let tools = self.site.save_tools(&self.cache);
        let outcome = everstep_save::save(&mut self.session, &state, options, &tools).await;
        if ranks > 1 && outcome.is_ok() {
            cluster.note(|ledger| ledger.tally.by_ranks += 1);
        }
        let (told, end) = judge(&cluster, outcome);
        cluster.note(|ledger| ledger.saves.push((save, self.job.run.clone(), told)));
        end
    }
}

impl Trainer<'_> {
    /// Lets any number of ranks take part in the next save; how many they are with this one.
    fn call_crew(&self, save: u64) -> u32 {
        let most = u32::try_from(self.crew.len()).expect("few") + 1;
        let ranks = if most > 1 { self.site.cluster.room.draw(|rng| rng.random_range(1..=most)) } else { 1 };
        for rank in self.crew.iter().take(usize::try_from(ranks).expect("few") - 1) {
            let (run, ticket) = (self.job.run.clone(), self.session.ticket());
            let task = Task { run, ticket, step: self.step, save, weights: self.weights.clone(), ranks };
            // The dead do not listen.
            drop(rank.unbounded_send(task));
        }
        ranks
    }
}

fn judge(cluster: &Cluster, outcome: Result<everstep_save::SaveReport, SaveError>) -> (Told, Option<End>) {
    cluster.note(|ledger| match outcome {
        Ok(report) => {
            ledger.tally.committed += 1;
            ledger.tally.chunks_reused += report.chunks_reused;
            (Told::Committed(report.checkpoint.manifest.ordinal), None)
        }
        Err(SaveError::Unknown { .. }) => {
            ledger.tally.unknown += 1;
            (Told::Unknown, None)
        }
        Err(SaveError::Conflict(error)) => {
            ledger.tally.conflicts += 1;
            (Told::Failed(error.to_string()), None)
        }
        Err(error @ (SaveError::RanksFailed { .. } | SaveError::Part { .. })) => {
            ledger.tally.ranks_failed += 1;
            (Told::Failed(error.to_string()), None)
        }
        Err(error @ (SaveError::Upload { .. } | SaveError::Repo(RepoError::Store(_)))) => {
            ledger.tally.failed += 1;
            (Told::Failed(error.to_string()), None)
        }
        Err(error) => {
            ledger.wrong.push(format!("a save failed in an unforeseen way: {error}"));
            (Told::Failed(error.to_string()), Some(End::Trouble))
        }
    })
}
