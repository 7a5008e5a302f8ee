//! `flat_map`: any number of records for each.

use flownet_runtime::TaskError;
use flownet_runtime::operator::Operator;
use pyo3::prelude::*;

use crate::chain::call::call1;
use crate::chain::failure::OperatorInfo;
use crate::chain::medium::{EmitEach, Flow, PythonMedium};

pub(in crate::chain) struct FlatMap {
    function: Py<PyAny>,
    info: OperatorInfo,
}

impl FlatMap {
    pub(in crate::chain) fn new(function: Py<PyAny>, info: OperatorInfo) -> Self {
        Self { function, info }
    }
}

impl Operator<PythonMedium> for FlatMap {
    #[inline]
    fn process<'py>(&mut self, record: Bound<'py, PyAny>, flow: &mut Flow<'_, 'py>) -> Result<(), TaskError> {
        let py = flow.token;
        let function = self.function.bind(py);
        let failed = |error: PyErr| self.info.call_failed(py, &error, function, "one record", Some(&record));
        let items = call1(function, &record).map_err(failed)?;
        flow.emit_each(&items, failed)
    }
}
