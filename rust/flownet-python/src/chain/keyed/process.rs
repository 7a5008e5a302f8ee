//! `process`: a user's `KeyedProcessFunction`, with state and timers for each key.

use std::cmp::Ordering;

use flownet_core::keygroup::hash_key;
use flownet_runtime::timer::TimerService;
use flownet_runtime::{TaskContext, TaskError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::KeyedBase;
use super::state::State;
use crate::chain::call::{call1, call2};
use crate::chain::context::{PyProcessContext, PyTaskContext, TimerChange};
use crate::chain::record::KeyedRecord;
use crate::chain::stage::{Flow, KeyedOperator};

/// The user's function, the mapping of each key, and the timers.
pub(in crate::chain) struct Process {
    base: KeyedBase,
    function: Py<PyAny>,
    state: State<Py<PyDict>>,
    timers: TimerService<TimerKey>,
    bound: Option<BoundMethods>,
}

/// What `open` looks up once for all records.
struct BoundMethods {
    process: Py<PyAny>,
    on_timer: Py<PyAny>,
    context: Py<PyProcessContext>,
}

/// Whose timer it is: the key's canonical bytes, and its form as given.
#[derive(Clone, Debug)]
struct TimerKey {
    key: Box<[u8]>,
    given: Box<[u8]>,
}

impl Process {
    pub(in crate::chain) fn new(base: KeyedBase, function: Py<PyAny>) -> Self {
        Self { base, function, state: State::new(), timers: TimerService::new(), bound: None }
    }

    fn bound(&self) -> Result<&BoundMethods, TaskError> {
        self.bound.as_ref().ok_or_else(|| TaskError::Config("process() was called before open()".into()))
    }

    /// Puts the context on a key: its mapping is the one held, or a new one that is kept if something is put into it.
    fn enter_key<'py>(&mut self, py: Python<'py>, owner: &TimerKey) -> Result<Bound<'py, PyProcessContext>, TaskError> {
        let state = self.state.get(&owner.key, hash_key(&owner.key)).map(|held| held.value.clone_ref(py));
        let key = self.base.decode(py, &owner.given)?;
        let context = self.bound()?.context.bind(py).clone();
        context.get().enter(key.unbind(), state);
        Ok(context)
    }

    /// Emits what the function returned, then keeps what it did to state and timers.
    fn leave_key<'py>(
        &mut self,
        owner: &TimerKey,
        record: Option<&Bound<'py, PyAny>>,
        (function, result): (&Bound<'py, PyAny>, PyResult<Bound<'py, PyAny>>),
        flow: &mut Flow<'_, 'py>,
    ) -> Result<(), TaskError> {
        let py = flow.py;
        let given = if record.is_some() { "a record and a context" } else { "a time and a context" };
        let failed = |error: PyErr| self.base.info.call_failed(py, &error, function, given, record);
        let items = result.map_err(failed)?;
        // A generator runs here, so the context must still be on its key.
        if !items.is_none() {
            flow.emit_each(&items, failed)?;
        }
        let (state, timers) = self.bound()?.context.get().leave();
        self.keep_state(py, owner, state)?;
        for change in timers {
            match change {
                TimerChange::Set(timestamp_ms) => self.timers.register(timestamp_ms, owner.clone()),
                TimerChange::Delete(timestamp_ms) => self.timers.delete(timestamp_ms, owner.clone()),
            };
        }
        Ok(())
    }

    fn keep_state(&mut self, py: Python<'_>, owner: &TimerKey, state: Option<Py<PyDict>>) -> Result<(), TaskError> {
        let Some(state) = state else { return Ok(()) };
        let hash = hash_key(&owner.key);
        if state.bind(py).is_empty() {
            self.state.remove(&owner.key, hash);
            return Ok(());
        }
        let record = KeyedRecord::of_key(&owner.key, hash);
        self.state.entry(&record, || state).map(drop)
    }

    fn fire(&mut self, timestamp_ms: i64, owner: &TimerKey, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        flow.cancel().check()?;
        let py = flow.py;
        let context = self.enter_key(py, owner)?;
        let timestamp = pyo3::types::PyInt::new(py, timestamp_ms).into_any();
        let function = self.bound()?.on_timer.bind(py).clone();
        let result = call2(&function, &timestamp, context.as_any());
        self.leave_key(owner, None, (&function, result), flow)
    }
}

/// The name of the function's class, if the class says nothing of timers.
fn without_on_timer(function: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let (py, class) = (function.py(), function.get_type());
    let base = py.import("flownet.functions")?.getattr("KeyedProcessFunction")?;
    let is_missing = class.getattr(intern!(py, "on_timer"))?.is(&base.getattr(intern!(py, "on_timer"))?)
        && function.getattr(intern!(py, "on_timer"))?.hasattr(intern!(py, "__func__"))?;
    Ok(if is_missing { Some(class.name()?.to_string()) } else { None })
}

impl KeyedOperator for Process {
    fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.state.open(cx.key_group_range);
        let task = PyTaskContext::new(&self.base.info, cx);
        let function = self.function.bind(py);
        let open = || {
            let context = Py::new(py, PyProcessContext::new(task.clone(), without_on_timer(function)?))?;
            let bound = BoundMethods {
                process: function.getattr(intern!(py, "process"))?.unbind(),
                on_timer: function.getattr(intern!(py, "on_timer"))?.unbind(),
                context,
            };
            call1(&function.getattr(intern!(py, "open"))?, Bound::new(py, task)?.as_any())?;
            PyResult::Ok(bound)
        };
        self.bound = Some(open().map_err(|error| self.base.info.failed(py, &error, None))?);
        Ok(())
    }

    fn push(&mut self, record: &KeyedRecord<'_>, _: i64, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let py = flow.py;
        let owner = TimerKey { key: record.key.into(), given: record.key_value().into() };
        let value = self.base.decode(py, record.value())?;
        let context = self.enter_key(py, &owner)?;
        let function = self.bound()?.process.bind(py).clone();
        let result = call2(&function, &value, context.as_any());
        self.leave_key(&owner, Some(&value), (&function, result), flow)
    }

    fn next_timer_ms(&self) -> Option<i64> {
        self.timers.next_ms()
    }

    fn on_timer(&mut self, now_ms: i64, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        while let Some((timestamp_ms, owner)) = self.timers.pop_due(now_ms) {
            self.fire(timestamp_ms, &owner, flow)?;
        }
        Ok(())
    }

    /// Fires what is pending, and not what that sets: a timer that sets itself again would never end.
    fn finish(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let mut pending = std::mem::take(&mut self.timers);
        while let Some((timestamp_ms, owner)) = pending.pop_due(i64::MAX) {
            self.fire(timestamp_ms, &owner, flow)?;
        }
        Ok(())
    }

    fn close(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        let closed = self.function.bind(py).call_method0(intern!(py, "close"));
        closed.map(drop).map_err(|error| self.base.info.failed(py, &error, None))
    }
}

impl PartialEq for TimerKey {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for TimerKey {}

impl PartialOrd for TimerKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TimerKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key)
    }
}
