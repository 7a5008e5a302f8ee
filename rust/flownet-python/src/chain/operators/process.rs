//! `process` without a key: a user's function over one input or two, with side outputs and event time.

use flownet_runtime::operator::Operator;
use flownet_runtime::time::NO_TIMESTAMP;
use flownet_runtime::{TaskContext, TaskError};
use pyo3::intern;
use pyo3::prelude::*;

use crate::chain::call::{call1, call2};
use crate::chain::context::{At, PyProcessContext, PyTaskContext};
use crate::chain::failure::OperatorInfo;
use crate::chain::keyed::EmitSides;
use crate::chain::medium::{EmitEach, Flow, PythonMedium};

/// The user's function.
pub(in crate::chain) struct ProcessAll {
    function: Py<PyAny>,
    /// Its methods, one for each input.
    methods: &'static [&'static str],
    info: OperatorInfo,
    watermark_ms: i64,
    bound: Option<(Vec<Py<PyAny>>, Py<PyProcessContext>)>,
}

impl ProcessAll {
    pub(in crate::chain) fn new(function: Py<PyAny>, methods: &'static [&'static str], info: OperatorInfo) -> Self {
        Self { function, methods, info, watermark_ms: i64::MIN, bound: None }
    }

    fn call<'py>(
        &self,
        function: &Bound<'py, PyAny>,
        record: Option<&Bound<'py, PyAny>>,
        flow: &mut Flow<'_, 'py>,
    ) -> Result<(), TaskError> {
        let py = flow.token;
        let Some((_, context)) = &self.bound else { return Ok(()) };
        let context = context.bind(py);
        let timestamp_ms = flow.timestamp_ms;
        context.get().enter(None, None, At { timestamp_ms, watermark_ms: self.watermark_ms, clock: None });
        let given = if record.is_some() { "a record and a context" } else { "a context" };
        let failed = |error: PyErr| self.info.call_failed(py, &error, function, given, record);
        let items = match record {
            Some(record) => call2(function, record, context.as_any()),
            None => call1(function, context.as_any()),
        };
        let items = items.map_err(failed)?;
        if !items.is_none() {
            flow.emit_each(&items, failed)?;
        }
        context.get().leave().sides.emit(flow)
    }
}

impl Operator<PythonMedium> for ProcessAll {
    fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        let task = PyTaskContext::new(&self.info, cx);
        let function = self.function.bind(py);
        let open = || {
            let methods = self.methods.iter().map(|name| function.getattr(*name).map(Bound::unbind));
            let methods = methods.collect::<PyResult<_>>()?;
            let context = Py::new(py, PyProcessContext::new(py, task.clone(), false, None))?;
            call1(&function.getattr(intern!(py, "open"))?, Bound::new(py, task)?.as_any())?;
            PyResult::Ok((methods, context))
        };
        self.bound = Some(open().map_err(|error| self.info.failed(py, &error, None))?);
        Ok(())
    }

    fn process<'py>(&mut self, record: Bound<'py, PyAny>, flow: &mut Flow<'_, 'py>) -> Result<(), TaskError> {
        let method = self.bound.as_ref().and_then(|(methods, _)| methods.get(usize::from(flow.side())));
        let Some(method) = method else { return Err(TaskError::Config("a process function without its input".into())) };
        let method = method.bind(flow.token).clone();
        self.call(&method, Some(&record), flow)
    }

    fn on_watermark(&mut self, timestamp_ms: i64, _: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        self.watermark_ms = timestamp_ms;
        Ok(())
    }

    fn finish(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let finish = self.function.bind(flow.token).getattr(intern!(flow.token, "finish"));
        let finish = finish.map_err(|error| self.info.failed(flow.token, &error, None))?;
        flow.timestamp_ms = NO_TIMESTAMP;
        self.call(&finish, None, flow)
    }

    fn close(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        let closed = self.function.bind(py).call_method0(intern!(py, "close"));
        closed.map(drop).map_err(|error| self.info.failed(py, &error, None))
    }
}
