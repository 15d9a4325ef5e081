//! How far a call is, for any thread to read, and the handle by which it is stopped.

use std::sync::atomic::{AtomicU64, Ordering};

use everstep::Cancel;
use pyo3::prelude::*;

/// Counters that a running call moves; may be read from any thread. For one call: once that is cancelled, it stays so.
#[pyclass(frozen, module = "everstep._everstep")]
#[derive(Debug, Default)]
pub(crate) struct Progress {
    planned: AtomicU64,
    done: AtomicU64,
    cancel: Cancel,
    background: bool,
}

impl Progress {
    /// Whether nobody waits for the call.
    pub(crate) fn in_background(&self) -> bool {
        self.background
    }

    /// What stops the call.
    pub(crate) fn token(&self) -> &Cancel {
        &self.cancel
    }
}

/// What a call reports to.
pub(crate) fn watched(progress: Option<&Progress>) -> &dyn everstep::Progress {
    match progress {
        Some(progress) => progress,
        None => &(),
    }
}

#[pymethods]
impl Progress {
    #[new]
    #[pyo3(signature = (background = false))]
    fn new(background: bool) -> Self {
        Self { background, ..Self::default() }
    }

    /// Bytes to be done.
    #[getter]
    fn planned(&self) -> u64 {
        self.planned.load(Ordering::Relaxed)
    }

    /// Bytes done.
    #[getter]
    fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

impl everstep::Progress for Progress {
    fn planned(&self, bytes: u64) {
        self.planned.fetch_add(bytes, Ordering::Relaxed);
    }

    fn done(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Lets the call that has this progress end as soon as it can: nothing is committed, or it is unknown.
#[pyfunction]
pub(crate) fn cancel(progress: &Progress) {
    progress.cancel.cancel();
}
