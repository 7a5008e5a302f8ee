//! Converts plain data between Rust and Python, by serde. All settings, operator kinds and counters use this
//! conversion.
//!
//! It converts through [`serde_json::Value`]. pythonize would do the same, but lags the PyO3 version of this
//! crate.

use pyo3::conversion::FromPyObject;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyNone, PyString, PyTuple, PyType};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value};

/// Converts `value` to dicts, lists and plain values.
pub(crate) fn to_python<'py>(py: Python<'py>, value: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    let value = serde_json::to_value(value).map_err(|error| PyValueError::new_err(error.to_string()))?;
    object_of(py, &value)
}

/// [`to_python`] of a structure.
pub(crate) fn to_dict<'py>(py: Python<'py>, value: &impl Serialize) -> PyResult<Bound<'py, PyDict>> {
    Ok(to_python(py, value)?.cast_into::<PyDict>()?)
}

/// Reads an object such as [`to_python`] makes. The error explains a mismatch.
pub(crate) fn from_python<T: DeserializeOwned>(object: &Bound<'_, PyAny>) -> PyResult<T> {
    serde_json::from_value(value_of(object)?).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// An argument that is read by [`from_python`].
pub(crate) struct Plain<T>(pub(crate) T);

impl<'a, 'py, T: DeserializeOwned> FromPyObject<'a, 'py> for Plain<T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        from_python(&object).map(Self)
    }
}

/// A time in milliseconds since 1970-01-01 UTC: an int, or a `datetime` with a time zone.
#[derive(Clone, Copy)]
pub(crate) struct Milliseconds(pub(crate) i64);

impl<'a, 'py> FromPyObject<'a, 'py> for Milliseconds {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match milliseconds_of_datetime(&object)? {
            Some(timestamp_ms) => Ok(Self(timestamp_ms)),
            None => object.extract().map(Self),
        }
    }
}

/// The time of a `datetime`, `None` for any other object. A `datetime` without a time zone is an error.
pub(crate) fn milliseconds_of_datetime(object: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    static DATETIME: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static CONVERT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = object.py();
    if object.is_exact_instance_of::<PyInt>() || !object.is_instance(DATETIME.import(py, "datetime", "datetime")?)? {
        return Ok(None);
    }
    CONVERT.import(py, "flownet.internal.instants", "milliseconds_of")?.call1((object,))?.extract().map(Some)
}

fn object_of<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => PyNone::get(py).to_owned().into_any(),
        Value::Bool(flag) => PyBool::new(py, *flag).to_owned().into_any(),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => PyInt::new(py, int).into_any(),
            (None, Some(int)) => PyInt::new(py, int).into_any(),
            (None, None) => PyFloat::new(py, number.as_f64().unwrap_or(f64::NAN)).into_any(),
        },
        Value::String(text) => PyString::new(py, text).into_any(),
        Value::Array(items) => {
            let items = items.iter().map(|item| object_of(py, item)).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, items)?.into_any()
        }
        Value::Object(fields) => {
            let dict = PyDict::new(py);
            for (name, field) in fields {
                dict.set_item(name, object_of(py, field)?)?;
            }
            dict.into_any()
        }
    })
}

fn value_of(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    if object.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(flag) = object.cast::<PyBool>() {
        return Ok(Value::Bool(flag.is_true()));
    }
    if object.is_instance_of::<PyInt>() {
        // No setting has a number beyond 64 bits.
        return object.extract::<i64>().map(Value::from).or_else(|_| object.extract::<u64>().map(Value::from));
    }
    if let Ok(float) = object.cast::<PyFloat>() {
        let number = Number::from_f64(float.value());
        return number.map(Value::Number).ok_or_else(|| PyValueError::new_err("the number is not finite"));
    }
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(Value::String(text.to_cow()?.into_owned()));
    }
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Value::from(bytes.as_bytes()));
    }
    if let Ok(dict) = object.cast::<PyDict>() {
        let fields = dict.iter().map(|(name, field)| Ok((name.extract::<String>()?, value_of(&field)?)));
        return fields.collect::<PyResult<Map<_, _>>>().map(Value::Object);
    }
    if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        let items = object.try_iter()?.map(|item| value_of(&item?));
        return items.collect::<PyResult<Vec<_>>>().map(Value::Array);
    }
    Err(PyTypeError::new_err(format!("{} is no plain data", object.get_type().name()?)))
}
