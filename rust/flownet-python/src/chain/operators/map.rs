//! `map`: one record for each.

use flownet_runtime::TaskError;
use flownet_runtime::operator::Operator;
use pyo3::prelude::*;

use crate::chain::call::call1;
use crate::chain::failure::OperatorInfo;
use crate::chain::medium::{Flow, PythonMedium};

pub(in crate::chain) struct Map {
    function: Py<PyAny>,
    info: OperatorInfo,
}

impl Map {
    pub(in crate::chain) fn new(function: Py<PyAny>, info: OperatorInfo) -> Self {
        Self { function, info }
    }
}

impl Operator<PythonMedium> for Map {
    #[inline]
    fn process<'py>(&mut self, record: Bound<'py, PyAny>, flow: &mut Flow<'_, 'py>) -> Result<(), TaskError> {
        let function = self.function.bind(flow.token);
        let result = call1(function, &record)
            .map_err(|error| self.info.call_failed(flow.token, &error, function, "one record", Some(&record)))?;
        // The function may have returned the record itself, which then is referred to by nobody else.
        drop(record);
        flow.emit(result)
    }
}
