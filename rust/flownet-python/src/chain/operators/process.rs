//! `process` without a key: calls a user's function over one input or two, with side outputs and event time.

use flownet_runtime::operator::{EventTime, Operator};
use flownet_runtime::snapshot::{RestoredState, Snapshot, WATERMARK, put_signed};
use flownet_runtime::spec::ProcessInputs;
use flownet_runtime::time::NO_TIMESTAMP;
use flownet_runtime::{TaskContext, TaskError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::chain::call::{call1, call2};
use crate::chain::context::{CallTime, PyProcessContext, PyTaskContext};
use crate::chain::failure::OperatorInfo;
use crate::chain::function::methods;
use crate::chain::keyed::{EmitSides, KeptValues};
use crate::chain::record_format::{Collector, EmitEach, PythonFormat};
use crate::codec::{self, KnownClasses};

/// The user's function.
pub(in crate::chain) struct ProcessAll {
    function: Py<PyAny>,
    inputs: ProcessInputs,
    info: OperatorInfo,
    time: EventTime,
    bound: Option<(Vec<Py<PyAny>>, Py<PyProcessContext>)>,
    classes: KnownClasses,
    kept: KeptValues,
}

impl ProcessAll {
    pub(in crate::chain) fn new(
        function: Py<PyAny>,
        inputs: ProcessInputs,
        info: OperatorInfo,
        (classes, kept): (KnownClasses, KeptValues),
    ) -> Self {
        Self { function, inputs, info, time: EventTime::new(), bound: None, classes, kept }
    }

    fn call<'py>(
        &self,
        function: &Bound<'py, PyAny>,
        record: Option<&Bound<'py, PyAny>>,
        collector: &mut Collector<'_, 'py>,
    ) -> Result<(), TaskError> {
        let py = collector.token;
        let Some((_, context)) = &self.bound else { return Ok(()) };
        let context = context.bind(py);
        let timestamp_ms = collector.timestamp_ms;
        context.get().enter(None, None, CallTime { timestamp_ms, watermark_ms: self.time.watermark_ms(), clock: None });
        let given = if record.is_some() { "a record and a context" } else { "a context" };
        let failed = |error: PyErr| self.info.call_failed(py, &error, function, given, record);
        let items = match record {
            Some(record) => call2(function, record, context.as_any()),
            None => call1(function, context.as_any()),
        };
        let items = items.map_err(failed)?;
        if !items.is_none() {
            collector.emit_each(&items, failed)?;
        }
        context.get().leave().sides.emit(collector)
    }
}

impl Operator<PythonFormat> for ProcessAll {
    fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        let task = PyTaskContext::new(&self.info, cx);
        let function = self.function.bind(py);
        let open = || {
            let methods = methods(self.inputs).iter().map(|name| function.getattr(*name).map(Bound::unbind));
            let methods = methods.collect::<PyResult<_>>()?;
            let context = Py::new(py, PyProcessContext::new(py, task.clone(), false, None))?;
            call1(&function.getattr(intern!(py, "open"))?, Bound::new(py, task)?.as_any())?;
            PyResult::Ok((methods, context))
        };
        self.bound = Some(open().map_err(|error| self.info.failed(py, &error, None))?);
        Ok(())
    }

    fn process<'py>(&mut self, record: Bound<'py, PyAny>, collector: &mut Collector<'_, 'py>) -> Result<(), TaskError> {
        let method = self.bound.as_ref().and_then(|(methods, _)| methods.get(usize::from(collector.side())));
        let Some(method) = method else { return Err(TaskError::Config("a process function without its input".into())) };
        let method = method.bind(collector.token).clone();
        self.call(&method, Some(&record), collector)
    }

    fn on_watermark(&mut self, timestamp_ms: i64, _: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        self.time.advance(timestamp_ms);
        Ok(())
    }

    fn finish(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        let finish = self.function.bind(collector.token).getattr(intern!(collector.token, "finish"));
        let finish = finish.map_err(|error| self.info.failed(collector.token, &error, None))?;
        collector.timestamp_ms = NO_TIMESTAMP;
        self.call(&finish, None, collector)
    }

    /// Writes the function's own list. Each item goes to one subtask.
    fn snapshot(&mut self, py: Python<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        let info = &self.info;
        let mut watermark = Vec::new();
        put_signed(&mut watermark, self.time.kept_ms());
        to.add_items(WATERMARK, [watermark]);
        if let Some((_, context)) = &self.bound {
            context.bind(py).get().keep_broadcast(self.inputs, info, &mut self.kept, to)?;
        }
        let function = self.function.bind(py);
        let failed = |error: PyErr| info.failed(py, &error, None);
        let Some(snapshot) = function.getattr_opt(intern!(py, "snapshot_state")).map_err(failed)? else {
            return Ok(());
        };
        let mut items = Vec::new();
        for item in snapshot.call0().and_then(|items| items.try_iter()).map_err(failed)? {
            let mut bytes = Vec::new();
            self.kept.put((info, LIST), &item.map_err(failed)?, &mut bytes)?;
            items.push(bytes);
        }
        to.add_items(LIST, items);
        Ok(())
    }

    fn restore(&mut self, py: Python<'_>, from: &RestoredState<'_>) -> Result<(), TaskError> {
        let info = &self.info;
        if let Some(watermark_ms) = from.own_or_least(WATERMARK, info.parallelism)? {
            self.time.advance(watermark_ms);
        }
        if let Some((_, context)) = &self.bound {
            context.bind(py).get().restore_broadcast(py, info, &self.classes, from)?;
        }
        let failed = |error: PyErr| info.failed(py, &error, None);
        let items = PyList::empty(py);
        for mut item in from.dealt_items(LIST, info.parallelism)? {
            let value = codec::decode(py, item.block()?, &self.classes);
            let value = value.map_err(|error| info.codec_failed(py, error, None))?;
            items.append(value).map_err(failed)?;
        }
        let restore = self.function.bind(py).getattr_opt(intern!(py, "restore_state")).map_err(failed)?;
        restore.map_or(Ok(()), |restore| restore.call1((items,)).map(drop).map_err(failed))
    }

    fn close(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        let closed = self.function.bind(py).call_method0(intern!(py, "close"));
        closed.map(drop).map_err(|error| self.info.failed(py, &error, None))
    }
}

/// Name of its own list.
const LIST: &str = "list";
