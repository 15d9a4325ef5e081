//! Following a run: waiting for a checkpoint that is newer than one already known. Needs Get and List alone.
//!
//! Ordinals are dense, so a follower walks: one GET asks whether the next ordinal has been claimed, one more for each
//! attempt that is being saved asks for its decision. A LIST is made only to begin without a checkpoint to start from,
//! when the follower is far behind, and before it says that there was nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use everstep_format::feature::Operation;
use everstep_format::intent::IntentKind;
use everstep_format::name::{Ordinal, RunName};

use crate::{Checkpoint, RepoError, Repository};

/// Shortest and longest wait between two looks; doubled after each.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));
/// Ordinals walked in one look before a LIST is cheaper.
const STRIDE: usize = 32;

/// What a follower knows of a run.
struct Follower<'r> {
    repository: &'r Repository,
    run: &'r RunName,
    /// Only ordinals above this one count.
    after: Option<Ordinal>,
    /// The first ordinal that was not claimed when it was looked at.
    end: Ordinal,
    /// Claimed ordinals that are or may become a checkpoint.
    open: BTreeSet<Ordinal>,
}

/// What a look at the open ordinals showed.
enum Seen {
    News(Checkpoint),
    /// A checkpoint had expired: a newer one exists, so look again at once.
    Moved,
    Nothing,
}

impl Repository {
    /// The newest checkpoint of `run`, once it is above `after`; `None` when `timeout` is over first. Each look takes one
    /// GET, and one for each attempt that is being saved.
    ///
    /// # Errors
    /// [`RepoError::NotFound`] when time is over and there is no such run; [`RepoError::Object`], [`RepoError::Store`].
    pub async fn wait(
        &self,
        run: &RunName,
        after: Option<Ordinal>,
        timeout: Duration,
    ) -> Result<Option<Checkpoint>, RepoError> {
        let deadline = self.world().elapsed().saturating_add(timeout);
        let end = after.map_or(Ordinal::FIRST, Ordinal::next);
        let mut follower = Follower { repository: self, run, after, end, open: BTreeSet::new() };
        if after.is_none() {
            follower.jump().await?;
        }
        let (mut wait, longest) = LOOK_AGAIN;
        loop {
            if let Some(checkpoint) = follower.look().await? {
                return Ok(Some(checkpoint));
            }
            let left = deadline.saturating_sub(self.world().elapsed());
            if left.is_zero() {
                return follower.give_up().await;
            }
            let fraction = 0.5 + 0.5 * self.world().random_fraction();
            self.world().sleep(wait.mul_f64(fraction).min(left)).await;
            wait = (wait * 2).min(longest);
        }
    }
}

impl Follower<'_> {
    async fn look(&mut self) -> Result<Option<Checkpoint>, RepoError> {
        loop {
            self.walk().await?;
            match self.newest().await? {
                Seen::News(checkpoint) => return Ok(Some(checkpoint)),
                Seen::Moved => {}
                Seen::Nothing => return Ok(None),
            }
        }
    }

    /// Before it is said that nothing came: a LIST sees past an intent that was lost, and tells whether the run exists.
    async fn give_up(&mut self) -> Result<Option<Checkpoint>, RepoError> {
        let listing = self.repository.listing_of_known(self.run).await?;
        let latest = self.repository.latest_from(self.run, listing).await?;
        Ok(latest.filter(|latest| Some(latest.manifest.ordinal) > self.after))
    }

    /// Takes in what was claimed since the last look.
    async fn walk(&mut self) -> Result<(), RepoError> {
        for _ in 0..STRIDE {
            let Some(intent) = self.repository.intent(self.run, self.end, Operation::Read).await? else {
                return Ok(());
            };
            if intent.kind == IntentKind::Save {
                self.open.insert(self.end);
            }
            self.end = self.end.next();
        }
        self.jump().await
    }

    /// Takes in what one LIST shows.
    async fn jump(&mut self) -> Result<(), RepoError> {
        let listing = self.repository.listing(self.run).await?;
        let claimed = listing.intents.union(&listing.decisions);
        let live =
            claimed.filter(|&&ordinal| Some(ordinal) > self.after && !listing.expired.contains(&ordinal));
        self.open.extend(live);
        self.open.retain(|ordinal| !listing.expired.contains(ordinal));
        self.end = self.end.max(listing.intents.last().map_or(Ordinal::FIRST, |last| last.next()));
        Ok(())
    }

    /// Looks at the open ordinals from the highest downwards.
    async fn newest(&mut self) -> Result<Seen, RepoError> {
        let descending: Vec<Ordinal> = self.open.iter().rev().copied().collect();
        for ordinal in descending {
            let Some(decided) = self.repository.decision(self.run, ordinal, Operation::Read).await? else {
                continue;
            };
            let Some(checkpoint) = decided.committed() else {
                self.open.remove(&ordinal);
                continue;
            };
            if !self.repository.is_expired(self.run, ordinal).await? {
                return Ok(Seen::News(checkpoint));
            }
            self.open.remove(&ordinal);
            return Ok(Seen::Moved);
        }
        Ok(Seen::Nothing)
    }
}
