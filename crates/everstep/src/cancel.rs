//! Stopping a blocking call from another thread.

use std::cell::RefCell;

use tokio::sync::watch;

thread_local! {
    static IN_SCOPE: RefCell<Option<Cancel>> = const { RefCell::new(None) };
}

/// Stops the calls made in its scope. Clones are one token; once cancelled, it stays so.
///
/// ```
/// let cancel = everstep::Cancel::new();
/// cancel.cancel();
/// let opened = cancel.scope(|| everstep::Repository::open("memory://scope", &Default::default()));
/// assert_eq!(opened.unwrap_err().kind(), everstep::ErrorKind::Interrupted);
/// ```
#[derive(Debug, Clone)]
pub struct Cancel(watch::Sender<bool>);

/// Puts back what was in scope before, even when the call panics.
struct Before(Option<Cancel>);

impl Drop for Before {
    fn drop(&mut self) {
        IN_SCOPE.set(self.0.take());
    }
}

impl Cancel {
    /// A token that nobody has cancelled.
    pub fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Ends every call in scope with `Interrupted` as soon as it waits for anything, and those to come.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    /// Runs `act`; every call of this crate that it makes on this thread obeys the token.
    pub fn scope<T>(&self, act: impl FnOnce() -> T) -> T {
        let _before = Before(IN_SCOPE.replace(Some(self.clone())));
        act()
    }

    /// The token whose scope this thread is in.
    pub(crate) fn in_scope() -> Option<Self> {
        IN_SCOPE.with_borrow(Clone::clone)
    }

    /// Returns once it is cancelled.
    pub(crate) async fn cancelled(&self) {
        // The sender lives as long as `self`, so the wait ends for no other reason.
        let _ = self.0.subscribe().wait_for(|cancelled| *cancelled).await;
    }
}

impl Default for Cancel {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
