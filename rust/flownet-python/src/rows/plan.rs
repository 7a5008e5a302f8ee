//! Checks a plan of rows before anything runs.

use std::sync::Arc;

use arrow_schema::{Field, Schema};
use flownet_rows::{
    AggregateColumn, Aggregations, BoundSteps, JoinColumns, JoinSchemas, Layout, Step, output_schema, time_column,
    twice,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use super::arrow::{PyRowSchema, arrow_error, schema_of};
use super::conform::plain_schema;
use super::map_batches::tried;
use super::type_levels::check_column;
use crate::convert::Plain;
use flownet_rows::{check_name_levels, check_type_levels, named_type};

fn value_error(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Converts a schema to the form of row streams.
fn checked(schema: &Schema) -> PyResult<PyRowSchema> {
    check_type_levels(schema).map_err(value_error)?;
    let schema = Arc::new(plain_schema(schema));
    if let Some(name) = twice(schema.fields().iter().map(|field| field.name().as_str())) {
        return Err(PyValueError::new_err(format!("two columns are called '{name}': give one another name before")));
    }
    Layout::new(Arc::clone(&schema)).map_err(|error| PyTypeError::new_err(error.to_string()))?;
    Ok(PyRowSchema(schema))
}

/// The schema of an object: one with `__arrow_c_schema__` or `__arrow_c_stream__`, a dict of names and types, or what a
/// function gives for an empty batch of `input`.
#[pyfunction]
#[pyo3(signature = (object, input=None))]
pub(crate) fn rows_schema(object: &Bound<'_, PyAny>, input: Option<&Bound<'_, PyRowSchema>>) -> PyResult<PyRowSchema> {
    if let Some(input) = input {
        return checked(&*tried(object, &input.get().0)?);
    }
    let Ok(columns) = object.cast::<PyDict>() else { return checked(&*schema_of(object)?) };
    let mut fields = Vec::with_capacity(columns.len());
    for (name, wanted) in columns.iter() {
        let name: String = name.extract()?;
        fields.push(match wanted.extract::<String>() {
            Ok(wanted) => {
                let (wanted, nullable) = wanted.strip_suffix('!').map_or((&*wanted, true), |wanted| (wanted, false));
                check_name_levels(&name, wanted).map_err(value_error)?;
                let data_type = named_type(wanted).ok_or_else(|| unknown_type(&name, wanted))?;
                Field::new(&name, data_type, nullable)
            }
            Err(_) => of_arrow_type(&name, &wanted)?,
        });
    }
    checked(&Schema::new(fields))
}

/// A field from a type of pyarrow or another library.
fn of_arrow_type(name: &str, wanted: &Bound<'_, PyAny>) -> PyResult<Field> {
    use arrow_schema::ffi::FFI_ArrowSchema;
    let capsule = wanted.call_method0("__arrow_c_schema__").map_err(|_| unknown_type(name, &wanted.to_string()))?;
    let capsule = capsule.cast_into::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(c"arrow_schema"))?.cast::<FFI_ArrowSchema>();
    // SAFETY: by the interface, a capsule of this name holds a valid ArrowSchema, which is only looked at while
    // it lives.
    let given = unsafe { pointer.as_ref() };
    check_column(name, given)?;
    let field = Field::try_from(given).map_err(arrow_error)?;
    Ok(field.with_name(name).with_nullable(true))
}

fn unknown_type(name: &str, wanted: &str) -> PyErr {
    PyTypeError::new_err(format!(
        "column '{name}': {wanted} is no type of rows. Types are int8 to int64, uint8 to uint64, float32, float64, bool, utf8, \
         binary, binary(16), date, time[us], timestamp[us], timestamp[ms, UTC], duration[us], decimal(12, 2), list[int64], \
         with a ! behind where no value is ever missing, and the types of pyarrow"
    ))
}

/// The schema behind these steps.
#[pyfunction]
pub(crate) fn rows_after_steps(schema: &Bound<'_, PyRowSchema>, steps: Plain<Vec<Step>>) -> PyResult<PyRowSchema> {
    let steps = BoundSteps::new(&steps.0, Arc::clone(&schema.get().0)).map_err(value_error)?;
    // A cast may have added levels to a type.
    check_type_levels(steps.schema()).map_err(value_error)?;
    Ok(PyRowSchema(Arc::clone(steps.schema())))
}

/// The schema behind an aggregation; of windows with the zone in which these are shown.
#[pyfunction]
pub(crate) fn rows_after_agg(
    schema: &Bound<'_, PyRowSchema>,
    keys: Vec<String>,
    aggregates: Plain<Vec<AggregateColumn>>,
    window_zone: Option<&str>,
) -> PyResult<PyRowSchema> {
    let schema = &schema.get().0;
    flownet_rows::KeyHasher::new(schema, &keys).map_err(value_error)?;
    let bound = Aggregations::new(&aggregates.0, schema).map_err(value_error)?;
    Ok(PyRowSchema(output_schema(schema, &keys, &bound, window_zone).map_err(value_error)?))
}

/// The columns of each side of a join that go there and how they are called, those of the second that pairs have, the schema
/// of pairs, and what is kept.
#[pyfunction]
pub(crate) fn rows_after_join(
    left: (Bound<'_, PyRowSchema>, Vec<String>),
    right: (Bound<'_, PyRowSchema>, Vec<String>),
    suffix: &str,
    right_may_miss: bool,
    right_is_whole: bool,
) -> PyResult<JoinSides> {
    let (left, right) = ((&*left.0.get().0, &*left.1), (&*right.0.get().0, &*right.1));
    let JoinSchemas { left, right, shown, output, kept } =
        JoinSchemas::new(left, right, suffix, right_may_miss, right_is_whole).map_err(value_error)?;
    let side = |JoinColumns { columns, schema }| (columns, PyRowSchema(schema));
    Ok((side(left), side(right), shown, PyRowSchema(output), kept))
}

type JoinSides = ((Vec<String>, PyRowSchema), (Vec<String>, PyRowSchema), Vec<String>, PyRowSchema, Vec<String>);

/// What each aggregate keeps of the rows of a key, in checkpoints.
#[pyfunction]
pub(crate) fn rows_kept(
    schema: &Bound<'_, PyRowSchema>,
    aggregates: Plain<Vec<AggregateColumn>>,
) -> PyResult<Vec<String>> {
    Ok(Aggregations::new(&aggregates.0, &schema.get().0).map_err(value_error)?.kept())
}

/// Describes the functions of expressions as JSON. The Python methods and the documentation are generated from it.
#[pyfunction]
pub(crate) fn rows_functions() -> PyResult<String> {
    serde_json::to_string(&flownet_rows::expr::documents()).map_err(value_error)
}

/// Whether event time can be taken from a column.
#[pyfunction]
pub(crate) fn rows_time(schema: &Bound<'_, PyRowSchema>, column: &str) -> PyResult<()> {
    time_column(&schema.get().0, column).map(drop).map_err(value_error)
}
