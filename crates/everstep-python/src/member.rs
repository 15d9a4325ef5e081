//! A rank whose saves another process leads.

use std::sync::Mutex;

use everstep::Step;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::call;
use crate::checkpoint::Checkpoint;
use crate::dicts;
use crate::group::Group;
use crate::home::Home;
use crate::progress::Progress;
use crate::state::{GivenObject, GivenShard, Held};
use crate::writer::alone;

/// A rank whose saves another process leads. One call at a time; another one meanwhile raises RuntimeError.
#[pyclass(frozen, module = "everstep._everstep")]
pub(crate) struct Member {
    inner: Home<Mutex<everstep::Member>>,
}

impl Member {
    pub(crate) fn new(inner: everstep::Member) -> Self {
        Self { inner: Home::new(Mutex::new(inner)) }
    }
}

#[pymethods]
impl Member {
    /// Returns once the leader has committed. Report: ordinal, raw_bytes, bytes_uploaded, packs, chunks_uploaded,
    /// chunks_reused, seconds.
    fn save<'py>(
        &self,
        py: Python<'py>,
        step: u64,
        shards: Vec<GivenShard>,
        objects: Vec<GivenObject<'py>>,
        group: PyRef<'py, Group>,
        progress: Option<PyRef<'py, Progress>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let group = group.inner(py);
        let held = Held::new(py, shards, objects)?;
        let progress = progress.as_deref();
        let mut guard = alone(self.inner.get()?, "member")?;
        let member = &mut *guard;
        let report = call::run(py, progress, || {
            let watched: &dyn everstep::Progress = match progress {
                Some(progress) => progress,
                None => &(),
            };
            Ok(member.save_with(Step(step), &held.state(), &group, watched)?)
        })?;
        dicts::handed_in(py, &report)
    }

    /// Answers the call to the save of `step` by saying that this rank cannot take part, and why.
    fn give_up(&self, py: Python<'_>, step: u64, why: &str, group: &Group) -> PyResult<()> {
        let group = group.inner(py);
        let mut guard = alone(self.inner.get()?, "member")?;
        let member = &mut *guard;
        call::run(py, None, || Ok(member.give_up(Step(step), why, &group)?))
    }

    fn take_index(&self, checkpoint: &Checkpoint) -> PyResult<()> {
        let checkpoint = checkpoint.inner()?;
        alone(self.inner.get()?, "member")?.take_index(checkpoint);
        Ok(())
    }
}
