//! Shapes results of folds: pairs, with their window, or the records that a user's function returns.

use flownet_runtime::operator::{InspectedState, StateKind};
use flownet_runtime::snapshot::{RestoredState, Snapshot};
use flownet_runtime::state::{KeyEntry, KeyGroupRange, KeyedState};
use flownet_runtime::window::Window;
use flownet_runtime::{TaskContext, TaskError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use super::KeyedBase;
use crate::chain::call::call1;
use crate::chain::context::{PySides, PyWindowContext, window_object};
use crate::chain::function::{close, open};
use crate::chain::record_format::{Collector, EmitEach};

/// Shape of results.
pub(in crate::chain) struct Results {
    with_key: bool,
    with_window: bool,
    process: Option<OfWindow>,
    /// Objects of the fold with `open` and `close` methods.
    told: Vec<Py<PyAny>>,
    watermark_ms: i64,
}

/// A user's function of the results of a window.
pub(in crate::chain) enum OfWindow {
    /// `function(key, window, values)`.
    Function(Py<PyAny>),
    /// A `ProcessWindowFunction`.
    Object {
        /// The user's object.
        object: Py<PyAny>,
        /// State of each key that its windows share.
        global: KeyedState<KeyEntry<Py<PyDict>>>,
    },
}

impl OfWindow {
    /// A `ProcessWindowFunction` for the keys of these groups.
    pub(in crate::chain) fn object(object: Py<PyAny>, range: KeyGroupRange) -> Self {
        Self::Object { object, global: KeyedState::new(range) }
    }
}

impl Results {
    /// Results are values with their key or window, unless `process` converts them.
    pub(in crate::chain) fn new(with_key: bool, with_window: bool, process: Option<OfWindow>) -> Self {
        Self { with_key, with_window, process, told: Vec::new(), watermark_ms: i64::MIN }
    }

    /// The same results, for a fold with objects that have `open` and `close` methods.
    pub(in crate::chain) fn telling(self, told: Vec<Py<PyAny>>) -> Self {
        Self { told, ..self }
    }

    pub(super) fn set_watermark(&mut self, watermark_ms: i64) {
        self.watermark_ms = watermark_ms;
    }

    pub(super) fn give_out_so_far<'py>(
        &self,
        base: &KeyedBase,
        key: &[u8],
        result: Bound<'py, PyAny>,
        collector: &mut Collector<'_, 'py>,
    ) -> Result<(), TaskError> {
        if !self.with_key {
            return collector.emit(result);
        }
        let key = base.decode(collector.token, key)?;
        let pair = PyTuple::new(collector.token, [key, result])
            .map_err(|error| base.info.failed(collector.token, &error, None))?;
        collector.emit(pair.into_any())
    }

    pub(super) fn give_out<'py>(
        &mut self,
        base: &KeyedBase,
        (window, key): (Window, &[u8]),
        result: Bound<'py, PyAny>,
        collector: &mut Collector<'_, 'py>,
    ) -> Result<(), TaskError> {
        let py = collector.token;
        let failed = |error: PyErr| base.info.failed(py, &error, None);
        if self.process.is_some() {
            let results = PyList::new(py, [result]).map_err(failed)?;
            return self.process(base, (window, key), results, None, collector);
        }
        let record = match (self.with_key, self.with_window) {
            (true, false) => PyTuple::new(py, [base.decode(py, key)?, result]),
            (false, false) => return collector.emit(result),
            (with_key, true) => {
                let window = window_object(py, window).map_err(failed)?;
                if with_key {
                    PyTuple::new(py, [base.decode(py, key)?, window, result])
                } else {
                    PyTuple::new(py, [window, result])
                }
            }
        };
        collector.emit(record.map_err(failed)?.into_any())
    }

    /// Calls the user's function with the records, or the result, of a window.
    pub(super) fn process<'py>(
        &mut self,
        base: &KeyedBase,
        (window, key): (Window, &[u8]),
        values: Bound<'py, PyList>,
        state: Option<&mut Option<Py<PyDict>>>,
        collector: &mut Collector<'_, 'py>,
    ) -> Result<(), TaskError> {
        let py = collector.token;
        let key_object = base.decode(py, key)?;
        match &mut self.process {
            None => Ok(()),
            Some(OfWindow::Function(function)) => {
                let (function, given) = (function.bind(py), "the key, the window and a list of its records");
                let failed = |error: PyErr| base.info.call_failed(py, &error, function, given, None);
                let window = window_object(py, window).map_err(failed)?;
                let items = function.call1((key_object, window, values)).map_err(failed)?;
                if items.is_none() { Ok(()) } else { collector.emit_each(&items, failed) }
            }
            Some(OfWindow::Object { object, global }) => {
                let given = key;
                let (key, hash) = base.index(&key_object)?;
                let as_given = || (given != key).then(|| given.into());
                let context = PyWindowContext::new(window, self.watermark_ms, collector.now_ms);
                let mut own = None;
                let state = state.unwrap_or(&mut own);
                context.enter(state.take(), global.get(&key, hash).map(|held| held.value.clone_ref(py)));
                let failed = |error: PyErr| base.info.failed(py, &error, None);
                let context = Bound::new(py, context).map_err(failed)?;
                let process = object.bind(py).getattr(intern!(py, "process")).map_err(failed)?;
                let given = "the key, a context and a list of the window's records";
                let failed = |error: PyErr| base.info.call_failed(py, &error, &process, given, None);
                let items = process.call1((key_object, &context, values)).map_err(failed)?;
                if !items.is_none() {
                    collector.emit_each(&items, failed)?;
                }
                let (of_window, of_key, sides) = context.get().leave();
                *state = of_window;
                keep(py, global, (&key, hash), as_given, of_key)?;
                sides.emit(collector)
            }
        }
    }

    /// Calls the user's function when a window is removed.
    pub(super) fn clear(
        &mut self,
        base: &KeyedBase,
        (window, key): (Window, &[u8]),
        state: Option<Py<PyDict>>,
        collector: &mut Collector<'_, '_>,
    ) -> Result<(), TaskError> {
        let py = collector.token;
        let Some(OfWindow::Object { object, global }) = &mut self.process else { return Ok(()) };
        let given = key;
        let (key, hash) = base.index(&base.decode(py, key)?)?;
        let as_given = || (given != key).then(|| given.into());
        let context = PyWindowContext::new(window, self.watermark_ms, collector.now_ms);
        context.enter(state, global.get(&key, hash).map(|held| held.value.clone_ref(py)));
        let failed = |error: PyErr| base.info.failed(py, &error, None);
        let context = Bound::new(py, context).map_err(failed)?;
        let clear = object.bind(py).getattr(intern!(py, "clear")).map_err(failed)?;
        call1(&clear, context.as_any()).map_err(failed)?;
        let (_, of_key, sides) = context.get().leave();
        keep(py, global, (&key, hash), as_given, of_key)?;
        sides.emit(collector)
    }

    /// Adds the state that all windows of a key share to the inspected state.
    pub(super) fn inspect<'py>(&self, py: Python<'py>, found: &mut InspectedState<Bound<'py, PyAny>>) {
        let Some(OfWindow::Object { global, .. }) = &self.process else { return };
        for (_, key, held) in global.iter() {
            found.add(StateKind::GlobalState, Some(held.key_value(key)), None, held.value.bind(py).clone().into_any());
        }
    }

    pub(super) fn snapshot(
        &mut self,
        py: Python<'_>,
        base: &KeyedBase,
        to: &mut Snapshot<'_>,
    ) -> Result<(), TaskError> {
        let Some(OfWindow::Object { global, .. }) = &mut self.process else { return Ok(()) };
        base.add_mappings(py, to, GLOBAL, global, &[])
    }

    pub(super) fn restore(
        &mut self,
        py: Python<'_>,
        base: &KeyedBase,
        from: &RestoredState<'_>,
    ) -> Result<(), TaskError> {
        let Some(OfWindow::Object { global, .. }) = &mut self.process else { return Ok(()) };
        base.read_mappings(py, from, GLOBAL, global)
    }

    pub(super) fn open(&self, py: Python<'_>, base: &KeyedBase, cx: &TaskContext) -> Result<(), TaskError> {
        self.objects().try_for_each(|object| open(object.bind(py), &base.info, cx))
    }

    pub(super) fn close(&self, py: Python<'_>, base: &KeyedBase) -> Result<(), TaskError> {
        // Close each of them, even if others raise.
        let mut closed = Ok(());
        for object in self.objects() {
            closed = closed.and(close(object.bind(py), &base.info));
        }
        closed
    }

    fn objects(&self) -> impl Iterator<Item = &Py<PyAny>> {
        let process = match &self.process {
            Some(OfWindow::Object { object, .. }) => Some(object),
            _ => None,
        };
        self.told.iter().chain(process)
    }
}

/// Name of the state of a key that its windows share.
const GLOBAL: &str = "global_state";

/// Stores a key's mapping, if it has entries.
fn keep(
    py: Python<'_>,
    state: &mut KeyedState<KeyEntry<Py<PyDict>>>,
    (key, hash): (&[u8], u32),
    given: impl FnOnce() -> Option<Box<[u8]>>,
    mapping: Option<Py<PyDict>>,
) -> Result<(), TaskError> {
    match mapping {
        None => {}
        Some(mapping) if mapping.bind(py).is_empty() => drop(state.remove(key, hash)),
        Some(mapping) => match state.get_mut(key, hash) {
            Some(held) => held.value = mapping,
            None => drop(state.insert(key, hash, KeyEntry::of(given(), mapping))?),
        },
    }
    Ok(())
}

/// Emits values for side outputs, with the names of their tags.
pub(in crate::chain) trait EmitSides {
    fn emit(self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError>;
}

impl EmitSides for PySides {
    fn emit(self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        for (tag, value) in self {
            let value = value.into_bound(collector.token);
            collector.emit_to(&tag, &value)?;
        }
        Ok(())
    }
}
