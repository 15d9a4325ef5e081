//! Retention of one run.

use std::sync::Mutex;

use everstep::gc::{Policy, Settings};
use pyo3::prelude::*;

use crate::call;
use crate::home::Home;
use crate::writer::alone;

/// Expires what a policy does not keep of one run. One call at a time; another one meanwhile raises RuntimeError.
#[pyclass(frozen, module = "everstep._everstep")]
pub(crate) struct Expirer {
    inner: Home<Mutex<everstep::Expirer>>,
}

/// As TOML, or as JSON: that begins with a brace, which TOML cannot.
fn policy(text: &str) -> Result<Policy, everstep::Error> {
    let read = if text.starts_with('{') { Policy::from_json(text) } else { Policy::from_toml(text) };
    Ok(read?)
}

impl Expirer {
    pub(crate) fn new(run: &everstep::Run, text: &str) -> Result<Self, everstep::Error> {
        let inner = run.expirer(policy(text)?, Settings::default())?;
        Ok(Self { inner: Home::new(Mutex::new(inner)) })
    }
}

#[pymethods]
impl Expirer {
    /// Expires what is to be expired by now; the ordinals.
    fn expire(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        let mut guard = alone(self.inner.get()?, "expirer")?;
        let expirer = &mut *guard;
        let expired = call::run(py, None, || Ok(expirer.expire()?))?;
        Ok(expired.into_iter().map(|ordinal| ordinal.0).collect())
    }
}
