//! Exports batches of this process to other libraries, over the PyCapsule interface.

use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyIterator};

use super::arrow::{PyRowBatch, PyRowSchema, STREAM, batches_of};
use super::conform::conform;

/// Batches of an iterable, or of anything that has some, as an Arrow stream that is read once. The iterable is asked for the
/// next one when that is read, so who iterates over a job that runs holds one batch, and not all.
#[pyfunction]
pub(crate) fn rows_of<'py>(
    py: Python<'py>,
    schema: &Bound<'_, PyRowSchema>,
    batches: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = Arc::clone(&schema.get().0);
    let reader = Reader { schema, batches: batches.try_iter()?.unbind(), read: Vec::new().into_iter() };
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), STREAM)
}

struct Reader {
    schema: SchemaRef,
    batches: Py<PyIterator>,
    /// Rest of the last element: an element that is not a batch may contain several.
    read: std::vec::IntoIter<RecordBatch>,
}

impl Reader {
    /// Reads the next batch. The reader receives a Python exception as text, since the interface has no other
    /// form.
    fn read_on(&mut self, py: Python<'_>) -> PyResult<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.read.next() {
                return conform(&batch, &self.schema).map(Some).map_err(PyValueError::new_err);
            }
            let Some(next) = self.batches.bind(py).clone().next().transpose()? else { return Ok(None) };
            self.read = match next.cast::<PyRowBatch>() {
                Ok(batch) => vec![batch.get().0.columns.clone()],
                Err(_) => batches_of(&next)?,
            }
            .into_iter();
        }
    }
}

impl Iterator for Reader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        // The reader may call this on any thread, with the interpreter or without.
        Python::attach(|py| self.read_on(py)).map_err(|error| ArrowError::ExternalError(Box::new(error))).transpose()
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
