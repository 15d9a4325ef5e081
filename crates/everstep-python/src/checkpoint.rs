//! One committed checkpoint, and leases on it.

use std::sync::{Mutex, PoisonError};

use everstep::format::row::ElementType;
use everstep::{Bounds, Dtype, Rank, RestoreOptions, Selection, StoredContent};
use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict};

use crate::call::{self, Failure};
use crate::dicts;
use crate::home::Home;
use crate::load::{self, Wanted};
use crate::memory::Region;
use crate::progress::Progress;
use crate::repository::seconds;
use crate::value::{self, Opaque};

/// A checkpoint that was read as committed and not expired.
#[pyclass(frozen, module = "everstep._everstep")]
pub(crate) struct Checkpoint {
    inner: Home<everstep::Checkpoint>,
}

impl Checkpoint {
    pub(crate) fn new(inner: everstep::Checkpoint) -> Self {
        Self { inner: Home::new(inner) }
    }

    pub(crate) fn inner(&self) -> PyResult<&everstep::Checkpoint> {
        self.inner.get()
    }

    fn run_on<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&everstep::Checkpoint) -> Result<T, everstep::Error> + Send,
    ) -> PyResult<T> {
        let checkpoint = self.inner()?;
        call::run(py, None, || Ok(act(checkpoint)?))
    }
}

/// A tensor, or a box of it, as it can be read.
struct Readable {
    dtype: Dtype,
    shape: Vec<u64>,
    bounds: Bounds,
    length: usize,
}

/// Bytes up to which a box is read by itself, with the rows of its name alone, and copied once more. What is larger is loaded
/// where it is to lie; that reads the whole index, which is small beside it.
const SMALL_READ: usize = 64 << 20;

/// `None` for what the checkpoint itself refuses to read, and says why.
fn readable(entry: &everstep::Entry, bounds: Option<Bounds>) -> Option<Readable> {
    let ElementType::Dtype(dtype) = &entry.element else { return None };
    let bounds = bounds.unwrap_or_else(|| Bounds::whole(&entry.shape));
    bounds.check_inside(&entry.shape).ok()?;
    let length = bounds.elements().and_then(|elements| dtype.byte_len(elements))?;
    let length = usize::try_from(length).ok()?;
    Some(Readable { dtype: *dtype, shape: entry.shape.clone(), bounds, length })
}

/// name, dtype, shape of a box and its bytes.
type ReadBox<'py> = (String, Vec<u64>, Bound<'py, PyByteArray>);

#[pymethods]
impl Checkpoint {
    #[getter]
    fn run(&self) -> PyResult<String> {
        Ok(self.inner()?.manifest().run.to_string())
    }

    #[getter]
    fn ordinal(&self) -> PyResult<u64> {
        Ok(self.inner()?.manifest().ordinal.0)
    }

    #[getter]
    fn step(&self) -> PyResult<u64> {
        Ok(self.inner()?.manifest().step.0)
    }

    #[getter]
    fn world_size(&self) -> PyResult<u32> {
        Ok(self.inner()?.manifest().world_size)
    }

    /// As it is stored, parsed: totals, metadata, parents, created, stats ...
    fn manifest<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        dicts::json(py, self.inner()?.manifest())
    }

    /// name, kind ("tensor" / "object"), dtype, shape, alias_of, ranks ([] when the job has one), raw_bytes.
    fn entries<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let entries = self.run_on(py, |checkpoint| checkpoint.entries(&Selection::all()))?;
        entries.iter().map(|entry| dicts::entry(py, entry)).collect()
    }

    fn entry<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyDict>>> {
        let entry = self.run_on(py, |checkpoint| checkpoint.entry(name))?;
        entry.map(|entry| dicts::entry(py, &entry)).transpose()
    }

    /// In place. scope: names that strictness covers (None: all). Targets may overlap or repeat in memory: those are loaded
    /// beside and copied. Report: tensors, bytes, chunks, requests, missing, unexpected.
    fn load<'py>(
        &self,
        py: Python<'py>,
        targets: Vec<load::Given>,
        scope: Option<Vec<String>>,
        strict: bool,
        progress: Option<PyRef<'py, Progress>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let checkpoint = self.inner()?;
        let wanted =
            call::at_once(py, || targets.into_iter().map(Wanted::new).collect::<Result<Vec<_>, _>>())?;
        let scope = Selection { names: scope.map(|names| names.into_iter().collect()), ..Selection::all() };
        let options = RestoreOptions { strict, scope, ..RestoreOptions::default() };
        let progress = progress.as_deref();
        let report = call::run(py, progress, || load::load(checkpoint, &wanted, &options, progress))?;
        dicts::restored(py, &report)
    }

    /// dtype, shape of the box, row-major little-endian bytes.
    fn read<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        offset: Option<Vec<u64>>,
        extent: Option<Vec<u64>>,
    ) -> PyResult<ReadBox<'py>> {
        let bounds = match (offset, extent) {
            (None, None) => None,
            (Some(offset), Some(extent)) => Some(Bounds { offset: offset.into(), extent: extent.into() }),
            _ => return Err(PyTypeError::new_err("offset and extent of a box belong together")),
        };
        let asked = bounds.clone();
        let (entry, small) = self.run_on(py, |checkpoint| {
            let entry = checkpoint.entry(name)?.and_then(|entry| readable(&entry, asked));
            if entry.as_ref().is_some_and(|entry| entry.length > SMALL_READ) {
                return Ok((entry, None));
            }
            // What cannot be read is refused with the reason.
            let bytes = checkpoint.read(name, bounds)?;
            Ok((entry, Some(bytes)))
        })?;
        let Some(Readable { dtype, shape, bounds, length }) = entry else {
            return Err(PyMemoryError::new_err(format!("{name:?} does not fit the memory of this machine")));
        };
        if let Some(bytes) = small {
            return Ok((dtype.name().to_owned(), bounds.extent.to_vec(), PyByteArray::new(py, &bytes)));
        }
        // Straight into Python's memory: a tensor may be half of what a machine has.
        let bytes = PyByteArray::new_with(py, length, |_| Ok(()))?;
        let region = Py::new(py, Region::of_buffer(&bytes, true)?)?;
        let extent = bounds.extent.to_vec();
        let given =
            (name.to_owned(), dtype.name().to_owned(), shape, bounds.offset.to_vec(), extent.clone(), region);
        self.load(py, vec![given], Some(Vec::new()), true, None)?;
        Ok((dtype.name().to_owned(), extent, bytes))
    }

    /// A plain value, or Opaque. With rank and world_size: of exactly these ranks, else SchemaMismatch.
    fn object<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        rank: Option<u32>,
        world_size: Option<u32>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let content = self.run_on(py, |checkpoint| match (rank.map(Rank), world_size) {
            (Some(rank), Some(world_size)) => checkpoint.object_of_rank(name, rank, world_size),
            (rank, _) => checkpoint.object(name, rank),
        })?;
        match content {
            StoredContent::Value(value) => value::to_python(py, &value),
            StoredContent::Opaque(bytes) => {
                let opaque = Opaque::new(PyBytes::new(py, &bytes).unbind());
                Ok(Bound::new(py, opaque)?.into_any())
            }
        }
    }

    fn lease(&self, py: Python<'_>, ttl: f64) -> PyResult<Lease> {
        let ttl = seconds("ttl", ttl)?;
        let lease = self.run_on(py, |checkpoint| checkpoint.lease(ttl))?;
        Ok(Lease { id: lease.id().to_string(), inner: Home::new(Mutex::new(Some(lease))) })
    }

    fn index_file<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.run_on(py, everstep::Checkpoint::index_file)?))
    }

    fn with_index_file(&self, py: Python<'_>, data: Vec<u8>) -> PyResult<Self> {
        Ok(Self::new(self.run_on(py, |checkpoint| checkpoint.with_index_file(data))?))
    }
}

/// Keeps the data of a checkpoint until it is ended, or falls silent.
#[pyclass(frozen, module = "everstep._everstep")]
pub(crate) struct Lease {
    id: String,
    inner: Home<Mutex<Option<everstep::Lease>>>,
}

#[pymethods]
impl Lease {
    #[getter]
    fn id(&self) -> &str {
        &self.id
    }

    fn end(&self, py: Python<'_>) -> PyResult<()> {
        let lease = self.inner.get()?.lock().unwrap_or_else(PoisonError::into_inner).take();
        let lease = lease.ok_or_else(|| PyRuntimeError::new_err("the lease was ended before"))?;
        call::run(py, None, || lease.end().map_err(Failure::from))
    }
}
