//! The opt-in door for types outside the codec.
//!
//! cloudpickle writes (classes of a script's `__main__` travel by value, as functions do), plain pickle reads.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;

use super::encode::Encoder;
use super::{CodecError, tag};

static DUMPS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

pub(super) fn encode(encoder: &mut Encoder<'_>, value: &Bound<'_, PyAny>) -> Result<(), CodecError> {
    let bytes = DUMPS.import(value.py(), "cloudpickle", "dumps")?.call1((value,))?;
    encoder.blob(tag::PICKLE, bytes.cast::<PyBytes>().map_err(PyErr::from)?.as_bytes());
    Ok(())
}

pub(super) fn decode<'py>(py: Python<'py>, bytes: &[u8]) -> Result<Bound<'py, PyAny>, CodecError> {
    Ok(LOADS.import(py, "pickle", "loads")?.call1((PyBytes::new(py, bytes),))?)
}
