//! Operators that make one value of many records of a key: as records arrive, or once for each window.
//!
//! A [`Fold`] says what becomes of a record; [`Running`] and [`Windowed`](super::window::Windowed) say when its value goes out.

use flownet_runtime::window::Window;
use flownet_runtime::{TaskContext, TaskError};
use pyo3::prelude::*;

use super::state::State;
use crate::chain::record::KeyedRecord;
use crate::chain::stage::{Flow, KeyedOperator};

/// What an operator makes of the records of one key, or of one key and window.
pub(in crate::chain) trait Fold: Send {
    /// What is kept; its default stands before the first record.
    type Value: Default + Send;

    /// Takes a record without the interpreter, if this record allows it; false leaves `value` as it was.
    fn absorb(&self, record: &KeyedRecord<'_>, value: &mut Self::Value) -> bool {
        let _ = (record, value);
        false
    }

    /// Takes a record that was not absorbed.
    fn fold(&self, py: Python<'_>, record: &KeyedRecord<'_>, value: &mut Self::Value) -> Result<(), TaskError>;

    /// The window is over.
    fn emit(&self, window: Window, key: &[u8], value: Self::Value, flow: &mut Flow<'_, '_>) -> Result<(), TaskError>;
}

/// A fold whose value so far says something.
pub(in crate::chain) trait RunningFold: Fold {
    /// A record has been taken.
    fn emit_so_far(&self, key: &[u8], value: &Self::Value, flow: &mut Flow<'_, '_>) -> Result<(), TaskError>;
}

/// A fold that goes out with each record.
pub(in crate::chain) struct Running<F: Fold> {
    fold: F,
    state: State<F::Value>,
}

impl<F: RunningFold> Running<F> {
    pub(in crate::chain) fn new(fold: F) -> Self {
        Self { fold, state: State::new() }
    }
}

impl<F: RunningFold> KeyedOperator for Running<F> {
    fn open(&mut self, _: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.state.open(cx.key_group_range);
        Ok(())
    }

    #[inline]
    fn push(&mut self, record: &KeyedRecord<'_>, _: i64, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let held = self.state.entry(record, F::Value::default)?;
        self.fold.fold(flow.py, record, &mut held.value)?;
        self.fold.emit_so_far(held.key_value(record.key), &held.value, flow)
    }
}
