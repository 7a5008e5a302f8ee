//! `to_objects`: rows become records that are objects, and values what Python has for them.

use std::sync::Arc;

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
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDelta, PyDict, PyList, PyString, PyTuple};

use super::arrow::{PyRowBatch, arrow_error};
use crate::chain::{Flow, OperatorInfo, PythonMedium};

/// Makes a dict or a tuple of each row.
pub(crate) struct ToObjects {
    as_dicts: bool,
    info: OperatorInfo,
}

impl ToObjects {
    pub(crate) fn new(as_dicts: bool, info: OperatorInfo) -> Self {
        Self { as_dicts, info }
    }

    fn objects<'py>(&self, py: Python<'py>, batch: &PyRowBatch) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let columns = batch.0.columns.columns().iter().map(|column| values(py, column));
        let columns = columns.collect::<PyResult<Vec<_>>>()?;
        let schema = batch.0.columns.schema();
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

impl Operator<PythonMedium> for ToObjects {
    fn work(&self) -> Work {
        Work::Rust
    }

    fn process<'py>(&mut self, record: Bound<'py, PyAny>, flow: &mut Flow<'_, 'py>) -> Result<(), TaskError> {
        let py = flow.token;
        let failed = |error: PyErr| self.info.failed(py, &error, None);
        let batch = record.cast::<PyRowBatch>().map_err(|error| failed(error.into()))?.get();
        for (row, object) in self.objects(py, batch).map_err(failed)?.into_iter().enumerate() {
            let timestamp_ms = batch.0.times.as_ref().map_or(NO_TIMESTAMP, |times| times[row]);
            flow.emit_at(timestamp_ms, object)?;
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
        DataType::Timestamp(_, zone) => {
            let numbers = microseconds(array)?;
            let epoch = epoch(py, zone.is_some())?;
            let zone = zone.as_ref().filter(|zone| !is_utc(zone)).map(|zone| zone_of(py, zone)).transpose()?;
            each(py, array, |row| {
                let time = epoch.add(span(py, numbers.as_primitive::<Int64Type>().value(row))?)?;
                match &zone {
                    None => Ok(time),
                    Some(zone) => time.call_method1(intern!(py, "astimezone"), (zone,)),
                }
            })
        }
        DataType::Duration(_) => {
            let numbers = microseconds(array)?;
            each(py, array, |row| span(py, numbers.as_primitive::<Int64Type>().value(row)))
        }
        DataType::Time32(_) | DataType::Time64(_) => {
            let wide = cast(&DataType::Time64(TimeUnit::Microsecond))?;
            let numbers = arrow_cast::cast(&wide, &DataType::Int64).map_err(arrow_error)?;
            let epoch = epoch(py, false)?;
            each(py, array, |row| {
                let time = epoch.add(span(py, numbers.as_primitive::<Int64Type>().value(row))?)?;
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

/// None where there is no value.
fn each<'py>(
    py: Python<'py>,
    array: &ArrayRef,
    object: impl Fn(usize) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let object = |row| if array.is_null(row) { Ok(py.None().into_bound(py)) } else { object(row) };
    (0..array.len()).map(object).collect()
}

/// What `datetime.date.fromordinal` calls the first day of 1970.
const DAYS_TO_1970: i64 = 719_163;

/// Times and spans as numbers; of nanoseconds, of which Python has no objects, whole microseconds.
fn microseconds(array: &ArrayRef) -> PyResult<ArrayRef> {
    if let DataType::Timestamp(TimeUnit::Nanosecond, _) | DataType::Duration(TimeUnit::Nanosecond) = array.data_type() {
        let numbers = cast(array, &DataType::Int64).map_err(arrow_error)?;
        let whole = numbers.as_primitive::<Int64Type>().unary::<_, Int64Type>(|value| value.div_euclid(1000));
        return Ok(Arc::new(whole));
    }
    let to = match array.data_type() {
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        _ => DataType::Duration(TimeUnit::Microsecond),
    };
    let times = if *array.data_type() == to { Arc::clone(array) } else { cast(array, &to).map_err(arrow_error)? };
    cast(&times, &DataType::Int64).map_err(arrow_error)
}

fn span(py: Python<'_>, microseconds: i64) -> PyResult<Bound<'_, PyAny>> {
    let (days, rest) = (microseconds.div_euclid(MICROS_A_DAY), microseconds.rem_euclid(MICROS_A_DAY));
    let (seconds, micros) = (rest / 1_000_000, rest % 1_000_000);
    Ok(PyDelta::new(py, i32::try_from(days)?, seconds as i32, micros as i32, false)?.into_any())
}

const MICROS_A_DAY: i64 = 86_400_000_000;

/// 1970-01-01, in UTC if it has a zone.
fn epoch(py: Python<'_>, zoned: bool) -> PyResult<Bound<'_, PyAny>> {
    let datetime = py.import("datetime")?;
    let zone = if zoned { datetime.getattr("UTC")? } else { py.None().into_bound(py) };
    datetime.getattr("datetime")?.call1((1970, 1, 1, 0, 0, 0, 0, zone))
}

fn is_utc(zone: &str) -> bool {
    matches!(zone, "UTC" | "+00:00" | "Z")
}

/// Of a name, or an offset such as `+01:00`.
fn zone_of<'py>(py: Python<'py>, zone: &str) -> PyResult<Bound<'py, PyAny>> {
    if !zone.starts_with(['+', '-']) {
        return py.import("zoneinfo")?.getattr("ZoneInfo")?.call1((zone,));
    }
    let shown = format!("1970-01-01T00:00:00{zone}");
    py.import("datetime")?.getattr("datetime")?.call_method1("fromisoformat", (shown,))?.getattr("tzinfo")
}
