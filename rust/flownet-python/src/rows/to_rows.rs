//! `to_rows`: converts records that are objects to rows, several at a time.

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use flownet_rows::RowBatch;
use flownet_runtime::operator::Operator;
use flownet_runtime::snapshot::Snapshot;
use flownet_runtime::time::NO_TIMESTAMP;
use flownet_runtime::watermark::SplitSignal;
use flownet_runtime::work::Work;
use flownet_runtime::{TaskContext, TaskError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use super::arrow::{PyRowBatch, arrow_error};
use super::building::ColumnBuilder;
use crate::chain::{Collector, OperatorInfo, PythonFormat};

/// Most records that become rows at a time: a window may fire millions at once.
const GATHER_RECORDS: usize = 4096;

/// Converts the records of a batch to rows.
pub(crate) struct ToRows {
    schema: SchemaRef,
    info: OperatorInfo,
    columns: Vec<ColumnBuilder>,
    names: Vec<Py<PyString>>,
    /// Finds the values of a record that is neither dict nor tuple.
    values_of: Option<Py<PyAny>>,
    /// Times of the gathered records.
    times: Vec<i64>,
}

impl ToRows {
    pub(crate) fn new(schema: SchemaRef, info: OperatorInfo) -> Self {
        let columns = schema.fields().iter().map(|field| ColumnBuilder::new(field)).collect();
        Self { schema, info, columns, names: Vec::new(), values_of: None, times: Vec::new() }
    }

    fn push(&mut self, record: &Bound<'_, PyAny>) -> Result<(), TaskError> {
        let py = record.py();
        if let Ok(dict) = record.cast_exact::<PyDict>() {
            for (column, name) in self.columns.iter_mut().zip(&self.names) {
                let value = dict.get_item(name).map_err(|error| self.info.failed(py, &error, Some(record)))?;
                column.push(value.as_ref()).map_err(|error| self.info.refused("ValueError", error, Some(record)))?;
            }
            return Ok(());
        }
        let tuple = match record.cast_exact::<PyTuple>() {
            Ok(tuple) if tuple.len() == self.columns.len() => tuple.clone(),
            _ => self.values(record).map_err(|error| self.info.failed(py, &error, Some(record)))?,
        };
        for (column, value) in self.columns.iter_mut().zip(tuple.iter_borrowed()) {
            column.push(Some(&value)).map_err(|error| self.info.refused("ValueError", error, Some(record)))?;
        }
        Ok(())
    }

    /// The values of other objects, as many as there are columns.
    #[cold]
    fn values<'py>(&self, record: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
        let py = record.py();
        let Some(values_of) = &self.values_of else { return Ok(PyTuple::empty(py)) };
        let names = PyTuple::new(py, &self.names)?;
        Ok(values_of.bind(py).call1((record, names))?.cast_into()?)
    }

    fn leave(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        if self.times.is_empty() {
            return Ok(());
        }
        let py = collector.token;
        let rows = self.rows(py).and_then(|rows| Bound::new(py, PyRowBatch(rows)));
        let rows = rows.map_err(|error| self.info.failed(py, &error, None))?;
        // Each row has its own timestamp.
        collector.emit_at(NO_TIMESTAMP, rows.into_any())
    }

    fn rows(&mut self, py: Python<'_>) -> PyResult<RowBatch> {
        let times = std::mem::take(&mut self.times);
        let columns = self.columns.iter_mut().map(|column| column.finish(py)).collect::<PyResult<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(times.len()));
        let columns = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).map_err(arrow_error)?;
        let are_timed = times.iter().all(|timestamp_ms| *timestamp_ms != NO_TIMESTAMP);
        Ok(RowBatch { columns, times: are_timed.then(|| times.into()), nanos: None })
    }
}

impl Operator<PythonFormat> for ToRows {
    fn work(&self) -> Work {
        Work::Rust
    }

    fn open(&mut self, py: Python<'_>, _: &TaskContext) -> Result<(), TaskError> {
        self.names = self.schema.fields().iter().map(|field| PyString::intern(py, field.name()).unbind()).collect();
        let values_of = py.import(intern!(py, "flownet.rows.records")).and_then(|module| module.getattr("values_of"));
        self.values_of = Some(values_of.map_err(|error| self.info.failed(py, &error, None))?.unbind());
        Ok(())
    }

    fn process<'py>(&mut self, record: Bound<'py, PyAny>, collector: &mut Collector<'_, 'py>) -> Result<(), TaskError> {
        self.push(&record)?;
        self.times.push(collector.timestamp_ms);
        if self.times.len() < GATHER_RECORDS { Ok(()) } else { self.leave(collector) }
    }

    fn end_batch(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        self.leave(collector)
    }

    /// Emits gathered rows first: they came before the watermark.
    fn on_watermark(&mut self, _: i64, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        self.leave(collector)
    }

    /// Emits gathered rows first. A batch belongs to one split, since watermarks by split treat its rows as
    /// one.
    fn on_split(&mut self, _: SplitSignal, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        self.leave(collector)
    }

    fn finish(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        self.leave(collector)
    }

    fn snapshot(&mut self, _: Python<'_>, _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        debug_assert!(self.times.is_empty(), "a batch ends before a checkpoint is taken");
        Ok(())
    }
}
