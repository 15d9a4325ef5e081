//! Adaptive concurrency: slow start, then additive increase and multiplicative decrease when the store asks to slow
//! down. Waiting requests are served in their order.

use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use everstep_format::key::{Key, Prefix};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{Class, Create, Deleted, Object, Page, Payload, Span, Store, StoreError, StoreErrorKind};

/// How many requests may be in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitSettings {
    /// Never fewer; at least one.
    pub min: usize,
    /// At the beginning. The store's probe wants its 40 contenders in flight at once.
    pub start: usize,
    /// Never more.
    pub max: usize,
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self { min: 1, start: 64, max: 256 }
    }
}

impl LimitSettings {
    /// Sane: 1 <= min <= start <= max <= what a semaphore holds.
    fn ordered(self) -> Self {
        let min = self.min.clamp(1, Semaphore::MAX_PERMITS);
        let max = self.max.clamp(min, Semaphore::MAX_PERMITS);
        Self { min, start: self.start.clamp(min, max), max }
    }
}

/// Lets only so many requests through at once.
#[derive(Debug)]
pub struct Limit<S> {
    inner: S,
    gate: Gate,
}

impl<S: Store> Limit<S> {
    /// Limits `inner`.
    pub fn new(inner: S, settings: LimitSettings) -> Self {
        Self { inner, gate: Gate::new(settings.ordered()) }
    }

    /// Requests that may be in flight now.
    pub fn current(&self) -> usize {
        self.gate.lock().limit()
    }
}

/// The semaphore and what its size should be.
#[derive(Debug)]
struct Gate {
    permits: Semaphore,
    window: Mutex<Window>,
}

#[derive(Debug)]
struct Window {
    settings: LimitSettings,
    /// The wanted number of permits; grows by fractions.
    size: f64,
    /// Permits that exist, lent or free.
    issued: usize,
    /// Doubling per round until the store first objects.
    slow_start: bool,
    /// Decreases so far. Requests sent before the last one say nothing about the size after it.
    generation: u64,
}

/// One request's place.
struct Pass<'a> {
    gate: &'a Gate,
    permit: Option<SemaphorePermit<'a>>,
    /// The window's when the request was sent.
    generation: u64,
    /// Whether the window was half full or more then.
    busy: bool,
}

/// What an answer says about load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    Fine,
    TooMuch,
    /// A failure that has nothing to do with load.
    Silent,
}

impl Gate {
    fn new(settings: LimitSettings) -> Self {
        let start = settings.start;
        let size = f64::from(u32::try_from(start).unwrap_or(u32::MAX));
        let window = Window { settings, size, issued: start, slow_start: true, generation: 0 };
        Self { permits: Semaphore::new(start), window: Mutex::new(window) }
    }

    fn lock(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn enter(&self) -> Pass<'_> {
        let permit = self.permits.acquire().await.expect("the semaphore is never closed");
        let window = self.lock();
        let in_flight = window.issued.saturating_sub(self.permits.available_permits());
        let busy = in_flight.saturating_mul(2) >= window.limit();
        Pass { gate: self, permit: Some(permit), generation: window.generation, busy }
    }

    /// Adjusts the number of permits to the window, as far as free ones and the one just given back allow.
    fn resize(&self, window: &mut Window, permit: SemaphorePermit<'_>) {
        let limit = window.limit();
        if window.issued > limit {
            permit.forget();
            window.issued -= 1;
        } else {
            drop(permit);
        }
        window.issued -= self.permits.forget_permits(window.issued.saturating_sub(limit));
        let missing = limit.saturating_sub(window.issued);
        self.permits.add_permits(missing);
        window.issued += missing;
    }
}

impl Window {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to min..=max")]
    fn limit(&self) -> usize {
        (self.size as usize).clamp(self.settings.min, self.settings.max)
    }

    fn learn(&mut self, load: Load, pass_generation: u64, busy: bool) {
        match load {
            Load::TooMuch if pass_generation == self.generation => {
                self.size = (self.size / 2.0).max(1.0);
                self.slow_start = false;
                self.generation += 1;
            }
            // An idle window proves nothing, so it does not grow.
            Load::Fine if busy && self.limit() < self.settings.max => {
                self.size += if self.slow_start { 1.0 } else { 1.0 / self.size };
            }
            _ => {}
        }
    }
}

impl Pass<'_> {
    fn leave(mut self, load: Load) {
        self.give_back(load);
    }

    fn give_back(&mut self, load: Load) {
        let Some(permit) = self.permit.take() else { return };
        let mut window = self.gate.lock();
        window.learn(load, self.generation, self.busy);
        self.gate.resize(&mut window, permit);
    }
}

/// A request whose caller went away gives its place back too.
impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.give_back(Load::Silent);
    }
}

impl Load {
    fn of<T>(result: &Result<T, StoreError>) -> Self {
        result.as_ref().map_or_else(Self::of_error, |_| Self::Fine)
    }

    fn of_error(error: &StoreError) -> Self {
        match error.kind {
            StoreErrorKind::Throttled | StoreErrorKind::Server => Self::TooMuch,
            StoreErrorKind::NotFound => Self::Fine,
            _ => Self::Silent,
        }
    }
}

#[async_trait]
impl<S: Store> Store for Limit<S> {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    async fn get(&self, key: &Key, span: Span) -> Result<Object, StoreError> {
        let pass = self.gate.enter().await;
        let result = self.inner.get(key, span).await;
        pass.leave(Load::of(&result));
        result
    }

    async fn put(&self, key: &Key, body: Payload, class: Class) -> Result<(), StoreError> {
        let pass = self.gate.enter().await;
        let result = self.inner.put(key, body, class).await;
        pass.leave(Load::of(&result));
        result
    }

    async fn create(&self, key: &Key, body: Payload) -> Result<Create, StoreError> {
        let pass = self.gate.enter().await;
        let result = self.inner.create(key, body).await;
        pass.leave(match &result {
            Ok(Create::Unknown(error)) => Load::of_error(error),
            other => Load::of(other),
        });
        result
    }

    async fn list(&self, prefix: &Prefix, token: Option<String>) -> Result<Page, StoreError> {
        let pass = self.gate.enter().await;
        let result = self.inner.list(prefix, token).await;
        pass.leave(Load::of(&result));
        result
    }

    async fn delete(&self, keys: &[Key]) -> Result<Vec<Deleted>, StoreError> {
        let pass = self.gate.enter().await;
        let result = self.inner.delete(keys).await;
        let key_error = result.iter().flatten().find_map(|deleted| deleted.result.as_ref().err());
        pass.leave(key_error.map_or_else(|| Load::of(&result), Load::of_error));
        result
    }

    /// A sync is no request to the store's servers, and may take long: it has no place in the window.
    async fn sync(&self) -> Result<(), StoreError> {
        self.inner.sync().await
    }

    async fn free_space(&self) -> Result<Option<u64>, StoreError> {
        self.inner.free_space().await
    }
}

#[cfg(test)]
mod tests;
