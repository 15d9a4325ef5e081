//! The leader's side of a save by several ranks: call them, wait for their shares, say what became of it. For a leader
//! alone all of that is nothing.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use everstep_format::card::{CalledAttempt, Card, Occasion, SaveId};
use everstep_format::key::Key;
use everstep_format::name::Rank;
use everstep_format::outcome::{Ending, Outcome};
use everstep_format::part::PartRef;
use everstep_format::{FormatError, limits};
use everstep_repo::{Rendezvous, RepoError, Report, Repository, Session, Spent};
use everstep_store::Span;
use futures::future::try_join_all;
use rayon::prelude::*;

use crate::check::shown;
use crate::group::{Group, LEADER, Seat};
use crate::merge::{Names, Part, list};
use crate::phases::{Arrivals, LateRank, slowest};
use crate::watch::Watch;
use crate::{SaveError, SaveOptions, Tools, cpu};

/// Parts read, and then decoded, at once.
const PARTS_AT_ONCE: usize = 64;

/// The ranks of one save, as its leader sees them.
pub(crate) struct Muster {
    pub(crate) seat: Seat,
    repository: Repository,
    rendezvous: Arc<dyn Rendezvous>,
    deadline: Duration,
    occasion: Occasion,
    /// Once there is one that they may have heard of.
    called: Option<CalledAttempt>,
    arrivals: Mutex<Arrivals>,
}

impl Muster {
    pub(crate) fn new(session: &mut Session, options: &SaveOptions) -> Result<Self, SaveError> {
        let Group { world_size, deadline, .. } = options.group;
        let seat = options.group.check(true)?;
        let save = if seat.is_alone() { session.ticket().next } else { session.next_call() };
        let occasion = Occasion { save, run: session.run().clone(), step: options.step, world_size };
        let repository = session.repository().clone();
        let rendezvous = options.group.rendezvous_in(&repository);
        Ok(Self {
            seat,
            repository,
            rendezvous,
            deadline,
            occasion,
            called: None,
            arrivals: Mutex::default(),
        })
    }

    /// Which save of the session it is.
    pub(crate) fn save(&self) -> SaveId {
        self.occasion.save
    }

    /// Takes a name that no other process of the session has used for a card that the ranks may still see.
    pub(crate) async fn pass_used_names(&mut self, session: &mut Session) -> Result<(), SaveError> {
        while !self.seat.is_alone()
            && session.is_shared()
            && self.rendezvous.card(self.occasion.save).await?.is_some()
        {
            self.occasion.save = session.next_call();
        }
        Ok(())
    }

    /// From here on the others are met where `group` says. They must be as many as were called.
    pub(crate) fn meet_in(&mut self, group: &Group) -> Result<(), SaveError> {
        let Seat { world_size, .. } = group.check(true)?;
        if world_size != self.seat.world_size {
            let found = format!("{world_size} ranks");
            let rule = format!("the {} ranks that were called to this save", self.seat.world_size);
            return Err(FormatError::invalid("group", found, rule).into());
        }
        self.rendezvous = group.rendezvous_in(&self.repository);
        self.deadline = group.deadline;
        Ok(())
    }

    /// Calls the others to `attempt`.
    pub(crate) async fn call(&mut self, attempt: CalledAttempt) -> Result<(), SaveError> {
        if self.seat.is_alone() {
            return Ok(());
        }
        let card = Card::calling(self.occasion.clone(), attempt.clone());
        // From here on they may know, whatever the answer says.
        self.called = Some(attempt);
        Ok(self.rendezvous.call(&card).await?)
    }

    /// The shares of all the others; one that failed, or time that is up, ends the wait at once.
    pub(crate) async fn parts(&self, tools: &Tools<'_>) -> Result<Vec<Part>, SaveError> {
        let Some(attempt) = &self.called else { return Ok(Vec::new()) };
        let handed_in = self.reports(attempt).await?;
        let mut parts = Vec::with_capacity(handed_in.len());
        let names = Names::default();
        for batch in handed_in.chunks(PARTS_AT_ONCE) {
            let bytes =
                try_join_all(batch.iter().map(|(rank, part)| self.fetch(attempt, *rank, part))).await?;
            let read = |((rank, part), bytes): (&(Rank, PartRef), Bytes)| {
                let key = Key::part(attempt.id, *rank, part.blake3);
                let read = Part::read(*rank, &bytes, part, &names).map_err(RepoError::object(key));
                read.map_err(|source| SaveError::Part { rank: *rank, source })
            };
            let batch: Vec<Result<Part, SaveError>> =
                cpu::run(tools.pool, || batch.par_iter().zip(bytes).map(read).collect());
            for part in batch {
                parts.push(part?);
            }
        }
        Ok(parts)
    }

    async fn fetch(&self, attempt: &CalledAttempt, rank: Rank, part: &PartRef) -> Result<Bytes, SaveError> {
        let key = Key::part(attempt.id, rank, part.blake3);
        let failed = |source| SaveError::Part { rank, source };
        FormatError::within("part", part.len, limits::INDEX_BYTES)
            .map_err(RepoError::object(key.clone()))
            .map_err(failed)?;
        let read = self.repository.store().get(&key, Span::AtMost(part.len)).await;
        Ok(read.map_err(|error| failed(error.into()))?.bytes)
    }

    async fn reports(&self, attempt: &CalledAttempt) -> Result<Vec<(Rank, PartRef)>, SaveError> {
        let world = self.repository.world().as_ref();
        let until = world.elapsed().saturating_add(self.deadline);
        let mut watch = Watch::new(world, self.rendezvous.as_ref(), until);
        let others = LEADER.0 + 1..self.seat.world_size;
        let mut done: Vec<(Rank, PartRef)> = Vec::new();
        loop {
            let looked = self.rendezvous.reports(attempt.id, others.clone()).await;
            if let Some(reports) = watch.seen(looked)? {
                let mut failed = Vec::new();
                done.clear();
                for (rank, report) in reports {
                    match report {
                        Report::Done(part, spent) => {
                            self.arrived(rank, spent);
                            done.push((rank, part));
                        }
                        Report::Failed(why) => failed.push((rank, why)),
                    }
                }
                if !failed.is_empty() {
                    return Err(self.given_up(failed, Vec::new()));
                }
                if done.len() == others.len() {
                    return Ok(done);
                }
            }
            if !watch.again().await {
                let is_missing = |rank: &Rank| !done.iter().any(|(of, _)| of == rank);
                return Err(self.given_up(Vec::new(), others.map(Rank).filter(is_missing).collect()));
            }
        }
    }

    /// Remembers when the share of `rank` was first seen to be there.
    pub(crate) fn arrived(&self, rank: Rank, spent: Option<Spent>) {
        let now = self.repository.world().elapsed();
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).entry(rank).or_insert((now, spent));
    }

    /// The ranks that were last, the last one first; none for a leader alone.
    pub(crate) fn slowest(&self) -> Vec<LateRank> {
        if self.seat.is_alone() {
            return Vec::new();
        }
        slowest(&self.arrivals.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn given_up(&self, failed: Vec<(Rank, String)>, missing: Vec<Rank>) -> SaveError {
        SaveError::RanksFailed { failed, missing, waited: self.deadline }
    }

    /// `error`, and which of the others hold boxes of the tensor at fault. Reads all parts once more: it is the only way
    /// not to remember, for every row, who handed it in.
    pub(crate) async fn with_holders(&self, error: SaveError, tools: &Tools<'_>) -> SaveError {
        let (SaveError::Coverage { tensor, .. } | SaveError::Invalid { name: tensor, .. }) = &error else {
            return error;
        };
        let Ok(parts) = self.parts(tools).await else { return error };
        let holds = |part: &Part| part.rows.iter().any(|row| shown(&row.row.name) == *tensor);
        let holders: Vec<Rank> = parts.iter().filter(|part| holds(part)).map(|part| part.rank).collect();
        let more = |detail: String| match holders.as_slice() {
            [] => detail,
            holders => format!("{detail} (of the other ranks, {} hold boxes of it)", list(holders)),
        };
        match error {
            SaveError::Coverage { tensor, detail } => SaveError::Coverage { tensor, detail: more(detail) },
            SaveError::Invalid { name, detail } => SaveError::Invalid { name, detail: more(detail) },
            other => other,
        }
    }

    /// Tells the others what became of the save. Best effort: the decision is what counts.
    pub(crate) async fn conclude(&self, result: Result<(), &SaveError>) {
        match (&self.called, result) {
            (Some(attempt), result) => self.tell(&self.outcome(attempt, result)).await,
            (None, Err(error)) if !self.seat.is_alone() => {
                let off = self.rendezvous.call(&Card::off(self.occasion.clone(), &why(error))).await;
                self.is_told(off);
            }
            (None, _) => {}
        }
    }

    /// Tells the others that the leader gave the attempt up after it had done its own share.
    pub(crate) async fn give_up(&self, why: &str) {
        let Some(attempt) = &self.called else { return };
        let why = format!("the leader, rank {LEADER}, gave it up: {why}");
        let outcome = Outcome::committed(self.occasion.save, attempt.id, attempt.ordinal);
        self.tell(&outcome.ended(Ending::Failed, &why, &[LEADER])).await;
    }

    async fn tell(&self, outcome: &Outcome) {
        let told = self.rendezvous.conclude(outcome).await;
        self.is_told(told);
    }

    fn is_told(&self, told: Result<(), RepoError>) {
        if let Err(error) = told {
            tracing::warn!(run = %self.occasion.run, %error, "the other ranks were not told how the save ended");
        }
    }

    fn outcome(&self, attempt: &CalledAttempt, result: Result<(), &SaveError>) -> Outcome {
        let committed = Outcome::committed(self.occasion.save, attempt.id, attempt.ordinal);
        match result {
            Ok(()) => committed,
            Err(error @ SaveError::Unknown { .. }) => {
                committed.ended(Ending::Unknown, &error.to_string(), &[])
            }
            Err(error) => committed.ended(Ending::Failed, &why(error), &at_fault(error)),
        }
    }
}

/// What the other ranks are told of the leader's error.
fn why(error: &SaveError) -> String {
    match at_fault(error).as_slice() {
        [LEADER] => format!("the leader, rank {LEADER}, failed: {error}"),
        _ => error.to_string(),
    }
}

/// The ranks because of which it failed, as far as ranks are to blame.
fn at_fault(error: &SaveError) -> Vec<Rank> {
    match error {
        SaveError::RanksFailed { failed, missing, .. } => {
            let mut ranks: Vec<Rank> =
                failed.iter().map(|(rank, _)| *rank).chain(missing.iter().copied()).collect();
            ranks.sort_unstable();
            ranks
        }
        SaveError::Part { rank, .. } => vec![*rank],
        SaveError::RankReplicas { first, second, .. } | SaveError::RankObjects { first, second, .. } => {
            vec![*first, *second]
        }
        SaveError::Coverage { .. } | SaveError::Unstored { .. } | SaveError::Conflict(_) => Vec::new(),
        _ => vec![LEADER],
    }
}
