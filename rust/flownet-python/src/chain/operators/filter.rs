//! `filter`: emits the records for which a predicate is true.

use flownet_runtime::operator::Operator;
use flownet_runtime::snapshot::Snapshot;
use flownet_runtime::{TaskContext, TaskError};
use pyo3::prelude::*;

use crate::chain::call::call1;
use crate::chain::failure::OperatorInfo;
use crate::chain::function::Function;
use crate::chain::record_format::{Collector, PythonFormat};

pub(in crate::chain) struct Filter {
    predicate: Function,
    info: OperatorInfo,
}

impl Filter {
    pub(in crate::chain) fn new(predicate: Function, info: OperatorInfo) -> Self {
        Self { predicate, info }
    }
}

impl Operator<PythonFormat> for Filter {
    fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.predicate.open(py, &self.info, cx)
    }

    #[inline]
    fn process<'py>(&mut self, record: Bound<'py, PyAny>, collector: &mut Collector<'_, 'py>) -> Result<(), TaskError> {
        let predicate = self.predicate.bind(collector.token);
        let keep = call1(predicate, &record).and_then(|answer| answer.is_truthy());
        match keep {
            Ok(true) => collector.emit(record),
            Ok(false) => Ok(()),
            Err(error) => Err(self.info.call_failed(collector.token, &error, predicate, "one record", Some(&record))),
        }
    }

    fn finish(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        self.predicate.finish(&self.info, collector)
    }

    /// The operator is stateless.
    fn snapshot(&mut self, _: Python<'_>, _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }

    fn close(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        self.predicate.close(py, &self.info)
    }
}
