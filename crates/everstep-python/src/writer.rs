//! The writer of a run.

use std::sync::{Mutex, MutexGuard, TryLockError};

use everstep::{Metadata, SaveReport, Saved, Step};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::call::{self, Failure};
use crate::checkpoint::Checkpoint;
use crate::dicts;
use crate::group::Group;
use crate::home::Home;
use crate::progress::{Progress, watched};
use crate::state::{GivenObject, GivenShard, Held};

/// A session: the leader's. One call at a time; another one meanwhile raises RuntimeError.
#[pyclass(frozen, module = "everstep._everstep")]
pub(crate) struct Writer {
    inner: Home<Mutex<Option<everstep::Writer>>>,
    session: String,
}

/// What one call at a time may use; RuntimeError while another one does.
pub(crate) fn alone<'m, T>(mutex: &'m Mutex<T>, what: &str) -> PyResult<MutexGuard<'m, T>> {
    match mutex.try_lock() {
        Ok(guard) => Ok(guard),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => {
            Err(PyRuntimeError::new_err(format!("another call of this {what} is running")))
        }
    }
}

fn closed() -> PyErr {
    PyRuntimeError::new_err("the writer is closed")
}

fn described(metadata: &str) -> PyResult<Metadata> {
    let no_object = |e| PyValueError::new_err(format!("metadata: expected the JSON text of an object: {e}"));
    serde_json::from_str(metadata).map_err(no_object)
}

fn checkpoints(parents: &[PyRef<'_, Checkpoint>]) -> PyResult<Vec<everstep::Checkpoint>> {
    parents.iter().map(|parent| parent.inner().cloned()).collect()
}

fn group_of(py: Python<'_>, group: Option<&Group>) -> everstep::Group {
    group.map_or_else(everstep::Group::alone, |group| group.inner(py))
}

impl Writer {
    pub(crate) fn new(inner: everstep::Writer) -> Self {
        let session = inner.session().to_string();
        Self { inner: Home::new(Mutex::new(Some(inner))), session }
    }

    fn run<T: Send>(
        &self,
        py: Python<'_>,
        progress: Option<&Progress>,
        act: impl FnOnce(&mut everstep::Writer) -> Result<T, everstep::Error> + Send,
    ) -> PyResult<T> {
        let mut guard = alone(self.inner.get()?, "writer")?;
        let writer = guard.as_mut().ok_or_else(closed)?;
        call::run(py, progress, || Ok(act(writer)?))
    }

    /// A save's report, with its checkpoint.
    fn saved<'py>(
        &self,
        py: Python<'py>,
        progress: Option<&Progress>,
        save: impl FnOnce(&mut everstep::Writer, &dyn everstep::Progress) -> Result<SaveReport, everstep::Error>
        + Send,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (report, checkpoint) = self.run(py, progress, |writer| {
            let report = save(writer, watched(progress))?;
            Ok((report, writer.latest()))
        })?;
        let dict = dicts::saved(py, &report)?;
        dict.set_item("checkpoint", checkpoint.map(Checkpoint::new))?;
        Ok(dict)
    }

    /// For what neither waits nor takes long.
    fn look<T>(&self, look: impl FnOnce(&everstep::Writer) -> T) -> PyResult<T> {
        let guard = alone(self.inner.get()?, "writer")?;
        Ok(look(guard.as_ref().ok_or_else(closed)?))
    }
}

#[pymethods]
impl Writer {
    #[getter]
    fn ticket(&self) -> PyResult<String> {
        self.look(everstep::Writer::ticket)
    }

    #[getter]
    fn session(&self) -> &str {
        &self.session
    }

    fn latest(&self) -> PyResult<Option<Checkpoint>> {
        Ok(self.look(everstep::Writer::latest)?.map(Checkpoint::new))
    }

    /// metadata: JSON text of an object. Report: checkpoint, tensors, objects, raw_bytes, new_raw_bytes, reused_raw_bytes,
    /// bytes_uploaded, packs, chunks_uploaded, chunks_reused, index_bytes, and seconds: {hash, encode, upload, ranks,
    /// commit, total}; ranks: the last few, the last one first, each {rank, late, seconds}.
    #[expect(clippy::too_many_arguments, reason = "the signature is the Python half's")]
    fn save<'py>(
        &self,
        py: Python<'py>,
        step: u64,
        shards: Vec<GivenShard>,
        objects: Vec<GivenObject<'py>>,
        metadata: &str,
        parents: Vec<PyRef<'py, Checkpoint>>,
        group: Option<PyRef<'py, Group>>,
        progress: Option<PyRef<'py, Progress>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (metadata, also) = (described(metadata)?, checkpoints(&parents)?);
        let (group, held) = (group_of(py, group.as_deref()), Held::new(py, shards, objects)?);
        self.saved(py, progress.as_deref(), |writer, watched| {
            writer.save_in_with(Step(step), &held.state(), Saved { metadata, also }, (&group, watched))
        })
    }

    /// Calls the other ranks and stores this one's share, without waiting for theirs: nothing is saved before `commit`. parents:
    /// to deduplicate against beside the newest checkpoint. Report: as that of a member's save.
    #[pyo3(signature = (step, shards, objects, group, progress, parents = Vec::new()))]
    #[expect(clippy::too_many_arguments, reason = "the signature is the Python half's")]
    fn hand_in<'py>(
        &self,
        py: Python<'py>,
        step: u64,
        shards: Vec<GivenShard>,
        objects: Vec<GivenObject<'py>>,
        group: Option<PyRef<'py, Group>>,
        progress: Option<PyRef<'py, Progress>>,
        parents: Vec<PyRef<'py, Checkpoint>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (also, progress) = (checkpoints(&parents)?, progress.as_deref());
        let (group, held) = (group_of(py, group.as_deref()), Held::new(py, shards, objects)?);
        let report = self.run(py, progress, |writer| {
            writer.hand_in_with(Step(step), &held.state(), &also, (&group, watched(progress)))
        })?;
        dicts::handed_in(py, &report)
    }

    /// Gathers what all ranks handed in and commits it. parents: none, since they were named when the save began. Report: as
    /// that of `save`.
    fn commit<'py>(
        &self,
        py: Python<'py>,
        metadata: &str,
        parents: Vec<PyRef<'py, Checkpoint>>,
        group: Option<PyRef<'py, Group>>,
        progress: Option<PyRef<'py, Progress>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        if !parents.is_empty() {
            let late = "parents: expected none, they are named when the save is handed in";
            return Err(PyValueError::new_err(late));
        }
        let (metadata, group) = (described(metadata)?, group_of(py, group.as_deref()));
        self.saved(py, progress.as_deref(), |writer, _| writer.commit(metadata, &group))
    }

    /// Tells the other ranks, who are about to save `step`, that there will be no attempt, and why. Ends one that was handed in.
    fn give_up(&self, py: Python<'_>, step: u64, why: &str, group: &Group) -> PyResult<()> {
        let group = group.inner(py);
        self.run(py, None, |writer| writer.give_up(Step(step), why, &group))
    }

    fn rollback(&self, py: Python<'_>, target: &Checkpoint) -> PyResult<Checkpoint> {
        let target = target.inner()?;
        Ok(Checkpoint::new(self.run(py, None, |writer| writer.rollback(target))?))
    }

    fn take_index(&self, checkpoint: &Checkpoint) -> PyResult<()> {
        let checkpoint = checkpoint.inner()?;
        self.look(|writer| writer.take_index(checkpoint))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let writer = alone(self.inner.get()?, "writer")?.take().ok_or_else(closed)?;
        call::run(py, None, || writer.close().map_err(Failure::from))
    }
}
