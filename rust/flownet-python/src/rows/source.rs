//! `from_arrow`: the batches of an Arrow stream.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use flownet_rows::{Flow, RowsMedium};
use flownet_runtime::operator::Source;
use flownet_runtime::snapshot::{Restored, Snapshot};
use flownet_runtime::varint::put_varint;
use flownet_runtime::work::Work;
use flownet_runtime::{SourceStatus, TaskContext, TaskError, TaskMetrics};
use pyo3::prelude::*;

use super::arrow::stream_of;
use super::reader::{Reader, emit};
use crate::chain::OperatorInfo;

/// Emits the rows of a stream.
pub(super) struct FromArrow {
    given: Py<PyAny>,
    /// It is a function of a subtask's index and the number of subtasks, which makes the stream.
    makes_its_own: bool,
    is_repeatable: bool,
    schema: SchemaRef,
    info: OperatorInfo,
    reader: Option<Reader>,
    /// Rows emitted so far, of a run before too.
    position: u64,
    metrics: Option<Arc<TaskMetrics>>,
}

impl FromArrow {
    pub(super) fn new(
        given: Py<PyAny>,
        (makes_its_own, is_repeatable): (bool, bool),
        schema: SchemaRef,
        info: OperatorInfo,
    ) -> Self {
        Self { given, makes_its_own, is_repeatable, schema, info, reader: None, position: 0, metrics: None }
    }
}

impl Source<RowsMedium> for FromArrow {
    fn work(&self) -> Work {
        Work::Python
    }

    fn open(&mut self, (): (), cx: &TaskContext) -> Result<(), TaskError> {
        self.metrics = Some(Arc::clone(&cx.metrics));
        Python::attach(|py| {
            let given = self.given.bind(py);
            let opened = if self.makes_its_own {
                given.call1((cx.subtask, cx.parallelism)).and_then(|made| stream_of(&made))
            } else {
                stream_of(given)
            };
            self.reader = Some(Reader::new(opened.map_err(|error| self.info.failed(py, &error, None))?));
            Ok(())
        })
    }

    fn emit<'m>(&mut self, flow: &mut Flow<'_, 'm>) -> Result<SourceStatus, TaskError> {
        let Self { reader, schema, position, info, .. } = self;
        let Some(reader) = reader else { return Ok(SourceStatus::Finished) };
        let refused = |message: String| {
            info.refused("ValueError", format!("batch behind row {position} of the stream: {message}"), None)
        };
        let Some(batch) = reader.next(schema, flow, refused)? else { return Ok(SourceStatus::Finished) };
        *position += batch.num_rows() as u64;
        emit(batch, self.metrics.as_deref(), flow)?;
        Ok(SourceStatus::More)
    }

    /// How many rows it has emitted, which it passes over when it is read again.
    fn snapshot(&mut self, (): (), to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        if self.is_repeatable {
            let mut position = Vec::new();
            put_varint(&mut position, self.position);
            to.add_items(POSITION, [position]);
        }
        Ok(())
    }

    fn restore(&mut self, (): (), from: &Restored<'_>) -> Result<(), TaskError> {
        let parallelism = self.info.parallelism();
        if !from.is_of_as_many(POSITION, parallelism) {
            let reason = format!(
                "its streams were made for another parallelism than {parallelism}, so their rows are others: go on with \
                 the parallelism that it had"
            );
            return Err(from.refused(self.info.name(), reason));
        }
        for mut position in from.dealt_items(POSITION, parallelism)? {
            self.position = position.varint()?;
            self.reader.iter_mut().for_each(|reader| reader.pass_over(self.position));
        }
        Ok(())
    }

    fn close(&mut self, (): ()) -> Result<(), TaskError> {
        self.reader = None;
        Ok(())
    }
}

/// What its state is called.
const POSITION: &str = "position";
