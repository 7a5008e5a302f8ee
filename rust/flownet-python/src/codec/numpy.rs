//! Encodes and decodes numpy scalars and arrays, with dtypes of every kind except object.
//!
//! The encoder looks up numpy only if it is already imported, and the decoder only if bytes require it. A job
//! without numpy values never pays for its import.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType};

use super::decode::Decoder;
use super::encode::Encoder;
use super::{CodecError, tag, temporal};
use flownet_runtime::varint::put_varint;

const DTYPE_PLAIN: u8 = 0;
const DTYPE_STRUCTURE: u8 = 1;
const DTYPE_SUBARRAY: u8 = 2;
/// Greatest depth of a dtype. dtypes rarely nest; numpy itself allows 32 dimensions or more.
const MAX_DTYPE_DEPTH: usize = 16;
const MAX_DIMENSIONS: u64 = 32;

static NDARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static GENERIC: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static DTYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Encodes a numpy scalar or array. Returns false for any other type, subclasses of arrays and scalars
/// included.
pub(super) fn encode(encoder: &mut Encoder<'_>, value: &Bound<'_, PyAny>) -> Result<bool, CodecError> {
    if !is_imported(value.py())? {
        return Ok(false);
    }
    if value.get_type().is(NDARRAY.import(value.py(), "numpy", "ndarray")?) {
        return encode_array(encoder, value);
    }
    if let Some(common) = common_of(value)? {
        encoder.out.extend_from_slice(&[tag::NUMPY_SCALAR, DTYPE_PLAIN, common.dtype.len() as u8]);
        encoder.out.extend_from_slice(common.dtype.as_bytes());
        put_common(encoder.out, value, common.dtype)?;
        return Ok(true);
    }
    if !is_scalar(value)? {
        return Ok(false);
    }
    let dtype = value.getattr("dtype")?;
    if !is_portable(&dtype)? {
        return Ok(false);
    }
    encoder.out.push(tag::NUMPY_SCALAR);
    put_dtype(encoder.out, &dtype, 0)?;
    put_item(encoder.out, value, dtype.getattr("itemsize")?.extract()?)?;
    Ok(true)
}

/// The Python value that a numpy scalar equals (numbers, strings, bytes), for use in keys; `None` for other
/// types.
pub(super) fn as_python<'py>(value: &Bound<'py, PyAny>) -> Result<Option<Bound<'py, PyAny>>, CodecError> {
    if !is_imported(value.py())? || !is_scalar(value)? {
        return Ok(None);
    }
    let kind: String = value.getattr("dtype")?.getattr("kind")?.extract()?;
    if !matches!(kind.as_str(), "b" | "i" | "u" | "f" | "c" | "U" | "S") {
        return Ok(None);
    }
    let item = value.call_method0("item")?;
    // An extended-precision float has no Python equal: `item` returns it unchanged.
    Ok((!item.get_type().is(value.get_type())).then_some(item))
}

/// Encodes the canonical form of a `datetime64` or `timedelta64`: that of the datetime or timedelta it
/// equals, if there is one. Returns false for any other type.
pub(super) fn encode_time_key(encoder: &mut Encoder<'_>, value: &Bound<'_, PyAny>) -> Result<bool, CodecError> {
    let py = value.py();
    if !is_imported(py)? || !is_scalar(value)? {
        return Ok(false);
    }
    let kind: String = value.getattr("dtype")?.getattr("kind")?.extract()?;
    if !matches!(kind.as_str(), "M" | "m") {
        return Ok(false);
    }
    let canonical = py.import("flownet.internal.record_classes")?.call_method1("numpy_time_key", (value,))?;
    let Ok((name, ticks)) = canonical.extract::<(String, Bound<'_, PyInt>)>() else {
        temporal::encode_key(encoder, &canonical)?;
        return Ok(true);
    };
    encoder.blob(tag::CLASS_KEY, name.as_bytes());
    encoder.int(&ticks)?;
    Ok(true)
}

pub(super) fn decode_scalar<'py>(decoder: &mut Decoder<'_>, py: Python<'py>) -> Result<Bound<'py, PyAny>, CodecError> {
    if let Some(scalar) = take_common(decoder, py)? {
        return Ok(scalar);
    }
    let dtype = take_dtype(decoder, py, 0)?;
    let bytes = decoder.take(dtype.getattr("itemsize")?.extract()?)?;
    // Uses an array of no dimensions: frombuffer refuses items of zero bytes, such as an empty string.
    Ok(array(py, &dtype, &[], bytes)?.get_item(PyTuple::empty(py))?)
}

pub(super) fn decode_array<'py>(decoder: &mut Decoder<'_>, py: Python<'py>) -> Result<Bound<'py, PyAny>, CodecError> {
    let dtype = take_dtype(decoder, py, 0)?;
    let shape = take_shape(decoder)?;
    let item_bytes: usize = dtype.getattr("itemsize")?.extract()?;
    let bytes = shape.iter().try_fold(item_bytes, |bytes, &extent| bytes.checked_mul(extent));
    let bytes = decoder.take(bytes.ok_or(CodecError::Malformed("an array of more bytes than memory has"))?)?;
    array(py, &dtype, &shape, bytes)
}

/// Rows of an encoded array, which begins with its tag: its first extent. `None` for an array without
/// dimensions.
pub(super) fn rows(decoder: &mut Decoder<'_>) -> Result<Option<u64>, CodecError> {
    decoder.byte()?;
    skip_dtype(decoder, 0)?;
    Ok(take_shape(decoder)?.first().map(|&extent| extent as u64))
}

fn skip_dtype(decoder: &mut Decoder<'_>, depth: usize) -> Result<(), CodecError> {
    if depth == MAX_DTYPE_DEPTH {
        return Err(CodecError::TooDeep { limit: MAX_DTYPE_DEPTH });
    }
    match decoder.byte()? {
        DTYPE_PLAIN => {
            let len = usize::from(decoder.byte()?);
            decoder.take(len)?;
        }
        DTYPE_STRUCTURE => {
            decoder.varint()?;
            decoder.byte()?;
            for _ in 0..decoder.len()? {
                decoder.blob()?;
                decoder.varint()?;
                skip_dtype(decoder, depth + 1)?;
            }
        }
        DTYPE_SUBARRAY => {
            skip_dtype(decoder, depth + 1)?;
            take_shape(decoder)?;
        }
        _ => return Err(CodecError::Malformed("unknown kind of dtype")),
    }
    Ok(())
}

/// A scalar type that needs no inspection of its dtype. Aggregations over arrays return values of these
/// types.
struct CommonType {
    class: Py<PyType>,
    dtype: &'static str,
}

static COMMON: PyOnceLock<Vec<CommonType>> = PyOnceLock::new();

/// Little-endian only: on other machines none of these is a scalar's native dtype, and the general path
/// applies.
const COMMON_NAMES: [(&str, &str); 4] = [("float64", "<f8"), ("int64", "<i8"), ("int32", "<i4"), ("float32", "<f4")];

fn common_types(py: Python<'_>) -> PyResult<&[CommonType]> {
    let look_up = || {
        let numpy = py.import("numpy")?;
        let mut common = Vec::new();
        for (name, dtype) in COMMON_NAMES {
            let class = numpy.getattr(name)?;
            if numpy.getattr("dtype")?.call1((&class,))?.getattr("str")?.extract::<String>()? == dtype {
                common.push(CommonType { class: class.cast_into::<PyType>()?.unbind(), dtype });
            }
        }
        PyResult::Ok(common)
    };
    Ok(COMMON.get_or_try_init(py, look_up)?)
}

fn common_of<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<&'py CommonType>> {
    let class = value.get_type();
    Ok(common_types(value.py())?.iter().find(|common| class.is(&common.class)))
}

/// Encodes through Python numbers, which hold all values of these types: `tobytes` would build an array
/// first.
fn put_common(out: &mut Vec<u8>, value: &Bound<'_, PyAny>, dtype: &str) -> PyResult<()> {
    match dtype {
        "<f8" => out.extend_from_slice(&value.extract::<f64>()?.to_le_bytes()),
        "<f4" => out.extend_from_slice(&(value.extract::<f64>()? as f32).to_le_bytes()),
        "<i8" => out.extend_from_slice(&value.extract::<i64>()?.to_le_bytes()),
        _ => out.extend_from_slice(&value.extract::<i32>()?.to_le_bytes()),
    }
    Ok(())
}

fn take_common<'py>(decoder: &mut Decoder<'_>, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>, CodecError> {
    let [DTYPE_PLAIN, 3, dtype @ ..] = decoder.rest() else { return Ok(None) };
    let Some(common) = common_types(py)?.iter().find(|common| dtype.starts_with(common.dtype.as_bytes())) else {
        return Ok(None);
    };
    decoder.take(2 + common.dtype.len())?;
    let number = match common.dtype {
        "<f8" => PyFloat::new(py, f64::from_le_bytes(decoder.array()?)).into_any(),
        "<f4" => PyFloat::new(py, f64::from(f32::from_le_bytes(decoder.array()?))).into_any(),
        "<i8" => PyInt::new(py, i64::from_le_bytes(decoder.array()?)).into_any(),
        _ => PyInt::new(py, i32::from_le_bytes(decoder.array()?)).into_any(),
    };
    Ok(Some(common.class.bind(py).call1((number,))?))
}

/// Encodes the bytes of an item. An empty string has no bytes, but numpy returns those of one character.
fn put_item(out: &mut Vec<u8>, value: &Bound<'_, PyAny>, item_bytes: usize) -> Result<(), CodecError> {
    let bytes = value.call_method0("tobytes")?;
    let bytes = bytes.cast::<PyBytes>().map_err(PyErr::from)?.as_bytes();
    out.extend_from_slice(&bytes[..item_bytes.min(bytes.len())]);
    Ok(())
}

fn is_imported(py: Python<'_>) -> PyResult<bool> {
    // Set by the first lookup after the import was detected.
    if NDARRAY.get(py).is_some() {
        return Ok(true);
    }
    py.import("sys")?.getattr("modules")?.contains("numpy")
}

fn is_scalar(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    if !value.is_instance(GENERIC.import(value.py(), "numpy", "generic")?)? {
        return Ok(false);
    }
    // A user's subclass of a scalar type has the dtype of its base.
    Ok(value.getattr("dtype")?.getattr("type")?.is(value.get_type()))
}

/// Returns false for objects and the new string type. Objects are references, and that type stores its text
/// elsewhere. Their bytes mean nothing to another process.
fn is_portable(dtype: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(!dtype.getattr("hasobject")?.is_truthy()? && dtype.getattr("isbuiltin")?.extract::<i32>()? != 2)
}

fn encode_array(encoder: &mut Encoder<'_>, value: &Bound<'_, PyAny>) -> Result<bool, CodecError> {
    let dtype = value.getattr("dtype")?;
    if !is_portable(&dtype)? {
        let type_name = format!("numpy.ndarray of dtype {}", dtype.str()?);
        return Err(CodecError::Unsupported { type_name, reason: String::new() });
    }
    encoder.out.push(tag::NDARRAY);
    put_dtype(encoder.out, &dtype, 0)?;
    put_shape(encoder.out, &value.getattr("shape")?)?;
    let bytes = value.call_method1("tobytes", ("C",))?;
    encoder.out.extend_from_slice(bytes.cast::<PyBytes>().map_err(PyErr::from)?.as_bytes());
    Ok(true)
}

fn put_shape(out: &mut Vec<u8>, shape: &Bound<'_, PyAny>) -> Result<(), CodecError> {
    let shape: Vec<u64> = shape.extract()?;
    put_varint(out, shape.len() as u64);
    shape.into_iter().for_each(|extent| put_varint(out, extent));
    Ok(())
}

fn put_dtype(out: &mut Vec<u8>, dtype: &Bound<'_, PyAny>, depth: usize) -> Result<(), CodecError> {
    if depth == MAX_DTYPE_DEPTH {
        return Err(CodecError::TooDeep { limit: MAX_DTYPE_DEPTH });
    }
    let fields = dtype.getattr("names")?;
    if !fields.is_none() {
        return put_structure(out, dtype, &fields.extract::<Vec<String>>()?, depth);
    }
    let subarray = dtype.getattr("subdtype")?;
    if !subarray.is_none() {
        out.push(DTYPE_SUBARRAY);
        put_dtype(out, &subarray.get_item(0)?, depth + 1)?;
        return put_shape(out, &subarray.get_item(1)?);
    }
    let text: String = dtype.getattr("str")?.extract()?;
    let len = u8::try_from(text.len()).map_err(|_| CodecError::Malformed("a dtype with a very long name"))?;
    out.extend_from_slice(&[DTYPE_PLAIN, len]);
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

fn put_structure(
    out: &mut Vec<u8>,
    dtype: &Bound<'_, PyAny>,
    names: &[String],
    depth: usize,
) -> Result<(), CodecError> {
    let fields = dtype.getattr("fields")?;
    out.push(DTYPE_STRUCTURE);
    put_varint(out, dtype.getattr("itemsize")?.extract()?);
    out.push(u8::from(dtype.getattr("isalignedstruct")?.is_truthy()?));
    put_varint(out, names.len() as u64);
    for name in names {
        let field = fields.get_item(name)?;
        put_varint(out, name.len() as u64);
        out.extend_from_slice(name.as_bytes());
        put_varint(out, field.get_item(1)?.extract()?);
        put_dtype(out, &field.get_item(0)?, depth + 1)?;
    }
    Ok(())
}

fn take_shape(decoder: &mut Decoder<'_>) -> Result<Vec<usize>, CodecError> {
    let dimensions = decoder.varint()?;
    if dimensions > MAX_DIMENSIONS {
        return Err(CodecError::Malformed("an array of more than 32 dimensions"));
    }
    let extent = |_| usize::try_from(decoder.varint()?).map_err(|_| CodecError::Malformed("an extent beyond memory"));
    (0..dimensions).map(extent).collect()
}

fn take_dtype<'py>(decoder: &mut Decoder<'_>, py: Python<'py>, depth: usize) -> Result<Bound<'py, PyAny>, CodecError> {
    if depth == MAX_DTYPE_DEPTH {
        return Err(CodecError::TooDeep { limit: MAX_DTYPE_DEPTH });
    }
    let dtype_type = DTYPE.import(py, "numpy", "dtype")?;
    match decoder.byte()? {
        DTYPE_PLAIN => {
            let len = usize::from(decoder.byte()?);
            let text = plain_dtype(decoder.take(len)?)?;
            Ok(dtype_type.call1((text,))?)
        }
        DTYPE_STRUCTURE => take_structure(decoder, py, depth),
        DTYPE_SUBARRAY => {
            let base = take_dtype(decoder, py, depth + 1)?;
            Ok(dtype_type.call1(((base, PyTuple::new(py, take_shape(decoder)?)?),))?)
        }
        _ => Err(CodecError::Malformed("unknown kind of dtype")),
    }
}

/// Accepts only text that `dtype.str` yields for types without references: numpy's constructor accepts far
/// more.
fn plain_dtype(text: &[u8]) -> Result<&str, CodecError> {
    let malformed = CodecError::Malformed("a dtype that is none of numpy's plain ones");
    match text {
        [b'<' | b'>' | b'|' | b'=', kind, rest @ ..] if b"biufcmMSUV".contains(kind) => {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let unit = &rest[digits..];
            let is_unit = unit.starts_with(b"[")
                && unit.ends_with(b"]")
                && unit[1..unit.len() - 1].iter().all(u8::is_ascii_alphanumeric);
            if digits <= 10 && (unit.is_empty() || is_unit) {
                return std::str::from_utf8(text).map_err(|_| malformed);
            }
            Err(malformed)
        }
        _ => Err(malformed),
    }
}

fn take_structure<'py>(
    decoder: &mut Decoder<'_>,
    py: Python<'py>,
    depth: usize,
) -> Result<Bound<'py, PyAny>, CodecError> {
    let item_bytes = decoder.varint()?;
    let is_aligned = decoder.byte()? == 1;
    // A field takes four bytes at least: name length, offset and its dtype.
    let count = decoder.len()?;
    let (names, offsets, formats) = (PyList::empty(py), PyList::empty(py), PyList::empty(py));
    for _ in 0..count {
        names.append(PyString::from_bytes(py, decoder.blob()?)?)?;
        offsets.append(decoder.varint()?)?;
        formats.append(take_dtype(decoder, py, depth + 1)?)?;
    }
    let parts = PyDict::new(py);
    parts.set_item("names", names)?;
    parts.set_item("offsets", offsets)?;
    parts.set_item("formats", formats)?;
    parts.set_item("itemsize", item_bytes)?;
    Ok(DTYPE.import(py, "numpy", "dtype")?.call1((parts, is_aligned))?)
}

/// An array over a fresh, writable copy of `bytes`, whose length matches dtype and shape.
fn array<'py>(
    py: Python<'py>,
    dtype: &Bound<'py, PyAny>,
    shape: &[usize],
    bytes: &[u8],
) -> Result<Bound<'py, PyAny>, CodecError> {
    let shape = PyTuple::new(py, shape)?;
    Ok(NDARRAY.import(py, "numpy", "ndarray")?.call1((shape, dtype, PyByteArray::new(py, bytes)))?)
}
