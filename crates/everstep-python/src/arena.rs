//! Host memory for staging, kept between saves.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memmap2::MmapMut;
use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use rayon::ThreadPool;
use rayon::prelude::*;

use crate::call::{self, Failure};
use crate::home::Home;
use crate::memory::{Filling, Mapping, Region};

/// The arena grows in steps of this: a huge page.
const GRAIN: usize = 2 << 20;
/// The smallest page there is: touching one byte of each touches all.
const PAGE: usize = 4096;
/// Bytes that one thread copies at one go.
const PIECE: usize = 8 << 20;

/// Host memory that staging copies into, kept between saves. Pages are touched once, when it grows.
#[pyclass(frozen, module = "everstep._everstep")]
pub(crate) struct Arena {
    pool: Home<ThreadPool>,
    memory: Mutex<Option<Arc<Mapping>>>,
}

impl Arena {
    /// Held without the GIL alone, or so shortly that nobody who holds it waits for the GIL.
    fn memory(&self) -> MutexGuard<'_, Option<Arc<Mapping>>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mapping(&self) -> PyResult<Arc<Mapping>> {
        let nothing = || PyValueError::new_err("the arena is empty: reserve memory first");
        self.memory().clone().ok_or_else(nothing)
    }
}

#[pymethods]
impl Arena {
    #[new]
    fn new(threads: usize) -> PyResult<Self> {
        let named = |n| format!("everstep-copy-{n}");
        let built = rayon::ThreadPoolBuilder::new().num_threads(threads.max(1)).thread_name(named).build();
        let pool =
            built.map_err(|e| PyRuntimeError::new_err(format!("cannot start {threads} threads: {e}")))?;
        Ok(Self { pool: Home::new(pool), memory: Mutex::new(None) })
    }

    /// At least so many bytes; the address (multiple of 4096). Whoever holds regions of it keeps the old memory.
    fn reserve(&self, py: Python<'_>, length: usize) -> PyResult<usize> {
        let pool = self.pool.get()?;
        call::run(py, None, || {
            let mut memory = self.memory();
            if let Some(enough) = memory.as_ref().filter(|mapping| mapping.len() >= length) {
                return Ok(enough.address());
            }
            // What nobody holds any more is given back first.
            *memory = None;
            let grown = grown(pool, length).map_err(Failure::Python)?;
            let address = grown.address();
            *memory = Some(grown);
            Ok(address)
        })
    }

    /// `length` bytes from `offset`.
    fn region(&self, offset: usize, length: usize) -> PyResult<Region> {
        self.mapping()?.region(offset, length)
    }

    /// Copies regions to offsets, on native threads, without the GIL.
    fn copy(&self, py: Python<'_>, pieces: Vec<(usize, Py<Region>)>) -> PyResult<()> {
        let (pool, mapping) = (self.pool.get()?, self.mapping()?);
        call::run(py, None, || copy(pool, &mapping, &pieces).map_err(Failure::Python))
    }

    /// Where it begins; 0 while it is empty.
    #[getter]
    fn address(&self) -> usize {
        self.memory().as_ref().map_or(0, |mapping| mapping.address())
    }

    /// Bytes reserved.
    #[getter]
    fn length(&self) -> usize {
        self.memory().as_ref().map_or(0, |mapping| mapping.len())
    }
}

/// New memory of at least `length` bytes, every page touched, by all threads: that takes longer than the copies into it.
fn grown(pool: &ThreadPool, length: usize) -> PyResult<Arc<Mapping>> {
    let no_memory = |why: String| PyMemoryError::new_err(format!("no {length} bytes to stage in: {why}"));
    let rounded = length.max(1).checked_next_multiple_of(GRAIN);
    let size = rounded.ok_or_else(|| no_memory("that is more than there can be".to_owned()))?;
    let mut memory = MmapMut::map_anon(size).map_err(|e| no_memory(e.to_string()))?;
    // Where there are no huge pages, small ones do.
    #[cfg(target_os = "linux")]
    let _ = memory.advise(memmap2::Advice::HugePage);
    let touch = |grain: &mut [u8]| grain.chunks_mut(PAGE).for_each(|page| page[0] = 0);
    pool.install(|| memory.par_chunks_mut(GRAIN).for_each(touch));
    Ok(Mapping::new(memory))
}

fn copy(pool: &ThreadPool, mapping: &Arc<Mapping>, pieces: &[(usize, Py<Region>)]) -> PyResult<()> {
    let own = mapping.address()..mapping.address() + mapping.len();
    let mut places = Vec::with_capacity(pieces.len());
    for (offset, source) in pieces {
        let range = source.get().range();
        if !range.is_empty() && range.start < own.end && own.start < range.end {
            return Err(PyValueError::new_err("memory of the arena itself cannot be copied into it"));
        }
        places.push(mapping.region(*offset, source.get().len())?);
    }
    let mut filling = Filling::begin(places.iter().collect())?;
    if let Some(number) = filling.apart().iter().position(|apart| !apart) {
        let found = format!("piece {number}, at offset {}, overlaps one before it", pieces[number].0);
        return Err(PyValueError::new_err(found));
    }
    let parts: Vec<(&mut [u8], &[u8])> = filling
        .parts()
        .into_iter()
        .flatten()
        .zip(pieces.iter().map(|(_, source)| source.get().bytes()))
        .collect();
    let one = |(into, from): (&mut [u8], &[u8])| {
        into.par_chunks_mut(PIECE)
            .zip(from.par_chunks(PIECE))
            .for_each(|(into, from)| into.copy_from_slice(from));
    };
    pool.install(|| parts.into_par_iter().for_each(one));
    Ok(())
}
