//! Objects belong to the process that made them: threads and connections do not live on in a fork.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// Something with threads behind it.
pub(crate) struct Home<T: Send> {
    inner: Option<T>,
    process: u32,
}

impl<T: Send> Home<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner: Some(inner), process: std::process::id() }
    }

    /// The process that made it.
    pub(crate) fn process(&self) -> u32 {
        self.process
    }

    /// RuntimeError in any other process.
    pub(crate) fn get(&self) -> PyResult<&T> {
        let own = self.process == std::process::id();
        let forked = || PyRuntimeError::new_err("opened before a fork: open it again in this process");
        self.inner.as_ref().filter(|_| own).ok_or_else(forked)
    }
}

impl<T: Send> Drop for Home<T> {
    /// Without the GIL, which threads that are waited for may want; and without waiting for threads that another process
    /// has, or that will never get the GIL because the interpreter is ending.
    fn drop(&mut self) {
        if self.process == std::process::id() {
            Python::try_attach(|py| py.detach(|| drop(self.inner.take())));
        }
        std::mem::forget(self.inner.take());
    }
}
