//! `from_arrow`: emits the batches of an Arrow stream, or of a table in memory, whose later times bound event
//! time.

use std::sync::Arc;

use arrow_array::ffi_stream::RecordBatchStreamReader;
use arrow_schema::{ArrowError, SchemaRef};
use flownet_rows::{Collector, RowsFormat, TimeBounds};
use flownet_runtime::operator::Source;
use flownet_runtime::snapshot::{RestoredState, Snapshot};
use flownet_runtime::varint::put_varint;
use flownet_runtime::watermark::SplitSignal;
use flownet_runtime::work::Work;
use flownet_runtime::{SourceStatus, TaskContext, TaskError, TaskMetrics};
use pyo3::prelude::*;

use super::arrow::stream_of;
use super::conform::conform;
use super::reader::{Reader, emit};
use crate::chain::OperatorInfo;

/// Emits the rows of a stream.
pub(super) struct FromArrow {
    given: Py<PyAny>,
    settings: FromArrowSettings,
    schema: SchemaRef,
    info: OperatorInfo,
    reader: Option<Reader>,
    /// Bounds of a table with a time column.
    bounds: Option<TimeBounds>,
    /// The last lower bound that was reported downstream.
    told_ms: Option<i64>,
    /// Number of rows emitted so far, including those of earlier runs.
    position: u64,
    metrics: Option<Arc<TaskMetrics>>,
}

/// Settings of the stream in a plan.
pub(super) struct FromArrowSettings {
    /// True if the object is a function of a subtask's index and the number of subtasks, which creates the
    /// stream.
    pub(super) makes_its_own: bool,
    /// True if another reading returns the same batches.
    pub(super) is_repeatable: bool,
    /// The column of event times of a table that is in memory.
    pub(super) time_column: Option<String>,
}

impl FromArrow {
    pub(super) fn new(given: Py<PyAny>, settings: FromArrowSettings, schema: SchemaRef, info: OperatorInfo) -> Self {
        Self { given, settings, schema, info, reader: None, bounds: None, told_ms: None, position: 0, metrics: None }
    }

    /// Reads a table to find bounds of its later times. Its batches are in memory already.
    fn table(&mut self, stream: RecordBatchStreamReader, column: &str) -> Result<Reader, ArrowError> {
        let batches = stream.collect::<Result<Vec<_>, _>>()?;
        let place = self.schema.index_of(column)?;
        let wanted = Arc::new(self.schema.project(&[place])?);
        let columns = batches.iter().map(|batch| {
            let times = batch.project(&[batch.schema().index_of(column)?])?;
            let times = conform(&times, &wanted).map_err(ArrowError::SchemaError)?;
            Ok(Arc::clone(times.column(0)))
        });
        let columns = columns.collect::<Result<Vec<_>, ArrowError>>()?;
        self.bounds = Some(TimeBounds::new(&columns)?);
        Ok(Reader::new(batches.into_iter().map(Ok)))
    }

    /// Reports downstream a lower bound of the times of all further rows, if it is later than the last one.
    fn tell_bound(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        let bound_ms = self.bounds.as_ref().and_then(|bounds| bounds.from_row(self.position));
        if bound_ms <= self.told_ms {
            return Ok(());
        }
        self.told_ms = bound_ms;
        let signal = bound_ms.map(|time_ms| SplitSignal::NotBefore { split: 0, time_ms });
        signal.map_or(Ok(()), |signal| collector.tell_split(signal))
    }
}

impl Source<RowsFormat> for FromArrow {
    fn work(&self) -> Work {
        Work::Python
    }

    fn open(&mut self, (): (), cx: &TaskContext) -> Result<(), TaskError> {
        self.metrics = Some(Arc::clone(&cx.metrics));
        Python::attach(|py| {
            let given = self.given.bind(py);
            let opened = if self.settings.makes_its_own {
                given.call1((cx.subtask, cx.parallelism)).and_then(|made| stream_of(&made))
            } else {
                stream_of(given)
            };
            let stream = opened.map_err(|error| self.info.failed(py, &error, None))?;
            let reader = match self.settings.time_column.clone() {
                Some(column) => self.table(stream, &column),
                None => Ok(Reader::new(stream)),
            };
            let refused = |error: ArrowError| self.info.refused("ValueError", error.to_string(), None);
            self.reader = Some(reader.map_err(refused)?);
            Ok(())
        })
    }

    fn emit<'m>(&mut self, collector: &mut Collector<'_, 'm>) -> Result<SourceStatus, TaskError> {
        self.tell_bound(collector)?;
        let Self { reader, schema, position, info, .. } = self;
        let Some(reader) = reader else { return Ok(SourceStatus::Finished) };
        let refused = |message: String| {
            info.refused("ValueError", format!("batch behind row {position} of the stream: {message}"), None)
        };
        let Some(batch) = reader.next(schema, collector, refused)? else { return Ok(SourceStatus::Finished) };
        *position += batch.num_rows() as u64;
        emit(batch, self.metrics.as_deref(), collector)?;
        Ok(SourceStatus::More)
    }

    /// Writes the number of emitted rows, which another reading skips.
    fn snapshot(&mut self, (): (), to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        if self.settings.is_repeatable {
            let mut position = Vec::new();
            put_varint(&mut position, self.position);
            to.add_items(POSITION, [position]);
        }
        Ok(())
    }

    fn restore(&mut self, (): (), from: &RestoredState<'_>) -> Result<(), TaskError> {
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

/// Name of its state.
const POSITION: &str = "position";
