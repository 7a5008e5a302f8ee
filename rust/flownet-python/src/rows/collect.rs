//! `collect` of rows: delivers batches to the process of the caller.

use flownet_rows::{Collector, RowRecord, RowsFormat};
use flownet_runtime::TaskError;
use flownet_runtime::operator::Operator;
use flownet_runtime::snapshot::Snapshot;
use flownet_runtime::work::Work;
use pyo3::intern;
use pyo3::prelude::*;

use super::arrow::PyRowBatch;
use crate::chain::OperatorInfo;

/// Appends to a list, or anything with `append`.
pub(super) struct Collect {
    target: Py<PyAny>,
    info: OperatorInfo,
}

impl Collect {
    pub(super) fn new(target: Py<PyAny>, info: OperatorInfo) -> Self {
        Self { target, info }
    }
}

impl Operator<RowsFormat> for Collect {
    fn work(&self) -> Work {
        Work::Python
    }

    fn process<'m>(&mut self, record: RowRecord, _: &mut Collector<'_, 'm>) -> Result<(), TaskError> {
        let batch = record.into_batch()?;
        Python::attach(|py| {
            let appended = self.target.bind(py).call_method1(intern!(py, "append"), (PyRowBatch(batch),));
            appended.map(drop).map_err(|error| self.info.failed(py, &error, None))
        })
    }

    fn snapshot(&mut self, (): (), _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }
}
