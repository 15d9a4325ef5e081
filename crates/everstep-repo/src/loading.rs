//! Loads the history of a run.

use everstep_format::feature::Operation;
use everstep_format::name::{Ordinal, RunName};
use futures::StreamExt;
use futures::stream;

use crate::history::History;
use crate::listing::Listing;
use crate::reading::Fate;
use crate::{RepoError, Repository};

/// Reads in flight.
const IN_FLIGHT: usize = 16;
/// Holes of a listing that are looked at again; more than that is damage, not a race.
const HOLES: usize = 1024;

/// How many intents are worth a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// All: for judging.
    Every,
    /// Only of attempts that are not checkpoints: for listing.
    Uncommitted,
    /// None: for choosing among checkpoints.
    None,
}

impl Repository {
    /// Everything the protocol objects of `run` say: one LIST, then every intent and decision. What cannot be
    /// read or understood is in [`History::unreadable`].
    ///
    /// # Errors
    /// [`RepoError::NotFound`] for an unknown run; [`RepoError::Store`].
    pub async fn history(&self, run: &RunName) -> Result<History, RepoError> {
        self.load(run, Wanted::Every).await
    }

    /// As [`Repository::history`], without the intents of checkpoints: half the requests.
    pub(crate) async fn outcomes(&self, run: &RunName) -> Result<History, RepoError> {
        self.load(run, Wanted::Uncommitted).await
    }

    /// The decisions alone.
    pub(crate) async fn decided(&self, run: &RunName) -> Result<History, RepoError> {
        self.load(run, Wanted::None).await
    }

    async fn load(&self, run: &RunName, wanted: Wanted) -> Result<History, RepoError> {
        let listing = self.listing_of_known(run).await?;
        let mut history = History::empty(run.clone());
        self.load_decisions(&mut history, &listing).await?;
        self.load_intents(&mut history, &listing, wanted).await?;
        history.expired = listing.expired;
        Ok(history)
    }

    /// A listing runs from decisions to intents, so an attempt may be decided while it runs: whatever seems
    /// undecided is asked for once more.
    async fn load_decisions(&self, history: &mut History, listing: &Listing) -> Result<(), RepoError> {
        let undecided = listing.intents.iter().rev().filter(|ordinal| !listing.decisions.contains(ordinal));
        let asked: Vec<Ordinal> = listing.decisions.iter().chain(undecided.take(HOLES)).copied().collect();
        let run = &history.run.clone();
        let read = |ordinal| async move { (ordinal, self.decision(run, ordinal, Operation::Read).await) };
        let mut answers = stream::iter(asked).map(read).buffer_unordered(IN_FLIGHT);
        while let Some((ordinal, answer)) = answers.next().await {
            if let Some(decided) = readable(history, ordinal, answer)? {
                history.decisions.insert(ordinal, decided);
            }
        }
        Ok(())
    }

    async fn load_intents(
        &self,
        history: &mut History,
        listing: &Listing,
        wanted: Wanted,
    ) -> Result<(), RepoError> {
        let is_commit = |ordinal: &Ordinal| {
            history.decisions.get(ordinal).is_some_and(|decided| matches!(decided.fate, Fate::Commit(_)))
        };
        let worth = |ordinal: &&Ordinal| match wanted {
            Wanted::Every => true,
            Wanted::Uncommitted => !is_commit(ordinal),
            Wanted::None => false,
        };
        let asked: Vec<Ordinal> =
            listing.intents.iter().chain(&holes(listing)).filter(worth).copied().collect();
        let run = &history.run.clone();
        let read = |ordinal| async move { (ordinal, self.intent(run, ordinal, Operation::Read).await) };
        let mut answers = stream::iter(asked).map(read).buffer_unordered(IN_FLIGHT);
        while let Some((ordinal, answer)) = answers.next().await {
            if let Some(intent) = readable(history, ordinal, answer)? {
                history.intents.insert(ordinal, intent);
            }
        }
        Ok(())
    }
}

/// Ordinals that a listing skipped. Pages of a listing are not one moment, so an intent written meanwhile can
/// be missed while a later one is shown.
fn holes(listing: &Listing) -> Vec<Ordinal> {
    let Some(last) = listing.intents.last() else { return Vec::new() };
    let candidates = (Ordinal::FIRST.0..last.0).map(Ordinal);
    // The listing is at most `intents` + HOLES ordinals long before the cap is reached, however large `last`
    // claims to be.
    candidates
        .take(listing.intents.len().saturating_add(HOLES))
        .filter(|ordinal| !listing.intents.contains(ordinal))
        .collect()
}

/// Damage is kept for the caller to report; a store that fails ends the loading.
fn readable<T>(
    history: &mut History,
    ordinal: Ordinal,
    answer: Result<Option<T>, RepoError>,
) -> Result<Option<T>, RepoError> {
    match answer {
        Err(error @ RepoError::Object { .. }) => {
            history.unreadable.push((ordinal, error));
            Ok(None)
        }
        other => other,
    }
}
