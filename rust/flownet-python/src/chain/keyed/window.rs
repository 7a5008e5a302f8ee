//! Operators on tumbling windows: one value for each key and window, given out when the window is over.

use flownet_runtime::spec::WindowSpec;
use flownet_runtime::window::{Fired, Tumbling, WindowState};
use flownet_runtime::{TaskContext, TaskError};
use pyo3::prelude::*;

use super::fold::Fold;
use super::state::Held;
use crate::chain::record::KeyedRecord;
use crate::chain::stage::{Flow, KeyedOperator};

/// Results after which others may have the interpreter: a window may have millions.
const BREATH_RECORDS: usize = 1024;

/// A fold over tumbling windows.
pub(in crate::chain) struct Windowed<F: Fold> {
    fold: F,
    windows: WindowState<Held<F::Value>>,
}

impl<F: Fold> Windowed<F> {
    pub(in crate::chain) fn new(fold: F, window: WindowSpec) -> Result<Self, TaskError> {
        let size_ms = i64::try_from(window.size_ms.get()).unwrap_or(i64::MAX);
        Ok(Self { fold, windows: WindowState::new(Tumbling::new(size_ms, 0)?) })
    }

    #[inline]
    fn parts(&mut self, record: &KeyedRecord<'_>, now_ms: i64) -> (&F, &mut F::Value) {
        let held = self.windows.add(record.key, record.hash, now_ms, || Held::new(record, F::Value::default()));
        (&self.fold, &mut held.value)
    }

    fn emit(&self, fired: Fired<Held<F::Value>>, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        for (number, (window, key, held)) in (1_usize..).zip(fired) {
            flow.cancel().check()?;
            if number.is_multiple_of(BREATH_RECORDS) {
                flow.breathe();
            }
            let (given, value) = held.into_parts();
            self.fold.emit(window, given.as_deref().unwrap_or(&key), value, flow)?;
        }
        Ok(())
    }
}

impl<F: Fold> KeyedOperator for Windowed<F> {
    fn open(&mut self, _: Python<'_>, _: &TaskContext) -> Result<(), TaskError> {
        Ok(())
    }

    #[inline]
    fn absorb(&mut self, record: &KeyedRecord<'_>, now_ms: i64) -> Result<bool, TaskError> {
        let (fold, value) = self.parts(record, now_ms);
        Ok(fold.absorb(record, value))
    }

    fn push(&mut self, record: &KeyedRecord<'_>, now_ms: i64, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let (fold, value) = self.parts(record, now_ms);
        fold.fold(flow.py, record, value)
    }

    fn next_timer_ms(&self) -> Option<i64> {
        self.windows.next_fire_ms()
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
