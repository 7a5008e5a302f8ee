//! Encodes and decodes dates, times and durations, with their zones.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyDate, PyDateAccess, PyDateTime, PyDelta, PyDeltaAccess, PyString, PyTime, PyTimeAccess, PyType, PyTzInfo,
    PyTzInfoAccess,
};

use super::decode::Decoder;
use super::encode::Encoder;
use super::{CodecError, tag};
use flownet_runtime::canonical::{ZONE_NONE, ZONE_UTC};
use flownet_runtime::varint::{put_varint, unzigzag, zigzag};

const ZONE_OFFSET: u8 = 2;
const ZONE_NAMED_OFFSET: u8 = 3;
const ZONE_KEY: u8 = 4;

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;

static TIMEZONE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static ZONE_INFO: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Encodes a value of the `datetime` module. Returns false for any other type.
pub(super) fn encode(encoder: &mut Encoder<'_>, value: &Bound<'_, PyAny>) -> Result<bool, CodecError> {
    if let Ok(datetime) = value.cast_exact::<PyDateTime>() {
        encoder.out.push(tag::DATETIME);
        put_date(encoder.out, datetime);
        put_time(encoder.out, datetime);
        put_zone(encoder, value, datetime.get_tzinfo())?;
    } else if let Ok(date) = value.cast_exact::<PyDate>() {
        encoder.out.push(tag::DATE);
        put_date(encoder.out, date);
    } else if let Ok(time) = value.cast_exact::<PyTime>() {
        encoder.out.push(tag::TIME);
        put_time(encoder.out, time);
        put_zone(encoder, value, time.get_tzinfo())?;
    } else if let Ok(delta) = value.cast_exact::<PyDelta>() {
        encoder.out.push(tag::TIMEDELTA);
        for part in [delta.get_days(), delta.get_seconds(), delta.get_microseconds()] {
            encoder.out.extend_from_slice(&part.to_le_bytes());
        }
    } else {
        return Ok(false);
    }
    Ok(true)
}

/// Decodes the body of `tag`, one of `DATE`, `TIME`, `DATETIME` and `TIMEDELTA`.
pub(super) fn decode<'py>(
    decoder: &mut Decoder<'_>,
    py: Python<'py>,
    tag: u8,
) -> Result<Bound<'py, PyAny>, CodecError> {
    match tag {
        tag::DATE => {
            let (year, month, day) = take_date(decoder)?;
            Ok(PyDate::new(py, year, month, day)?.into_any())
        }
        tag::TIME => {
            let [hour, minute, second, fold] = decoder.array()?;
            let (micro, zone) = (u32::from_le_bytes(decoder.array()?), take_zone(decoder, py)?);
            Ok(PyTime::new_with_fold(py, hour, minute, second, micro, zone.as_ref(), take_fold(fold)?)?.into_any())
        }
        tag::DATETIME => {
            let (year, month, day) = take_date(decoder)?;
            let [hour, minute, second, fold] = decoder.array()?;
            let (micro, zone, fold) = (u32::from_le_bytes(decoder.array()?), take_zone(decoder, py)?, take_fold(fold)?);
            let zone = zone.as_ref();
            Ok(PyDateTime::new_with_fold(py, year, month, day, hour, minute, second, micro, zone, fold)?.into_any())
        }
        _ => {
            let days = i32::from_le_bytes(decoder.array()?);
            let (seconds, micros) = (i32::from_le_bytes(decoder.array()?), i32::from_le_bytes(decoder.array()?));
            Ok(PyDelta::new(py, days, seconds, micros, true)?.into_any())
        }
    }
}

/// Encodes the canonical form of a key of the `datetime` module. An aware datetime becomes its instant in
/// UTC, and `fold` is dropped if Python's equality ignores it. Returns whether the form is the value itself,
/// or `None` for any other type.
pub(super) fn encode_key(encoder: &mut Encoder<'_>, value: &Bound<'_, PyAny>) -> Result<Option<bool>, CodecError> {
    if let Ok(datetime) = value.cast_exact::<PyDateTime>() {
        return datetime_key(encoder, datetime).map(Some);
    }
    let Ok(time) = value.cast_exact::<PyTime>() else {
        return Ok(encode(encoder, value)?.then_some(true));
    };
    let offset = value.call_method0("utcoffset")?;
    if !offset.is_none() {
        let offset = offset.cast_into::<PyDelta>().map_err(PyErr::from)?;
        // The value that Python compares. It is not reduced to one day, which would make 23:30 UTC and 00:30
        // of an hour later equal.
        encoder.blob(tag::CLASS_KEY, b"datetime:time");
        encoder.small_int(micros_of_day(time) - micros_of(&offset));
        return Ok(Some(false));
    }
    let naive = value.call_method("replace", (), Some(&without_fold(value.py(), time.get_tzinfo().is_some())?))?;
    encode(encoder, &naive)?;
    Ok(Some(!time.get_fold() && time.get_tzinfo().is_none()))
}

fn datetime_key(encoder: &mut Encoder<'_>, value: &Bound<'_, PyDateTime>) -> Result<bool, CodecError> {
    let py = value.py();
    let zone = value.get_tzinfo();
    let is_utc = zone.as_ref().is_some_and(|zone| PyTzInfo::utc(py).is_ok_and(|utc| zone.is(utc)));
    if is_utc || zone.is_none() && !value.get_fold() {
        return Ok(encode(encoder, value)? && !value.get_fold());
    }
    let canonical = if value.call_method0("utcoffset")?.is_none() {
        value.call_method("replace", (), Some(&without_fold(py, zone.is_some())?))?
    } else {
        value.call_method1("astimezone", (PyTzInfo::utc(py)?,))?
    };
    encode(encoder, &canonical)?;
    Ok(false)
}

fn without_fold(py: Python<'_>, drop_zone: bool) -> PyResult<Bound<'_, pyo3::types::PyDict>> {
    let parts = pyo3::types::PyDict::new(py);
    parts.set_item("fold", 0)?;
    if drop_zone {
        parts.set_item("tzinfo", py.None())?;
    }
    Ok(parts)
}

fn put_date(out: &mut Vec<u8>, date: &impl PyDateAccess) {
    // The year of a date is 1..=9999, so its low two bytes are all of it.
    let [low, high, ..] = date.get_year().to_le_bytes();
    out.extend_from_slice(&[low, high, date.get_month(), date.get_day()]);
}

fn put_time(out: &mut Vec<u8>, time: &impl PyTimeAccess) {
    out.extend_from_slice(&[time.get_hour(), time.get_minute(), time.get_second(), u8::from(time.get_fold())]);
    out.extend_from_slice(&time.get_microsecond().to_le_bytes());
}

pub(super) fn put_zone(
    encoder: &mut Encoder<'_>,
    owner: &Bound<'_, PyAny>,
    zone: Option<Bound<'_, PyTzInfo>>,
) -> Result<(), CodecError> {
    let Some(zone) = zone else {
        encoder.out.push(ZONE_NONE);
        return Ok(());
    };
    let py = owner.py();
    if zone.is(PyTzInfo::utc(py)?) {
        encoder.out.push(ZONE_UTC);
    } else if zone.get_type().is(TIMEZONE.import(py, "datetime", "timezone")?) {
        put_fixed_offset(encoder, &zone)?;
    } else if zone.get_type().is(ZONE_INFO.import(py, "zoneinfo", "ZoneInfo")?) {
        let Ok(key) = zone.getattr("key")?.cast_into::<PyString>() else {
            return Err(CodecError::Malformed("a ZoneInfo read from a file has no key to send"));
        };
        encoder.blob(ZONE_KEY, key.to_str()?.as_bytes());
    } else {
        return Err(CodecError::unsupported(&zone));
    }
    Ok(())
}

/// Encodes a fixed offset. `timezone.__getinitargs__` distinguishes a named offset from one whose name
/// derives from the offset.
fn put_fixed_offset(encoder: &mut Encoder<'_>, zone: &Bound<'_, PyTzInfo>) -> Result<(), CodecError> {
    let parts = zone.call_method0("__getinitargs__")?;
    let delta = parts.get_item(0)?.cast_into::<PyDelta>().map_err(PyErr::from)?;
    let micros = micros_of(&delta);
    let named = parts.len()? > 1;
    encoder.out.push(if named { ZONE_NAMED_OFFSET } else { ZONE_OFFSET });
    put_varint(encoder.out, zigzag(micros));
    if named {
        let name = parts.get_item(1)?.extract::<String>()?;
        put_varint(encoder.out, name.len() as u64);
        encoder.out.extend_from_slice(name.as_bytes());
    }
    Ok(())
}

fn micros_of(delta: &Bound<'_, PyDelta>) -> i64 {
    i64::from(delta.get_days()) * MICROS_PER_DAY
        + i64::from(delta.get_seconds()) * MICROS_PER_SECOND
        + i64::from(delta.get_microseconds())
}

fn micros_of_day(time: &impl PyTimeAccess) -> i64 {
    let seconds = 3600 * i64::from(time.get_hour()) + 60 * i64::from(time.get_minute()) + i64::from(time.get_second());
    seconds * MICROS_PER_SECOND + i64::from(time.get_microsecond())
}

fn take_date(decoder: &mut Decoder<'_>) -> Result<(i32, u8, u8), CodecError> {
    let [low, high, month, day] = decoder.array()?;
    Ok((i32::from(u16::from_le_bytes([low, high])), month, day))
}

fn take_fold(fold: u8) -> Result<bool, CodecError> {
    if fold > 1 { Err(CodecError::Malformed("fold is neither 0 nor 1")) } else { Ok(fold == 1) }
}

pub(super) fn take_zone<'py>(
    decoder: &mut Decoder<'_>,
    py: Python<'py>,
) -> Result<Option<Bound<'py, PyTzInfo>>, CodecError> {
    let kind = decoder.byte()?;
    let zone = match kind {
        ZONE_NONE => return Ok(None),
        ZONE_UTC => PyTzInfo::utc(py)?.to_owned(),
        ZONE_OFFSET | ZONE_NAMED_OFFSET => {
            let delta = micros_to_delta(py, unzigzag(decoder.varint()?))?;
            let timezone = TIMEZONE.import(py, "datetime", "timezone")?;
            let zone = match kind {
                ZONE_OFFSET => timezone.call1((delta,))?,
                _ => timezone.call1((delta, PyString::from_bytes(py, decoder.blob()?)?))?,
            };
            zone.cast_into().map_err(PyErr::from)?
        }
        ZONE_KEY => {
            let zone = ZONE_INFO.import(py, "zoneinfo", "ZoneInfo")?;
            zone.call1((PyString::from_bytes(py, decoder.blob()?)?,))?.cast_into().map_err(PyErr::from)?
        }
        _ => return Err(CodecError::Malformed("unknown kind of time zone")),
    };
    Ok(Some(zone))
}

fn micros_to_delta(py: Python<'_>, micros: i64) -> Result<Bound<'_, PyDelta>, CodecError> {
    let out_of_range = |_| CodecError::Malformed("a UTC offset of a day or more");
    let days = i32::try_from(micros.div_euclid(MICROS_PER_DAY)).map_err(out_of_range)?;
    let rest = micros.rem_euclid(MICROS_PER_DAY);
    // Both are below a day's seconds and a second's microseconds.
    let (seconds, micros) = ((rest / MICROS_PER_SECOND) as i32, (rest % MICROS_PER_SECOND) as i32);
    Ok(PyDelta::new(py, days, seconds, micros, true)?)
}
