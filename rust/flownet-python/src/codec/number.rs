//! Encodes and decodes integers of any size, complex numbers, `Decimal` and `UUID`.

use std::os::raw::c_int;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyComplex, PyInt, PyString, PyType};

use super::encode::Encoder;
use super::{CodecError, tag};
use flownet_runtime::varint::put_varint;

static DECIMAL: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static UUID: PyOnceLock<Py<PyType>> = PyOnceLock::new();

pub(super) fn decimal_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    DECIMAL.import(py, "decimal", "Decimal")
}

fn uuid_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    UUID.import(py, "uuid", "UUID")
}

/// The integer, if it fits into 64 bits.
#[inline]
pub(crate) fn small_int(int: &Bound<'_, PyInt>) -> Option<i64> {
    let mut overflow: c_int = 0;
    // SAFETY: `int` is an int, so the call cannot fail but by overflow, which it reports without raising.
    // PyO3's extract would build and drop an OverflowError for each large integer.
    let value = unsafe { ffi::PyLong_AsLongLongAndOverflow(int.as_ptr(), &raw mut overflow) };
    (overflow == 0).then_some(value)
}

pub(super) fn encode_big_int(int: &Bound<'_, PyInt>, out: &mut Vec<u8>) -> Result<(), CodecError> {
    let bits: usize = int.call_method0("bit_length")?.extract()?;
    let len = bits / 8 + 1;
    let signed = pyo3::types::PyDict::new(int.py());
    signed.set_item("signed", true)?;
    let bytes = int.call_method("to_bytes", (len, "little"), Some(&signed))?;
    out.push(tag::BIG_INT);
    put_varint(out, len as u64);
    out.extend_from_slice(bytes.cast::<PyBytes>().map_err(PyErr::from)?.as_bytes());
    Ok(())
}

pub(super) fn decode_big_int<'py>(py: Python<'py>, bytes: &[u8]) -> Result<Bound<'py, PyAny>, CodecError> {
    let signed = pyo3::types::PyDict::new(py);
    signed.set_item("signed", true)?;
    Ok(py.get_type::<PyInt>().call_method("from_bytes", (PyBytes::new(py, bytes), "little"), Some(&signed))?)
}

pub(super) fn encode_complex(complex: &Bound<'_, PyComplex>, out: &mut Vec<u8>) {
    out.push(tag::COMPLEX);
    out.extend_from_slice(&complex.real().to_le_bytes());
    out.extend_from_slice(&complex.imag().to_le_bytes());
}

/// Encodes a `Decimal` or `UUID`. Returns false for any other type.
pub(super) fn encode_other(encoder: &mut Encoder<'_>, value: &Bound<'_, PyAny>) -> Result<bool, CodecError> {
    let py = value.py();
    let kind = value.get_type();
    if kind.is(decimal_type(py)?) {
        encoder.blob(tag::DECIMAL, value.str()?.to_str()?.as_bytes());
    } else if kind.is(uuid_type(py)?) {
        let bytes = value.getattr("bytes")?;
        encoder.out.push(tag::UUID);
        encoder.out.extend_from_slice(bytes.cast::<PyBytes>().map_err(PyErr::from)?.as_bytes());
    } else {
        return Ok(false);
    }
    Ok(true)
}

pub(super) fn decode_decimal<'py>(py: Python<'py>, text: &[u8]) -> Result<Bound<'py, PyAny>, CodecError> {
    let text = std::str::from_utf8(text).map_err(|_| CodecError::Malformed("a Decimal that is not ASCII"))?;
    Ok(decimal_type(py)?.call1((PyString::new(py, text),))?)
}

pub(super) fn decode_uuid<'py>(py: Python<'py>, bytes: &[u8]) -> Result<Bound<'py, PyAny>, CodecError> {
    Ok(uuid_type(py)?.call1((py.None(), PyBytes::new(py, bytes)))?)
}
