//! `to_objects`: converts rows to records that are objects, and values to Python's types.

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Decimal128Type, DecimalType, Float64Type, Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef};
use arrow_cast::cast;
use arrow_schema::{DataType, TimeUnit};
use flownet_rows::type_name;
use flownet_runtime::TaskError;
use flownet_runtime::operator::Operator;
use flownet_runtime::snapshot::Snapshot;
use flownet_runtime::time::NO_TIMESTAMP;
use flownet_runtime::work::Work;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDelta, PyDict, PyList, PyString, PyTuple};

use super::arrow::{PyRowBatch, arrow_error};
use crate::chain::{Collector, OperatorInfo, PythonFormat};

/// Converts each row to a dict or a tuple.
pub(crate) struct ToObjects {
    as_dicts: bool,
    info: OperatorInfo,
}

impl ToObjects {
    pub(crate) fn new(as_dicts: bool, info: OperatorInfo) -> Self {
        Self { as_dicts, info }
    }

    fn objects<'py>(&self, py: Python<'py>, batch: &PyRowBatch) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let schema = batch.0.columns.schema();
        let columns = schema.fields().iter().zip(batch.0.columns.columns());
        let columns = columns.map(|(field, column)| {
            values(py, column).map_err(|error| of_column(py, field.name(), column.data_type(), error))
        });
        let columns = columns.collect::<PyResult<Vec<_>>>()?;
        let names: Vec<_> = schema.fields().iter().map(|field| PyString::intern(py, field.name())).collect();
        let row = |row: usize| {
            let items = columns.iter().map(|column| &column[row]);
            if !self.as_dicts {
                return Ok(PyTuple::new(py, items.collect::<Vec<_>>())?.into_any());
            }
            let dict = PyDict::new(py);
            names.iter().zip(items).try_for_each(|(name, item)| dict.set_item(name, item))?;
            Ok(dict.into_any())
        };
        (0..batch.0.len()).map(row).collect()
    }
}

impl Operator<PythonFormat> for ToObjects {
    fn work(&self) -> Work {
        Work::Rust
    }

    fn process<'py>(&mut self, record: Bound<'py, PyAny>, collector: &mut Collector<'_, 'py>) -> Result<(), TaskError> {
        let py = collector.token;
        let failed = |error: PyErr| self.info.failed(py, &error, None);
        let batch = record.cast::<PyRowBatch>().map_err(|error| failed(error.into()))?.get();
        for (row, object) in self.objects(py, batch).map_err(failed)?.into_iter().enumerate() {
            let timestamp_ms = batch.0.times.as_ref().map_or(NO_TIMESTAMP, |times| times[row]);
            collector.emit_at(timestamp_ms, object)?;
        }
        Ok(())
    }

    fn snapshot(&mut self, _: Python<'_>, _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }
}

/// The values of a column.
fn values<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let cast = |to: &DataType| cast(array, to).map_err(arrow_error);
    match array.data_type() {
        DataType::UInt64 => each(py, array, |row| array.as_primitive::<UInt64Type>().value(row).into_bound_py_any(py)),
        data_type if data_type.is_integer() => {
            let wide = cast(&DataType::Int64)?;
            each(py, array, |row| wide.as_primitive::<Int64Type>().value(row).into_bound_py_any(py))
        }
        DataType::Float32 | DataType::Float64 => {
            let wide = cast(&DataType::Float64)?;
            each(py, array, |row| wide.as_primitive::<Float64Type>().value(row).into_bound_py_any(py))
        }
        DataType::Boolean => each(py, array, |row| array.as_boolean().value(row).into_bound_py_any(py)),
        DataType::Utf8 => each(py, array, |row| array.as_string::<i32>().value(row).into_bound_py_any(py)),
        DataType::Binary => each(py, array, |row| Ok(PyBytes::new(py, array.as_binary::<i32>().value(row)).into_any())),
        DataType::FixedSizeBinary(_) => {
            each(py, array, |row| Ok(PyBytes::new(py, array.as_fixed_size_binary().value(row)).into_any()))
        }
        DataType::Date32 => {
            let date = py.import("datetime")?.getattr("date")?;
            each(py, array, |row| {
                let days = array.as_primitive::<Date32Type>().value(row);
                date.call_method1(intern!(py, "fromordinal"), (DAYS_TO_1970 + i64::from(days),))
            })
        }
        DataType::Timestamp(unit, zone) => {
            let ticks = cast(&DataType::Int64)?;
            let epoch = epoch(py, zone.is_some())?;
            let zone = zone.as_ref().filter(|zone| !is_utc(zone)).map(|zone| zone_of(py, zone)).transpose()?;
            each(py, array, |row| {
                let time = epoch.add(span(py, ticks.as_primitive::<Int64Type>().value(row), *unit)?)?;
                match &zone {
                    None => Ok(time),
                    Some(zone) => time.call_method1(intern!(py, "astimezone"), (zone,)),
                }
            })
        }
        DataType::Duration(unit) => {
            let ticks = cast(&DataType::Int64)?;
            each(py, array, |row| span(py, ticks.as_primitive::<Int64Type>().value(row), *unit))
        }
        DataType::Time32(_) | DataType::Time64(_) => {
            let wide = cast(&DataType::Time64(TimeUnit::Microsecond))?;
            let numbers = arrow_cast::cast(&wide, &DataType::Int64).map_err(arrow_error)?;
            let epoch = epoch(py, false)?;
            each(py, array, |row| {
                let micros = numbers.as_primitive::<Int64Type>().value(row);
                let time = epoch.add(span(py, micros, TimeUnit::Microsecond)?)?;
                time.call_method0(intern!(py, "time"))
            })
        }
        DataType::Decimal128(precision, scale) => {
            let decimal = py.import("decimal")?.getattr("Decimal")?;
            each(py, array, |row| {
                let value = array.as_primitive::<Decimal128Type>().value(row);
                decimal.call1((Decimal128Type::format_decimal(value, *precision, *scale),))
            })
        }
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            let items = values(py, lists.values())?;
            each(py, array, |row| {
                let (start, end) = (lists.value_offsets()[row] as usize, lists.value_offsets()[row + 1] as usize);
                Ok(PyList::new(py, &items[start..end])?.into_any())
            })
        }
        DataType::Struct(fields) => {
            let parts = array.as_struct().columns().iter().map(|column| values(py, column));
            let parts = parts.collect::<PyResult<Vec<_>>>()?;
            each(py, array, |row| {
                let dict = PyDict::new(py);
                for (field, part) in fields.iter().zip(&parts) {
                    dict.set_item(field.name(), &part[row])?;
                }
                Ok(dict.into_any())
            })
        }
        data_type => Err(PyTypeError::new_err(format!("no object stands for values of type {}", type_name(data_type)))),
    }
}

/// Converts each value. A missing value becomes None.
fn each<'py>(
    py: Python<'py>,
    array: &ArrayRef,
    object: impl Fn(usize) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let object = |row| if array.is_null(row) { Ok(py.None().into_bound(py)) } else { object(row) };
    (0..array.len()).map(object).collect()
}

/// The number that `datetime.date.fromordinal` assigns to the first day of 1970.
const DAYS_TO_1970: i64 = 719_163;

/// Error of a value that Python cannot represent, with the column and the way out.
fn of_column(py: Python<'_>, name: &str, data_type: &DataType, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyOverflowError>(py) && !error.is_instance_of::<PyValueError>(py) {
        return error;
    }
    let (why, data_type) = (error.value(py), type_name(data_type));
    PyOverflowError::new_err(format!(
        "to_objects: column '{name}' of type {data_type} has a value that no object of Python holds ({why}): cast it to \
         int64 before, or drop it"
    ))
}

/// A duration of this number of ticks, rounded down to whole microseconds.
fn span(py: Python<'_>, ticks: i64, unit: TimeUnit) -> PyResult<Bound<'_, PyAny>> {
    let ticks_a_second = match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => MICROS_A_SECOND,
        TimeUnit::Nanosecond => 1_000_000_000,
    };
    let (seconds, rest) = (ticks.div_euclid(ticks_a_second), ticks.rem_euclid(ticks_a_second));
    let (days, seconds) = (seconds.div_euclid(SECONDS_A_DAY), seconds.rem_euclid(SECONDS_A_DAY));
    let micros = rest * MICROS_A_SECOND / ticks_a_second;
    let days = i32::try_from(days).map_err(|_| PyOverflowError::new_err(format!("{days} days")))?;
    Ok(PyDelta::new(py, days, seconds as i32, micros as i32, false)?.into_any())
}

const MICROS_A_SECOND: i64 = 1_000_000;
const SECONDS_A_DAY: i64 = 86_400;

/// 1970-01-01, in UTC if it has a zone.
fn epoch(py: Python<'_>, zoned: bool) -> PyResult<Bound<'_, PyAny>> {
    let datetime = py.import("datetime")?;
    let zone = if zoned { datetime.getattr("UTC")? } else { py.None().into_bound(py) };
    datetime.getattr("datetime")?.call1((1970, 1, 1, 0, 0, 0, 0, zone))
}

fn is_utc(zone: &str) -> bool {
    matches!(zone, "UTC" | "+00:00" | "Z")
}

/// A zone from a name, or an offset such as `+01:00`.
fn zone_of<'py>(py: Python<'py>, zone: &str) -> PyResult<Bound<'py, PyAny>> {
    if !zone.starts_with(['+', '-']) {
        return py.import("zoneinfo")?.getattr("ZoneInfo")?.call1((zone,));
    }
    let shown = format!("1970-01-01T00:00:00{zone}");
    py.import("datetime")?.getattr("datetime")?.call_method1("fromisoformat", (shown,))?.getattr("tzinfo")
}
