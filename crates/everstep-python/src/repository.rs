//! An open repository.

use std::collections::HashMap;
use std::time::Duration;

use everstep::{
    AttemptState, CheckpointRef, InitOptions, Options, Ordinal, Pinned, Pins, Takeover, WriterOptions,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::call::{self, Failure};
use crate::checkpoint::Checkpoint;
use crate::expirer::Expirer;
use crate::home::Home;
use crate::member::Member;
use crate::options;
use crate::writer::Writer;

/// One prefix in one store.
#[pyclass(frozen, module = "everstep._everstep")]
pub(crate) struct Repository {
    inner: Home<everstep::Repository>,
}

/// "refuse", "now", or seconds to wait.
#[derive(FromPyObject)]
enum Overtaking {
    Word(String),
    Wait(f64),
}

/// name, run and ordinal of what was pinned, its step.
type Pin = (String, String, u64, u64);

fn described(Pinned { name, of, checkpoint }: &Pinned) -> Pin {
    (name.to_string(), of.run.to_string(), of.ordinal.0, checkpoint.manifest.step.0)
}

/// ValueError for what is no time.
pub(crate) fn seconds(name: &str, seconds: f64) -> PyResult<Duration> {
    let wrong = |_| PyValueError::new_err(format!("{name}: expected seconds, not below 0, found {seconds}"));
    Duration::try_from_secs_f64(seconds).map_err(wrong)
}

impl Overtaking {
    fn takeover(self) -> PyResult<Takeover> {
        match self {
            Self::Word(word) if word == "refuse" => Ok(Takeover::Fail),
            Self::Word(word) if word == "now" => Ok(Takeover::Now),
            Self::Word(word) => {
                let rule = "expected \"refuse\", \"now\" or seconds to wait";
                Err(PyValueError::new_err(format!("takeover: {rule}, found {word:?}")))
            }
            Self::Wait(time) => Ok(Takeover::Wait(seconds("takeover", time)?)),
        }
    }
}

impl Repository {
    fn opened(
        py: Python<'_>,
        given: HashMap<String, Bound<'_, PyAny>>,
        open: impl FnOnce(&Options) -> Result<everstep::Repository, everstep::Error> + Send,
    ) -> PyResult<Self> {
        let options = options::options(given)?;
        let inner = call::run(py, None, || Ok(open(&options)?))?;
        Ok(Self { inner: Home::new(inner) })
    }

    fn run<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&everstep::Repository) -> Result<T, everstep::Error> + Send,
    ) -> PyResult<T> {
        let repository = self.inner.get()?;
        call::run(py, None, || Ok(act(repository)?))
    }
}

#[pymethods]
impl Repository {
    /// The repository at `url`.
    #[staticmethod]
    fn open(py: Python<'_>, url: &str, options: HashMap<String, Bound<'_, PyAny>>) -> PyResult<Self> {
        Self::opened(py, options, |options| everstep::Repository::open(url, options))
    }

    /// A new repository at `url`.
    #[staticmethod]
    fn create(py: Python<'_>, url: &str, options: HashMap<String, Bound<'_, PyAny>>) -> PyResult<Self> {
        Self::opened(py, options, |options| everstep::Repository::init(url, options, InitOptions::default()))
    }

    /// Where it is, without secrets.
    #[getter]
    fn address(&self) -> PyResult<String> {
        Ok(self.inner.get()?.address())
    }

    /// The repository's id.
    #[getter]
    fn id(&self) -> PyResult<String> {
        Ok(self.inner.get()?.config().id.to_string())
    }

    /// Of the process that opened it; calls from another (after a fork) raise RuntimeError.
    #[getter]
    fn pid(&self) -> u32 {
        self.inner.process()
    }

    fn runs(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.run(py, |repository| Ok(repository.runs()?.iter().map(ToString::to_string).collect()))
    }

    fn latest(&self, py: Python<'_>, run: &str) -> PyResult<Option<Checkpoint>> {
        Ok(self.run(py, |repository| repository.run(run)?.latest())?.map(Checkpoint::new))
    }

    fn wait(
        &self,
        py: Python<'_>,
        run: &str,
        after: Option<PyRef<'_, Checkpoint>>,
        timeout: f64,
    ) -> PyResult<Option<Checkpoint>> {
        let timeout = seconds("timeout", timeout)?;
        let after = after.as_ref().map(|after| after.inner()).transpose()?;
        let news = self.run(py, |repository| repository.run(run)?.wait(after, timeout))?;
        Ok(news.map(Checkpoint::new))
    }

    fn checkpoint(&self, py: Python<'_>, run: &str, ordinal: u64) -> PyResult<Checkpoint> {
        let found = self.run(py, |repository| repository.run(run)?.checkpoint(Ordinal(ordinal)))?;
        Ok(Checkpoint::new(found))
    }

    fn resolve(&self, py: Python<'_>, reference: &str) -> PyResult<Checkpoint> {
        let resolved = self.run(py, |repository| {
            let (checkpoint, _) = repository.resolve(&reference.parse::<CheckpointRef>()?)?;
            Ok(checkpoint)
        })?;
        Ok(Checkpoint::new(resolved))
    }

    /// (ordinal, step) of those that count, oldest first.
    fn checkpoints(&self, py: Python<'_>, run: &str) -> PyResult<Vec<(u64, u64)>> {
        let attempts = self.run(py, |repository| repository.run(run)?.attempts())?;
        let counts = |(ordinal, state): (Ordinal, AttemptState)| match state {
            AttemptState::Committed(checkpoint) => Some((ordinal.0, checkpoint.manifest.step.0)),
            _ => None,
        };
        Ok(attempts.into_iter().filter_map(counts).collect())
    }

    fn expire(&self, py: Python<'_>, run: &str, ordinal: u64, reason: &str) -> PyResult<()> {
        self.run(py, |repository| repository.run(run)?.expire(Ordinal(ordinal), reason))
    }

    /// policy: TOML, or the same tables in JSON.
    fn expirer(&self, py: Python<'_>, run: &str, policy: &str) -> PyResult<Expirer> {
        let repository = self.inner.get()?;
        call::at_once(py, || Ok(Expirer::new(&repository.run(run)?, policy)?))
    }

    fn pin(&self, py: Python<'_>, name: &str, checkpoint: &Checkpoint) -> PyResult<()> {
        let checkpoint = checkpoint.inner()?;
        self.run(py, |repository| repository.pin(name, checkpoint).map(drop))
    }

    fn unpin(&self, py: Python<'_>, name: &str, reason: &str) -> PyResult<()> {
        self.run(py, |repository| repository.unpin(name, reason).map(drop))
    }

    /// The pins that count, in the order of their names; and in words, what cannot be read among them.
    fn pins(&self, py: Python<'_>) -> PyResult<(Vec<Pin>, Vec<String>)> {
        let Pins { pins, unreadable } = self.run(py, everstep::Repository::pins)?;
        Ok((pins.iter().map(described).collect(), unreadable.iter().map(ToString::to_string).collect()))
    }

    /// takeover: "refuse" (default of the format's rules), "now", or seconds to wait.
    fn open_writer(
        &self,
        py: Python<'_>,
        run: &str,
        job: Option<String>,
        takeover: Overtaking,
        takeover_after: Option<f64>,
    ) -> PyResult<Writer> {
        let takeover_after = takeover_after.map(|time| seconds("takeover_after", time)).transpose()?;
        let options = WriterOptions { job, takeover: Some(takeover.takeover()?), takeover_after };
        Ok(Writer::new(self.run(py, |repository| repository.run(run)?.writer(options))?))
    }

    /// Carries on the session of a writer in another process of the same job, which does not save meanwhile.
    fn adopt(&self, py: Python<'_>, ticket: &str) -> PyResult<Writer> {
        Ok(Writer::new(self.run(py, |repository| repository.adopt(ticket))?))
    }

    fn member(&self, py: Python<'_>, ticket: &str) -> PyResult<Member> {
        let repository = self.inner.get()?;
        let member = call::at_once(py, || repository.member(ticket).map_err(Failure::from))?;
        Ok(Member::new(member))
    }

    /// requests, retries, bytes_sent, bytes_received: since it was opened.
    fn traffic<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let traffic = self.inner.get()?.traffic();
        let dict = PyDict::new(py);
        dict.set_item("requests", traffic.requests())?;
        dict.set_item("retries", traffic.retries)?;
        dict.set_item("bytes_sent", traffic.bytes_written)?;
        dict.set_item("bytes_received", traffic.bytes_read)?;
        Ok(dict)
    }
}
