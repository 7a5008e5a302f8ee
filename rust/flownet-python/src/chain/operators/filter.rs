//! `filter`: the records that a predicate holds for.

use flownet_runtime::TaskError;
use flownet_runtime::operator::Operator;
use pyo3::prelude::*;

use crate::chain::call::call1;
use crate::chain::failure::OperatorInfo;
use crate::chain::medium::{Flow, PythonMedium};

pub(in crate::chain) struct Filter {
    predicate: Py<PyAny>,
    info: OperatorInfo,
}

impl Filter {
    pub(in crate::chain) fn new(predicate: Py<PyAny>, info: OperatorInfo) -> Self {
        Self { predicate, info }
    }
}

impl Operator<PythonMedium> for Filter {
    #[inline]
    fn process<'py>(&mut self, record: Bound<'py, PyAny>, flow: &mut Flow<'_, 'py>) -> Result<(), TaskError> {
        let predicate = self.predicate.bind(flow.token);
        let keep = call1(predicate, &record).and_then(|answer| answer.is_truthy());
        match keep {
            Ok(true) => flow.emit(record),
            Ok(false) => Ok(()),
            Err(error) => Err(self.info.call_failed(flow.token, &error, predicate, "one record", Some(&record))),
        }
    }
}
