//! `sink_to`: passes records to a sink of the user.

use flownet_runtime::operator::Operator;
use flownet_runtime::snapshot::{RestoredState, Snapshot};
use flownet_runtime::{TaskContext, TaskError};
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::{GATHER_RECORDS, UserSink, WriteCounter};
use crate::chain::failure::OperatorInfo;
use crate::chain::record_format::{Collector, PythonFormat};

/// Passes on each batch.
pub(in crate::chain) struct CustomSink {
    sink: UserSink,
    info: OperatorInfo,
    batch: Option<Py<PyList>>,
    written: WriteCounter,
}

impl CustomSink {
    pub(in crate::chain) fn new(sink: Py<PyAny>, info: OperatorInfo) -> Self {
        Self { sink: UserSink::new(sink, info.clone()), info, batch: None, written: WriteCounter::default() }
    }

    fn write_batch(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        let Some(batch) = self.batch.take() else { return Ok(()) };
        let batch = batch.bind(py);
        self.written.add_all(batch);
        self.sink.write(batch)
    }
}

impl Operator<PythonFormat> for CustomSink {
    fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.written.open(cx);
        self.sink.open(py, cx)
    }

    fn process<'py>(&mut self, record: Bound<'py, PyAny>, collector: &mut Collector<'_, 'py>) -> Result<(), TaskError> {
        let py = collector.token;
        let batch = self.batch.get_or_insert_with(|| PyList::empty(py).unbind()).bind(py);
        batch.append(&record).map_err(|error| self.info.failed(py, &error, Some(&record)))?;
        if batch.len() < GATHER_RECORDS { Ok(()) } else { self.end_batch(collector) }
    }

    fn end_batch(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        self.write_batch(collector.token)
    }

    fn commit(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        self.sink.commit(collector.token)
    }

    fn snapshot(&mut self, py: Python<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        self.write_batch(py)?;
        self.sink.snapshot(py, to)
    }

    fn restore(&mut self, py: Python<'_>, from: &RestoredState<'_>) -> Result<(), TaskError> {
        self.sink.restore(py, from)
    }

    fn complete(&mut self, py: Python<'_>, checkpoint_id: u64) -> Result<(), TaskError> {
        self.sink.complete(py, checkpoint_id)
    }

    fn close(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        self.sink.close(py)
    }
}
