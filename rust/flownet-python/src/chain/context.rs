//! What users' functions are handed: the members that `flownet.functions` promises.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use flownet_runtime::TaskContext;
use flownet_runtime::window::Window;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::failure::OperatorInfo;

/// Where an operator runs.
#[pyclass(frozen, name = "TaskContext", module = "flownet._flownet")]
#[derive(Clone, Debug)]
pub struct PyTaskContext {
    info: OperatorInfo,
    worker: String,
}

impl PyTaskContext {
    pub(super) fn new(info: &OperatorInfo, cx: &TaskContext) -> Self {
        Self { info: info.clone(), worker: cx.worker.clone() }
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

    fn __repr__(&self) -> String {
        let OperatorInfo { operator, subtask, parallelism } = &self.info;
        format!("<TaskContext of {operator:?}, subtask {} of {parallelism}, on {}>", subtask + 1, self.worker)
    }
}

/// What a `KeyedProcessFunction` sees beside the record. One object serves all calls of a subtask.
#[pyclass(frozen, name = "ProcessContext", module = "flownet._flownet")]
#[derive(Debug)]
pub struct PyProcessContext {
    task: PyTaskContext,
    /// The class of the function, if it does not define `on_timer`.
    without_on_timer: Option<String>,
    /// `None` between calls: a context that was kept has no key.
    current: Mutex<Option<Current>>,
}

#[derive(Debug)]
struct Current {
    key: Py<PyAny>,
    state: Option<Py<PyDict>>,
    timers: Vec<TimerChange>,
}

/// What a call did to the timers of its key.
#[derive(Clone, Copy, Debug)]
pub(super) enum TimerChange {
    Set(i64),
    Delete(i64),
}

impl PyProcessContext {
    pub(super) fn new(task: PyTaskContext, without_on_timer: Option<String>) -> Self {
        Self { task, without_on_timer, current: Mutex::new(None) }
    }

    /// Puts the context on a key, whose mapping is `state` if there is something in it.
    pub(super) fn enter(&self, key: Py<PyAny>, state: Option<Py<PyDict>>) {
        let before = self.lock().replace(Current { key, state, timers: Vec::new() });
        // Dropped without the lock: dropping a user's object may run its code.
        drop(before);
    }

    /// Takes the context off its key: the mapping, if the call asked for it, and its timers.
    pub(super) fn leave(&self) -> (Option<Py<PyDict>>, Vec<TimerChange>) {
        let current = self.lock().take();
        current.map_or_else(|| (None, Vec::new()), |current| (current.state, current.timers))
    }

    fn with<R>(&self, work: impl FnOnce(&mut Current) -> R) -> PyResult<R> {
        let mut current = self.lock();
        let current = current.as_mut().ok_or_else(|| {
            PyRuntimeError::new_err("the context is on no key: use it only while process() or on_timer() runs")
        })?;
        Ok(work(current))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyProcessContext {
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
    fn key(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.with(|current| current.key.clone_ref(py))
    }

    #[getter]
    fn state(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        let fresh = PyDict::new(py).unbind();
        self.with(|current| current.state.get_or_insert(fresh).clone_ref(py))
    }

    #[expect(clippy::unused_self, reason = "a method to Python, so that tests can replace the context as a whole")]
    fn now_ms(&self) -> i64 {
        now_ms()
    }

    fn set_timer(&self, timestamp_ms: i64) -> PyResult<()> {
        if let Some(class) = &self.without_on_timer {
            let text =
                format!("{class} sets a timer and has no on_timer(self, timestamp_ms, ctx): define it, or set none");
            return Err(PyTypeError::new_err(text));
        }
        if SECONDS.contains(&timestamp_ms) {
            let text = format!(
                "set_timer({timestamp_ms}): a time in milliseconds since 1970, and this looks like one in seconds: \
                 ctx.now_ms() + 5000 is in five seconds"
            );
            return Err(PyValueError::new_err(text));
        }
        self.with(|current| current.timers.push(TimerChange::Set(timestamp_ms)))
    }

    fn delete_timer(&self, timestamp_ms: i64) -> PyResult<()> {
        self.with(|current| current.timers.push(TimerChange::Delete(timestamp_ms)))
    }
}

/// From 1985 to 2128 in seconds, which would be January of 1970 in milliseconds: a mistake.
const SECONDS: Range<i64> = 500_000_000..5_000_000_000;

/// A stretch of processing time.
#[pyclass(frozen, eq, hash, ord, name = "Window", module = "flownet._flownet")]
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PyWindow {
    start: i64,
    end: i64,
}

impl PyWindow {
    pub(super) fn new(window: Window) -> Self {
        Self { start: window.start_ms, end: window.end_ms }
    }
}

#[pymethods]
impl PyWindow {
    #[getter]
    fn start_ms(&self) -> i64 {
        self.start
    }

    #[getter]
    fn end_ms(&self) -> i64 {
        self.end
    }

    fn __repr__(&self) -> String {
        format!("Window(start_ms={}, end_ms={})", self.start, self.end)
    }
}

/// Milliseconds since the epoch; a clock before it counts as the epoch.
fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
