//! `count` and the count of a window: the record's value is never looked at.

use flownet_runtime::spec::WindowSpec;
use flownet_runtime::window::Window;
use flownet_runtime::{TaskContext, TaskError};
use pyo3::prelude::*;
use pyo3::types::PyInt;

use super::KeyedBase;
use super::state::State;
use super::window::{WindowFold, Windowed};
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
pub(in crate::chain) struct WindowCount(KeyedBase);

impl WindowCount {
    pub(in crate::chain) fn over(base: KeyedBase, window: WindowSpec) -> Result<impl KeyedOperator, TaskError> {
        Windowed::new(Self(base), window)
    }
}

impl WindowFold for WindowCount {
    type Value = u64;

    #[inline]
    fn absorb(&self, _: &KeyedRecord<'_>, records: &mut u64) -> bool {
        *records += 1;
        true
    }

    fn fold(&self, _: Python<'_>, record: &KeyedRecord<'_>, records: &mut u64) -> Result<(), TaskError> {
        self.absorb(record, records);
        Ok(())
    }

    fn emit(&self, _: Window, key: &[u8], records: u64, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let count = PyInt::new(flow.py, records).into_any();
        flow.emit(self.0.pair(flow.py, key, count)?)
    }
}
