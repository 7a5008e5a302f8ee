//! Exchanges Arrow data over the PyCapsule interface:
//! <https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html>.

use std::ffi::CStr;
use std::sync::Arc;

use arrow_array::ffi::{FFI_ArrowArray, to_ffi};
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{Array, RecordBatch, RecordBatchReader, StructArray};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, Schema, SchemaRef};
use flownet_rows::RowBatch;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use super::type_levels::{check_columns, check_stream};
use crate::convert::to_python;
use flownet_rows::{kept_columns, type_name};

pub(super) const STREAM: &CStr = c"arrow_array_stream";
const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";

/// The batches of an object with `__arrow_c_stream__`, from its first one.
pub(super) fn stream_of(object: &Bound<'_, PyAny>) -> PyResult<RecordBatchStreamReader> {
    let py = object.py();
    let Some(export) = object.getattr_opt(intern!(py, "__arrow_c_stream__"))? else {
        let kind = object.get_type().fully_qualified_name()?.to_string();
        return Err(PyTypeError::new_err(format!(
            "{kind} has no __arrow_c_stream__: rows come from tables and readers of pyarrow, polars, pandas, DuckDB and \
             others with the Arrow PyCapsule interface"
        )));
    };
    let capsule = export.call0()?.cast_into::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(STREAM))?.cast::<FFI_ArrowArrayStream>();
    // SAFETY: by the interface, a capsule of this name holds a valid ArrowArrayStream, which `from_raw` moves
    // out of it and leaves released, so that the capsule's own destructor has nothing to do.
    let mut stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer.as_ptr()) };
    check_stream(&mut stream)?;
    RecordBatchStreamReader::try_new(stream).map_err(arrow_error)
}

/// The batches that a function returned: a stream, or one batch with `__arrow_c_array__`.
pub(super) fn batches_of(object: &Bound<'_, PyAny>) -> PyResult<Vec<RecordBatch>> {
    let py = object.py();
    if object.hasattr(intern!(py, "__arrow_c_stream__"))? {
        return stream_of(object)?.collect::<Result<_, _>>().map_err(arrow_error);
    }
    let Some(export) = object.getattr_opt(intern!(py, "__arrow_c_array__"))? else {
        let kind = object.get_type().fully_qualified_name()?.to_string();
        return Err(PyTypeError::new_err(format!(
            "it returned {kind}, which is no batch: it has no __arrow_c_array__"
        )));
    };
    let (schema, array) = export.call0()?.extract::<(Bound<'_, PyCapsule>, Bound<'_, PyCapsule>)>()?;
    let schema = schema.pointer_checked(Some(SCHEMA))?.cast::<FFI_ArrowSchema>();
    let array = array.pointer_checked(Some(ARRAY))?.cast::<FFI_ArrowArray>();
    // SAFETY: by the interface, capsules of these names hold a valid ArrowSchema and an ArrowArray of it; the
    // array is moved out and its place left released, the schema is only looked at while its capsule lives.
    let (array, schema) = unsafe { (FFI_ArrowArray::from_raw(array.as_ptr()), schema.as_ref()) };
    check_columns(schema)?;
    // SAFETY: the array is one of this schema.
    let data = unsafe { arrow_array::ffi::from_ffi(array, schema) }.map_err(arrow_error)?;
    if !matches!(data.data_type(), arrow_schema::DataType::Struct(_)) {
        return Err(PyTypeError::new_err(format!(
            "it returned one array of {}, where a batch is wanted",
            data.data_type()
        )));
    }
    Ok(vec![RecordBatch::from(StructArray::from(data))])
}

/// Converts an error of Arrow to an exception.
pub(super) fn arrow_error(error: ArrowError) -> PyErr {
    match error {
        ArrowError::CDataInterface(message) | ArrowError::InvalidArgumentError(message) => {
            PyValueError::new_err(message)
        }
        error => PyValueError::new_err(error.to_string()),
    }
}

/// Names and types of the columns of rows.
#[pyclass(frozen, name = "RowSchema", module = "flownet._flownet")]
#[derive(Clone)]
pub(crate) struct PyRowSchema(pub(super) SchemaRef);

#[pymethods]
impl PyRowSchema {
    /// Of each column: its name, its type, and whether values may be missing.
    fn fields(&self) -> Vec<(String, String, bool)> {
        let fields = self.0.fields().iter();
        fields.map(|field| (field.name().clone(), type_name(field.data_type()), field.is_nullable())).collect()
    }

    /// As a plan has it.
    fn planned<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &*self.0)
    }

    /// What an operator that keeps such rows says of that: who goes on with them has to keep the same.
    fn kept(&self) -> String {
        kept_columns(&self.0)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(&*self.0).map_err(arrow_error)?;
        PyCapsule::new_with_value(py, schema, SCHEMA)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| other.get().0 == self.0)
    }
}

/// Some rows, as they came to this process.
#[pyclass(frozen, name = "RowBatch", module = "flownet._flownet")]
pub(crate) struct PyRowBatch(pub(crate) RowBatch);

#[pymethods]
impl PyRowBatch {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// Names and types of the columns.
    #[getter]
    fn schema(&self) -> PyRowSchema {
        PyRowSchema(self.0.columns.schema())
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        self.schema().__arrow_c_schema__(py)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        // Rows have one representation. A consumer that requests another gets this one, as the interface
        // allows.
        drop(requested_schema);
        let array = StructArray::from(self.0.columns.clone());
        let (array, _) = to_ffi(&array.to_data()).map_err(arrow_error)?;
        let schema = self.__arrow_c_schema__(py)?;
        PyTuple::new(py, [schema, PyCapsule::new_with_value(py, array, ARRAY)?])
    }
}

/// The schema of an object with `__arrow_c_schema__`, or else that of its stream.
pub(super) fn schema_of(object: &Bound<'_, PyAny>) -> PyResult<SchemaRef> {
    let py = object.py();
    let Some(export) = object.getattr_opt(intern!(py, "__arrow_c_schema__"))? else {
        return Ok(stream_of(object)?.schema());
    };
    let capsule = export.call0()?.cast_into::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(SCHEMA))?.cast::<FFI_ArrowSchema>();
    // SAFETY: by the interface, a capsule of this name holds a valid ArrowSchema, which is only looked at while
    // it lives.
    let schema = Schema::try_from(unsafe { pointer.as_ref() }).map_err(arrow_error)?;
    Ok(Arc::new(schema))
}
