//! A user's function of one record: a plain callable, or a method of an object with `open` and `close`
//! methods.

use flownet_runtime::spec::ProcessInputs;
use flownet_runtime::time::NO_TIMESTAMP;
use flownet_runtime::{TaskContext, TaskError};
use pyo3::intern;
use pyo3::prelude::*;

use super::context::PyTaskContext;
use super::failure::OperatorInfo;
use super::record_format::{Collector, EmitEach};

/// Callable for each record.
pub(super) struct Function {
    function: Py<PyAny>,
    /// The object of the method, if it has `open` and `close` methods.
    object: Option<Py<PyAny>>,
}

impl Function {
    /// Wraps a callable, or the method of this name of a `flownet.api.rich_functions.Function`.
    pub(super) fn of(given: Bound<'_, PyAny>, method: &str) -> PyResult<Self> {
        if !is_told(&given)? {
            return Ok(Self { function: given.unbind(), object: None });
        }
        Ok(Self { function: given.getattr(method)?.unbind(), object: Some(given.unbind()) })
    }

    #[inline]
    pub(super) fn bind<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.function.bind(py)
    }

    pub(super) fn open(&self, py: Python<'_>, info: &OperatorInfo, cx: &TaskContext) -> Result<(), TaskError> {
        self.object.iter().try_for_each(|object| open(object.bind(py), info, cx))
    }

    /// Emits the records that the object has left at the end.
    pub(super) fn finish(&self, info: &OperatorInfo, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        let Some(object) = &self.object else { return Ok(()) };
        let py = collector.token;
        let failed = |error: PyErr| info.failed(py, &error, None);
        let left = object.bind(py).call_method0(intern!(py, "finish")).map_err(failed)?;
        collector.timestamp_ms = NO_TIMESTAMP;
        if left.is_none() { Ok(()) } else { collector.emit_each(&left, failed) }
    }

    pub(super) fn close(&self, py: Python<'_>, info: &OperatorInfo) -> Result<(), TaskError> {
        self.object.iter().try_for_each(|object| close(object.bind(py), info))
    }
}

/// The methods of a process function, one for each input.
pub(super) fn methods(inputs: ProcessInputs) -> &'static [&'static str] {
    match inputs {
        ProcessInputs::One => &["process"],
        ProcessInputs::Two => &["process1", "process2"],
        ProcessInputs::Broadcast => &["process", "process_broadcast"],
    }
}

/// Returns true if it is an object with `open` and `close` methods.
pub(super) fn is_told(given: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = given.py();
    let class = py.import(intern!(py, "flownet.api.rich_functions"))?.getattr(intern!(py, "Function"))?;
    given.is_instance(&class)
}

/// Calls the object's `open` method.
pub(super) fn open(object: &Bound<'_, PyAny>, info: &OperatorInfo, cx: &TaskContext) -> Result<(), TaskError> {
    let py = object.py();
    let opened = object.call_method1(intern!(py, "open"), (PyTaskContext::new(info, cx),));
    opened.map(drop).map_err(|error| info.failed(py, &error, None))
}

/// Calls the object's `close` method.
pub(super) fn close(object: &Bound<'_, PyAny>, info: &OperatorInfo) -> Result<(), TaskError> {
    let py = object.py();
    let closed = object.call_method0(intern!(py, "close"));
    closed.map(drop).map_err(|error| info.failed(py, &error, None))
}
