//! Reports and descriptions as Python's dicts.

use everstep::format::row::Kind;
use everstep::{Entry, HandedIn, RestoreReport, SaveReport};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Serialize;

/// `object`, as `json` would read what serde writes.
pub(crate) fn json<'py>(py: Python<'py>, object: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    let unwritable = |e: serde_json::Error| pyo3::exceptions::PyValueError::new_err(e.to_string());
    let text = serde_json::to_string(object).map_err(unwritable)?;
    py.import("json")?.call_method1("loads", (text,))
}

pub(crate) fn entry<'py>(py: Python<'py>, entry: &Entry) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("name", &*entry.name)?;
    dict.set_item("kind", if entry.kind == Kind::Tensor { "tensor" } else { "object" })?;
    dict.set_item("dtype", entry.element.name())?;
    dict.set_item("shape", &entry.shape)?;
    dict.set_item("alias_of", entry.alias_of.as_deref())?;
    dict.set_item("ranks", entry.ranks.iter().map(|rank| rank.0).collect::<Vec<_>>())?;
    dict.set_item("raw_bytes", entry.raw_bytes)?;
    Ok(dict)
}

pub(crate) fn restored<'py>(py: Python<'py>, report: &RestoreReport) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("tensors", report.tensors)?;
    dict.set_item("bytes", report.bytes)?;
    dict.set_item("chunks", report.chunks)?;
    dict.set_item("requests", report.requests)?;
    dict.set_item("missing", &report.missing)?;
    dict.set_item("unexpected", &report.unexpected)?;
    Ok(dict)
}

/// All but the checkpoint.
pub(crate) fn saved<'py>(py: Python<'py>, report: &SaveReport) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("tensors", report.tensors)?;
    dict.set_item("objects", report.objects)?;
    dict.set_item("raw_bytes", report.raw_bytes)?;
    dict.set_item("new_raw_bytes", report.new_raw_bytes)?;
    dict.set_item("reused_raw_bytes", report.reused_raw_bytes)?;
    dict.set_item("bytes_uploaded", report.bytes_uploaded)?;
    dict.set_item("packs", report.packs)?;
    dict.set_item("chunks_uploaded", report.chunks_uploaded)?;
    dict.set_item("chunks_reused", report.chunks_reused)?;
    dict.set_item("index_bytes", report.index_bytes)?;
    Ok(dict)
}

pub(crate) fn handed_in<'py>(py: Python<'py>, report: &HandedIn) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("ordinal", report.ordinal.0)?;
    dict.set_item("raw_bytes", report.raw_bytes)?;
    dict.set_item("bytes_uploaded", report.bytes_uploaded)?;
    dict.set_item("packs", report.packs)?;
    dict.set_item("chunks_uploaded", report.chunks_uploaded)?;
    dict.set_item("chunks_reused", report.chunks_reused)?;
    Ok(dict)
}
