//! `flat_map`: emits any number of records for each.

use flownet_runtime::operator::Operator;
use flownet_runtime::snapshot::Snapshot;
use flownet_runtime::{TaskContext, TaskError};
use pyo3::prelude::*;

use crate::chain::call::call1;
use crate::chain::failure::OperatorInfo;
use crate::chain::function::Function;
use crate::chain::record_format::{Collector, EmitEach, PythonFormat};

pub(in crate::chain) struct FlatMap {
    function: Function,
    info: OperatorInfo,
}

impl FlatMap {
    pub(in crate::chain) fn new(function: Function, info: OperatorInfo) -> Self {
        Self { function, info }
    }
}

impl Operator<PythonFormat> for FlatMap {
    fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.function.open(py, &self.info, cx)
    }

    #[inline]
    fn process<'py>(&mut self, record: Bound<'py, PyAny>, collector: &mut Collector<'_, 'py>) -> Result<(), TaskError> {
        let py = collector.token;
        let function = self.function.bind(py);
        let failed = |error: PyErr| self.info.call_failed(py, &error, function, "one record", Some(&record));
        let items = call1(function, &record).map_err(failed)?;
        collector.emit_each(&items, failed)
    }

    fn finish(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        self.function.finish(&self.info, collector)
    }

    /// The operator is stateless.
    fn snapshot(&mut self, _: Python<'_>, _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }

    fn close(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        self.function.close(py, &self.info)
    }
}
