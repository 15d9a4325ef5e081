//! How every call works: on a thread of its own and without the GIL, while the calling thread looks for signals; a panic
//! becomes an exception.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use everstep::Cancel;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::error;
use crate::progress::Progress;

/// How often a call looks whether somebody pressed Ctrl-C.
const LOOKS: Duration = Duration::from_millis(50);

/// As much as a main thread has.
const STACK: usize = 8 << 20;

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum Failure {
    Everstep(everstep::Error),
    /// One that this crate finds itself: the name of its kind, and what is wrong.
    Kind(&'static str, String),
    Python(PyErr),
}

impl<E: Into<everstep::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Everstep(error.into())
    }
}

impl Failure {
    fn raised(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Everstep(failed) => error::raised(py, &failed),
            Self::Kind(kind, message) => error::of_kind(py, kind, message),
            Self::Python(error) => error,
        }
    }
}

/// What came of the work: its result, or the panic in which it ended.
type Ended<T> = Result<Result<T, Failure>, Box<dyn Any + Send>>;

/// Runs `work` in the scope of the token of `progress`. A signal whose handler raises cancels it; the exception is raised
/// once it has ended, and so has let go of all memory.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    progress: Option<&Progress>,
    work: impl FnOnce() -> Result<T, Failure> + Send,
) -> PyResult<T> {
    let cancel = progress.map(|progress| progress.token().clone()).unwrap_or_default();
    let background = progress.is_some_and(Progress::in_background);
    let work = move || if background { everstep::in_background(work) } else { work() };
    let (ended, signal) = py.detach(|| on_own_thread(&cancel, work))?;
    match (ended, signal) {
        (_, Some(signal)) => Err(signal),
        (Ok(result), None) => result.map_err(|failure| failure.raised(py)),
        (Err(panic), None) => Err(defect(panic.as_ref())),
    }
}

fn on_own_thread<T: Send>(
    cancel: &Cancel,
    work: impl FnOnce() -> Result<T, Failure> + Send,
) -> PyResult<(Ended<T>, Option<PyErr>)> {
    let (ended, waited_for) = channel();
    thread::scope(|scope| {
        let working = move || {
            let result = catch_unwind(AssertUnwindSafe(|| cancel.scope(work)));
            // The other side waits until it has this.
            let _ = ended.send(result);
        };
        let named = thread::Builder::new().name("everstep-call".to_owned()).stack_size(STACK);
        let started = named.spawn_scoped(scope, working);
        let no_thread = |why| PyRuntimeError::new_err(format!("no thread could be started: {why}"));
        started.map_err(no_thread)?;
        Ok(wait(&waited_for, cancel))
    })
}

fn wait<T>(ended: &Receiver<Ended<T>>, cancel: &Cancel) -> (Ended<T>, Option<PyErr>) {
    let mut signal = None;
    loop {
        match ended.recv_timeout(LOOKS) {
            Ok(result) => return (result, signal),
            Err(RecvTimeoutError::Disconnected) => return (Err(Box::new("no result was sent")), signal),
            Err(RecvTimeoutError::Timeout) if signal.is_some() => {}
            Err(RecvTimeoutError::Timeout) => {
                signal = Python::try_attach(|py| py.check_signals().err()).flatten();
                if signal.is_some() {
                    cancel.cancel();
                }
            }
        }
    }
}

/// `work` at once, on this thread and with the GIL: for what neither waits nor takes long.
pub(crate) fn at_once<T>(py: Python<'_>, work: impl FnOnce() -> Result<T, Failure>) -> PyResult<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|failure| failure.raised(py)),
        Err(panic) => Err(defect(panic.as_ref())),
    }
}

fn defect(panic: &(dyn Any + Send)) -> PyErr {
    let text = panic.downcast_ref::<&str>().copied();
    let message = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic");
    PyRuntimeError::new_err(format!("{message}: a defect in Everstep, please report it"))
}
