//! Pins: checkpoints by reference, kept under a name. A pin is an ordinary attempt in the reserved run `_pins` whose only
//! parent is the pinned checkpoint and whose COMMIT carries a copy of its index; unpinning expires it. So every rule that
//! protects checkpoints protects pins, and nothing else needs to know them.

use std::collections::BTreeMap;
use std::time::Duration;

use everstep_format::decision::Pin;
use everstep_format::intent::ParentRef;
use everstep_format::name::{PinName, RunName};

use crate::commit::Purpose;
use crate::resolving::ROUNDS;
use crate::{Checkpoint, CommitOutcome, OpenOptions, RepoError, Repository, Session, Takeover};

/// Openings of the run of pins that may be lost to others before giving up.
const TRIES: u32 = 24;
/// Longest wait before the second try; doubled after each.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// Longest wait between two tries.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// How long another operator's pinning is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Silence after which it counts as dead: it takes a few requests.
const DEAD_AFTER: Duration = Duration::from_secs(10);

/// A pin that counts.
#[derive(Debug, Clone)]
pub struct Pinned {
    /// Its name.
    pub name: PinName,
    /// The checkpoint that was pinned; it may have expired since.
    pub of: ParentRef,
    /// The pin itself: a whole checkpoint.
    pub checkpoint: Checkpoint,
}

/// The pins of a repository.
#[derive(Debug, Clone, Default)]
pub struct Pins {
    /// Those that count, in name order.
    pub pins: Vec<Pinned>,
    /// Decisions in the run of pins that cannot be read, or that a newer version wrote: any of them may be a pin, but
    /// none has the name of one that can be read.
    pub unreadable: Vec<RepoError>,
}

impl Pinned {
    fn of_checkpoint(checkpoint: Checkpoint) -> Option<Self> {
        let Pin { name, of } = checkpoint.manifest.pin.clone()?;
        Some(Self { name, of, checkpoint })
    }
}

impl Pins {
    fn named(&self, name: &PinName) -> Option<&Pinned> {
        self.pins.iter().find(|pinned| pinned.name == *name)
    }

    fn no_such(&self, name: &PinName) -> RepoError {
        match self.unreadable.first() {
            // It may be the one.
            Some(error) => error.clone(),
            None => RepoError::NotFound(format!("pin {name} (`ckpt-inspect pins` lists them)")),
        }
    }
}

impl Repository {
    /// The pins that count: one LIST and one GET for each pin ever made, as far as this handle has not read it.
    ///
    /// # Errors
    /// [`RepoError::Store`]. Damage, and what a newer version wrote, is in the answer.
    pub async fn pins(&self) -> Result<Pins, RepoError> {
        let history = match self.decided(&RunName::pins()).await {
            Err(RepoError::NotFound(_)) => return Ok(Pins::default()),
            other => other?,
        };
        let live = history.unreadable.iter().filter(|(ordinal, _)| !history.expired.contains(ordinal));
        let unreadable: Vec<RepoError> = live.map(|(_, error)| error.clone()).collect();
        // Ascending, so that of one name the newest stays.
        let pins = history.checkpoints().filter_map(Pinned::of_checkpoint);
        let named: BTreeMap<PinName, Pinned> = pins.map(|pinned| (pinned.name.clone(), pinned)).collect();
        Ok(Pins { pins: named.into_values().collect(), unreadable })
    }

    /// The pin called `name`. Its marker is read from the store now.
    ///
    /// # Errors
    /// [`RepoError::NotFound`]; those of [`Repository::pins`].
    pub async fn pinned(&self, name: &PinName) -> Result<Pinned, RepoError> {
        for _ in 0..ROUNDS {
            let pins = self.pins().await?;
            let Some(pinned) = pins.named(name) else { return Err(pins.no_such(name)) };
            let manifest = &pinned.checkpoint.manifest;
            if !self.is_expired(&manifest.run, manifest.ordinal).await? {
                return Ok(pinned.clone());
            }
        }
        Err(RepoError::NotFound(format!("pin {name} (it is being moved again and again)")))
    }

    /// Keeps `target` under `name`, whatever becomes of `target` itself. Pinning the same checkpoint by the same name again
    /// gives the pin that is there. Others who pin at the same time are waited for.
    ///
    /// # Errors
    /// [`RepoError::Refused`] when the name is taken; [`RepoError::Expired`] when `target` has expired;
    /// [`RepoError::Unknown`] when the store's answer to the commit cannot be trusted.
    pub async fn pin(&self, name: &PinName, target: &Checkpoint) -> Result<Pinned, RepoError> {
        let mut wait = FIRST_WAIT;
        let mut lost = None;
        for _ in 0..TRIES {
            match self.try_pin(name, target).await {
                Err(error @ RepoError::Conflict { .. }) => lost = Some(error),
                other => return other,
            }
            self.world().sleep(wait.mul_f64(self.world().random_fraction())).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        let last = lost.map(|error| format!(" (the last: {error})")).unwrap_or_default();
        let why = format!("{TRIES} others pinned or unpinned first{last}; try again later");
        Err(RepoError::Conflict { run: RunName::pins(), why })
    }

    /// One opening of the run of pins. [`RepoError::Conflict`] when somebody else opened it meanwhile: nothing was pinned.
    async fn try_pin(&self, name: &PinName, target: &Checkpoint) -> Result<Pinned, RepoError> {
        let takeover = Takeover::Wait(PATIENCE);
        let options = OpenOptions { job: None, takeover, takeover_after: DEAD_AFTER };
        let mut session = self.open_session(&RunName::pins(), options).await?;
        let pinned = pin_within(&mut session, name, target).await;
        if let Err(error) = session.close().await {
            tracing::debug!(%error, "a session of the run of pins was not closed; it falls silent");
        }
        pinned
    }

    /// Gives the name of a pin up: its marker is put, and what only it uses goes with the next garbage collection.
    ///
    /// # Errors
    /// [`RepoError::NotFound`]; those of [`Repository::pins`].
    pub async fn unpin(&self, name: &PinName, reason: &str) -> Result<Pinned, RepoError> {
        let pins = self.pins().await?;
        let Some(pinned) = pins.named(name) else { return Err(pins.no_such(name)) };
        let manifest = &pinned.checkpoint.manifest;
        self.expire(&manifest.run, manifest.ordinal, reason).await?;
        Ok(pinned.clone())
    }
}

/// Within a session nobody else pins: whoever tries fences it, and its commit fails. So the name is free if it is free now.
async fn pin_within(session: &mut Session, name: &PinName, target: &Checkpoint) -> Result<Pinned, RepoError> {
    let origin = target.manifest.pin.as_ref().map_or_else(|| target.as_parent(), |pin| pin.of.clone());
    let pins = session.repository().pins().await?;
    match pins.named(name) {
        Some(there) if there.of == origin => return Ok(there.clone()),
        Some(there) => return Err(taken(there)),
        None => {}
    }
    if let Some(error) = pins.unreadable.first() {
        return Err(error.clone());
    }
    let pin = Pin { name: name.clone(), of: origin.clone() };
    match session.copy_of(target, Purpose::Pin(pin)).await? {
        CommitOutcome::Committed(checkpoint) => Ok(Pinned { name: name.clone(), of: origin, checkpoint }),
        CommitOutcome::Conflict(error) => Err(error),
        CommitOutcome::Unknown(cause) => {
            Err(RepoError::Unknown { run: RunName::pins(), ordinal: session.seen, cause })
        }
    }
}

fn taken(there: &Pinned) -> RepoError {
    let Pinned { name, of: ParentRef { run, ordinal, .. }, .. } = there;
    RepoError::Refused(format!(
        "the pin {name} is taken: it names {run}@ordinal={ordinal}. Choose another name, or give it up first with \
         `ckpt-inspect unpin`"
    ))
}
