//! Where records leave the task: encoded, addressed and given to an output.

use flownet_core::Target;
use flownet_core::record::writer::Emit;
use flownet_runtime::{Outputs, TaskError};
use pyo3::prelude::*;

use super::attach::detached;
use super::call::{call1, call2};
use super::failure::OperatorInfo;
use super::record::{KeyedError, write_keyed};
use crate::codec::{Pickle, encode};

/// One edge out of the task.
pub(super) struct Exit {
    /// Index among the task's outputs.
    output: usize,
    route: Route,
    pickle: Pickle,
    /// The operator whose records leave here.
    info: OperatorInfo,
    /// The record being sent; kept, so that records cost no allocation.
    bytes: Vec<u8>,
}

/// How records of an edge find their subpartition.
pub(super) enum Route {
    /// The output's selector knows.
    Any,
    /// By the key that this function finds in the record.
    Key(Py<PyAny>),
    /// As this function says.
    Custom {
        /// Called with the record and the number of subtasks.
        function: Py<PyAny>,
        /// Number of subtasks, as Python's int.
        subtasks: Py<PyAny>,
    },
}

impl Exit {
    pub(super) fn new(output: usize, route: Route, pickle: Pickle, info: OperatorInfo) -> Self {
        Self { output, route, pickle, info, bytes: Vec::new() }
    }

    pub(super) fn info(&self) -> &OperatorInfo {
        &self.info
    }

    /// Sends a record; waits, detached, while there is no buffer for it.
    #[inline]
    pub(super) fn emit(&mut self, record: &Bound<'_, PyAny>, out: &mut Outputs) -> Result<(), TaskError> {
        let target = self.prepare(record)?;
        match out.try_emit(self.output, target, &self.bytes)? {
            Emit::Done => Ok(()),
            Emit::Blocked => detached(record.py(), out, Outputs::wait),
        }
    }

    #[inline]
    fn prepare(&mut self, record: &Bound<'_, PyAny>) -> Result<Target, TaskError> {
        let py = record.py();
        match &self.route {
            Route::Any => {
                self.encode(record)?;
                Ok(Target::Any)
            }
            Route::Key(selector) => {
                let key =
                    call1(selector.bind(py), record).map_err(|error| self.info.failed(py, &error, Some(record)))?;
                let hash = write_keyed(&key, record, self.pickle, &mut self.bytes).map_err(|error| match error {
                    KeyedError::Key(error) => self.info.codec_failed(py, error, Some(&key)),
                    KeyedError::Value(error) => self.info.codec_failed(py, error, Some(record)),
                })?;
                Ok(Target::KeyHash(hash))
            }
            Route::Custom { function, subtasks } => {
                let subtasks = subtasks.bind(py);
                let failed = |error: PyErr| self.info.failed(py, &error, Some(record));
                let chosen = call2(function.bind(py), record, subtasks).map_err(failed)?;
                let target = self.checked_target(&chosen, subtasks, record)?;
                self.encode(record)?;
                Ok(target)
            }
        }
    }

    fn encode(&mut self, record: &Bound<'_, PyAny>) -> Result<(), TaskError> {
        self.bytes.clear();
        encode(record, self.pickle, &mut self.bytes)
            .map_err(|error| self.info.codec_failed(record.py(), error, Some(record)))
    }

    fn checked_target(
        &self,
        chosen: &Bound<'_, PyAny>,
        subtasks: &Bound<'_, PyAny>,
        record: &Bound<'_, PyAny>,
    ) -> Result<Target, TaskError> {
        let limit: u32 = subtasks.extract().unwrap_or(0);
        match chosen.extract::<u32>() {
            Ok(target) if target < limit => Ok(Target::Subpartition(target)),
            _ => {
                let shown = chosen.repr().map_or_else(|_| "something unprintable".to_owned(), |repr| repr.to_string());
                let message = format!(
                    "the partitioner returned {shown}, which is no subtask from 0 to {}",
                    limit.saturating_sub(1)
                );
                Err(self.info.refused("IndexError", message, Some(record)))
            }
        }
    }
}
