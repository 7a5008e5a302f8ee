//! `from_arrow`: the batches of an Arrow stream.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::ffi_stream::RecordBatchStreamReader;
use arrow_schema::SchemaRef;
use flownet_rows::{BATCH_ROWS, Flow, RowBatch, RowRecord, RowsMedium};
use flownet_runtime::operator::Source;
use flownet_runtime::snapshot::{Restored, Snapshot};
use flownet_runtime::varint::put_varint;
use flownet_runtime::work::Work;
use flownet_runtime::{SourceStatus, TaskContext, TaskError, TaskMetrics};
use pyo3::prelude::*;

use super::arrow::stream_of;
use super::conform::conform;
use crate::chain::OperatorInfo;

/// Emits the rows of a stream.
pub(super) struct FromArrow {
    given: Py<PyAny>,
    /// It is a function of a subtask's index and the number of subtasks, which makes the stream.
    makes_its_own: bool,
    is_repeatable: bool,
    schema: SchemaRef,
    info: OperatorInfo,
    stream: Option<RecordBatchStreamReader>,
    /// What was read and is not all emitted, and from which row on.
    batch: Option<(RecordBatch, usize)>,
    /// Rows emitted so far.
    position: u64,
    /// Rows that a run before has emitted.
    skipped: u64,
    metrics: Option<Arc<TaskMetrics>>,
}

impl FromArrow {
    pub(super) fn new(
        given: Py<PyAny>,
        (makes_its_own, is_repeatable): (bool, bool),
        schema: SchemaRef,
        info: OperatorInfo,
    ) -> Self {
        Self {
            given,
            makes_its_own,
            is_repeatable,
            schema,
            info,
            stream: None,
            batch: None,
            position: 0,
            skipped: 0,
            metrics: None,
        }
    }

    /// The rows that are next, at most a batch of them; none at the end.
    fn next(&mut self, flow: &mut Flow<'_, '_>) -> Result<Option<RecordBatch>, TaskError> {
        loop {
            if let Some((batch, start)) = self.batch.take() {
                let rows = (batch.num_rows() - start).min(BATCH_ROWS);
                let next = batch.slice(start, rows);
                if start + rows < batch.num_rows() {
                    self.batch = Some((batch, start + rows));
                }
                return Ok(Some(next));
            }
            let Some(stream) = &mut self.stream else { return Ok(None) };
            let Some(batch) = flow.idle_unless_at_work(|| stream.next()) else {
                self.stream = None;
                return Ok(None);
            };
            let batch = batch.map_err(|error| self.refused(error.to_string()))?;
            let batch = conform(&batch, &self.schema).map_err(|message| self.refused(message))?;
            let rows = batch.num_rows() as u64;
            let skipped = self.skipped.min(rows);
            self.skipped -= skipped;
            if skipped < rows {
                self.batch = Some((batch, skipped as usize));
            }
            flow.cancel().check()?;
        }
    }

    #[cold]
    fn refused(&self, message: String) -> TaskError {
        let message = format!("batch behind row {} of the stream: {message}", self.position);
        self.info.refused("ValueError", message, None)
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
            self.stream = Some(opened.map_err(|error| self.info.failed(py, &error, None))?);
            Ok(())
        })
    }

    fn emit<'m>(&mut self, flow: &mut Flow<'_, 'm>) -> Result<SourceStatus, TaskError> {
        let Some(batch) = self.next(flow)? else { return Ok(SourceStatus::Finished) };
        let rows = batch.num_rows() as u64;
        self.position += rows;
        if let Some(metrics) = &self.metrics {
            metrics.add_records_in(1);
            metrics.count_rows_in(rows);
        }
        let bytes = batch.get_array_memory_size();
        flow.emit_paced(RowRecord::Batch(RowBatch::new(batch)), |_| Ok(bytes))?;
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
            self.skipped = position.varint()?;
            self.position = self.skipped;
        }
        Ok(())
    }

    fn close(&mut self, (): ()) -> Result<(), TaskError> {
        self.stream = None;
        self.batch = None;
        Ok(())
    }
}

/// What its state is called.
const POSITION: &str = "position";
