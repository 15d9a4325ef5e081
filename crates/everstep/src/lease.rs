//! Keeping the data of one checkpoint while a long reader works.

use std::time::Duration;

use everstep_repo::{Lease as Inner, LeaseOptions};

use crate::{AttemptId, Checkpoint, Error, Repository};

/// Keeps the data of a checkpoint, even when that expires. End it with [`Lease::end`]; one that is only dropped falls
/// silent and counts until its time to live has passed.
#[derive(Debug)]
#[must_use = "a lease that is dropped falls silent"]
pub struct Lease {
    repository: Repository,
    inner: Inner,
}

impl Checkpoint {
    /// Takes a lease: until it ends, this checkpoint can be read, even when it expires. It counts for `ttl` (whole
    /// seconds, from a minute to 30 days) after its last sign of life; one is given every quarter of that in the
    /// background. Needs permission to create objects below `leases/` and `alive/`, and none to delete.
    ///
    /// # Errors
    /// `Expired` when the checkpoint has expired already; `InvalidArgument` for `ttl`; `Unreachable`, `PermissionDenied`.
    pub fn lease(&self, ttl: Duration) -> Result<Lease, Error> {
        let options = LeaseOptions { ttl, holder: None };
        let taken = self.repository().inner.lease(self.inner(), options);
        let inner = self.repository().engine.wait(taken)?;
        Ok(Lease { repository: self.repository().clone(), inner })
    }
}

impl Lease {
    /// Its id, as in its key.
    pub fn id(&self) -> AttemptId {
        self.inner.id()
    }

    /// Ends it.
    ///
    /// # Errors
    /// `Unreachable`; it then ends by falling silent.
    pub fn end(self) -> Result<(), Error> {
        self.repository.engine.wait(self.inner.end())
    }
}
