//! Tries again what may help: full-jitter exponential back-off, within a number of tries and a time budget. One try is
//! never cut short here; a backend's idle time-out ends a try that stands still.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everstep_format::key::{Key, Prefix};

use crate::meter::Counts;
use crate::{Class, Create, Deleted, Object, Page, Payload, Span, Store, StoreError, World};

/// When to try again and when to give up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Tries, the first included; at least one is made.
    pub attempts: u32,
    /// No try starts later than this after the first one.
    pub budget: Duration,
    /// Upper end of the first wait; doubles with every try. The wait is random between nothing and this.
    pub first_wait: Duration,
    /// No wait is longer.
    pub longest_wait: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 10,
            budget: Duration::from_secs(180),
            first_wait: Duration::from_millis(100),
            longest_wait: Duration::from_secs(15),
        }
    }
}

impl RetryPolicy {
    /// The longest possible wait after `tries` failed tries.
    fn ceiling(&self, tries: u32) -> Duration {
        let doublings = tries.saturating_sub(1).min(31);
        self.first_wait.saturating_mul(1 << doublings).min(self.longest_wait)
    }
}

/// Tries again on failures that may pass.
#[derive(Debug)]
pub struct Retry<S> {
    inner: S,
    policy: RetryPolicy,
    world: Arc<dyn World>,
    counts: Arc<Counts>,
}

impl<S: Store> Retry<S> {
    /// Retries `inner` by `policy`; waits and jitter come from `world`, tries beyond the first go into `counts`.
    pub fn new(inner: S, policy: RetryPolicy, world: Arc<dyn World>, counts: Arc<Counts>) -> Self {
        Self { inner, policy, world, counts }
    }

    fn begin(&self) -> Tries<'_> {
        Tries {
            policy: &self.policy,
            world: &self.world,
            counts: &self.counts,
            started: self.world.elapsed(),
            made: 1,
        }
    }
}

/// The tries of one operation.
struct Tries<'a> {
    policy: &'a RetryPolicy,
    world: &'a Arc<dyn World>,
    counts: &'a Counts,
    started: Duration,
    made: u32,
}

impl Tries<'_> {
    fn elapsed(&self) -> Duration {
        self.world.elapsed().saturating_sub(self.started)
    }

    /// Waits and returns true when another try is due after `error`.
    async fn again_after(&mut self, error: &StoreError) -> bool {
        if !error.is_transient() || self.made >= self.policy.attempts {
            return false;
        }
        let wait = self.policy.ceiling(self.made).mul_f64(self.world.random_fraction());
        if self.elapsed() + wait > self.policy.budget {
            return false;
        }
        tracing::debug!(%error, tries = self.made, ?wait, "trying again");
        self.world.sleep(wait).await;
        self.made += 1;
        self.counts.retried();
        true
    }

    /// `error` as the final answer.
    fn give_up(&self, error: StoreError) -> StoreError {
        StoreError {
            attempts: self.made.max(error.attempts),
            elapsed: self.elapsed().max(error.elapsed),
            ..error
        }
    }
}

#[async_trait]
impl<S: Store> Store for Retry<S> {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    async fn get(&self, key: &Key, span: Span) -> Result<Object, StoreError> {
        let mut tries = self.begin();
        loop {
            match self.inner.get(key, span).await {
                Err(error) if tries.again_after(&error).await => {}
                other => return other.map_err(|error| tries.give_up(error)),
            }
        }
    }

    async fn put(&self, key: &Key, body: Payload, class: Class) -> Result<(), StoreError> {
        let mut tries = self.begin();
        loop {
            match self.inner.put(key, body.clone(), class).await {
                Err(error) if tries.again_after(&error).await => {}
                other => return other.map_err(|error| tries.give_up(error)),
            }
        }
    }

    async fn create(&self, key: &Key, body: Payload) -> Result<Create, StoreError> {
        let mut tries = self.begin();
        // Once a try may have stored the object, no later failure can say that the store surely did nothing.
        let mut ambiguous = false;
        loop {
            let error = match self.inner.create(key, body.clone()).await {
                Ok(Create::Unknown(error)) => {
                    ambiguous = true;
                    error
                }
                Err(error) => error,
                answer => return answer,
            };
            if !tries.again_after(&error).await {
                let error = tries.give_up(error);
                return if ambiguous { Ok(Create::Unknown(error)) } else { Err(error) };
            }
        }
    }

    async fn list(&self, prefix: &Prefix, token: Option<String>) -> Result<Page, StoreError> {
        let mut tries = self.begin();
        loop {
            match self.inner.list(prefix, token.clone()).await {
                Err(error) if tries.again_after(&error).await => {}
                other => return other.map_err(|error| tries.give_up(error)),
            }
        }
    }

    async fn delete(&self, keys: &[Key]) -> Result<Vec<Deleted>, StoreError> {
        let mut tries = self.begin();
        let mut batch = Batch::new(keys);
        loop {
            let error = match self.inner.delete(&batch.open_keys()).await {
                Ok(results) => batch.settle(results),
                Err(error) => Some(error),
            };
            let Some(error) = error else { return Ok(batch.finish(&tries)) };
            if !tries.again_after(&error).await {
                return batch.give_up(error, &tries);
            }
        }
    }

    /// Not retried: what could not be made durable must be written again.
    async fn sync(&self) -> Result<(), StoreError> {
        self.inner.sync().await
    }

    async fn free_space(&self) -> Result<Option<u64>, StoreError> {
        self.inner.free_space().await
    }
}

/// A batch delete whose failed keys alone are tried again.
struct Batch<'a> {
    keys: &'a [Key],
    /// The last result of each key; a key without one has not been answered for.
    results: Vec<Option<Result<(), StoreError>>>,
}

impl<'a> Batch<'a> {
    fn new(keys: &'a [Key]) -> Self {
        Self { keys, results: keys.iter().map(|_| None).collect() }
    }

    fn open(&self) -> impl Iterator<Item = usize> {
        let open = |result: &Option<Result<(), StoreError>>| match result {
            None => true,
            Some(Ok(())) => false,
            Some(Err(error)) => error.is_transient(),
        };
        self.results.iter().enumerate().filter(move |(_, result)| open(result)).map(|(at, _)| at)
    }

    fn open_keys(&self) -> Vec<Key> {
        self.open().map(|at| self.keys[at].clone()).collect()
    }

    /// Takes in the answers for the open keys, which come in their order; returns a failure that may pass, if any.
    fn settle(&mut self, answers: Vec<Deleted>) -> Option<StoreError> {
        let open: Vec<usize> = self.open().collect();
        for (at, answer) in open.into_iter().zip(answers) {
            self.results[at] = Some(answer.result);
        }
        let first_open = self.open().next()?;
        match &self.results[first_open] {
            Some(Err(error)) => Some(error.clone()),
            _ => Some(unanswered(&self.keys[first_open])),
        }
    }

    /// The whole call fails only when no key was ever answered for.
    fn give_up(self, error: StoreError, tries: &Tries<'_>) -> Result<Vec<Deleted>, StoreError> {
        if self.results.iter().all(Option::is_none) {
            return Err(tries.give_up(error));
        }
        Ok(self.finish(tries))
    }

    fn finish(self, tries: &Tries<'_>) -> Vec<Deleted> {
        let result = |key: &Key, result: Option<Result<(), StoreError>>| {
            result.unwrap_or_else(|| Err(unanswered(key))).map_err(|error| tries.give_up(error))
        };
        let pairs = self.keys.iter().zip(self.results);
        pairs.map(|(key, last)| Deleted { key: key.clone(), result: result(key, last) }).collect()
    }
}

fn unanswered(key: &Key) -> StoreError {
    StoreError::new(crate::StoreErrorKind::Server, "delete", key, "the store did not answer for this key")
}

#[cfg(test)]
mod tests;
