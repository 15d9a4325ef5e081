//! Errors of Everstep as exceptions of the classes that the package gives.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// The class for each kind, by the kind's name.
static TYPES: Mutex<Option<HashMap<String, Py<PyType>>>> = Mutex::new(None);

/// Which class is raised for which kind (`ErrorKind::name()`), given once by the package.
#[pyfunction]
pub(crate) fn set_error_types(types: HashMap<String, Py<PyType>>) {
    *TYPES.lock().unwrap_or_else(PoisonError::into_inner) = Some(types);
}

fn class(py: Python<'_>, kind: &str) -> Py<PyType> {
    let types = TYPES.lock().unwrap_or_else(PoisonError::into_inner);
    let given = types.as_ref().and_then(|types| types.get(kind)).map(|class| class.clone_ref(py));
    given.unwrap_or_else(|| py.get_type::<PyRuntimeError>().unbind())
}

/// The exception for `error`.
pub(crate) fn raised(py: Python<'_>, error: &everstep::Error) -> PyErr {
    of_kind(py, error.kind().name(), error.to_string())
}

/// An exception of `kind`, which it has as its attribute, too.
pub(crate) fn of_kind(py: Python<'_>, kind: &str, message: String) -> PyErr {
    let exception = match class(py, kind).bind(py).call1((message,)) {
        Ok(exception) => exception,
        Err(error) => return error,
    };
    match exception.setattr("kind", kind) {
        Ok(()) => PyErr::from_value(exception),
        Err(error) => error,
    }
}
