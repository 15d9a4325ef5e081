//! Memory that Python owns: plain addresses, buffers, the arena. The one module with `unsafe`.
//!
//! What an address is worth is the promise of whoever made the [`Region`]: so many bytes there stay mapped as long as its
//! owner lives, and nobody moves them. What this module adds is that Rust never holds two references to one byte of which
//! one may write: all memory that calls fill is registered while they do, and parts that overlap are handed out once.
#![allow(unsafe_code, reason = "memory of Python is reached by address; nothing else in this crate does")]

use std::any::Any;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use memmap2::MmapMut;
use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

/// Bytes of the huge pages of most machines.
const HUGE_PAGE: usize = 2 << 20;

/// `length` bytes at `address`, kept alive by `owner`.
#[pyclass(frozen, module = "everstep._everstep")]
pub(crate) struct Region {
    address: usize,
    length: usize,
    writable: bool,
    /// Whatever must live for the address to stay good.
    _owner: Box<dyn Any + Send + Sync>,
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({} bytes at {:#x})", self.length, self.address)
    }
}

impl Region {
    fn checked(
        (address, length): (usize, usize),
        writable: bool,
        owner: Box<dyn Any + Send + Sync>,
    ) -> PyResult<Self> {
        let fits = isize::try_from(length).is_ok() && address.checked_add(length).is_some();
        if !fits || (address == 0 && length > 0) {
            let found = format!("there is no region of {length} bytes at {address:#x}");
            return Err(PyValueError::new_err(found));
        }
        Ok(Self { address, length, writable, _owner: owner })
    }

    /// The addresses of its bytes.
    pub(crate) fn range(&self) -> Range<usize> {
        self.address..self.address + self.length
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Its bytes, for reading.
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.length == 0 {
            return &[];
        }
        let start = std::ptr::with_exposed_provenance::<u8>(self.address);
        // SAFETY: whoever made the region promised that these bytes stay mapped while its owner lives, and that is as long
        // as `self`. The length was checked against `isize::MAX`. That nobody writes to them meanwhile is the caller's
        // side of a save, as it is for every extension that reads a tensor without the GIL.
        unsafe { std::slice::from_raw_parts(start, self.length) }
    }
}

#[pymethods]
impl Region {
    #[new]
    fn new(owner: Py<PyAny>, address: usize, length: usize) -> PyResult<Self> {
        Self::checked((address, length), true, Box::new(owner))
    }

    /// Of anything with a C-contiguous buffer (numpy array, bytearray, memoryview). BufferError otherwise.
    #[staticmethod]
    pub(crate) fn of_buffer(buffer: &Bound<'_, PyAny>, writable: bool) -> PyResult<Self> {
        let export = Export::of(buffer, writable)?;
        let place = (export.0.buf.expose_provenance(), usize::try_from(export.0.len).unwrap_or_default());
        Self::checked(place, writable, Box::new(export))
    }

    /// Itself as a buffer of bytes, writable unless its memory is not.
    ///
    /// # Safety
    /// For Python alone, which gives a view to fill in.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let Self { address, length, writable, .. } = *slf.get();
        // An address even for no bytes.
        let start = if length == 0 { 1 } else { address };
        let start = std::ptr::with_exposed_provenance_mut::<c_void>(start);
        let length = ffi::Py_ssize_t::try_from(length)?;
        // SAFETY: Python gives a view and holds the GIL. The view keeps a reference to the region, and so the memory.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, c_int::from(!writable), flags)
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }

    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}

/// A buffer that its object exports: as long as this lives, the object neither moves nor resizes it.
struct Export(Box<ffi::Py_buffer>);

// SAFETY: the pointers are used by Python alone, and only while this thread holds the GIL (`of`, `drop`).
unsafe impl Send for Export {}
// SAFETY: as above; nothing can be done with a shared reference.
unsafe impl Sync for Export {}

impl Export {
    fn of(object: &Bound<'_, PyAny>, writable: bool) -> PyResult<Self> {
        let mut view = Box::new(ffi::Py_buffer::new());
        // Plain bytes in C order.
        let flags = if writable { ffi::PyBUF_WRITABLE } else { ffi::PyBUF_SIMPLE };
        // SAFETY: the object is alive and the GIL held; `view` stays where it is.
        if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *view, flags) } == 0 {
            return Ok(Self(view));
        }
        let cause = PyErr::fetch(object.py());
        let what = if writable { "writable, C-contiguous" } else { "C-contiguous" };
        let error = PyBufferError::new_err(format!("{} has no {what} buffer: {cause}", object.get_type()));
        error.set_cause(object.py(), Some(cause));
        Err(error)
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // Without an interpreter there is nothing left to tell.
        Python::try_attach(|_| {
            // SAFETY: the view was filled by `PyObject_GetBuffer` and is released once, with the GIL held.
            unsafe { ffi::PyBuffer_Release(&raw mut *self.0) }
        });
    }
}

/// Anonymous memory of this process.
#[derive(Debug)]
pub(crate) struct Mapping(MmapMut);

impl Mapping {
    /// Takes memory that nobody has a reference to.
    pub(crate) fn new(memory: MmapMut) -> Arc<Self> {
        Arc::new(Self(memory))
    }

    /// Where it begins.
    pub(crate) fn address(&self) -> usize {
        self.0.as_ptr().expose_provenance()
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// `length` bytes from `offset`. The memory stays as long as regions of it do.
    pub(crate) fn region(self: &Arc<Self>, offset: usize, length: usize) -> PyResult<Region> {
        if offset.checked_add(length).is_none_or(|end| end > self.len()) {
            let found = format!("{length} bytes at {offset} lie outside the arena's {}", self.len());
            return Err(PyValueError::new_err(found));
        }
        Region::checked((self.address() + offset, length), true, Box::new(self.clone()))
    }
}

/// All memory that calls of this process are filling: start and end of ranges that do not overlap. With the process, for
/// what a fork took along is filled by nobody.
static FILLED: Mutex<(u32, BTreeMap<usize, usize>)> = Mutex::new((0, BTreeMap::new()));

fn with_filled<T>(act: impl FnOnce(&mut BTreeMap<usize, usize>) -> T) -> T {
    let mut filled = FILLED.lock().unwrap_or_else(PoisonError::into_inner);
    let (process, own) = (&mut filled.0, std::process::id());
    if std::mem::replace(process, own) != own {
        filled.1.clear();
    }
    act(&mut filled.1)
}

fn overlaps(ranges: &BTreeMap<usize, usize>, range: &Range<usize>) -> bool {
    ranges.range(..range.end).next_back().is_some_and(|(_, end)| *end > range.start)
}

/// Adds `range` to `ranges`, as one with those that it overlaps.
fn add(ranges: &mut BTreeMap<usize, usize>, mut range: Range<usize>) {
    while let Some((&start, &end)) =
        ranges.range(..range.end).next_back().filter(|(_, end)| **end > range.start)
    {
        ranges.remove(&start);
        range = range.start.min(start)..range.end.max(end);
    }
    ranges.insert(range.start, range.end);
}

/// Regions that one call fills, to itself as long as this lives.
pub(crate) struct Filling<'r> {
    regions: Vec<&'r Region>,
    /// Whether a region shares no byte with those before it that are themselves apart.
    apart: Vec<bool>,
    /// What is in [`FILLED`] because of them.
    held: BTreeMap<usize, usize>,
}

impl<'r> Filling<'r> {
    /// ValueError when one is read-only, RuntimeError when another call is filling some of the same memory.
    pub(crate) fn begin(regions: Vec<&'r Region>) -> PyResult<Self> {
        if let Some(region) = regions.iter().find(|region| !region.writable) {
            return Err(PyValueError::new_err(format!("{region:?} is read-only")));
        }
        let (mut first, mut held) = (BTreeMap::new(), BTreeMap::new());
        let mut apart = Vec::with_capacity(regions.len());
        for range in regions.iter().map(|region| region.range()) {
            let free = range.is_empty() || !overlaps(&first, &range);
            apart.push(free);
            if free && !range.is_empty() {
                first.insert(range.start, range.end);
            }
            if !range.is_empty() {
                add(&mut held, range);
            }
        }
        let registered = with_filled(|all| {
            let free = !held.iter().any(|(start, end)| overlaps(all, &(*start..*end)));
            if free {
                all.extend(&held);
            }
            free
        });
        if !registered {
            return Err(PyRuntimeError::new_err("another call is filling the same memory"));
        }
        held.iter().for_each(|(start, end)| want_huge_pages(&(*start..*end)));
        Ok(Self { regions, apart, held })
    }

    /// Which regions [`Filling::parts`] hands out.
    pub(crate) fn apart(&self) -> &[bool] {
        &self.apart
    }

    /// For each region its bytes, unless it shares some with one before it.
    pub(crate) fn parts(&mut self) -> Vec<Option<&mut [u8]>> {
        let part = |(region, apart): (&&Region, &bool)| apart.then(|| writable(region.range()));
        self.regions.iter().zip(&self.apart).map(part).collect()
    }

    /// Copies `bytes`, as many as it has, into region `number`.
    pub(crate) fn copy_into(&mut self, number: usize, bytes: &[u8]) {
        writable(self.regions[number].range()).copy_from_slice(bytes);
    }
}

/// Asks for huge pages where `range`, which is about to be filled, has room for some: what nobody has touched yet, as the
/// tensors of a training that resumes, is then filled in a third of the time. Nothing depends on it.
fn want_huge_pages(range: &Range<usize>) {
    let (start, end) = (range.start.next_multiple_of(HUGE_PAGE), range.end / HUGE_PAGE * HUGE_PAGE);
    if end <= start {
        return;
    }
    #[cfg(target_os = "linux")]
    {
        let pages = std::ptr::with_exposed_provenance_mut::<c_void>(start);
        // SAFETY: the pages lie in memory that stays mapped as long as its region, and the advice changes none of it.
        let _ = unsafe { rustix::mm::madvise(pages, end - start, rustix::mm::Advice::LinuxHugepage) };
    }
}

/// The bytes of a range of which the caller, a [`Filling`], hands out every byte once while it is borrowed.
fn writable<'a>(range: Range<usize>) -> &'a mut [u8] {
    if range.is_empty() {
        return &mut [];
    }
    let start = std::ptr::with_exposed_provenance_mut::<u8>(range.start);
    // SAFETY: the bytes stay mapped, as for `Region::bytes`, for the regions outlive the `Filling` that borrows them. No
    // other `&mut` exists: `Filling` hands out regions that share no byte with one another, from a `&mut self` that the
    // references borrow, and no other `Filling` has any of these bytes, for they are in `FILLED`.
    unsafe { std::slice::from_raw_parts_mut(start, range.len()) }
}

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        with_filled(|all| all.retain(|start, _| !self.held.contains_key(start)));
    }
}
