//! Checkpoints kept by name, and attempts whose outcome somebody asks for.

use everstep_format::name::{Ordinal, PinName, RunName};
use everstep_repo::{AttemptState, Pinned, Pins, RepoError};
use futures::TryFutureExt;

use crate::{Checkpoint, Error, Repository};

impl Repository {
    /// Keeps `checkpoint` under `name` (by the rule of run names), whatever becomes of it in its own run: the reference
    /// `pin:NAME` finds it, restores it and serves as a parent. Pinning the same checkpoint by the same name again gives
    /// the pin that is there. Nothing but an index is stored.
    ///
    /// # Errors
    /// `Conflict` when the name is taken; `Expired` when the checkpoint has expired; `OutcomeUnknown` when the store's
    /// answer to the commit cannot be trusted; `InvalidArgument` for the name.
    pub fn pin(&self, name: &str, checkpoint: &Checkpoint) -> Result<Pinned, Error> {
        let name = PinName::new(name)?;
        self.engine.wait(self.inner.pin(&name, checkpoint.inner()))
    }

    /// Gives a pin up: what only it keeps goes with the next garbage collection. The answer is what it was.
    ///
    /// # Errors
    /// `NotFound`; `Unreachable`, `PermissionDenied`.
    pub fn unpin(&self, name: &str, reason: &str) -> Result<Pinned, Error> {
        let name = PinName::new(name)?;
        self.engine.wait(self.inner.unpin(&name, reason))
    }

    /// The pin called `name`.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt`, `Unreachable`.
    pub fn pinned(&self, name: &str) -> Result<Pinned, Error> {
        let name = PinName::new(name)?;
        self.engine.wait(self.inner.pinned(&name))
    }

    /// The pins that count, and what cannot be read among them: damage, and what a newer version wrote.
    ///
    /// # Errors
    /// `Unreachable`, `PermissionDenied`.
    pub fn pins(&self) -> Result<Pins, Error> {
        self.engine.wait(self.inner.pins())
    }

    /// What became of one attempt, such as one whose commit had an unknown outcome.
    ///
    /// # Errors
    /// `NotFound` when nobody claimed the ordinal; `OutcomeUnknown` while the store does not let it be read.
    pub fn attempt(&self, run: &RunName, ordinal: Ordinal) -> Result<AttemptState, Error> {
        let asked = self.inner.attempt(run, ordinal);
        self.engine.wait(asked.map_err(|error| unreadable((run, ordinal), error)))
    }

    /// Decides an undecided attempt as ABORT: it never becomes a checkpoint, and a save that still runs for it fails with a
    /// conflict. What is decided already stays; the answer says what stands there now.
    ///
    /// # Errors
    /// Those of [`Repository::attempt`].
    pub fn abort_undecided(&self, run: &RunName, ordinal: Ordinal, why: &str) -> Result<AttemptState, Error> {
        let settled = self.inner.abort_undecided(run, ordinal, why);
        self.engine.wait(settled.map_err(|error| unreadable((run, ordinal), error)))
    }
}

/// A store that cannot be read leaves the outcome unknown, whatever its reason.
fn unreadable((run, ordinal): (&RunName, Ordinal), error: RepoError) -> Error {
    match error {
        RepoError::Store(cause) => RepoError::Unknown { run: run.clone(), ordinal, cause }.into(),
        other => other.into(),
    }
}
