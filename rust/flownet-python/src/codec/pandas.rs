//! Encodes and decodes `pandas.Timestamp` and `pandas.NaT`.
//!
//! Like numpy, pandas is looked up only if it is already imported or if bytes require it.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType, PyTzInfo};

use super::decode::Decoder;
use super::encode::Encoder;
use super::{CodecError, tag, temporal};

/// Units, indexed by their byte.
const UNITS: [&str; 4] = ["s", "ms", "us", "ns"];
const NOT_A_TIME: u8 = 0xff;
/// A zone of pytz, which older versions of pandas create. All other zones are those of datetimes.
const ZONE_PYTZ: u8 = 0x80;

static TIMESTAMP: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static NOT_A_TIME_TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Kind of a value in pandas.
enum Time {
    Timestamp,
    Missing,
}

fn time_of(value: &Bound<'_, PyAny>) -> PyResult<Option<Time>> {
    let py = value.py();
    if TIMESTAMP.get(py).is_none() && !py.import("sys")?.getattr("modules")?.contains("pandas")? {
        return Ok(None);
    }
    let class = value.get_type();
    if class.is(TIMESTAMP.import(py, "pandas", "Timestamp")?) {
        return Ok(Some(Time::Timestamp));
    }
    let missing = NOT_A_TIME_TYPE.import(py, "pandas.api.typing", "NaTType")?;
    Ok(class.is(missing).then_some(Time::Missing))
}

/// Encodes a time of pandas. Returns false for any other type.
pub(super) fn encode(encoder: &mut Encoder<'_>, value: &Bound<'_, PyAny>) -> Result<bool, CodecError> {
    match time_of(value)? {
        None => return Ok(false),
        Some(Time::Missing) => encoder.out.extend_from_slice(&[tag::TIMESTAMP, NOT_A_TIME]),
        Some(Time::Timestamp) => {
            let unit: String = value.getattr("unit")?.extract()?;
            let unit = UNITS.iter().position(|known| *known == unit);
            let unit = unit.ok_or(CodecError::Malformed("a Timestamp in a unit that no version of pandas has"))?;
            let ticks: i64 = value.getattr("asm8")?.call_method1("astype", ("i8",))?.extract()?;
            encoder.out.extend_from_slice(&[tag::TIMESTAMP, unit as u8]);
            encoder.out.extend_from_slice(&ticks.to_le_bytes());
            put_zone(encoder, value)?;
        }
    }
    Ok(true)
}

/// Decodes the body of `TIMESTAMP`.
pub(super) fn decode<'py>(decoder: &mut Decoder<'_>, py: Python<'py>) -> Result<Bound<'py, PyAny>, CodecError> {
    let unit = decoder.byte()?;
    if unit == NOT_A_TIME {
        return Ok(py.import("pandas")?.getattr("NaT")?);
    }
    let unit = UNITS.get(usize::from(unit)).ok_or(CodecError::Malformed("unknown unit of a Timestamp"))?;
    let ticks = i64::from_le_bytes(decoder.array()?);
    let instant = py.import("numpy")?.getattr("datetime64")?.call1((ticks, unit))?;
    let timestamp = TIMESTAMP.import(py, "pandas", "Timestamp")?.call1((instant,))?;
    let zone = match decoder.skip_marker(ZONE_PYTZ) {
        true => {
            let name = PyString::from_bytes(py, decoder.blob()?)?;
            Some(py.import("pytz")?.call_method1("timezone", (name,))?)
        }
        false => temporal::take_zone(decoder, py)?.map(Bound::into_any),
    };
    let Some(zone) = zone else { return Ok(timestamp) };
    Ok(timestamp.call_method1("tz_localize", (PyTzInfo::utc(py)?,))?.call_method1("tz_convert", (zone,))?)
}

/// Encodes the canonical form of a time of pandas: that of the datetime that it equals, if there is one.
/// Returns false for any other type.
pub(super) fn encode_key(encoder: &mut Encoder<'_>, value: &Bound<'_, PyAny>) -> Result<bool, CodecError> {
    match time_of(value)? {
        None => return Ok(false),
        Some(Time::Missing) => encoder.blob(tag::CLASS_KEY, b"pandas:NaT"),
        Some(Time::Timestamp) if value.getattr("nanosecond")?.extract::<u32>()? == 0 => {
            temporal::encode_key(encoder, &value.call_method0("to_pydatetime")?)?;
        }
        Some(Time::Timestamp) => {
            let is_naive = value.getattr("tzinfo")?.is_none();
            encoder.blob(tag::CLASS_KEY, if is_naive { b"pandas:Timestamp" } else { b"pandas:Instant" });
            encoder.small_int(value.getattr("value")?.extract()?);
        }
    }
    Ok(true)
}

fn put_zone(encoder: &mut Encoder<'_>, value: &Bound<'_, PyAny>) -> Result<(), CodecError> {
    let zone = value.getattr("tzinfo")?;
    let zone = if zone.is_none() { None } else { Some(zone.cast_into::<PyTzInfo>().map_err(PyErr::from)?) };
    if let Some(zone) = &zone
        && zone.get_type().module()?.to_string_lossy().starts_with("pytz")
        && let Ok(name) = zone.getattr("zone")?.extract::<String>()
    {
        encoder.blob(ZONE_PYTZ, name.as_bytes());
        return Ok(());
    }
    temporal::put_zone(encoder, value, zone)
}
