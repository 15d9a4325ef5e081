//! One pass: G0 to G5, in this order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use everstep_format::id::AttemptId;
use everstep_format::intent::Intent;
use everstep_format::name::{Ordinal, RunName};
use everstep_repo::{Checkpoint, Repository};
use jiff::Timestamp;

use crate::candidates::Candidates;
use crate::clock::Signs;
use crate::judge::Verdict;
use crate::learning::{Known, Outcome, Reading, check_features};
use crate::listing::{Listing, Place};
use crate::marks::{Marking, Marks};
use crate::plan::{Abandoned, Plan, Planned, SCHEMA};
use crate::policy::Policy;
use crate::report::{Collected, Skipped};
use crate::retain::{self, Run};
use crate::settings::{Progress, Settings};
use crate::sweep::Sweep;
use crate::throttle::Throttle;
use crate::{GcError, Status, idle, leftovers, records};

/// Passes that may be thrown away because others collect at the same time.
const PASSES: u32 = 8;

/// What is to be expired before garbage is collected.
#[derive(Debug, Clone, Copy)]
pub enum Orders<'o> {
    /// What a policy does not keep.
    Policy(&'o Policy),
    /// What a plan expires and its policy still does not keep.
    Plan(&'o Plan),
    /// Nothing.
    Sweep,
}

/// Plans and collects. What never changes is read once, so that later passes cost less.
#[derive(Debug)]
pub struct Collector {
    repository: Repository,
    settings: Settings,
    known: Known,
}

impl Collector {
    /// A collector of `repository`.
    pub fn new(repository: Repository, settings: Settings) -> Self {
        Self { repository, settings, known: Known::default() }
    }

    /// What a collection by `policy` would do. Nothing is changed.
    ///
    /// # Errors
    /// As [`Collector::collect`].
    pub async fn plan(&mut self, policy: &Policy, progress: &dyn Progress) -> Result<Plan, GcError> {
        check_features(&self.repository)?;
        for _ in 0..PASSES {
            match self.try_plan(policy, progress).await {
                Err(GcError::Changed) => {}
                other => return other,
            }
        }
        Err(GcError::Changed)
    }

    /// Expires what `orders` say, ends what shows no sign of life, and removes what nothing can ever use again. Deletes that
    /// fail are in the answer.
    ///
    /// # Errors
    /// [`GcError::Repo`] naming the object that cannot be read or understood, [`GcError::UnknownRun`],
    /// [`GcError::Changed`], [`GcError::Plan`]: nothing was deleted, unless the store failed while listing what is left.
    pub async fn collect(
        &mut self,
        orders: Orders<'_>,
        progress: &dyn Progress,
    ) -> Result<Collected, GcError> {
        check_features(&self.repository)?;
        if let Orders::Plan(plan) = orders {
            plan.check_is_for(&self.repository)?;
        }
        let mut done = Collected::default();
        for _ in 0..PASSES {
            match self.pass(orders, progress, &mut done).await {
                Err(GcError::Changed) => done.restarts += 1,
                other => return other.map(|()| done),
            }
        }
        Err(GcError::Changed)
    }

    /// Expires what `policy` does not keep of `run`, and nothing else: neither are others looked at, nor is anything aborted
    /// or deleted. What was expired.
    ///
    /// # Errors
    /// As [`Collector::collect`].
    pub async fn expire(&mut self, policy: &Policy, run: &RunName) -> Result<Vec<Ordinal>, GcError> {
        check_features(&self.repository)?;
        let mut done = Collected::default();
        for _ in 0..PASSES {
            let listing = Listing::of_run(&self.repository, run).await?;
            let reading = Reading { repository: &self.repository, in_flight: self.settings.in_flight };
            self.known.learn(&listing, reading).await?;
            match self.retain(Orders::Policy(policy), &listing, &mut done).await {
                Err(GcError::Changed) => {}
                Err(error) => return Err(error),
                Ok(killed) => return Ok(killed.into_iter().map(|(_, ordinal)| ordinal).collect()),
            }
        }
        Err(GcError::Changed)
    }

    /// How much there is and waits to be collected. Nothing is changed.
    ///
    /// # Errors
    /// As [`Collector::collect`].
    pub async fn status(&mut self) -> Result<Status, GcError> {
        check_features(&self.repository)?;
        let signs = Signs::look(&self.repository).await?;
        let listing = self.survey().await?;
        let candidates = Candidates::of(&listing, &self.known, &BTreeSet::new(), &self.settings);
        let mut status = Status::of(&listing, &self.known, &candidates);
        status.idle = idle::attempts(&listing, &self.known, &signs, &self.settings).len() as u64;
        Ok(status)
    }

    fn reading(&self) -> Reading<'_> {
        Reading { repository: &self.repository, in_flight: self.settings.in_flight }
    }

    /// Lists everything and reads what is new of it.
    async fn survey(&mut self) -> Result<Listing, GcError> {
        let mut listing = Listing::read(&self.repository).await?;
        if !self.settings.thorough {
            listing.read_swept(&self.repository).await?;
        }
        self.learn(&listing).await?;
        Ok(listing)
    }

    async fn learn(&mut self, listing: &Listing) -> Result<(), GcError> {
        let reading = Reading { repository: &self.repository, in_flight: self.settings.in_flight };
        self.known.learn(listing, reading).await?;
        self.known.learn_leases(listing, reading).await
    }

    /// G2: lists everything anew, now that the dead are known.
    async fn look_again(&mut self, before: &Listing) -> Result<Listing, GcError> {
        let mut listing = Listing::read(&self.repository).await?;
        for (place, entry) in &mut listing.attempts {
            // Marks of earlier passes are as good as they were.
            entry.swept = before.attempts.get(place).is_some_and(|before| before.swept);
        }
        self.learn(&listing).await?;
        Ok(listing)
    }

    async fn pass(
        &mut self,
        orders: Orders<'_>,
        progress: &dyn Progress,
        done: &mut Collected,
    ) -> Result<(), GcError> {
        let signs = Signs::read(&self.repository).await?;
        let mut listing = self.survey().await?;
        let mut killed = self.retain(orders, &listing, done).await?;
        killed.extend(self.abort_idle(orders, (&listing, &signs), done).await?);
        self.end_leases(&mut listing, &signs, done).await?;
        let candidates = Candidates::of(&listing, &self.known, &killed, &self.settings);
        done.attempts = candidates.with_data().count() as u64;
        done.attempts_skipped = candidates.skipped;
        let marks = self.mark(&candidates, &listing, &BTreeSet::new()).await?;
        let sweep = self.sweep(&candidates, &marks, (&signs, progress));
        done.add(sweep.run().await?);
        done.add(records::forget(&sweep).await?);
        for (attempt, dead) in &candidates.attempts {
            if dead.is_fence {
                done.marked_swept += u64::from(sweep.mark_swept(*attempt, dead).await?);
            }
        }
        done.leases_removed += leftovers::remove_leases(&self.repository, &listing, &self.settings).await?;
        leftovers::remove_signs(&self.repository, &signs, &self.over(&listing, &candidates)).await;
        Ok(())
    }

    /// G2 and G3. Without candidates there is nothing to look for.
    async fn mark(
        &mut self,
        candidates: &Candidates,
        before: &Listing,
        ended: &BTreeSet<AttemptId>,
    ) -> Result<Marks, GcError> {
        if candidates.with_data().next().is_none() {
            return Ok(Marks::default());
        }
        let listing = self.look_again(before).await?;
        self.marking(candidates, ended).mark(&listing).await
    }

    fn marking<'m>(&'m self, candidates: &'m Candidates, ended: &'m BTreeSet<AttemptId>) -> Marking<'m> {
        Marking { reading: self.reading(), candidates, known: &self.known, ended }
    }

    fn sweep<'s>(
        &'s self,
        candidates: &'s Candidates,
        marks: &'s Marks,
        (signs, progress): (&'s Signs, &'s dyn Progress),
    ) -> Sweep<'s> {
        let throttle = Throttle::new(self.settings.deletes_per_second);
        let (repository, settings) = (&self.repository, &self.settings);
        Sweep { repository, settings, candidates, marks, signs, progress, throttle, planned: None }
    }

    /// G0: puts the expired markers that `orders` ask for. Where those are that it put.
    async fn retain(
        &self,
        orders: Orders<'_>,
        listing: &Listing,
        done: &mut Collected,
    ) -> Result<BTreeSet<Place>, GcError> {
        let (policy, plan) = match orders {
            Orders::Sweep => {
                done.kept = retain::checkpoints(listing, &self.known).values().map(|c| c.len() as u64).sum();
                return Ok(BTreeSet::new());
            }
            Orders::Policy(policy) => (policy, None),
            Orders::Plan(plan) => (&plan.policy, Some(plan)),
        };
        let runs = retain::judge_all(policy, (listing, &self.known), self.reading()).await?;
        let planned = plan.map(Plan::to_expire);
        if let Some(planned) = &planned {
            done.skipped = skipped(planned, &runs, listing);
        }
        let mut killed = BTreeSet::new();
        for run in &runs {
            for (checkpoint, judged) in run.expired() {
                let manifest = &checkpoint.manifest;
                let wanted = planned.as_ref().is_none_or(|planned| {
                    planned.get(&(&manifest.run, manifest.ordinal)) == Some(&manifest.attempt)
                });
                if wanted && self.settings.shard.has(manifest.attempt) {
                    retain::expire(&self.repository, run, (checkpoint, judged)).await?;
                    killed.insert((manifest.run.clone(), manifest.ordinal));
                }
            }
        }
        let all: usize = runs.iter().map(|run| run.checkpoints.len()).sum();
        done.kept = (all - killed.len()) as u64;
        done.expired.extend(killed.iter().cloned());
        Ok(killed)
    }

    /// G0: aborts attempts of which nothing was heard. Where they are.
    async fn abort_idle(
        &mut self,
        orders: Orders<'_>,
        (listing, signs): (&Listing, &Signs),
        done: &mut Collected,
    ) -> Result<BTreeSet<Place>, GcError> {
        let mut killed = BTreeSet::new();
        for (intent, silence) in idle::attempts(listing, &self.known, signs, &self.settings) {
            if matches!(orders, Orders::Plan(plan) if !plan.aborts(intent.attempt)) {
                continue;
            }
            let detail = format!("no sign of life for {} s", silence.as_secs());
            if self.repository.abandon(&intent, detail).await? {
                let place = (intent.run.clone(), intent.ordinal);
                self.known.note(place.clone(), Outcome::Aborted(intent.attempt));
                done.aborted.push(place.clone());
                killed.insert(place);
            }
        }
        Ok(killed)
    }

    /// G0: ends leases of which nothing was heard.
    async fn end_leases(
        &self,
        listing: &mut Listing,
        signs: &Signs,
        done: &mut Collected,
    ) -> Result<(), GcError> {
        for id in idle::leases(listing, &self.known, signs, &self.settings) {
            self.repository.abandon_lease(id).await?;
            listing.leases.entry(id).or_default().ended = true;
            done.leases_ended += 1;
        }
        Ok(())
    }

    /// Attempts and leases that need no sign of life any more.
    fn over(&self, listing: &Listing, candidates: &Candidates) -> BTreeSet<AttemptId> {
        let committed = listing.attempts.keys().filter_map(|place| self.known.outcome(place));
        let ended = listing.leases.iter().filter(|(_, lease)| lease.ended).map(|(id, _)| *id);
        let dead = candidates.dead.iter().copied();
        dead.chain(committed.map(Outcome::attempt)).chain(ended).collect()
    }

    async fn try_plan(&mut self, policy: &Policy, progress: &dyn Progress) -> Result<Plan, GcError> {
        let signs = Signs::look(&self.repository).await?;
        let listing = self.survey().await?;
        let runs = retain::judge_all(policy, (&listing, &self.known), self.reading()).await?;
        let idle = idle::attempts(&listing, &self.known, &signs, &self.settings);
        let silent: BTreeSet<AttemptId> =
            idle::leases(&listing, &self.known, &signs, &self.settings).into_iter().collect();
        let doomed: Vec<Checkpoint> = self.doomed(&runs);
        let of_idle = idle.iter().map(|(intent, _)| (intent.run.clone(), intent.ordinal));
        let of_doomed = doomed.iter().map(|c| (c.manifest.run.clone(), c.manifest.ordinal));
        let killed: BTreeSet<Place> = of_idle.chain(of_doomed).collect();
        let candidates = Candidates::of(&listing, &self.known, &killed, &self.settings);
        let mut marks = self.mark(&candidates, &listing, &silent).await?;
        self.marking(&candidates, &silent).blame(&doomed, &mut marks).await.map_err(overtaken)?;
        let planned = doomed.iter().map(|checkpoint| checkpoint.manifest.attempt).collect();
        let sweep = Sweep { planned: Some(planned), ..self.sweep(&candidates, &marks, (&signs, progress)) };
        let mut found = sweep.run().await?;
        found.add(records::forget(&sweep).await?);
        Ok(self.assemble(policy, &runs, Findings { idle, silent, found }))
    }

    /// What of this shard would be expired, in the order of the plan.
    fn doomed(&self, runs: &[Run]) -> Vec<Checkpoint> {
        let expired = runs.iter().flat_map(Run::expired).map(|(checkpoint, _)| checkpoint);
        expired.filter(|checkpoint| self.settings.shard.has(checkpoint.manifest.attempt)).cloned().collect()
    }

    fn assemble(&self, policy: &Policy, runs: &[Run], findings: Findings) -> Plan {
        let Findings { idle, silent, found } = findings;
        let frees = |attempt: AttemptId| found.by_cause.get(&Some(attempt)).copied().unwrap_or_default();
        let planned = runs
            .iter()
            .flat_map(Run::each)
            .map(|(checkpoint, judged)| Planned::of(checkpoint, judged, frees(checkpoint.manifest.attempt)));
        let abandoned = |(intent, silence): (Arc<Intent>, Duration)| Abandoned {
            run: intent.run.clone(),
            ordinal: intent.ordinal,
            attempt: intent.attempt,
            silent_seconds: silence.as_secs(),
        };
        Plan {
            schema: SCHEMA.to_owned(),
            repository: self.repository.config().id,
            made: Timestamp::try_from(self.repository.world().now()).unwrap_or_default().to_string(),
            shard: self.settings.shard.to_string(),
            policy: policy.clone(),
            checkpoints: planned.collect(),
            abort: idle.into_iter().map(abandoned).collect(),
            end_leases: silent.into_iter().collect(),
            garbage: found.by_cause.get(&None).copied().unwrap_or_default(),
            frees: found.freed(),
            shared: found.shared,
            records: found.records,
        }
    }
}

/// What a plan found beside the verdicts.
struct Findings {
    idle: Vec<(Arc<Intent>, Duration)>,
    silent: BTreeSet<AttemptId>,
    found: Collected,
}

/// A checkpoint that was to be expired has expired by others and is gone.
fn overtaken(error: GcError) -> GcError {
    match error {
        GcError::Repo(everstep_repo::RepoError::Expired { .. }) => GcError::Changed,
        other => other,
    }
}

/// What a plan expires and that stays, with the reason.
fn skipped(
    planned: &BTreeMap<(&RunName, Ordinal), AttemptId>,
    runs: &[Run],
    listing: &Listing,
) -> Vec<Skipped> {
    let mut judged = BTreeMap::new();
    for (checkpoint, verdict) in runs.iter().flat_map(Run::each) {
        judged.insert((&checkpoint.manifest.run, checkpoint.manifest.ordinal), (checkpoint, verdict));
    }
    let mut skipped = Vec::new();
    for ((run, ordinal), attempt) in planned {
        let why = match judged.get(&(*run, *ordinal)) {
            Some((checkpoint, _)) if checkpoint.manifest.attempt != *attempt => {
                "another checkpoint is there now".to_owned()
            }
            Some((_, verdict)) if verdict.verdict == Verdict::Keep => {
                let reasons = verdict.reasons.iter().map(|reason| reason.why.as_str());
                format!("it is kept now: {}", reasons.collect::<Vec<_>>().join("; "))
            }
            Some(_) => continue,
            None => match listing.attempts.get(&((*run).clone(), *ordinal)) {
                Some(entry) if entry.expired.is_some() => continue,
                _ => "there is no such checkpoint".to_owned(),
            },
        };
        skipped.push(Skipped { run: (*run).clone(), ordinal: *ordinal, why });
    }
    skipped
}
