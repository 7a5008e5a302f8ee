//! Exposes the codec as functions, for tests, tools and `from_collection`.

use std::sync::Arc;

use flownet_cluster::MAX_PARALLELISM;
use flownet_core::keygroup::{self, hash_key};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::codec::{self, KnownClasses, Pickle, PyClassTable, SentClasses};
use crate::errors;
use crate::settings::check_parallelism;

/// Encode a value; types outside the codec's set are refused, or pickled where that is asked for. Classes of instances go
/// into the table given, whose definitions who decodes must have.
#[pyfunction]
#[pyo3(signature = (value, /, *, pickle = false, classes = None))]
pub(crate) fn encode<'py>(
    value: &Bound<'py, PyAny>,
    pickle: bool,
    classes: Option<&PyClassTable>,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut bytes = Vec::new();
    let mut classes = SentClasses::new(classes.map(|table| Arc::clone(&table.0)).unwrap_or_default(), policy(pickle));
    codec::encode(value, &mut classes, &mut bytes).map_err(|error| errors::codec(value.py(), error))?;
    Ok(PyBytes::new(value.py(), &bytes))
}

/// Decode the bytes of exactly one value.
#[pyfunction]
#[pyo3(signature = (data, /, *, pickle = false, classes = None))]
pub(crate) fn decode<'py>(
    py: Python<'py>,
    data: &[u8],
    pickle: bool,
    classes: Option<&PyClassTable>,
) -> PyResult<Bound<'py, PyAny>> {
    let classes = KnownClasses::new(classes.map(|table| Arc::clone(&table.0)).unwrap_or_default(), policy(pickle));
    codec::decode(py, data, &classes).map_err(|error| errors::codec(py, error))
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
    codec::canonical_key(key).map_err(|error| errors::codec(key.py(), error))
}

fn policy(pickle: bool) -> Pickle {
    if pickle { Pickle::Allowed } else { Pickle::Refused }
}
