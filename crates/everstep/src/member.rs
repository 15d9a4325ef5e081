//! A rank of a job, in a process of its own, whose saves another process leads.

use std::fmt;

use everstep_format::name::Step;
use everstep_repo::Ticket;
use everstep_save::{Group, HandedIn, Member as Inner, SaveCache, ShareOptions, Tools};

use crate::progress::Watched;
use crate::{Checkpoint, Error, Progress, Repository, State};

/// Takes part in the saves of a [`crate::Writer`] elsewhere. It may sit saves out, and be of another rank in each.
pub struct Member {
    repository: Repository,
    inner: Inner,
    cache: SaveCache,
}

impl Repository {
    /// Takes part in the saves of the writer that gave `ticket` ([`crate::Writer::ticket`]).
    ///
    /// # Errors
    /// `InvalidArgument` for what is no ticket.
    pub fn member(&self, ticket: &str) -> Result<Member, Error> {
        let ticket: Ticket = ticket.parse()?;
        let inner = Inner::new(self.inner.clone(), ticket);
        Ok(Member { repository: self.clone(), inner, cache: SaveCache::default() })
    }
}

impl Member {
    /// Stores this rank's share of the next save and waits until the leader has committed it. The leader must save the same
    /// step with a group of the same size.
    ///
    /// # Errors
    /// `RankFailed` when a rank failed or was not heard of in time, naming it; `OutcomeUnknown`; for this rank's own
    /// share those of [`crate::Writer::save`].
    pub fn save(&mut self, step: Step, state: &State<'_>, group: &Group) -> Result<HandedIn, Error> {
        self.save_with(step, state, group, &())
    }

    /// [`Member::save`], reporting the progress of the own share.
    ///
    /// # Errors
    /// Those of [`Member::save`].
    pub fn save_with(
        &mut self,
        step: Step,
        state: &State<'_>,
        group: &Group,
        progress: &dyn Progress,
    ) -> Result<HandedIn, Error> {
        let mut handed_in = self.hand_in_with(step, state, group, progress)?;
        let world = self.repository.inner.world();
        let since = world.elapsed();
        self.outcome(&handed_in, group)?;
        handed_in.phases.ranks += world.elapsed().saturating_sub(since);
        Ok(handed_in)
    }

    /// Stores this rank's share and hands it in, without waiting for the others: nothing is saved yet.
    ///
    /// # Errors
    /// Those of [`Member::save`].
    pub fn hand_in(&mut self, step: Step, state: &State<'_>, group: &Group) -> Result<HandedIn, Error> {
        self.hand_in_with(step, state, group, &())
    }

    /// [`Member::hand_in`], reporting progress.
    ///
    /// # Errors
    /// Those of [`Member::save`].
    pub fn hand_in_with(
        &mut self,
        step: Step,
        state: &State<'_>,
        group: &Group,
        progress: &dyn Progress,
    ) -> Result<HandedIn, Error> {
        let engine = &self.repository.engine;
        let settings = &engine.options.save;
        let tools =
            Tools { pool: engine.cpu.pool(), settings, progress: &Watched(progress), cache: &self.cache };
        let options = ShareOptions { step, group: group.clone() };
        let handed_in = engine.wait(self.inner.hand_in(state, &options, &tools));
        if handed_in.as_ref().is_err_and(Error::is_interruption) {
            let _inside = engine.runtime.enter();
            self.inner.let_go(group);
        }
        handed_in
    }

    /// Answers the call to the save of `step` by saying that this rank cannot take part, and `why`.
    ///
    /// # Errors
    /// `RankFailed` when the leader did not call, or called the save off.
    pub fn give_up(&mut self, step: Step, why: &str, group: &Group) -> Result<(), Error> {
        let options = ShareOptions { step, group: group.clone() };
        self.repository.engine.wait(self.inner.decline(&options, why))
    }

    /// Lets the next share against `checkpoint` use its index as it is at hand there, as [`crate::Writer::take_index`] does.
    pub fn take_index(&self, checkpoint: &Checkpoint) {
        self.cache.take_index(checkpoint.index());
    }

    /// Waits until the leader says what became of the share.
    ///
    /// # Errors
    /// `RankFailed`, `OutcomeUnknown`.
    pub fn outcome(&self, handed_in: &HandedIn, group: &Group) -> Result<(), Error> {
        self.repository.engine.wait(self.inner.outcome(handed_in, group))
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
