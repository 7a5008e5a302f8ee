//! Context objects for users' functions, with the members that `flownet.api.functions` promises.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use flownet_runtime::snapshot::{RestoredState, Snapshot};
use flownet_runtime::spec::ProcessInputs;
use flownet_runtime::time::{Clock, NO_TIMESTAMP, WallClock};
use flownet_runtime::window::Window;
use flownet_runtime::{TaskContext, TaskError};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

use super::failure::{OperatorInfo, short_repr};
use super::keyed::KeptValues;
use super::user_metrics::PyMetrics;
use crate::codec::{self, KnownClasses};
use crate::convert::Milliseconds;

/// Name of the state of a broadcast side.
const BROADCAST: &str = "broadcast_state";

/// Where an operator runs.
#[pyclass(frozen, name = "TaskContext", module = "flownet._flownet")]
#[derive(Clone, Debug)]
pub struct PyTaskContext {
    info: OperatorInfo,
    worker: String,
    clock: WallClock,
    metrics: PyMetrics,
}

impl PyTaskContext {
    pub(super) fn new(info: &OperatorInfo, cx: &TaskContext) -> Self {
        let metrics = PyMetrics::new(info, &cx.metrics);
        Self { info: info.clone(), worker: cx.worker.clone(), clock: cx.clock.clone(), metrics }
    }
}

#[pymethods]
impl PyTaskContext {
    #[getter]
    fn operator(&self) -> &str {
        &self.info.operator
    }

    #[getter]
    fn subtask(&self) -> u32 {
        self.info.subtask
    }

    #[getter]
    fn parallelism(&self) -> u32 {
        self.info.parallelism
    }

    #[getter]
    fn worker(&self) -> &str {
        &self.worker
    }

    #[getter]
    fn metrics(&self) -> PyMetrics {
        self.metrics.clone()
    }

    fn __repr__(&self) -> String {
        let OperatorInfo { operator, subtask, parallelism } = &self.info;
        format!("<TaskContext of {operator:?}, subtask {} of {parallelism}, on {}>", subtask + 1, self.worker)
    }
}

/// Values for side outputs, with the names of their tags.
pub(super) type PySides = Vec<(String, Py<PyAny>)>;

/// A change that a call made to the timers of its key or window: clock, time, and true if the timer is set.
pub(super) type TimerChange = (Clock, i64, bool);

/// What a process function sees beside the record. One object serves all calls of a subtask.
#[pyclass(frozen, name = "ProcessContext", module = "flownet._flownet")]
#[derive(Debug)]
pub struct PyProcessContext {
    task: PyTaskContext,
    /// Name of the function's class, if it does not define `on_timer`.
    without_on_timer: Option<String>,
    /// True if records have keys.
    keyed: bool,
    /// State of a broadcast side, which all keys of the subtask share.
    broadcast_state: Py<PyDict>,
    /// `None` between calls: a context that user code has stored has no key.
    current: Mutex<Option<Current>>,
}

#[derive(Debug)]
struct Current {
    key: Option<Py<PyAny>>,
    state: Option<Py<PyDict>>,
    at: CallTime,
    /// Event time of the records that a timer emits, if the timer processes an earlier record.
    as_of_ms: Option<i64>,
    timers: Vec<TimerChange>,
    expires_ms: [Option<i64>; 2],
    late: u64,
    sides: PySides,
}

/// Times of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallTime {
    /// Event time of the record or timer.
    pub(super) timestamp_ms: i64,
    pub(super) watermark_ms: i64,
    /// Clock of the timer that is due.
    pub(super) clock: Option<Clock>,
}

/// Effects of a call.
#[derive(Debug, Default)]
pub(super) struct CallEffects {
    /// The mapping, if the call asked for it.
    pub(super) state: Option<Py<PyDict>>,
    pub(super) timers: Vec<TimerChange>,
    /// Time at which something in the mapping expires, by the wall clock and by event time.
    pub(super) expires_ms: [Option<i64>; 2],
    /// Number of late records.
    pub(super) late: u64,
    pub(super) sides: PySides,
}

impl PyProcessContext {
    pub(super) fn new(py: Python<'_>, task: PyTaskContext, keyed: bool, without_on_timer: Option<String>) -> Self {
        let broadcast_state = PyDict::new(py).unbind();
        Self { task, without_on_timer, keyed, broadcast_state, current: Mutex::new(None) }
    }

    /// Sets the context to a key. `state` is its mapping, if it has entries.
    pub(super) fn enter(&self, key: Option<Py<PyAny>>, state: Option<Py<PyDict>>, at: CallTime) {
        let (timers, sides) = (Vec::new(), Vec::new());
        let current = Current { key, state, at, as_of_ms: None, timers, expires_ms: [None; 2], late: 0, sides };
        let before = self.lock().replace(current);
        // Dropped without the lock: dropping a user's object may run its code.
        drop(before);
    }

    /// The mapping that all keys share.
    pub(super) fn shared<'py>(&self, py: Python<'py>) -> &Bound<'py, PyDict> {
        self.broadcast_state.bind(py)
    }

    /// Event time of the records that a timer emits, if its function has set one.
    pub(super) fn as_of_ms(&self) -> Option<i64> {
        self.lock().as_ref().and_then(|current| current.as_of_ms)
    }

    /// Takes the context off its key and returns the effects of the call.
    pub(super) fn leave(&self) -> CallEffects {
        let current = self.lock().take();
        current.map_or_else(CallEffects::default, |current| {
            let Current { state, timers, expires_ms, late, sides, .. } = current;
            CallEffects { state, timers, expires_ms, late, sides }
        })
    }

    /// Writes the state of a broadcast side. All subtasks have the same state, except for records in flight.
    /// A subtask with a broadcast side writes its state even if it has received nothing yet. Otherwise it
    /// would restore the state of other subtasks and then receive the same records again.
    pub(super) fn keep_broadcast(
        &self,
        inputs: ProcessInputs,
        info: &OperatorInfo,
        kept: &mut KeptValues,
        to: &mut Snapshot<'_>,
    ) -> Result<(), TaskError> {
        Python::attach(|py| {
            let state = self.broadcast_state.bind(py);
            if state.is_empty() && inputs != ProcessInputs::Broadcast {
                return Ok(());
            }
            let mut item = Vec::new();
            kept.put((info, BROADCAST), state.as_any(), &mut item)?;
            to.add_items(BROADCAST, [item]);
            Ok(())
        })
    }

    /// Restores the state of one subtask only: others may not have received its last records.
    pub(super) fn restore_broadcast(
        &self,
        py: Python<'_>,
        info: &OperatorInfo,
        classes: &KnownClasses,
        from: &RestoredState<'_>,
    ) -> Result<(), TaskError> {
        let items = from.items(BROADCAST)?;
        let own = items.iter().find(|(subtask, _)| *subtask == info.subtask).or(items.first());
        let Some((_, mut item)) = own.copied() else { return Ok(()) };
        let state = codec::decode(py, item.block()?, classes).map_err(|error| info.codec_failed(py, error, None))?;
        let state = state.cast_into::<PyDict>().map_err(|_| item.broken("a value where a dict is expected"))?;
        let updated = self.broadcast_state.bind(py).update(state.as_mapping());
        updated.map_err(|error| info.failed(py, &error, None))
    }

    fn with<R>(&self, work: impl FnOnce(&mut Current) -> R) -> PyResult<R> {
        let mut current = self.lock();
        let current = current.as_mut().ok_or_else(|| {
            PyRuntimeError::new_err("the context is on no key: use it only while process() or on_timer() runs")
        })?;
        Ok(work(current))
    }

    fn with_key<R>(&self, what: &str, work: impl FnOnce(&mut Current) -> R) -> PyResult<R> {
        self.with(|current| {
            if self.keyed && current.key.is_some() {
                return Ok(work(current));
            }
            Err(PyRuntimeError::new_err(format!(
                "{what} belongs to a key, and there is none here: call key_by() first"
            )))
        })?
    }

    fn change_timer(&self, clock: Clock, timestamp_ms: i64, is_set: bool) -> PyResult<()> {
        if let (true, Some(class)) = (is_set, &self.without_on_timer) {
            let text =
                format!("{class} sets a timer and has no on_timer(self, timestamp_ms, ctx): define it, or set none");
            return Err(PyTypeError::new_err(text));
        }
        if is_set && clock == Clock::Processing && SECONDS.contains(&timestamp_ms) {
            let text = format!(
                "set_timer({timestamp_ms}): a time in milliseconds since 1970, and this looks like one in seconds: \
                 ctx.now_ms() + 5000 is in five seconds"
            );
            return Err(PyValueError::new_err(text));
        }
        self.with_key("a timer", |current| current.timers.push((clock, timestamp_ms, is_set)))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyProcessContext {
    /// Refuses a name that the class does not have. Says what to use instead of other systems' names.
    fn __getattr__(&self, py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
        let error =
            py.import("flownet.internal.foreign_names")?.call_method1("no_attribute", ("ProcessContext", name))?;
        Err(PyErr::from_value(error))
    }

    #[getter]
    fn operator(&self) -> &str {
        self.task.operator()
    }

    #[getter]
    fn subtask(&self) -> u32 {
        self.task.subtask()
    }

    #[getter]
    fn parallelism(&self) -> u32 {
        self.task.parallelism()
    }

    #[getter]
    fn worker(&self) -> &str {
        self.task.worker()
    }

    #[getter]
    fn metrics(&self) -> PyMetrics {
        self.task.metrics()
    }

    #[getter]
    fn key(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.with_key("ctx.key", |current| current.key.as_ref().map(|key| key.clone_ref(py)))
    }

    #[getter]
    fn state(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        let fresh = PyDict::new(py).unbind();
        self.with_key("ctx.state", |current| current.state.get_or_insert(fresh).clone_ref(py))
    }

    #[getter]
    fn broadcast_state(&self, py: Python<'_>) -> Py<PyDict> {
        self.broadcast_state.clone_ref(py)
    }

    #[getter]
    fn timestamp(&self) -> PyResult<Option<i64>> {
        self.with(|current| Some(current.at.timestamp_ms).filter(|at| *at != NO_TIMESTAMP))
    }

    #[getter]
    fn time_domain(&self) -> PyResult<Option<&'static str>> {
        self.with(|current| {
            current.at.clock.map(|clock| match clock {
                Clock::Event => "event",
                Clock::Processing => "processing",
            })
        })
    }

    fn now_ms(&self) -> i64 {
        self.task.clock.now_ms()
    }

    fn timer_service(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn current_processing_time(&self) -> i64 {
        self.task.clock.now_ms()
    }

    fn current_watermark(&self) -> PyResult<i64> {
        self.with(|current| current.at.watermark_ms)
    }

    fn set_timer(&self, timestamp_ms: Milliseconds) -> PyResult<()> {
        self.change_timer(Clock::Processing, timestamp_ms.0, true)
    }

    fn delete_timer(&self, timestamp_ms: Milliseconds) -> PyResult<()> {
        self.change_timer(Clock::Processing, timestamp_ms.0, false)
    }

    fn register_processing_time_timer(&self, timestamp_ms: Milliseconds) -> PyResult<()> {
        self.change_timer(Clock::Processing, timestamp_ms.0, true)
    }

    fn register_event_time_timer(&self, timestamp_ms: Milliseconds) -> PyResult<()> {
        self.change_timer(Clock::Event, timestamp_ms.0, true)
    }

    fn delete_processing_time_timer(&self, timestamp_ms: Milliseconds) -> PyResult<()> {
        self.change_timer(Clock::Processing, timestamp_ms.0, false)
    }

    fn delete_event_time_timer(&self, timestamp_ms: Milliseconds) -> PyResult<()> {
        self.change_timer(Clock::Event, timestamp_ms.0, false)
    }

    fn output(&self, tag: &Bound<'_, PyAny>, value: Py<PyAny>) -> PyResult<()> {
        let name = tag_name(tag)?;
        self.with(|current| current.sides.push((name, value)))
    }

    /// The record came too late and is dropped.
    fn _drop_late(&self) -> PyResult<()> {
        self.with(|current| current.late += 1)
    }

    /// The event time of the record, or of the timer of event time.
    fn _event_time_ms(&self) -> PyResult<Option<i64>> {
        self.with(|current| {
            let CallTime { timestamp_ms, clock, .. } = current.at;
            Some(timestamp_ms).filter(|at_ms| *at_ms != NO_TIMESTAMP && clock != Some(Clock::Processing))
        })
    }

    /// Has a timer work on a record that came before, at the event time of that record.
    fn _as_of(&self, timestamp_ms: i64) -> PyResult<()> {
        self.with(|current| {
            current.at = CallTime { timestamp_ms, clock: None, ..current.at };
            current.as_of_ms = Some(timestamp_ms);
        })
    }

    /// Something in the mapping of the key expires then.
    fn _expires_at(&self, timestamp_ms: i64, in_event_time: bool) -> PyResult<()> {
        self.with_key("state", |current| {
            let expires_ms = &mut current.expires_ms[usize::from(in_event_time)];
            *expires_ms = Some(expires_ms.map_or(timestamp_ms, |at| at.min(timestamp_ms)));
        })
    }
}

/// Returns true for a `flownet.OutputTag`.
#[inline]
pub(super) fn is_output_tag(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    static OUTPUT_TAG: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    Ok(object.is_exact_instance(OUTPUT_TAG.import(object.py(), "flownet.api.functions", "OutputTag")?))
}

/// The name of a `flownet.OutputTag`.
fn tag_name(tag: &Bound<'_, PyAny>) -> PyResult<String> {
    if !is_output_tag(tag)? {
        let text = format!("a side output goes to a flownet.OutputTag, not to {}", short_repr(tag));
        return Err(PyTypeError::new_err(text));
    }
    tag.getattr(intern!(tag.py(), "name"))?.extract()
}

/// What a `ProcessWindowFunction` sees beside the records.
#[pyclass(frozen, name = "WindowContext", module = "flownet._flownet")]
#[derive(Debug)]
pub struct PyWindowContext {
    window: Window,
    watermark_ms: i64,
    now_ms: i64,
    current: Mutex<Mappings>,
}

#[derive(Debug, Default)]
struct Mappings {
    of_window: Option<Py<PyDict>>,
    of_key: Option<Py<PyDict>>,
    sides: PySides,
}

impl PyWindowContext {
    pub(super) fn new(window: Window, watermark_ms: i64, now_ms: i64) -> Self {
        Self { window, watermark_ms, now_ms, current: Mutex::default() }
    }

    pub(super) fn enter(&self, of_window: Option<Py<PyDict>>, of_key: Option<Py<PyDict>>) {
        *self.lock() = Mappings { of_window, of_key, sides: Vec::new() };
    }

    pub(super) fn leave(&self) -> (Option<Py<PyDict>>, Option<Py<PyDict>>, PySides) {
        let Mappings { of_window, of_key, sides } = std::mem::take(&mut *self.lock());
        (of_window, of_key, sides)
    }

    fn lock(&self) -> MutexGuard<'_, Mappings> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyWindowContext {
    #[getter]
    fn window<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        window_object(py, self.window)
    }

    fn current_watermark(&self) -> i64 {
        self.watermark_ms
    }

    fn now_ms(&self) -> i64 {
        self.now_ms
    }

    #[getter]
    fn window_state(&self, py: Python<'_>) -> Py<PyDict> {
        let fresh = PyDict::new(py).unbind();
        self.lock().of_window.get_or_insert(fresh).clone_ref(py)
    }

    #[getter]
    fn global_state(&self, py: Python<'_>) -> Py<PyDict> {
        let fresh = PyDict::new(py).unbind();
        self.lock().of_key.get_or_insert(fresh).clone_ref(py)
    }

    fn output(&self, tag: &Bound<'_, PyAny>, value: Py<PyAny>) -> PyResult<()> {
        let name = tag_name(tag)?;
        self.lock().sides.push((name, value));
        Ok(())
    }
}

/// What a trigger sees beside the record.
#[pyclass(frozen, name = "TriggerContext", module = "flownet._flownet")]
#[derive(Debug)]
pub struct PyTriggerContext {
    watermark_ms: i64,
    now_ms: i64,
    current: Mutex<(Option<Py<PyDict>>, Vec<TimerChange>)>,
}

impl PyTriggerContext {
    pub(super) fn new(watermark_ms: i64, now_ms: i64) -> Self {
        Self { watermark_ms, now_ms, current: Mutex::default() }
    }

    pub(super) fn enter(&self, state: Option<Py<PyDict>>) {
        *self.lock() = (state, Vec::new());
    }

    pub(super) fn leave(&self) -> (Option<Py<PyDict>>, Vec<TimerChange>) {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, (Option<Py<PyDict>>, Vec<TimerChange>)> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyTriggerContext {
    fn current_watermark(&self) -> i64 {
        self.watermark_ms
    }

    fn now_ms(&self) -> i64 {
        self.now_ms
    }

    #[getter]
    fn state(&self, py: Python<'_>) -> Py<PyDict> {
        let fresh = PyDict::new(py).unbind();
        self.lock().0.get_or_insert(fresh).clone_ref(py)
    }

    fn register_event_time_timer(&self, timestamp_ms: Milliseconds) {
        self.lock().1.push((Clock::Event, timestamp_ms.0, true));
    }

    fn register_processing_time_timer(&self, timestamp_ms: Milliseconds) {
        self.lock().1.push((Clock::Processing, timestamp_ms.0, true));
    }

    fn delete_event_time_timer(&self, timestamp_ms: Milliseconds) {
        self.lock().1.push((Clock::Event, timestamp_ms.0, false));
    }

    fn delete_processing_time_timer(&self, timestamp_ms: Milliseconds) {
        self.lock().1.push((Clock::Processing, timestamp_ms.0, false));
    }
}

/// Seconds from 1985 to 2128. As milliseconds they would be in January 1970, so such a value is a mistake.
const SECONDS: Range<i64> = 500_000_000..5_000_000_000;

/// A `flownet.Window`.
pub(super) fn window_object(py: Python<'_>, window: Window) -> PyResult<Bound<'_, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let find = || py.import(intern!(py, "flownet.api.functions"))?.getattr(intern!(py, "Window")).map(Bound::unbind);
    CLASS.get_or_try_init(py, find)?.bind(py).call1((window.start_ms, window.end_ms))
}
