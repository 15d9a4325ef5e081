//! A rank that hands in its share of the saves that another process leads.

use std::sync::Arc;
use std::time::Duration;

use everstep_format::card::{CalledAttempt, Card, SaveId};
use everstep_format::id::AttemptId;
use everstep_format::key::Key;
use everstep_format::name::{Ordinal, Rank, RunName, Step};
use everstep_format::outcome::{Ending, Outcome};
use everstep_format::part;
use everstep_repo::{Attempt, Fate, Rendezvous, Report, Repository, Spent, Ticket};
use everstep_store::Class;
use futures::FutureExt;

use crate::group::{Group, Seat};
use crate::item::object_bytes;
use crate::known::{Known, chunks_of};
use crate::let_go::WHY;
use crate::phases::{Phases, Stopwatch};
use crate::plan::Plan;
use crate::save::{Begun, Own};
use crate::share::{self, Errand, Share};
use crate::watch::Watch;
use crate::writer::Tally;
use crate::{SaveError, State, Tools, cpu};

/// A rank of a job whose rank 0 leads. It counts the saves of the leader's session, each of which answers one of its calls;
/// one that sat some out finds the way.
#[derive(Debug)]
pub struct Member {
    repository: Repository,
    run: RunName,
    next: SaveId,
    /// Calls of this rank that ended before a card answered them: their cards may come yet, and are about no later call.
    unanswered: u64,
    /// The attempt that it works for.
    busy_with: Option<(AttemptId, Seat)>,
}

/// Which save a share is for.
#[derive(Debug, Clone)]
pub struct ShareOptions {
    /// Training step; the leader's must be the same.
    pub step: Step,
    /// The ranks that save together, as the leader has them, and which one this is.
    pub group: Group,
}

/// A share that the leader may commit.
#[derive(Debug, Clone)]
pub struct HandedIn {
    /// The attempt.
    pub attempt: AttemptId,
    /// Its ordinal: that of the checkpoint, if it is committed.
    pub ordinal: Ordinal,
    /// Raw bytes of this rank's state.
    pub raw_bytes: u64,
    /// Distinct chunks that this rank stored.
    pub chunks_uploaded: u64,
    /// Distinct chunks that it referenced where a parent has them.
    pub chunks_reused: u64,
    /// Bytes of the packs that it wrote.
    pub bytes_uploaded: u64,
    /// Packs that it wrote.
    pub packs: u64,
    /// Where this rank's time went, so far as it waited for no outcome.
    pub phases: Phases,
    save: SaveId,
    step: Step,
    called_at: Duration,
}

impl HandedIn {
    /// The leader's own share of `save`.
    pub(crate) fn of_leader(begun: &Begun, own: &Own, (save, at): (SaveId, Duration)) -> Self {
        let Attempt { id, ordinal, step, .. } = begun.attempt;
        let Share { raw_bytes, tally, spent, .. } = &own.share;
        let attempt = CalledAttempt { id, ordinal, parents: Vec::new() };
        let phases = Phases::of_share(*spent, Duration::ZERO).out_of(begun.took());
        handed_in(
            Called { attempt, save, at },
            step,
            Written { tally: *tally, raw_bytes: *raw_bytes, phases },
        )
    }
}

/// What a member was called to.
struct Called {
    attempt: CalledAttempt,
    save: SaveId,
    at: Duration,
}

/// What a member did for its share.
struct Written {
    tally: Tally,
    raw_bytes: u64,
    phases: Phases,
}

impl Member {
    /// A rank that takes part in the saves of the session that gave `ticket`, from there on.
    pub fn new(repository: Repository, ticket: Ticket) -> Self {
        let Ticket { run, next } = ticket;
        Self { repository, run, next, unanswered: 0, busy_with: None }
    }

    /// A ticket for another process, from the save that this one waits for.
    pub fn ticket(&self) -> Ticket {
        Ticket { run: self.run.clone(), next: self.next }
    }

    /// The run.
    pub fn run(&self) -> &RunName {
        &self.run
    }

    /// Stores this rank's share of the next save, hands it in, and waits until the leader has committed it.
    ///
    /// # Errors
    /// Those of [`Member::hand_in`] and [`Member::outcome`].
    pub async fn save(
        &mut self,
        state: &State<'_>,
        options: &ShareOptions,
        tools: &Tools<'_>,
    ) -> Result<HandedIn, SaveError> {
        let mut handed_in = self.hand_in(state, options, tools).await?;
        let mut stopwatch = Stopwatch::start(self.repository.world());
        self.outcome(&handed_in, &options.group).await?;
        handed_in.phases.ranks += stopwatch.lap();
        Ok(handed_in)
    }

    /// Stores this rank's share of the next save and hands it in. Nothing is saved yet: [`Member::outcome`] tells.
    ///
    /// # Errors
    /// [`SaveError::LeaderSilent`], [`SaveError::NotCommitted`], [`SaveError::Misfit`]; what went wrong with the share
    /// itself, which the leader is told of.
    pub async fn hand_in(
        &mut self,
        state: &State<'_>,
        options: &ShareOptions,
        tools: &Tools<'_>,
    ) -> Result<HandedIn, SaveError> {
        let seat = options.group.check(false)?;
        let mut stopwatch = Stopwatch::start(self.repository.world());
        let rendezvous = options.group.rendezvous_in(&self.repository);
        let objects = object_bytes(&state.objects);
        let planned = match &objects {
            Ok(objects) => Some(cpu::run(tools.pool, || share::plan(&self.repository, state, objects, seat))),
            Err(_) => None,
        };
        let planning = stopwatch.lap();
        // Even a rank that cannot take part waits for the call: the leader must be told.
        let called = self.called(options, seat, &rendezvous).await;
        let waiting = stopwatch.lap();
        let plan = match planned {
            Some(planned) => planned,
            None => Err(objects.expect_err("there is no plan only if objects failed")),
        };
        let (called, plan) = match (called, plan) {
            (Err(_), Err(own)) => return Err(own),
            (Err(error), Ok(_)) => return Err(error),
            (Ok(called), plan) => (called, plan),
        };
        let errand = Errand::of_card(&called.attempt, seat);
        self.busy_with = Some((errand.attempt, seat));
        let written = match plan {
            Ok(plan) => self.write(&errand, plan, (tools, &rendezvous)).await,
            Err(error) => Err(error),
        };
        self.busy_with = None;
        match written {
            Ok(mut written) => {
                written.phases.ranks = waiting;
                written.phases = written.phases.out_of(planning + waiting + stopwatch.lap());
                Ok(handed_in(called, options.step, written))
            }
            Err(error) => {
                give_up(&rendezvous, (called.attempt.id, seat), &error.to_string()).await;
                Err(error)
            }
        }
    }

    /// Answers the call to the save of `step` by saying that this rank cannot take part, and why.
    ///
    /// # Errors
    /// Those of [`Member::hand_in`] as long as no call was heard.
    pub async fn decline(&mut self, options: &ShareOptions, why: &str) -> Result<(), SaveError> {
        let seat = options.group.check(false)?;
        let rendezvous = options.group.rendezvous_in(&self.repository);
        let called = self.called(options, seat, &rendezvous).await?;
        give_up(&rendezvous, (called.attempt.id, seat), why).await;
        Ok(())
    }

    /// Tells the leader, in the background, that this rank gives up: after a [`Member::hand_in`] whose future was dropped
    /// half-way.
    pub fn let_go(&mut self, group: &Group) {
        let Some(share) = self.busy_with.take() else { return };
        let rendezvous = group.rendezvous_in(&self.repository);
        let told = async move { give_up(&rendezvous, share, WHY).await };
        self.repository.world().spawn(told.boxed());
    }

    async fn called(
        &mut self,
        options: &ShareOptions,
        seat: Seat,
        rendezvous: &Arc<dyn Rendezvous>,
    ) -> Result<Called, SaveError> {
        let world = self.repository.world().clone();
        let deadline = options.group.deadline;
        let until = world.elapsed().saturating_add(deadline);
        let mut watch = Watch::new(world.as_ref(), rendezvous.as_ref(), until);
        self.unanswered += 1;
        loop {
            let save = self.next;
            if let Some(card) = watch.seen(rendezvous.card(save).await)?.flatten() {
                self.next.save += 1;
                let answer = self.answer(card, (options, seat), (rendezvous, watch.is_first())).await;
                if let Some(attempt) = answer.transpose() {
                    self.unanswered = 0;
                    return Ok(Called { attempt: attempt?, save, at: world.elapsed() });
                }
                self.unanswered = (self.unanswered - 1).max(1);
                watch.start_anew();
            } else if !watch.again().await {
                let SaveId { session, save } = save;
                let (waited, trouble) = (deadline, watch.trouble());
                return Err(SaveError::LeaderSilent { session, save, what: "call", waited, trouble });
            }
        }
    }

    /// The attempt to which `card` calls this rank; `None` when it is about a save that went on without this rank. One that
    /// was there at the first look may be about a save that has ended: how it ended answers this call, unless an earlier
    /// one of this rank still waits for its answer.
    async fn answer(
        &self,
        card: Card,
        (options, seat): (&ShareOptions, Seat),
        (rendezvous, at_first): (&Arc<dyn Rendezvous>, bool),
    ) -> Result<Option<CalledAttempt>, SaveError> {
        let misfit = self.misfit(&card, options);
        let (save, step) = (card.id(), card.step);
        let Some(attempt) = card.attempt else {
            let off = || self.not_committed(step, card.off.unwrap_or_default(), Vec::new());
            return misfit.map_or_else(|| Err(off()), |_| Ok(None));
        };
        if misfit.is_none() && !at_first {
            return Ok(Some(attempt));
        }
        let ended = rendezvous.outcome(save).await.ok().flatten();
        match (misfit, ended) {
            (None, None) => Ok(Some(attempt)),
            (None, Some(Outcome { ending: Ending::Failed, why, ranks, .. })) if self.unanswered == 1 => {
                Err(self.not_committed(step, why, ranks))
            }
            (_, Some(_)) => Ok(None),
            (Some(detail), None) => {
                if seat.rank.0 < card.world_size {
                    give_up(rendezvous, (attempt.id, seat), &detail).await;
                }
                if step < options.step {
                    Ok(None)
                } else {
                    Err(SaveError::Misfit { rank: seat.rank, detail })
                }
            }
        }
    }

    fn misfit(&self, card: &Card, options: &ShareOptions) -> Option<String> {
        let Group { world_size, .. } = options.group;
        let leader = format!("step {} of run {} by {} ranks", card.step, card.run, card.world_size);
        let own = format!("step {} of run {} by {world_size} ranks", options.step, self.run);
        (leader != own).then(|| format!("the leader saves {leader}, this rank {own}"))
    }

    async fn write(
        &self,
        errand: &Errand,
        plan: Plan<'_>,
        (tools, rendezvous): (&Tools<'_>, &Arc<dyn Rendezvous>),
    ) -> Result<Written, SaveError> {
        let store = self.repository.store();
        tools.progress.planned(plan.sums.raw_bytes);
        let mut stopwatch = Stopwatch::start(self.repository.world());
        let known = Known::read(store, &errand.parents, (tools.cache, false)).await?;
        let reading = stopwatch.lap();
        let share = share::write(&self.repository, (errand, &known), plan, tools).await?;
        let (tally, raw_bytes, chunks) = (share.tally, share.raw_bytes, chunks_of(&share.rows));
        let spent = Spent { hash: reading + share.spent.hash, ..share.spent };
        let (bytes, part) = cpu::run(tools.pool, || part::write(&share.into_part()))?;
        // The part vouches for the packs, so they come first, and for good.
        store.sync().await.map_err(|cause| SaveError::Repo(cause.into()))?;
        let Errand { attempt, seat, .. } = *errand;
        let key = Key::part(attempt, seat.rank, part.blake3);
        if let Err(cause) = store.put(&key, bytes.into(), Class::Control).await {
            let holds = format!("the part of rank {}", seat.rank);
            return Err(SaveError::Upload { key, holds, cause: Box::new(cause) });
        }
        rendezvous.report(attempt, seat.rank, &Report::Done(part, Some(spent))).await?;
        let kept: Vec<AttemptId> = errand.parents.iter().map(|place| place.parent.attempt).collect();
        tools.cache.keep_share((attempt, seat.rank), chunks, &kept);
        Ok(Written { tally, raw_bytes, phases: Phases::of_share(spent, Duration::ZERO) })
    }

    /// Waits until the leader says what became of a share.
    ///
    /// # Errors
    /// [`SaveError::NotCommitted`]; [`SaveError::Unknown`] and [`SaveError::LeaderSilent`] when nobody can tell whether
    /// it was committed.
    pub async fn outcome(&self, handed_in: &HandedIn, group: &Group) -> Result<(), SaveError> {
        let world = self.repository.world().as_ref();
        let rendezvous = group.rendezvous_in(&self.repository);
        // The leader may use up its own deadline, and must then still say so.
        let waited = group.deadline.saturating_mul(2);
        let until = handed_in.called_at.saturating_add(waited);
        let mut watch = Watch::new(world, rendezvous.as_ref(), until);
        let cause = loop {
            match watch.seen(rendezvous.outcome(handed_in.save).await) {
                Ok(Some(Some(outcome))) if outcome.attempt == handed_in.attempt => match outcome.ending {
                    Ending::Committed => return Ok(()),
                    Ending::Failed => {
                        return Err(self.not_committed(handed_in.step, outcome.why, outcome.ranks));
                    }
                    Ending::Unknown => break Some(outcome.why),
                },
                Ok(_) => {}
                // The decision still tells.
                Err(error) => break Some(error.to_string()),
            }
            if !watch.again().await {
                break None;
            }
        };
        if self.is_decided(handed_in).await? {
            return Ok(());
        }
        let (run, ordinal) = (self.run.clone(), handed_in.ordinal);
        let SaveId { session, save } = handed_in.save;
        let trouble = watch.trouble();
        Err(match cause {
            Some(cause) => SaveError::Unknown { run, ordinal, cause },
            None => SaveError::LeaderSilent { session, save, what: "outcome", waited, trouble },
        })
    }

    fn not_committed(&self, step: Step, why: String, ranks: Vec<Rank>) -> SaveError {
        SaveError::NotCommitted { run: self.run.clone(), step, why, ranks }
    }

    /// Whether the attempt is committed; an error when it is aborted.
    async fn is_decided(&self, handed_in: &HandedIn) -> Result<bool, SaveError> {
        let operation = everstep_format::feature::Operation::Write;
        let decided = self.repository.decision(&self.run, handed_in.ordinal, operation).await?;
        match decided.map(|decided| (decided.attempt, decided.fate.clone())) {
            Some((attempt, Fate::Commit(_))) if attempt == handed_in.attempt => Ok(true),
            Some((_, Fate::Abort(abort))) => {
                Err(self.not_committed(handed_in.step, abort.detail, Vec::new()))
            }
            _ => Ok(false),
        }
    }
}

fn handed_in(called: Called, step: Step, written: Written) -> HandedIn {
    let Written { tally, raw_bytes, phases } = written;
    let Called { attempt, save, at } = called;
    HandedIn {
        attempt: attempt.id,
        ordinal: attempt.ordinal,
        raw_bytes,
        chunks_uploaded: tally.new,
        chunks_reused: tally.reused,
        bytes_uploaded: tally.pack_bytes,
        packs: tally.packs,
        phases,
        save,
        step,
        called_at: at,
    }
}

/// Tells the leader that it need not wait. Best effort: it would find out by its deadline.
async fn give_up(rendezvous: &Arc<dyn Rendezvous>, (attempt, seat): (AttemptId, Seat), why: &str) {
    let report = Report::Failed(why.to_owned());
    if let Err(error) = rendezvous.report(attempt, seat.rank, &report).await {
        tracing::warn!(%attempt, rank = %seat.rank, %error, "the leader was not told that this rank failed");
    }
}
