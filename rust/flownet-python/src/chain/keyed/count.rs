//! `count` and the count of a window: the record's value is never looked at.

use flownet_runtime::window::Fired;
use flownet_runtime::{TaskContext, TaskError};
use pyo3::prelude::*;
use pyo3::types::PyInt;

use super::KeyedBase;
use super::state::{Held, State};
use super::window::{WindowSettings, Windows};
use crate::chain::record::KeyedRecord;
use crate::chain::stage::{Flow, KeyedOperator};

/// `count`: `(key, records so far)` for each record.
pub(in crate::chain) struct Count {
    base: KeyedBase,
    state: State<u64>,
}

impl Count {
    pub(in crate::chain) fn new(base: KeyedBase) -> Self {
        Self { base, state: State::new() }
    }
}

impl KeyedOperator for Count {
    fn open(&mut self, _: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.state.open(cx.key_group_range);
        Ok(())
    }

    fn push(&mut self, record: &KeyedRecord<'_>, _: i64, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let held = self.state.entry(record, || 0)?;
        held.value += 1;
        let count = PyInt::new(flow.py, held.value).into_any();
        flow.emit(self.base.pair(flow.py, held.key_value(record.key), count)?)
    }
}

/// `window_count`: `(key, records)` for each key and window.
pub(in crate::chain) struct WindowCount {
    base: KeyedBase,
    windows: Windows<u64>,
}

impl WindowCount {
    pub(in crate::chain) fn new(base: KeyedBase, window: WindowSettings) -> Result<Self, TaskError> {
        Ok(Self { base, windows: Windows::new(window)? })
    }

    fn emit(&self, fired: Fired<Held<u64>>, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        for (_, key, held) in fired {
            flow.cancel().check()?;
            let count = PyInt::new(flow.py, held.value).into_any();
            flow.emit(self.base.pair(flow.py, held.key_value(&key), count)?)?;
        }
        Ok(())
    }
}

impl KeyedOperator for WindowCount {
    fn open(&mut self, _: Python<'_>, _: &TaskContext) -> Result<(), TaskError> {
        Ok(())
    }

    #[inline]
    fn absorb(&mut self, record: &KeyedRecord<'_>, now_ms: i64) -> Result<bool, TaskError> {
        *self.windows.entry(record, now_ms, || 0) += 1;
        Ok(true)
    }

    fn push(&mut self, record: &KeyedRecord<'_>, now_ms: i64, _: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        self.absorb(record, now_ms).map(drop)
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
