//! `collect`: delivers records to the process of the caller.

use flownet_runtime::operator::Operator;
use flownet_runtime::snapshot::Snapshot;
use flownet_runtime::{TaskContext, TaskError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::{GATHER_RECORDS, WriteCounter};
use crate::chain::failure::OperatorInfo;
use crate::chain::record_format::{Collector, PythonFormat};

/// Extends a list, or anything with `extend`.
pub(in crate::chain) struct Collect {
    target: Py<PyAny>,
    info: OperatorInfo,
    batch: Option<Py<PyList>>,
    written: WriteCounter,
}

impl Collect {
    pub(in crate::chain) fn new(target: Py<PyAny>, info: OperatorInfo) -> Self {
        Self { target, info, batch: None, written: WriteCounter::default() }
    }
}

impl Operator<PythonFormat> for Collect {
    fn open(&mut self, _: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.written.open(cx);
        Ok(())
    }

    #[inline]
    fn process<'py>(&mut self, record: Bound<'py, PyAny>, collector: &mut Collector<'_, 'py>) -> Result<(), TaskError> {
        let py = collector.token;
        let batch = self.batch.get_or_insert_with(|| PyList::empty(py).unbind()).bind(py);
        batch.append(&record).map_err(|error| self.info.failed(py, &error, Some(&record)))?;
        if batch.len() < GATHER_RECORDS { Ok(()) } else { self.end_batch(collector) }
    }

    fn end_batch(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        let Some(batch) = self.batch.take() else { return Ok(()) };
        let (py, batch) = (collector.token, batch.bind(collector.token));
        self.written.add_all(batch);
        let extended = self.target.bind(py).call_method1(intern!(py, "extend"), (batch,));
        extended.map(drop).map_err(|error| self.info.failed(py, &error, None))
    }

    /// The sink is stateless: gathered records leave with their batch.
    fn snapshot(&mut self, _: Python<'_>, _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }
}
