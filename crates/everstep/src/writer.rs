//! The only writer of a run at a time.

use everstep_format::card::SaveId;
use everstep_format::name::Step;
use everstep_repo::{CommitOutcome, Parents, Session, Ticket};
use everstep_save::{Group, HandedIn, SaveCache, SaveError, SaveOptions, Tools, Uncommitted};

use crate::progress::Watched;
use crate::{Checkpoint, Error, Progress, Repository, SaveReport, SessionId, State};

/// What is said about a checkpoint beside its state.
#[derive(Debug, Clone, Default)]
pub struct Saved {
    /// Metrics, git commit, anything JSON; at most 1 MiB.
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// Checkpoints to deduplicate against, beside the newest one of the run: of any run, such as a base model.
    pub also: Vec<Checkpoint>,
}

/// The user's metadata of a checkpoint.
pub type Metadata = serde_json::Map<String, serde_json::Value>;

/// The writer of a run: one session. Close it, or the next job waits for it to fall silent.
#[derive(Debug)]
pub struct Writer {
    repository: Repository,
    session: Session,
    cache: SaveCache,
    open: Open,
}

/// What became of the save whose first half was done last.
#[derive(Debug)]
enum Open {
    /// There is none that waits for its commit.
    Nothing,
    /// It waits for its commit.
    HandedIn(Box<Uncommitted>),
    /// It was given up.
    GivenUp(Step, String),
}

impl Repository {
    /// Carries on the session of the writer that gave `ticket` ([`Writer::ticket`]), in another process of the same job: without
    /// a fence, from the save on that the ticket names. The two may take turns; they must not save at the same time. What the
    /// other one left unfinished is aborted, and what it committed is [`Writer::latest`]. Closing this one leaves the session
    /// open.
    ///
    /// # Errors
    /// `Conflict` once the session was fenced or closed; `NotFound` for an unknown run; `InvalidArgument` for what is no ticket.
    pub fn adopt(&self, ticket: &str) -> Result<Writer, Error> {
        let ticket: Ticket = ticket.parse()?;
        let session = self.engine.wait(self.inner.adopt(&ticket))?;
        Ok(Writer::new(self.clone(), session))
    }
}

impl Writer {
    pub(crate) fn new(repository: Repository, session: Session) -> Self {
        Self { repository, session, cache: SaveCache::default(), open: Open::Nothing }
    }

    /// The newest checkpoint, as resolved at opening or committed since.
    pub fn latest(&self) -> Option<Checkpoint> {
        self.session.latest().map(|latest| Checkpoint::new(self.repository.clone(), latest.clone()))
    }

    /// Saves `state` as the checkpoint of `step` and returns once it is committed and durable.
    ///
    /// # Errors
    /// `Conflict` once another session has fenced this one; `OutcomeUnknown` when the store's answer to the commit cannot
    /// be trusted; `StorageFull`, `InvalidArgument` (gaps, overlaps, unequal replicas), `Unreachable`.
    pub fn save(&mut self, step: Step, state: &State<'_>, saved: Saved) -> Result<SaveReport, Error> {
        self.save_with(step, state, saved, &())
    }

    /// The id of this opening of the run.
    pub fn session(&self) -> SessionId {
        self.session.id()
    }

    /// What other processes need to take part in saves ([`Repository::member`]), as text to pass on. It stays good as long
    /// as this writer is open.
    pub fn ticket(&self) -> String {
        self.session.ticket().to_string()
    }

    /// As [`Writer::save`], together with the other ranks of `group`, each of which calls [`crate::Member::save`] with its own
    /// share. This one leads, and must be rank 0. All or nothing: the report is of the whole.
    ///
    /// # Errors
    /// `RankFailed` when ranks failed or handed nothing in within the deadline, naming them; those of [`Writer::save`].
    pub fn save_in(
        &mut self,
        step: Step,
        state: &State<'_>,
        saved: Saved,
        group: &Group,
    ) -> Result<SaveReport, Error> {
        self.save_in_with(step, state, saved, (group, &()))
    }

    /// [`Writer::save_in`], reporting the progress of this rank's own share.
    ///
    /// # Errors
    /// Those of [`Writer::save_in`].
    pub fn save_in_with(
        &mut self,
        step: Step,
        state: &State<'_>,
        saved: Saved,
        (group, progress): (&Group, &dyn Progress),
    ) -> Result<SaveReport, Error> {
        self.lead(state, self.options(step, saved, group.clone()), progress)
    }

    /// The first half of [`Writer::save_in`]: calls the other ranks and stores this one's share, without waiting for theirs.
    /// Nothing is saved before [`Writer::commit`]; until then the attempt is open, and whatever else is done with this writer
    /// that saves or ends it gives the attempt up.
    ///
    /// # Errors
    /// Those of [`Writer::save`]; the attempt was given up then.
    pub fn hand_in(&mut self, step: Step, state: &State<'_>, group: &Group) -> Result<HandedIn, Error> {
        self.hand_in_with(step, state, &[], (group, &()))
    }

    /// [`Writer::hand_in`], deduplicating against `also` beside the newest checkpoint, and reporting progress.
    ///
    /// # Errors
    /// Those of [`Writer::hand_in`].
    pub fn hand_in_with(
        &mut self,
        step: Step,
        state: &State<'_>,
        also: &[Checkpoint],
        (group, progress): (&Group, &dyn Progress),
    ) -> Result<HandedIn, Error> {
        self.end_open(&format!("a save of step {step} began before its commit"))?;
        let saved = Saved { metadata: Metadata::new(), also: also.to_vec() };
        let options = self.options(step, saved, group.clone());
        let occasion = (self.session.ticket().next, (step, group.clone()));
        let handed_in = self.watched(occasion, progress, async |session, tools| {
            everstep_save::hand_in(session, state, options, tools).await
        })?;
        let report = handed_in.report().clone();
        self.open = Open::HandedIn(Box::new(handed_in));
        Ok(report)
    }

    /// The second half: gathers the reports of all ranks, as they are to be found where `group` meets, and commits. It waits
    /// for those that are not there yet until the deadline of the group, from now on.
    ///
    /// # Errors
    /// Those of [`Writer::save_in`]; in any case the attempt has ended. `InvalidArgument` when nothing waits for its commit.
    pub fn commit(&mut self, metadata: Metadata, group: &Group) -> Result<SaveReport, Error> {
        let handed_in = match std::mem::replace(&mut self.open, Open::Nothing) {
            Open::HandedIn(handed_in) => *handed_in,
            other => {
                let error = Error::invalid(nothing_to_commit(&other));
                self.open = other;
                return Err(error);
            }
        };
        let step = handed_in.step();
        let occasion = (handed_in.save(), (step, group.clone()));
        let committed = self.watched(occasion, &(), async |session, tools| {
            handed_in.commit(session, metadata, (group, tools)).await
        });
        if let Err(error) = &committed {
            self.open = Open::GivenUp(step, error.to_string());
        }
        committed
    }

    /// Tells the other ranks of `group`, who are about to save `step`, that there will be no attempt, and `why`: for a leader
    /// that cannot take part itself. One that has handed its share in ends the attempt so.
    ///
    /// # Errors
    /// `InvalidArgument` for a group that another rank leads; `Unreachable`: they then wait until their deadline.
    pub fn give_up(&mut self, step: Step, why: &str, group: &Group) -> Result<(), Error> {
        let handed_in = matches!(&self.open, Open::HandedIn(handed_in) if handed_in.step() == step);
        self.end_open(why)?;
        if handed_in {
            return Ok(());
        }
        self.repository.engine.wait(everstep_save::call_off(&mut self.session, (step, group), why))
    }

    /// Gives up what waits for its commit.
    fn end_open(&mut self, why: &str) -> Result<(), Error> {
        let Open::HandedIn(handed_in) = std::mem::replace(&mut self.open, Open::Nothing) else {
            return Ok(());
        };
        self.open = Open::GivenUp(handed_in.step(), why.to_owned());
        let Self { repository, session, .. } = self;
        repository.engine.wait(async {
            handed_in.give_up(session, why).await;
            Ok::<(), Error>(())
        })
    }

    /// Lets the next save against `checkpoint` use its index as it is at hand there ([`Checkpoint::index_file`],
    /// [`Checkpoint::with_index_file`]) instead of reading it once more: after a restart, the one just restored.
    pub fn take_index(&self, checkpoint: &Checkpoint) {
        self.cache.take_index(checkpoint.index());
    }

    /// [`Writer::save`], reporting progress.
    ///
    /// # Errors
    /// Those of [`Writer::save`].
    pub fn save_with(
        &mut self,
        step: Step,
        state: &State<'_>,
        saved: Saved,
        progress: &dyn Progress,
    ) -> Result<SaveReport, Error> {
        self.lead(state, self.options(step, saved, Group::alone()), progress)
    }

    fn options(&self, step: Step, saved: Saved, group: Group) -> SaveOptions {
        let (parents, metadata) = (Self::parents(&saved.also), saved.metadata);
        let counts = Some(self.repository.engine.options.store.counts.clone());
        SaveOptions { step, parents, metadata, group, counts }
    }

    fn lead(
        &mut self,
        state: &State<'_>,
        options: SaveOptions,
        progress: &dyn Progress,
    ) -> Result<SaveReport, Error> {
        self.end_open(&format!("a save of step {} began before its commit", options.step))?;
        let occasion = (self.session.ticket().next, options.occasion());
        self.watched(occasion, progress, async |session, tools| {
            everstep_save::save(session, state, options, tools).await
        })
    }

    /// Drives `work` on the save of `occasion`, and lets go of what it leaves behind when it is interrupted.
    fn watched<T>(
        &mut self,
        (save, occasion): (SaveId, (Step, Group)),
        progress: &dyn Progress,
        work: impl AsyncFnOnce(&mut Session, &Tools<'_>) -> Result<T, SaveError>,
    ) -> Result<T, Error> {
        let engine = &self.repository.engine;
        let settings = &engine.options.save;
        let tools =
            Tools { pool: engine.cpu.pool(), settings, progress: &Watched(progress), cache: &self.cache };
        let done = engine.wait(work(&mut self.session, &tools));
        if done.as_ref().is_err_and(Error::is_interruption) {
            // What is still to be said is said in the background: the store may be why the call was interrupted.
            let _inside = engine.runtime.enter();
            everstep_save::let_go(&mut self.session, save, occasion);
        }
        done
    }

    fn parents(also: &[Checkpoint]) -> Parents {
        if also.is_empty() {
            return Parents::Latest;
        }
        Parents::Also(also.iter().map(Checkpoint::inner).cloned().collect())
    }

    /// Goes back to `target` deliberately: commits a copy of it as the newest checkpoint and returns that.
    ///
    /// # Errors
    /// `Expired` when `target` has expired meanwhile; otherwise those of [`Writer::save`].
    pub fn rollback(&mut self, target: &Checkpoint) -> Result<Checkpoint, Error> {
        self.end_open("the run was rolled back before its commit")?;
        let engine = &self.repository.engine;
        let outcome = engine.wait(self.session.rollback(target.inner()));
        if outcome.as_ref().is_err_and(Error::is_interruption) {
            let _inside = engine.runtime.enter();
            self.session.let_go("interrupted");
        }
        match outcome? {
            CommitOutcome::Committed(checkpoint) => Ok(Checkpoint::new(self.repository.clone(), checkpoint)),
            CommitOutcome::Conflict(error) => Err(error.into()),
            CommitOutcome::Unknown(cause) => Err(Error::unknown_outcome(self.session.run(), &cause)),
        }
    }

    /// Ends the session, so that the next job need not wait.
    ///
    /// # Errors
    /// `Unreachable`; the session is over all the same.
    pub fn close(mut self) -> Result<(), Error> {
        let given_up = self.end_open("the writer was closed before its commit");
        let closed = self.repository.engine.wait(self.session.close());
        given_up.and(closed)
    }
}

fn nothing_to_commit(open: &Open) -> String {
    match open {
        Open::GivenUp(step, why) => format!("the save of step {step} was given up ({why}): hand it in again"),
        _ => "nothing waits for its commit: hand a save in first".to_owned(),
    }
}
