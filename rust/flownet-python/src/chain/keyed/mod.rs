//! Operators behind a keyed edge.
//!
//! State is indexed by the key's canonical bytes; where a key was given in another form, the state keeps the form of the
//! key's first record, as a `dict` keeps the key it was first given.

mod aggregate;
mod count;
mod fold;
mod number;
mod process;
mod reduce;
mod state;
mod window;
mod window_process;

pub(super) use aggregate::{Aggregate, Aggregation};
pub(super) use count::Count;
pub(super) use fold::{Running, RunningFold};
pub(super) use process::Process;
pub(super) use reduce::Reduce;
pub(super) use window::Windowed;
pub(super) use window_process::WindowProcess;

use flownet_runtime::TaskError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::failure::OperatorInfo;
use crate::codec::{self, KnownClasses};

/// What every keyed operator needs to turn bytes into objects and to say who it is.
pub(super) struct KeyedBase {
    pub(super) info: OperatorInfo,
    pub(super) classes: KnownClasses,
}

impl KeyedBase {
    fn decode<'py>(&self, py: Python<'py>, bytes: &[u8]) -> Result<Bound<'py, PyAny>, TaskError> {
        codec::decode(py, bytes, &self.classes).map_err(|error| self.info.codec_failed(py, error, None))
    }

    /// The pair `(key, value)`, as aggregates emit it.
    fn pair<'py>(&self, py: Python<'py>, key: &[u8], value: Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>, TaskError> {
        let key = self.decode(py, key)?;
        PyTuple::new(py, [key, value]).map(Bound::into_any).map_err(|error| self.info.failed(py, &error, None))
    }
}
