//! Reports and descriptions as Python's dicts.

use everstep::format::row::Kind;
use everstep::rendezvous::Spent;
use everstep::{Entry, HandedIn, LateRank, Phases, RestoreReport, SaveReport};
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
    dict.set_item("seconds", seconds(py, &report.phases)?)?;
    let late = report.slowest.iter().map(|rank| late_rank(py, rank)).collect::<PyResult<Vec<_>>>()?;
    dict.set_item("ranks", late)?;
    Ok(dict)
}

fn seconds<'py>(py: Python<'py>, phases: &Phases) -> PyResult<Bound<'py, PyDict>> {
    let Phases { hash, encode, upload, ranks, commit } = *phases;
    let dict = spent(py, &Spent { hash, encode, upload })?;
    dict.set_item("ranks", ranks.as_secs_f64())?;
    dict.set_item("commit", commit.as_secs_f64())?;
    dict.set_item("total", phases.total().as_secs_f64())?;
    Ok(dict)
}

fn spent<'py>(py: Python<'py>, spent: &Spent) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("hash", spent.hash.as_secs_f64())?;
    dict.set_item("encode", spent.encode.as_secs_f64())?;
    dict.set_item("upload", spent.upload.as_secs_f64())?;
    Ok(dict)
}

fn late_rank<'py>(py: Python<'py>, late: &LateRank) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("rank", late.rank.0)?;
    dict.set_item("late", late.late.as_secs_f64())?;
    let own = late.spent.as_ref().map_or_else(|| Ok(PyDict::new(py)), |known| spent(py, known))?;
    dict.set_item("seconds", own)?;
    Ok(dict)
}

pub(crate) fn handed_in<'py>(py: Python<'py>, report: &HandedIn) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("attempt", report.attempt.to_string())?;
    dict.set_item("ordinal", report.ordinal.0)?;
    dict.set_item("raw_bytes", report.raw_bytes)?;
    dict.set_item("bytes_uploaded", report.bytes_uploaded)?;
    dict.set_item("packs", report.packs)?;
    dict.set_item("chunks_uploaded", report.chunks_uploaded)?;
    dict.set_item("chunks_reused", report.chunks_reused)?;
    dict.set_item("seconds", seconds(py, &report.phases)?)?;
    Ok(dict)
}
