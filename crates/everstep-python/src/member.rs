//! A rank whose saves another process leads.

use std::sync::Mutex;

use everstep::{HandedIn, Step};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::call;
use crate::checkpoint::Checkpoint;
use crate::dicts;
use crate::group::Group;
use crate::home::Home;
use crate::progress::{Progress, watched};
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

    fn share<'py>(
        &self,
        py: Python<'py>,
        progress: Option<&Progress>,
        act: impl FnOnce(&mut everstep::Member, &dyn everstep::Progress) -> Result<HandedIn, everstep::Error>
        + Send,
    ) -> PyResult<Bound<'py, PyDict>> {
        let mut guard = alone(self.inner.get()?, "member")?;
        let member = &mut *guard;
        let report = call::run(py, progress, || Ok(act(member, watched(progress))?))?;
        dicts::handed_in(py, &report)
    }
}

#[pymethods]
impl Member {
    /// Returns once the leader has committed. Report: attempt, ordinal, raw_bytes, bytes_uploaded, packs, chunks_uploaded,
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
        let (group, held) = (group.inner(py), Held::new(py, shards, objects)?);
        self.share(py, progress.as_deref(), |member, watched| {
            member.save_with(Step(step), &held.state(), &group, watched)
        })
    }

    /// As `save`, but does not wait for the outcome: nothing is saved yet.
    fn hand_in<'py>(
        &self,
        py: Python<'py>,
        step: u64,
        shards: Vec<GivenShard>,
        objects: Vec<GivenObject<'py>>,
        group: PyRef<'py, Group>,
        progress: Option<PyRef<'py, Progress>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (group, held) = (group.inner(py), Held::new(py, shards, objects)?);
        self.share(py, progress.as_deref(), |member, watched| {
            member.hand_in_with(Step(step), &held.state(), &group, watched)
        })
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
