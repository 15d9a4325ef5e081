//! One LIST of a run: which ordinals have an intent, a decision, an expired marker.

use std::collections::BTreeSet;

use everstep_format::key::{Prefix, StoredKind};
use everstep_format::name::{Ordinal, RunName};
use everstep_store::store::list_all;

use crate::{RepoError, Repository};

/// The ordinals that one LIST of a run showed. Strays in the run's prefix are left out and left alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    pub(crate) intents: BTreeSet<Ordinal>,
    pub(crate) decisions: BTreeSet<Ordinal>,
    pub(crate) expired: BTreeSet<Ordinal>,
}

impl Listing {
    pub(crate) fn is_empty(&self) -> bool {
        self.intents.is_empty() && self.decisions.is_empty() && self.expired.is_empty()
    }

    /// Ordinals below `fence` that were claimed but not decided, ascending.
    pub(crate) fn undecided_below(&self, fence: Ordinal) -> Vec<Ordinal> {
        self.intents.range(..fence).filter(|ordinal| !self.decisions.contains(ordinal)).copied().collect()
    }
}

impl Repository {
    pub(crate) async fn listing(&self, run: &RunName) -> Result<Listing, RepoError> {
        let mut listing = Listing::default();
        for object in list_all(self.store().as_ref(), &Prefix::run(run)).await? {
            match object.key.kind() {
                Some(StoredKind::Intent(_, ordinal)) => listing.intents.insert(ordinal),
                Some(StoredKind::Decision(_, ordinal)) => listing.decisions.insert(ordinal),
                Some(StoredKind::Expired(_, ordinal)) => listing.expired.insert(ordinal),
                _ => false,
            };
        }
        Ok(listing)
    }

    /// As [`Repository::listing`], for a run that must be there.
    pub(crate) async fn listing_of_known(&self, run: &RunName) -> Result<Listing, RepoError> {
        let listing = self.listing(run).await?;
        if listing.is_empty() {
            return Err(RepoError::NotFound(format!("run {run} in {}", self.store().describe())));
        }
        Ok(listing)
    }
}
