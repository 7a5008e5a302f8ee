//! Builds columns from values of Python objects, one after the other.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, BooleanBuilder, Float64Builder, Int64Builder, StringBuilder, UInt64Builder};
use arrow_array::{Array, ArrayRef};
use arrow_cast::cast;
use arrow_schema::{DataType, Field};
use flownet_rows::type_name;
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyString};

use super::arrow::{PyRowSchema, arrow_error, batches_of};
use crate::shown;

/// One column.
pub(super) struct ColumnBuilder {
    field: Field,
    values: Values,
}

enum Values {
    /// Integers of all types except the largest, with the least and the greatest value of the type.
    Int(Int64Builder, i64, i64),
    Unsigned(UInt64Builder),
    Float(Float64Builder),
    Bool(BooleanBuilder),
    Text(StringBuilder),
    Bytes(BinaryBuilder),
    /// Values that pyarrow converts: times, decimals, lists.
    Others(Option<Py<PyList>>),
}

impl ColumnBuilder {
    pub(super) fn new(field: &Field) -> Self {
        let int = |least, most| Values::Int(Int64Builder::new(), least, most);
        let values = match field.data_type() {
            DataType::Int8 => int(i8::MIN.into(), i8::MAX.into()),
            DataType::Int16 => int(i16::MIN.into(), i16::MAX.into()),
            DataType::Int32 => int(i32::MIN.into(), i32::MAX.into()),
            DataType::Int64 => int(i64::MIN, i64::MAX),
            DataType::UInt8 => int(0, u8::MAX.into()),
            DataType::UInt16 => int(0, u16::MAX.into()),
            DataType::UInt32 => int(0, u32::MAX.into()),
            DataType::UInt64 => Values::Unsigned(UInt64Builder::new()),
            DataType::Float32 | DataType::Float64 => Values::Float(Float64Builder::new()),
            DataType::Boolean => Values::Bool(BooleanBuilder::new()),
            DataType::Utf8 => Values::Text(StringBuilder::new()),
            DataType::Binary => Values::Bytes(BinaryBuilder::new()),
            _ => Values::Others(None),
        };
        Self { field: field.clone(), values }
    }

    /// Adds a value. The error explains why it does not fit.
    #[inline]
    pub(super) fn push(&mut self, value: Option<&Bound<'_, PyAny>>) -> Result<(), String> {
        let Some(value) = value.filter(|value| !value.is_none()) else { return self.push_none() };
        let fits = match &mut self.values {
            Values::Int(builder, least, most) => {
                let number = value.extract::<i64>().ok().filter(|number| (*least..=*most).contains(number));
                kept(number, |number| builder.append_value(number))
            }
            Values::Unsigned(builder) => kept(value.extract().ok(), |number| builder.append_value(number)),
            Values::Float(builder) => kept(value.extract().ok(), |number| builder.append_value(number)),
            Values::Bool(builder) => kept(value.extract().ok(), |is_true| builder.append_value(is_true)),
            Values::Text(builder) => {
                let text = value.cast::<PyString>().ok().and_then(|text| text.to_str().ok());
                kept(text, |text| builder.append_value(text))
            }
            Values::Bytes(builder) => match value.cast::<PyBytes>() {
                Ok(bytes) => kept(Some(bytes.as_bytes()), |bytes| builder.append_value(bytes)),
                Err(_) => kept(value.cast::<PyByteArray>().ok(), |bytes| builder.append_value(bytes.to_vec())),
            },
            Values::Others(list) => {
                let list = list.get_or_insert_with(|| PyList::empty(value.py()).unbind());
                list.bind(value.py()).append(value).is_ok()
            }
        };
        if fits { Ok(()) } else { Err(self.misfit(value)) }
    }

    fn push_none(&mut self) -> Result<(), String> {
        if !self.field.is_nullable() {
            return Err(format!(
                "column '{}' has no value, where the schema says that all are there",
                self.field.name()
            ));
        }
        match &mut self.values {
            Values::Int(builder, ..) => builder.append_null(),
            Values::Unsigned(builder) => builder.append_null(),
            Values::Float(builder) => builder.append_null(),
            Values::Bool(builder) => builder.append_null(),
            Values::Text(builder) => builder.append_null(),
            Values::Bytes(builder) => builder.append_null(),
            Values::Others(list) => Python::attach(|py| {
                let list = list.get_or_insert_with(|| PyList::empty(py).unbind());
                list.bind(py).append(py.None()).map_err(|error| error.to_string())
            })?,
        }
        Ok(())
    }

    #[cold]
    fn misfit(&self, value: &Bound<'_, PyAny>) -> String {
        let shown: String = shown::repr(value).chars().take(100).collect();
        let (name, of) = (self.field.name(), type_name(self.field.data_type()));
        format!("column '{name}' is of type {of}, and {shown} does not fit")
    }

    /// Returns the column so far. The next value begins another one.
    pub(super) fn finish(&mut self, py: Python<'_>) -> PyResult<ArrayRef> {
        let column: ArrayRef = match &mut self.values {
            Values::Int(builder, ..) => Arc::new(builder.finish()),
            Values::Unsigned(builder) => Arc::new(builder.finish()),
            Values::Float(builder) => Arc::new(builder.finish()),
            Values::Bool(builder) => Arc::new(builder.finish()),
            Values::Text(builder) => Arc::new(builder.finish()),
            Values::Bytes(builder) => Arc::new(builder.finish()),
            Values::Others(list) => {
                let list = list.take().map_or_else(|| PyList::empty(py), |list| list.into_bound(py));
                return self.of_others(&list);
            }
        };
        if column.data_type() == self.field.data_type() {
            return Ok(column);
        }
        cast(&column, self.field.data_type()).map_err(arrow_error)
    }

    fn of_others(&self, values: &Bound<'_, PyList>) -> PyResult<ArrayRef> {
        let py = values.py();
        let schema = arrow_schema::Schema::new(vec![self.field.clone()]);
        let column = py.import(intern!(py, "flownet.rows.records"))?.getattr(intern!(py, "column"))?;
        let made = batches_of(&column.call1((values, PyRowSchema(Arc::new(schema))))?)?;
        let first = made.first().filter(|batch| batch.num_rows() == values.len());
        let first = first.ok_or_else(|| PyValueError::new_err("pyarrow made another number of values"))?;
        Ok(Arc::clone(first.column(0)))
    }
}

/// Passes on a value, if there is one. Returns true if there is.
fn kept<T>(value: Option<T>, keep: impl FnOnce(T)) -> bool {
    value.map(keep).is_some()
}
