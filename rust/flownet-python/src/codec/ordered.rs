//! Encodes and decodes `OrderedDict`: a dict whose order is part of its value.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use super::decode::Decoder;
use super::encode::Encoder;
use super::object::dict_of;
use super::{CodecError, tag};

static ORDERED_DICT: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Encodes an `OrderedDict`. Returns false for any other type.
pub(super) fn encode(encoder: &mut Encoder<'_>, value: &Bound<'_, PyAny>, depth: usize) -> Result<bool, CodecError> {
    let class = ORDERED_DICT.import(value.py(), "collections", "OrderedDict")?;
    if !value.get_type().is(class) {
        return Ok(false);
    }
    if !dict_of(value)?.is_empty() {
        return Err(CodecError::unsupported_class(value, "it has attributes beside its items"));
    }
    encoder.enter(depth)?;
    let count = value.len()?;
    encoder.count(tag::ORDERED_DICT, count);
    let mut seen = 0;
    for item in value.call_method0("items")?.try_iter()? {
        let (key, value) = item?.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
        encoder.value(&key, depth + 1)?;
        encoder.value(&value, depth + 1)?;
        seen += 1;
    }
    if seen == count { Ok(true) } else { Err(CodecError::Changed("dict")) }
}

/// Decodes the body of `ORDERED_DICT`.
pub(super) fn decode<'py>(
    decoder: &mut Decoder<'_>,
    py: Python<'py>,
    depth: usize,
) -> Result<Bound<'py, PyAny>, CodecError> {
    decoder.enter(depth)?;
    let dict = ORDERED_DICT.import(py, "collections", "OrderedDict")?.call0()?;
    for _ in 0..decoder.item_count(2)? {
        let key = decoder.value(py, depth)?;
        dict.set_item(key, decoder.value(py, depth)?)?;
    }
    Ok(dict)
}
