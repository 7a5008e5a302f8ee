//! `map`: emits one record for each.

use flownet_runtime::operator::Operator;
use flownet_runtime::snapshot::Snapshot;
use flownet_runtime::{TaskContext, TaskError};
use pyo3::prelude::*;

use crate::chain::call::call1;
use crate::chain::failure::OperatorInfo;
use crate::chain::function::Function;
use crate::chain::record_format::{Collector, PythonFormat};

pub(in crate::chain) struct Map {
    function: Function,
    info: OperatorInfo,
}

impl Map {
    pub(in crate::chain) fn new(function: Function, info: OperatorInfo) -> Self {
        Self { function, info }
    }
}

impl Operator<PythonFormat> for Map {
    fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.function.open(py, &self.info, cx)
    }

    #[inline]
    fn process<'py>(&mut self, record: Bound<'py, PyAny>, collector: &mut Collector<'_, 'py>) -> Result<(), TaskError> {
        let function = self.function.bind(collector.token);
        let result = call1(function, &record)
            .map_err(|error| self.info.call_failed(collector.token, &error, function, "one record", Some(&record)))?;
        // The function may have returned the record itself. After this drop the result may have no other
        // reference.
        drop(record);
        collector.emit(result)
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
