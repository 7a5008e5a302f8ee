//! `window_process`: a user's function over all records of a key and window, kept as bytes until then.

use flownet_runtime::TaskError;
use flownet_runtime::window::Window;
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::KeyedBase;
use super::fold::Fold;
use crate::chain::context::PyWindow;
use crate::chain::record::KeyedRecord;
use crate::chain::stage::Flow;
use crate::codec::Decoder;

/// `function(key, window, values)` once for each key and window.
pub(in crate::chain) struct WindowProcess {
    base: KeyedBase,
    function: Py<PyAny>,
}

impl WindowProcess {
    pub(in crate::chain) fn new(base: KeyedBase, function: Py<PyAny>) -> Self {
        Self { base, function }
    }

    fn decode_all<'py>(&self, py: Python<'py>, bytes: &[u8]) -> Result<Bound<'py, PyList>, TaskError> {
        let values = PyList::empty(py);
        let mut decoder = Decoder::new(bytes, &self.base.classes);
        while !decoder.is_empty() {
            let value = decoder.next_value(py).and_then(|value| Ok(values.append(value)?));
            value.map_err(|error| self.base.info.codec_failed(py, error, None))?;
        }
        Ok(values)
    }
}

impl Fold for WindowProcess {
    /// The values' encodings, one behind the other: a fraction of the memory of objects.
    type Value = Vec<u8>;

    fn absorb(&self, record: &KeyedRecord<'_>, values: &mut Vec<u8>) -> bool {
        values.extend_from_slice(record.value());
        true
    }

    fn fold(&self, _: Python<'_>, record: &KeyedRecord<'_>, values: &mut Vec<u8>) -> Result<(), TaskError> {
        self.absorb(record, values);
        Ok(())
    }

    fn emit(&self, window: Window, key: &[u8], values: Vec<u8>, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let py = flow.py;
        let (function, given) = (self.function.bind(py), "the key, the window and a list of its records");
        let failed = |error: PyErr| self.base.info.call_failed(py, &error, function, given, None);
        let key = self.base.decode(py, key)?;
        let values = self.decode_all(py, &values)?;
        let items = function.call1((key, PyWindow::new(window), values)).map_err(failed)?;
        if items.is_none() { Ok(()) } else { flow.emit_each(&items, failed) }
    }
}
