//! Reads the rows of an Arrow stream, or of batches in memory, batch by batch and from some row on.

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};
use flownet_rows::{BATCH_ROWS, Collector, RowBatch, RowRecord};
use flownet_runtime::{TaskError, TaskMetrics};

use super::conform::conform;

type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>;

/// Reads a stream.
pub(super) struct Reader {
    /// None after the end.
    stream: Option<Batches>,
    /// A batch that is not fully emitted, and its next row.
    batch: Option<(RecordBatch, usize)>,
    /// Rows that are still to be skipped.
    skipped: u64,
}

impl Reader {
    pub(super) fn new(stream: impl Iterator<Item = Result<RecordBatch, ArrowError>> + Send + 'static) -> Self {
        Self { stream: Some(Box::new(stream)), batch: None, skipped: 0 }
    }

    /// Skips the first rows, which an earlier run has emitted.
    pub(super) fn pass_over(&mut self, rows: u64) {
        self.skipped = rows;
    }

    /// The next rows, at most a batch of them; none at the end. `refused` names the source that cannot be
    /// read.
    pub(super) fn next(
        &mut self,
        schema: &SchemaRef,
        collector: &mut Collector<'_, '_>,
        refused: impl Fn(String) -> TaskError,
    ) -> Result<Option<RecordBatch>, TaskError> {
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
            let Some(batch) = collector.control().time.idle_unless_at_work(|| stream.next()) else {
                self.stream = None;
                return Ok(None);
            };
            let batch = batch.map_err(|error| refused(error.to_string()))?;
            let batch = conform(&batch, schema).map_err(&refused)?;
            let rows = batch.num_rows() as u64;
            let skipped = self.skipped.min(rows);
            self.skipped -= skipped;
            if skipped < rows {
                self.batch = Some((batch, skipped as usize));
            }
            collector.cancel().check()?;
        }
    }
}

/// Emits rows that a source has read.
pub(super) fn emit(
    batch: RecordBatch,
    metrics: Option<&TaskMetrics>,
    collector: &mut Collector<'_, '_>,
) -> Result<(), TaskError> {
    if let Some(metrics) = metrics {
        metrics.add_records_in(1);
        metrics.count_rows_in(batch.num_rows() as u64);
    }
    let bytes = batch.get_array_memory_size();
    collector.emit_paced(RowRecord::Batch(RowBatch::new(batch)), |_| Ok(bytes)).map(drop)
}
