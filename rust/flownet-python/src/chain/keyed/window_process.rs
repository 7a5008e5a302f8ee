//! `window_process`: a user's function over all records of a key and window, kept as bytes until then.

use flownet_runtime::window::{Fired, Window};
use flownet_runtime::{TaskContext, TaskError};
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::KeyedBase;
use super::state::Held;
use super::window::{WindowSettings, Windows};
use crate::chain::context::PyWindow;
use crate::chain::record::KeyedRecord;
use crate::chain::stage::{Flow, KeyedOperator};
use crate::codec::Decoder;

/// `function(key, window, values)` once for each key and window.
pub(in crate::chain) struct WindowProcess {
    base: KeyedBase,
    function: Py<PyAny>,
    /// The values' encodings, one behind the other: a fraction of the memory of objects.
    windows: Windows<Vec<u8>>,
}

impl WindowProcess {
    pub(in crate::chain) fn new(
        base: KeyedBase,
        function: Py<PyAny>,
        window: WindowSettings,
    ) -> Result<Self, TaskError> {
        Ok(Self { base, function, windows: Windows::new(window)? })
    }

    fn emit(&self, fired: Fired<Held<Vec<u8>>>, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        for (window, key, held) in fired {
            flow.cancel().check()?;
            self.call(window, held.key_value(&key), &held.value, flow)?;
        }
        Ok(())
    }

    fn call(&self, window: Window, key: &[u8], values: &[u8], flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let py = flow.py;
        let failed = |error: PyErr| self.base.info.failed(py, &error, None);
        let key = self.base.decode(py, key)?;
        let values = self.decode_all(py, values)?;
        let items = self.function.bind(py).call1((key, PyWindow::new(window), values)).map_err(failed)?;
        if items.is_none() { Ok(()) } else { flow.emit_each(&items, failed) }
    }

    fn decode_all<'py>(&self, py: Python<'py>, bytes: &[u8]) -> Result<Bound<'py, PyList>, TaskError> {
        let values = PyList::empty(py);
        let mut decoder = Decoder::new(bytes, self.base.pickle);
        while !decoder.is_empty() {
            let value = decoder.next_value(py).and_then(|value| Ok(values.append(value)?));
            value.map_err(|error| self.base.info.codec_failed(py, error, None))?;
        }
        Ok(values)
    }
}

impl KeyedOperator for WindowProcess {
    fn open(&mut self, _: Python<'_>, _: &TaskContext) -> Result<(), TaskError> {
        Ok(())
    }

    fn absorb(&mut self, record: &KeyedRecord<'_>, now_ms: i64) -> Result<bool, TaskError> {
        self.windows.entry(record, now_ms, Vec::new).extend_from_slice(record.value());
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
