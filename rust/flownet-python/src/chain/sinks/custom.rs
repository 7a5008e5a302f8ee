//! `sink_to`: a user's `Sink`.

use flownet_runtime::operator::Operator;
use flownet_runtime::{TaskContext, TaskError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::{GATHER_RECORDS, Written};
use crate::chain::context::PyTaskContext;
use crate::chain::failure::OperatorInfo;
use crate::chain::medium::{Flow, PythonMedium};

/// Hands each batch to `write`, then `flush` at the end, and `close` always.
pub(in crate::chain) struct CustomSink {
    sink: Py<PyAny>,
    info: OperatorInfo,
    batch: Option<Py<PyList>>,
    written: Written,
}

impl CustomSink {
    pub(in crate::chain) fn new(sink: Py<PyAny>, info: OperatorInfo) -> Self {
        Self { sink, info, batch: None, written: Written::default() }
    }
}

impl Operator<PythonMedium> for CustomSink {
    fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.written.open(cx);
        let opened = self.sink.bind(py).call_method1(intern!(py, "open"), (PyTaskContext::new(&self.info, cx),));
        opened.map(drop).map_err(|error| self.info.failed(py, &error, None))
    }

    fn process<'py>(&mut self, record: Bound<'py, PyAny>, flow: &mut Flow<'_, 'py>) -> Result<(), TaskError> {
        let py = flow.token;
        let batch = self.batch.get_or_insert_with(|| PyList::empty(py).unbind()).bind(py);
        batch.append(&record).map_err(|error| self.info.failed(py, &error, Some(&record)))?;
        if batch.len() < GATHER_RECORDS { Ok(()) } else { self.end_batch(flow) }
    }

    fn end_batch(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let Some(batch) = self.batch.take() else { return Ok(()) };
        let (py, batch) = (flow.token, batch.bind(flow.token));
        self.written.add_all(batch);
        let written = self.sink.bind(py).call_method1(intern!(py, "write"), (batch,));
        written.map(drop).map_err(|error| self.info.failed(py, &error, None))
    }

    fn commit(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let py = flow.token;
        let flushed = self.sink.bind(py).call_method0(intern!(py, "flush"));
        flushed.map(drop).map_err(|error| self.info.failed(py, &error, None))
    }

    fn close(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        let closed = self.sink.bind(py).call_method0(intern!(py, "close"));
        closed.map(drop).map_err(|error| self.info.failed(py, &error, None))
    }
}
