//! The codec as functions, for tests, tools and `from_collection`.

use flownet_cluster::MAX_PARALLELISM;
use flownet_core::keygroup::{self, hash_key};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::codec::{self, Pickle};
use crate::errors;
use crate::settings::check_parallelism;

/// Encode a value; types outside the codec's set are refused, or pickled where that is asked for.
#[pyfunction]
#[pyo3(signature = (value, /, *, pickle = false))]
pub(crate) fn encode<'py>(value: &Bound<'py, PyAny>, pickle: bool) -> PyResult<Bound<'py, PyBytes>> {
    let mut bytes = Vec::new();
    codec::encode(value, policy(pickle), &mut bytes).map_err(|error| errors::codec(value.py(), error))?;
    Ok(PyBytes::new(value.py(), &bytes))
}

/// Decode the bytes of exactly one value.
#[pyfunction]
#[pyo3(signature = (data, /, *, pickle = false))]
pub(crate) fn decode<'py>(py: Python<'py>, data: &[u8], pickle: bool) -> PyResult<Bound<'py, PyAny>> {
    codec::decode(py, data, policy(pickle)).map_err(|error| errors::codec(py, error))
}

/// Encode a key in its canonical form: equal keys give equal bytes.
#[pyfunction]
#[pyo3(signature = (key, /))]
pub(crate) fn encode_key<'py>(key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    canonical(key).map(|bytes| PyBytes::new(key.py(), &bytes))
}

/// The key group of a key, out of `max_parallelism`.
#[pyfunction]
#[pyo3(signature = (key, /, max_parallelism))]
pub(crate) fn key_group(key: &Bound<'_, PyAny>, max_parallelism: u32) -> PyResult<u16> {
    let py = key.py();
    check_parallelism(py, "max_parallelism", max_parallelism, MAX_PARALLELISM)?;
    Ok(keygroup::key_group(hash_key(&canonical(key)?), max_parallelism).get())
}

/// The subtask that owns a key. Without `max_parallelism`, the one that a job would choose.
#[pyfunction]
#[pyo3(signature = (key, /, parallelism, max_parallelism = None))]
pub(crate) fn subtask_of(key: &Bound<'_, PyAny>, parallelism: u32, max_parallelism: Option<u32>) -> PyResult<u32> {
    let py = key.py();
    check_parallelism(py, "parallelism", parallelism, MAX_PARALLELISM)?;
    let groups = max_parallelism.unwrap_or_else(|| keygroup::default_max_parallelism(parallelism));
    check_parallelism(py, "max_parallelism", groups, MAX_PARALLELISM)?;
    check_parallelism(py, "parallelism", parallelism, groups)?;
    let group = keygroup::key_group(hash_key(&canonical(key)?), groups);
    Ok(keygroup::subtask_of(group, groups, parallelism))
}

fn canonical(key: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let mut bytes = Vec::new();
    codec::encode_key(key, &mut bytes).map_err(|error| errors::codec(key.py(), error))?;
    Ok(bytes)
}

fn policy(pickle: bool) -> Pickle {
    if pickle { Pickle::Allowed } else { Pickle::Refused }
}
