//! `sink_to`: records to a sink of the user.

use flownet_runtime::operator::Operator;
use flownet_runtime::snapshot::{Restored, Snapshot};
use flownet_runtime::{TaskContext, TaskError};
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::{GATHER_RECORDS, UserSink, Written};
use crate::chain::failure::OperatorInfo;
use crate::chain::medium::{Flow, PythonMedium};

/// Hands on each batch.
pub(in crate::chain) struct CustomSink {
    sink: UserSink,
    info: OperatorInfo,
    batch: Option<Py<PyList>>,
    written: Written,
}

impl CustomSink {
    pub(in crate::chain) fn new(sink: Py<PyAny>, info: OperatorInfo) -> Self {
        Self { sink: UserSink::new(sink, info.clone()), info, batch: None, written: Written::default() }
    }

    fn write_batch(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        let Some(batch) = self.batch.take() else { return Ok(()) };
        let batch = batch.bind(py);
        self.written.add_all(batch);
        self.sink.write(batch)
    }
}

impl Operator<PythonMedium> for CustomSink {
    fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.written.open(cx);
        self.sink.open(py, cx)
    }

    fn process<'py>(&mut self, record: Bound<'py, PyAny>, flow: &mut Flow<'_, 'py>) -> Result<(), TaskError> {
        let py = flow.token;
        let batch = self.batch.get_or_insert_with(|| PyList::empty(py).unbind()).bind(py);
        batch.append(&record).map_err(|error| self.info.failed(py, &error, Some(&record)))?;
        if batch.len() < GATHER_RECORDS { Ok(()) } else { self.end_batch(flow) }
    }

    fn end_batch(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        self.write_batch(flow.token)
    }

    fn commit(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        self.sink.commit(flow.token)
    }

    fn snapshot(&mut self, py: Python<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        self.write_batch(py)?;
        self.sink.snapshot(py, to)
    }

    fn restore(&mut self, py: Python<'_>, from: &Restored<'_>) -> Result<(), TaskError> {
        self.sink.restore(py, from)
    }

    fn complete(&mut self, py: Python<'_>, checkpoint_id: u64) -> Result<(), TaskError> {
        self.sink.complete(py, checkpoint_id)
    }

    fn close(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        self.sink.close(py)
    }
}
