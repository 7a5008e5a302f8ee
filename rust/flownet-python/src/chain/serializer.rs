//! Encodes records that leave the task, chooses their subpartition and writes them to an output.

use flownet_core::record::writer::Emit;
use flownet_core::{CustomEvent, Target};
use flownet_rows::{RowBatch, RowRecord, RowsSerializer};
use flownet_runtime::operator::{self, put_stamp};
use flownet_runtime::work::Work;
use flownet_runtime::{Outputs, TaskError, TaskMetrics};
use pyo3::prelude::*;

use super::attach::detached;
use super::call::{call1, call2};
use super::failure::OperatorInfo;
use super::record::{KeyedError, write_keyed};
use super::record_format::PythonFormat;
use super::rows::rows;
use crate::codec::{SentClasses, encode, parts};
use crate::rows::PyRowBatch;
use crate::shown;

/// Kind of the events that define classes for the receivers of an edge.
pub(super) const CLASS_DEFINITION: u16 = 1;

/// One edge out of the task.
pub(crate) struct PythonSerializer {
    /// Index among the task's outputs.
    output: usize,
    route: Route,
    classes: SentClasses,
    /// The operator whose records leave here.
    info: OperatorInfo,
    /// Identity of the user's function in errors: the operator and the method that received the function.
    selector: OperatorInfo,
    /// The record that is being sent. The buffer is reused, so records cost no allocation.
    bytes: Vec<u8>,
    /// Serializer for batches of rows, if the records are batches.
    rows: Option<RowsSerializer>,
}

/// Sending fewer rows takes less time than releasing and reacquiring the interpreter.
const FEW_ROWS: usize = 64;

/// Determines the subpartition of each record of an edge.
pub(crate) enum Route {
    /// The output's selector chooses.
    Any,
    /// By the key that this function extracts from the record.
    Key(Py<PyAny>),
    /// This function chooses.
    Custom {
        /// Called with the record and the number of subtasks.
        function: Py<PyAny>,
        /// Number of subtasks, as Python's int.
        subtasks: Py<PyAny>,
    },
}

impl operator::OutputSerializer<PythonFormat> for PythonSerializer {
    #[inline]
    fn emit(
        &mut self,
        py: Python<'_>,
        record: &Bound<'_, PyAny>,
        stamp: Option<i64>,
        out: &mut Outputs,
    ) -> Result<(), TaskError> {
        if let Some(rows) = &mut self.rows {
            let batch = record.cast::<PyRowBatch>().map_err(|error| self.info.failed(py, &error.into(), None))?;
            return send_rows(rows, &batch.get().0, stamp, (py, out));
        }
        self.bytes.clear();
        if let Some(stamp) = stamp {
            put_stamp(&mut self.bytes, stamp);
        }
        let before = out.metrics().begin(Work::Serialising);
        let prepared = self.prepare(record, out.metrics());
        out.metrics().begin(Work::Rust);
        let target = prepared?;
        if self.classes.has_news() {
            self.tell_news(py, out)?;
        }
        let emitted = out.try_emit(self.output, target, &self.bytes)?;
        out.metrics().resume(before);
        if let Some(rows) = rows(record) {
            out.metrics().count_rows_out(rows);
        }
        match emitted {
            Emit::Done => Ok(()),
            Emit::Blocked => detached(py, out, Outputs::wait),
        }
    }

    fn info(&self) -> &OperatorInfo {
        &self.info
    }
}

/// Sends rows. For few rows, keeps the interpreter unless sending has to wait.
fn send_rows(
    exit: &mut RowsSerializer,
    batch: &RowBatch,
    stamp: Option<i64>,
    (py, out): (Python<'_>, &mut Outputs),
) -> Result<(), TaskError> {
    if batch.len() <= FEW_ROWS
        && let Some(emitted) = exit.emit_run(batch, stamp, out)?
    {
        return match emitted {
            Emit::Done => Ok(()),
            Emit::Blocked => detached(py, out, Outputs::wait),
        };
    }
    let record = RowRecord::Batch(batch.clone());
    detached(py, out, |out| operator::OutputSerializer::emit(exit, (), &record, stamp, out))
}

impl PythonSerializer {
    pub(super) fn new(output: usize, route: Route, classes: SentClasses, info: OperatorInfo) -> Self {
        let method = match route {
            Route::Any => "",
            Route::Key(_) => " -> key_by",
            Route::Custom { .. } => " -> partition_custom",
        };
        let selector = OperatorInfo { operator: format!("{}{method}", info.operator), ..info.clone() };
        Self { output, route, classes, info, selector, bytes: Vec::new(), rows: None }
    }

    /// The same edge for batches of rows.
    pub(super) fn of_rows(self) -> Self {
        Self { rows: Some(RowsSerializer::new(self.output, self.info.to_rows())), ..self }
    }

    /// Sends all receivers of this edge the definitions of new classes, ahead of the record that uses them.
    #[cold]
    fn tell_news(&mut self, py: Python<'_>, out: &mut Outputs) -> Result<(), TaskError> {
        for class in self.classes.take_news() {
            let definition = class.definition_bytes(py);
            let (number, definition) = definition.map_err(|error| self.info.codec_failed(py, error, None))?;
            for part in parts(number, definition, CustomEvent::MAX_PAYLOAD_BYTES) {
                let event =
                    CustomEvent::new(CLASS_DEFINITION, &part).map_err(|error| TaskError::Config(error.to_string()))?;
                detached(py, out, |out| out.send_custom(self.output, event))?;
            }
        }
        Ok(())
    }

    #[inline]
    fn prepare(&mut self, record: &Bound<'_, PyAny>, metrics: &TaskMetrics) -> Result<Target, TaskError> {
        let py = record.py();
        match &self.route {
            Route::Any => {
                self.encode(record)?;
                Ok(Target::Any)
            }
            Route::Key(selector) => {
                let selector = selector.bind(py);
                let serialising = metrics.begin(Work::Python);
                let key = call1(selector, record);
                metrics.resume(serialising);
                let key =
                    key.map_err(|error| self.selector.call_failed(py, &error, selector, "one record", Some(record)))?;
                let hash =
                    write_keyed(&key, record, &mut self.classes, &mut self.bytes).map_err(|error| match error {
                        KeyedError::Key(error) => self.selector.key_failed(py, error, &key, record),
                        KeyedError::Value(error) => self.info.codec_failed(py, error, Some(record)),
                    })?;
                Ok(Target::KeyHash(hash))
            }
            Route::Custom { function, subtasks } => {
                let subtasks = subtasks.bind(py);
                let (function, given) = (function.bind(py), "the key and the number of subtasks");
                let failed = |error: PyErr| self.selector.call_failed(py, &error, function, given, Some(record));
                let serialising = metrics.begin(Work::Python);
                let chosen = call2(function, record, subtasks);
                metrics.resume(serialising);
                let chosen = chosen.map_err(failed)?;
                let target = self.checked_target(&chosen, subtasks, record)?;
                self.encode(record)?;
                Ok(target)
            }
        }
    }

    fn encode(&mut self, record: &Bound<'_, PyAny>) -> Result<(), TaskError> {
        encode(record, &mut self.classes, &mut self.bytes)
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
                let message = format!(
                    "the partitioner returned {}, which is no subtask from 0 to {}",
                    shown::repr(chosen),
                    limit.saturating_sub(1)
                );
                Err(self.selector.refused("IndexError", message, Some(record)))
            }
        }
    }
}
