//! Retention and garbage collection, over [`crate::gc`].

use std::sync::mpsc::{Receiver, channel};

use crate::gc::{Collected, Collector, Orders, Plan, Policy, Progress, Settings, Status};
use crate::{Error, Ordinal, Repository, Run};

impl Repository {
    /// What a collection by `policy` would do: why each checkpoint stays or goes, and what that frees. Nothing is changed.
    ///
    /// # Errors
    /// `Corrupt`, `UnsupportedVersion` naming what cannot be read or understood; `Unreachable`, `PermissionDenied`;
    /// `Conflict` when others collect all the time.
    pub fn plan_retention(
        &self,
        policy: &Policy,
        settings: Settings,
        progress: &dyn Progress,
    ) -> Result<Plan, Error> {
        let mut collector = Collector::new(self.inner.clone(), settings);
        self.engine.wait(collector.plan(policy, progress))
    }

    /// Expires what `orders` say, ends attempts and leases that show no sign of life, and removes what nothing can use any
    /// more. Any number of processes may do this at once, beside any number that save and restore. Deletes that fail are in
    /// the answer.
    ///
    /// # Errors
    /// As [`Repository::plan_retention`]; nothing was deleted then. `InvalidArgument` for a plan of another repository.
    pub fn collect(
        &self,
        orders: Orders<'_>,
        settings: Settings,
        progress: &dyn Progress,
    ) -> Result<Collected, Error> {
        let mut collector = Collector::new(self.inner.clone(), settings);
        self.engine.wait(collector.collect(orders, progress))
    }

    /// As [`Repository::collect`] by `policy`, in the background, for a trainer: whatever becomes of it is in the log and in
    /// the answer, and training never waits for it.
    pub fn retain(&self, policy: Policy, settings: Settings) -> Retention {
        let mut collector = Collector::new(self.inner.clone(), settings);
        let (tell, told) = channel();
        let task = async move {
            let outcome = collector.collect(Orders::Policy(&policy), &()).await;
            match &outcome {
                Ok(done) => {
                    let freed = done.freed();
                    tracing::debug!(objects = freed.objects, bytes = freed.bytes, "retention has passed");
                }
                Err(error) => tracing::warn!(%error, "retention stopped; the next one goes on"),
            }
            // Nobody need listen.
            drop(tell.send(outcome.map_err(Error::from)));
        };
        let _runtime = self.engine.runtime.enter();
        self.inner.world().spawn(Box::pin(task));
        Retention(told)
    }

    /// How much there is, and how much waits to be collected. Nothing is changed.
    ///
    /// # Errors
    /// As [`Repository::plan_retention`].
    pub fn collection_status(&self, settings: Settings) -> Result<Status, Error> {
        let mut collector = Collector::new(self.inner.clone(), settings);
        self.engine.wait(collector.status())
    }
}

impl Run {
    /// What expires, whenever it is told to, what `policy` does not keep of this run.
    ///
    /// # Errors
    /// `InvalidArgument` when no table of `policy` is for this run.
    pub fn expirer(&self, policy: Policy, settings: Settings) -> Result<Expirer, Error> {
        if policy.table_of(&self.name).is_none() {
            let run = &self.name;
            return Err(Error::invalid(format!(
                "no table of the policy is for run {run}: `runs` matches others"
            )));
        }
        let collector = Collector::new(self.repository.inner.clone(), settings);
        Ok(Expirer { run: self.clone(), policy, collector })
    }
}

/// Expires what a policy does not keep of one run. It aborts and deletes nothing: what is no longer used goes with the next
/// collection. Reads only what is new since the time before.
#[derive(Debug)]
pub struct Expirer {
    run: Run,
    policy: Policy,
    collector: Collector,
}

impl Expirer {
    /// Expires what is to be expired by now, and says what.
    ///
    /// # Errors
    /// As [`Repository::plan_retention`].
    pub fn expire(&mut self) -> Result<Vec<Ordinal>, Error> {
        let Self { run, policy, collector } = self;
        run.repository.engine.wait(collector.expire(policy, &run.name))
    }
}

/// A collection in the background. Dropping it does not end that.
#[derive(Debug)]
pub struct Retention(Receiver<Result<Collected, Error>>);

impl Retention {
    /// Waits for its end; `None` when it was cut short because the repository was closed.
    pub fn wait(self) -> Option<Result<Collected, Error>> {
        self.0.recv().ok()
    }
}
