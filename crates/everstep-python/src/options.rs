//! Settings of an open repository, from Python's mapping.

use std::collections::HashMap;

use everstep::Options;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// TypeError for an option that there is not, or of another type.
pub(crate) fn options(given: HashMap<String, Bound<'_, PyAny>>) -> PyResult<Options> {
    let mut options = Options::default();
    for (name, value) in given.into_iter().filter(|(_, value)| !value.is_none()) {
        set(&mut options, &name, &value).map_err(|error| {
            let wrong = PyTypeError::new_err(format!("option {name:?}: {error}"));
            wrong.set_cause(value.py(), Some(error));
            wrong
        })?;
    }
    Ok(options)
}

fn set(options: &mut Options, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let Options { store, save, restore, threads, background, .. } = options;
    match name {
        "profile" => store.s3.profile = value.extract()?,
        "region" => store.s3.region = value.extract()?,
        "endpoint_url" => {
            store.s3.endpoint_url = value.extract()?;
            store.cloud.endpoint_url = value.extract()?;
        }
        "allow_http" => {
            store.s3.allow_http = value.extract()?;
            store.cloud.allow_http = value.extract()?;
        }
        "network_file_system" => store.allow_network_fs = value.extract()?,
        "threads" => *threads = Some(value.extract()?),
        "background_threads" => background.threads = Some(value.extract()?),
        "background_nice" => background.nice = value.extract()?,
        "bytes_in_flight" => {
            save.bytes_in_flight = value.extract()?;
            restore.bytes_in_flight = value.extract()?;
        }
        "uploads" => save.uploads = value.extract()?,
        "compress" => save.compress = value.extract()?,
        _ => return Err(PyTypeError::new_err("there is no such option")),
    }
    Ok(())
}
