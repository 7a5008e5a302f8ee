//! Loads users' functions and objects into a chain.

use std::collections::HashMap;

use super::failure::OperatorInfo;
use flownet_runtime::TaskError;
use flownet_runtime::spec::Payload;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Objects that operators of the driver process use directly, by number.
#[derive(Debug, Default)]
pub struct Objects(HashMap<u32, Py<PyAny>>);

impl Objects {
    /// Takes the objects of a job.
    pub fn new(objects: HashMap<u32, Py<PyAny>>) -> Self {
        Self(objects)
    }

    /// Unpickles a payload, or finds it among the objects. Returns `None` if there is no payload.
    pub(super) fn load<'py>(&self, py: Python<'py>, payload: &Payload) -> PyResult<Option<Bound<'py, PyAny>>> {
        match payload {
            Payload::None => Ok(None),
            Payload::Bytes(bytes) => py.import("pickle")?.call_method1("loads", (PyBytes::new(py, bytes),)).map(Some),
            Payload::Local(number) => Ok(self.0.get(number).map(|object| object.bind(py).clone())),
        }
    }

    /// Like [`load_own`](Self::load_own), for an operator of rows that requires the object.
    pub(crate) fn required_own(
        &self,
        py: Python<'_>,
        payload: &Payload,
        kind: &str,
        info: &OperatorInfo,
    ) -> Result<Py<PyAny>, TaskError> {
        let object = self.load_own(py, payload, info.parallelism());
        required(object.map_err(|error| info.failed(py, &error, None))?, kind).map(Bound::unbind)
    }

    /// Like [`load`](Self::load), for an object that subtasks of one process must not share.
    ///
    /// A single subtask uses the object of the driver itself, so that the caller can inspect it afterwards.
    pub(super) fn load_own<'py>(
        &self,
        py: Python<'py>,
        payload: &Payload,
        parallelism: u32,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let object = self.load(py, payload)?;
        match object {
            Some(object) if parallelism > 1 && matches!(payload, Payload::Local(_)) => {
                py.import("copy")?.call_method1("copy", (object,)).map(Some)
            }
            object => Ok(object),
        }
    }
}

/// Returns the payload, or an error if the operator has none.
pub(super) fn required<'py>(object: Option<Bound<'py, PyAny>>, kind: &str) -> Result<Bound<'py, PyAny>, TaskError> {
    object.ok_or_else(|| TaskError::Config(format!("operator kind '{kind}' needs a payload")))
}
