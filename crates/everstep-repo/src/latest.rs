//! The reader's rule: the newest checkpoint of a run, found from the top down.

use std::collections::BTreeSet;

use everstep_format::feature::Operation;
use everstep_format::key::Key;
use everstep_format::name::{Ordinal, RunName};
use futures::future::join_all;

use crate::listing::Listing;
use crate::{Checkpoint, RepoError, Repository};

/// Decisions fetched at once when many aborted attempts lie on top.
const WIDEST_BATCH: usize = 16;

enum Round {
    Found(Checkpoint),
    Nothing,
    /// An expired attempt that was not expired in the round before: a newer COMMIT exists, so look again.
    Moved(Ordinal),
}

impl Repository {
    /// The newest checkpoint, starting from a LIST already made.
    pub(crate) async fn latest_from(
        &self,
        run: &RunName,
        mut listing: Listing,
    ) -> Result<Option<Checkpoint>, RepoError> {
        let mut seen_expired = BTreeSet::new();
        loop {
            match self.newest_in(run, &listing, &seen_expired).await? {
                Round::Found(checkpoint) => return Ok(Some(checkpoint)),
                Round::Nothing => return Ok(None),
                Round::Moved(ordinal) => {
                    seen_expired.extend(listing.expired);
                    seen_expired.insert(ordinal);
                    listing = self.listing(run).await?;
                }
            }
        }
    }

    async fn newest_in(
        &self,
        run: &RunName,
        listing: &Listing,
        seen_expired: &BTreeSet<Ordinal>,
    ) -> Result<Round, RepoError> {
        let mut descending: Vec<Ordinal> = listing.decisions.union(&listing.expired).copied().collect();
        descending.reverse();
        let mut rest = descending.as_slice();
        let mut width = 1;
        while !rest.is_empty() {
            let (batch, below) = rest.split_at(width.min(rest.len()));
            if let Some(round) = self.newest_of_batch(run, batch, (listing, seen_expired)).await? {
                return Ok(round);
            }
            rest = below;
            width = (width * 2).min(WIDEST_BATCH);
        }
        Ok(Round::Nothing)
    }

    /// Fetches a batch at once, but judges it in order: trouble below the answer is not trouble of the
    /// answer.
    async fn newest_of_batch(
        &self,
        run: &RunName,
        batch: &[Ordinal],
        (listing, seen_expired): (&Listing, &BTreeSet<Ordinal>),
    ) -> Result<Option<Round>, RepoError> {
        let live = batch.iter().filter(|ordinal| !listing.expired.contains(ordinal));
        let mut decisions =
            join_all(live.map(|&ordinal| self.decision(run, ordinal, Operation::Read))).await.into_iter();
        for &ordinal in batch {
            if listing.expired.contains(&ordinal) {
                if !seen_expired.contains(&ordinal) {
                    return Ok(Some(Round::Moved(ordinal)));
                }
                continue;
            }
            let Some(decided) = decisions.next().transpose()?.flatten() else {
                let because = "a listing showed it and decisions are never deleted".to_owned();
                return Err(RepoError::Missing { key: Key::decision(run, ordinal), because });
            };
            let Some(checkpoint) = decided.committed() else { continue };
            let expired = self.is_expired(run, ordinal).await?;
            return Ok(Some(if expired { Round::Moved(ordinal) } else { Round::Found(checkpoint) }));
        }
        Ok(None)
    }
}
