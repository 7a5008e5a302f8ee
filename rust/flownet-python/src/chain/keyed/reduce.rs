//! `reduce` with a user's function, running and for windows.

use flownet_runtime::window::Fired;
use flownet_runtime::{TaskContext, TaskError};
use pyo3::prelude::*;

use super::KeyedBase;
use super::state::{Held, State};
use super::window::{WindowSettings, Windows};
use crate::chain::call::call2;
use crate::chain::record::KeyedRecord;
use crate::chain::stage::{Flow, KeyedOperator};

/// The user's function over two values; `None` before the first.
struct Combine {
    base: KeyedBase,
    function: Py<PyAny>,
}

impl Combine {
    /// Folds the record into `held` and returns the new value.
    fn fold<'py>(
        &self,
        py: Python<'py>,
        record: &KeyedRecord<'_>,
        held: &mut Option<Py<PyAny>>,
    ) -> Result<Bound<'py, PyAny>, TaskError> {
        let value = self.base.decode(py, record.value())?;
        let folded = match held {
            None => value,
            Some(so_far) => call2(self.function.bind(py), so_far.bind(py), &value)
                .map_err(|error| self.base.info.failed(py, &error, Some(&value)))?,
        };
        *held = Some(folded.clone().unbind());
        Ok(folded)
    }
}

/// `reduce`: the value so far, for each record.
pub(in crate::chain) struct Reduce {
    combine: Combine,
    state: State<Option<Py<PyAny>>>,
}

impl Reduce {
    pub(in crate::chain) fn new(base: KeyedBase, function: Py<PyAny>) -> Self {
        Self { combine: Combine { base, function }, state: State::new() }
    }
}

impl KeyedOperator for Reduce {
    fn open(&mut self, _: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.state.open(cx.key_group_range);
        Ok(())
    }

    fn push(&mut self, record: &KeyedRecord<'_>, _: i64, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let held = self.state.entry(record, || None)?;
        flow.emit(self.combine.fold(flow.py, record, &mut held.value)?)
    }
}

/// `window_reduce`: `(key, value)` for each key and window.
pub(in crate::chain) struct WindowReduce {
    combine: Combine,
    windows: Windows<Option<Py<PyAny>>>,
}

impl WindowReduce {
    pub(in crate::chain) fn new(
        base: KeyedBase,
        function: Py<PyAny>,
        window: WindowSettings,
    ) -> Result<Self, TaskError> {
        Ok(Self { combine: Combine { base, function }, windows: Windows::new(window)? })
    }

    fn emit(&self, fired: Fired<Held<Option<Py<PyAny>>>>, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        for (_, key, held) in fired {
            flow.cancel().check()?;
            let pair =
                |value: &Py<PyAny>| self.combine.base.pair(flow.py, held.key_value(&key), value.bind(flow.py).clone());
            if let Some(pair) = held.value.as_ref().map(pair) {
                flow.emit(pair?)?;
            }
        }
        Ok(())
    }
}

impl KeyedOperator for WindowReduce {
    fn open(&mut self, _: Python<'_>, _: &TaskContext) -> Result<(), TaskError> {
        Ok(())
    }

    fn push(&mut self, record: &KeyedRecord<'_>, now_ms: i64, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let held = self.windows.entry(record, now_ms, || None);
        self.combine.fold(flow.py, record, held).map(drop)
    }

    fn next_timer_ms(&self) -> Option<i64> {
        self.windows.next_timer_ms()
    }

    fn on_timer(&mut self, now_ms: i64, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let fired = self.windows.fire_due(now_ms);
        self.emit(fired, flow)
    }

    fn finish(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let fired = self.windows.fire_all();
        self.emit(fired, flow)
    }
}
