//! `sink_to` of rows: passes batches to a sink of the user.

use flownet_rows::{Collector, RowRecord, RowsFormat};
use flownet_runtime::operator::Operator;
use flownet_runtime::snapshot::{RestoredState, Snapshot};
use flownet_runtime::work::Work;
use flownet_runtime::{TaskContext, TaskError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::arrow::PyRowBatch;
use crate::chain::{OperatorInfo, UserSink, WriteCounter};

/// Passes on each batch as one record.
pub(super) struct SinkTo {
    sink: UserSink,
    /// Type of the objects that the sink receives.
    format: String,
    /// Converts a batch to that type.
    gives: Option<Py<PyAny>>,
    info: OperatorInfo,
    written: WriteCounter,
}

impl SinkTo {
    pub(super) fn new(sink: Py<PyAny>, format: &str, info: OperatorInfo) -> Self {
        let sink = UserSink::new(sink, info.clone());
        Self { sink, format: format.to_owned(), gives: None, info, written: WriteCounter::default() }
    }
}

impl Operator<RowsFormat> for SinkTo {
    fn work(&self) -> Work {
        Work::Python
    }

    fn open(&mut self, (): (), cx: &TaskContext) -> Result<(), TaskError> {
        self.written.open(cx);
        Python::attach(|py| {
            let gives = py.import(intern!(py, "flownet.rows.batches")).and_then(|module| module.getattr("given"));
            self.gives = Some(gives.map_err(|error| self.info.failed(py, &error, None))?.unbind());
            self.sink.open(py, cx)
        })
    }

    fn process<'m>(&mut self, record: RowRecord, _: &mut Collector<'_, 'm>) -> Result<(), TaskError> {
        let batch = record.into_batch()?;
        let Some(gives) = self.gives.as_ref().filter(|_| !batch.is_empty()) else { return Ok(()) };
        self.written.add(batch.len());
        Python::attach(|py| {
            let given = gives.bind(py).call1((PyRowBatch(batch), self.format.as_str()));
            let records = given.and_then(|given| PyList::new(py, [given]));
            self.sink.write(&records.map_err(|error| self.info.failed(py, &error, None))?)
        })
    }

    fn commit(&mut self, _: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        Python::attach(|py| self.sink.commit(py))
    }

    fn snapshot(&mut self, (): (), to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Python::attach(|py| self.sink.snapshot(py, to))
    }

    fn restore(&mut self, (): (), from: &RestoredState<'_>) -> Result<(), TaskError> {
        Python::attach(|py| self.sink.restore(py, from))
    }

    fn complete(&mut self, (): (), checkpoint_id: u64) -> Result<(), TaskError> {
        Python::attach(|py| self.sink.complete(py, checkpoint_id))
    }

    fn close(&mut self, (): ()) -> Result<(), TaskError> {
        Python::attach(|py| self.sink.close(py))
    }
}
