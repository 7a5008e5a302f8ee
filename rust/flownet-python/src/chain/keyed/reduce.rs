//! `reduce` with a user's function, running and for windows.

use flownet_runtime::spec::WindowSpec;
use flownet_runtime::window::Window;
use flownet_runtime::{TaskContext, TaskError};
use pyo3::prelude::*;

use super::KeyedBase;
use super::state::State;
use super::window::{WindowFold, Windowed};
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
pub(in crate::chain) struct WindowReduce(Combine);

impl WindowReduce {
    pub(in crate::chain) fn over(
        base: KeyedBase,
        function: Py<PyAny>,
        window: WindowSpec,
    ) -> Result<impl KeyedOperator, TaskError> {
        Windowed::new(Self(Combine { base, function }), window)
    }
}

impl WindowFold for WindowReduce {
    type Value = Option<Py<PyAny>>;

    fn fold(&self, py: Python<'_>, record: &KeyedRecord<'_>, held: &mut Option<Py<PyAny>>) -> Result<(), TaskError> {
        self.0.fold(py, record, held).map(drop)
    }

    fn emit(&self, _: Window, key: &[u8], held: Option<Py<PyAny>>, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let Some(value) = held else { return Ok(()) };
        flow.emit(self.0.base.pair(flow.py, key, value.into_bound(flow.py))?)
    }
}
