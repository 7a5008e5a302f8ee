//! `reduce` with a user's function.

use flownet_runtime::TaskError;
use flownet_runtime::window::Window;
use pyo3::prelude::*;

use super::KeyedBase;
use super::fold::{Fold, RunningFold};
use crate::chain::call::call2;
use crate::chain::record::KeyedRecord;
use crate::chain::stage::Flow;

/// The user's function over two values: the value so far for each record, `(key, value)` for a window.
pub(in crate::chain) struct Reduce {
    base: KeyedBase,
    function: Py<PyAny>,
}

impl Reduce {
    pub(in crate::chain) fn new(base: KeyedBase, function: Py<PyAny>) -> Self {
        Self { base, function }
    }
}

impl Fold for Reduce {
    /// None before the first.
    type Value = Option<Py<PyAny>>;

    #[inline]
    fn fold(&self, py: Python<'_>, record: &KeyedRecord<'_>, held: &mut Option<Py<PyAny>>) -> Result<(), TaskError> {
        let value = self.base.decode(py, record.value())?;
        let folded = match held {
            None => value,
            Some(so_far) => {
                let (function, given) = (self.function.bind(py), "the value so far and the next one");
                call2(function, so_far.bind(py), &value)
                    .map_err(|error| self.base.info.call_failed(py, &error, function, given, Some(&value)))?
            }
        };
        *held = Some(folded.unbind());
        Ok(())
    }

    fn emit(&self, _: Window, key: &[u8], held: Option<Py<PyAny>>, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let Some(value) = held else { return Ok(()) };
        flow.emit(self.base.pair(flow.py, key, value.into_bound(flow.py))?)
    }
}

impl RunningFold for Reduce {
    #[inline]
    fn emit_so_far(&self, _: &[u8], held: &Option<Py<PyAny>>, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        match held {
            Some(value) => flow.emit(value.bind(flow.py).clone()),
            None => Ok(()),
        }
    }
}
