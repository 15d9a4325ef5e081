//! Plain Python values and the values of the format. Only exact types: a subclass (an `IntEnum`, a numpy scalar) would come
//! back as something else.

use everstep::Value;
use everstep::format::limits;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::call;

/// Bytes to be kept as they are, not as a value.
#[pyclass(frozen, module = "everstep._everstep")]
#[derive(Debug)]
pub(crate) struct Opaque {
    data: Py<PyBytes>,
}

#[pymethods]
impl Opaque {
    #[new]
    pub(crate) fn new(data: Py<PyBytes>) -> Self {
        Self { data }
    }

    #[getter]
    pub(crate) fn data(&self, py: Python<'_>) -> Py<PyBytes> {
        self.data.clone_ref(py)
    }
}

/// Canonical bytes of a plain value: None, bool, int, float, str, bytes, list, tuple, dict. TypeError names the path.
#[pyfunction]
pub(crate) fn encode<'py>(py: Python<'py>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let value = from_python(value, "the value")?;
    let bytes = call::at_once(py, || Ok(value.to_bytes()?))?;
    Ok(PyBytes::new(py, &bytes))
}

/// The value that canonical bytes stand for.
#[pyfunction]
pub(crate) fn decode<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let value = call::at_once(py, || Ok(Value::from_bytes(data)?))?;
    to_python(py, &value)
}

/// Why a value cannot be taken, and the steps that lead to it, the last one first.
struct Refused {
    steps: Vec<String>,
    what: String,
    /// Whether it is of a type that is never taken.
    is_type: bool,
}

impl Refused {
    fn new(what: impl Into<String>) -> Self {
        Self { steps: Vec::new(), what: what.into(), is_type: false }
    }

    fn below(mut self, step: impl FnOnce() -> String) -> Self {
        self.steps.push(step());
        self
    }

    fn raised(self, name: &str) -> PyErr {
        let path: String = self.steps.into_iter().rev().collect();
        let message = format!("{name}{path} {}", self.what);
        if self.is_type { PyTypeError::new_err(message) } else { PyValueError::new_err(message) }
    }
}

impl From<PyErr> for Refused {
    fn from(error: PyErr) -> Self {
        Self::new(format!("cannot be read: {error}"))
    }
}

/// The value of the format that `object` is; errors call it `name`.
pub(crate) fn from_python(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Value> {
    taken(object, 0).map_err(|refused| refused.raised(name))
}

fn taken(object: &Bound<'_, PyAny>, depth: usize) -> Result<Value, Refused> {
    if depth >= limits::VALUE_DEPTH {
        return Err(Refused::new(format!("is nested more than {} deep", limits::VALUE_DEPTH)));
    }
    if object.is_none() {
        Ok(Value::None)
    } else if let Ok(truth) = object.cast_exact::<PyBool>() {
        Ok(Value::Bool(truth.is_true()))
    } else if let Ok(int) = object.cast_exact::<PyInt>() {
        integer(int)
    } else if let Ok(float) = object.cast_exact::<PyFloat>() {
        Ok(Value::Float(float.value()))
    } else if let Ok(text) = object.cast_exact::<PyString>() {
        self::text(text)
    } else if let Ok(bytes) = object.cast_exact::<PyBytes>() {
        Ok(Value::Bytes(bytes.as_bytes().to_vec()))
    } else {
        container(object, depth)
    }
}

fn container(object: &Bound<'_, PyAny>, depth: usize) -> Result<Value, Refused> {
    let item = |(at, item): (usize, Bound<'_, PyAny>)| {
        taken(&item, depth + 1).map_err(|refused| refused.below(|| format!("[{at}]")))
    };
    if let Ok(list) = object.cast_exact::<PyList>() {
        Ok(Value::List(list.iter().enumerate().map(item).collect::<Result<_, _>>()?))
    } else if let Ok(tuple) = object.cast_exact::<PyTuple>() {
        Ok(Value::Tuple(tuple.iter().enumerate().map(item).collect::<Result<_, _>>()?))
    } else if let Ok(dict) = object.cast_exact::<PyDict>() {
        Ok(Value::Map(dict.iter().map(|entry| pair(&entry, depth)).collect::<Result<_, _>>()?))
    } else {
        let what = format!(
            "is a {}, which is no plain value (None, bool, int, float, str, bytes, list, tuple, dict, and no subclass)",
            object.get_type().fully_qualified_name().map_or_else(|_| "?".to_owned(), |name| name.to_string())
        );
        Err(Refused { is_type: true, ..Refused::new(what) })
    }
}

fn pair(
    (key, value): &(Bound<'_, PyAny>, Bound<'_, PyAny>),
    depth: usize,
) -> Result<(Value, Value), Refused> {
    let shown = || format!("[{}]", key.repr().map_or_else(|_| "?".to_owned(), |text| text.to_string()));
    let of_key = |refused: Refused| {
        let what = format!("has a key that cannot be kept: {} {}", shown(), refused.what);
        Refused { steps: Vec::new(), what, is_type: refused.is_type }
    };
    let key = match taken(key, depth + 1).map_err(of_key)? {
        Value::List(_) | Value::Tuple(_) | Value::Map(_) => {
            let what = format!("has the key {}: keys are any plain values but containers", shown());
            return Err(Refused { is_type: true, ..Refused::new(what) });
        }
        key => key,
    };
    let value = taken(value, depth + 1).map_err(|refused| refused.below(shown))?;
    Ok((key, value))
}

fn text(text: &Bound<'_, PyString>) -> Result<Value, Refused> {
    let surrogate = |_| Refused::new("has a lone surrogate, which is no text");
    Ok(Value::Text(text.to_cow().map_err(surrogate)?.into_owned()))
}

fn integer(int: &Bound<'_, PyInt>) -> Result<Value, Refused> {
    if let Ok(small) = int.extract::<i64>() {
        return Ok(Value::Int(small));
    }
    let negative = int.lt(0)?;
    let magnitude = int.abs()?;
    let bits: u64 = magnitude.call_method0("bit_length")?.extract()?;
    let bytes = magnitude.call_method1("to_bytes", (bits.div_ceil(8), "big"))?;
    let bytes = bytes.cast_into::<PyBytes>().map_err(PyErr::from)?;
    Ok(Value::integer(negative, bytes.as_bytes()))
}

/// `value` as Python has it.
pub(crate) fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    let items = |items: &[Value]| items.iter().map(|item| to_python(py, item)).collect::<PyResult<Vec<_>>>();
    Ok(match value {
        Value::None => py.None().into_bound(py),
        Value::Bool(truth) => PyBool::new(py, *truth).to_owned().into_any(),
        Value::Int(int) => PyInt::new(py, *int).into_any(),
        Value::BigInt { negative, magnitude } => {
            let bytes = PyBytes::new(py, magnitude);
            let int = py.get_type::<PyInt>().call_method1("from_bytes", (bytes, "big"))?;
            if *negative { int.neg()? } else { int }
        }
        Value::Float(float) => PyFloat::new(py, *float).into_any(),
        Value::Text(text) => PyString::new(py, text).into_any(),
        Value::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        Value::List(list) => PyList::new(py, items(list)?)?.into_any(),
        Value::Tuple(tuple) => PyTuple::new(py, items(tuple)?)?.into_any(),
        Value::Map(pairs) => {
            let dict = PyDict::new(py);
            for (key, value) in pairs {
                dict.set_item(to_python(py, key)?, to_python(py, value)?)?;
            }
            dict.into_any()
        }
    })
}
