//! What goes from operator to operator: some rows, column by column, with their times.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions};
use arrow_buffer::ScalarBuffer;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use arrow_select::filter::{FilterBuilder, filter_record_batch};
use flownet_runtime::time::NO_TIMESTAMP;

/// Some rows.
#[derive(Clone, Debug)]
pub struct RowBatch {
    /// Their columns.
    pub columns: RecordBatch,
    /// When each is, in event time, if that was said.
    pub times: Option<ScalarBuffer<i64>>,
}

impl RowBatch {
    /// Rows without times.
    pub fn new(columns: RecordBatch) -> Self {
        Self { columns, times: None }
    }

    /// Rows of these times; of a batch all have one, or none.
    pub(crate) fn with_times(columns: RecordBatch, times: Vec<i64>) -> Self {
        let has_times = times.first().is_some_and(|time_ms| *time_ms != NO_TIMESTAMP);
        Self { columns, times: has_times.then(|| times.into()) }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.columns.num_rows()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same rows with other columns.
    pub fn with_columns(&self, schema: Arc<Schema>, columns: Vec<ArrayRef>) -> Result<Self, ArrowError> {
        let options = RecordBatchOptions::new().with_row_count(Some(self.len()));
        Ok(Self { columns: RecordBatch::try_new_with_options(schema, columns, &options)?, times: self.times.clone() })
    }

    /// The rows for which `keep` is true.
    pub fn filter(&self, keep: &BooleanArray) -> Result<Self, ArrowError> {
        let kept = keep.true_count();
        if kept == self.len() {
            return Ok(self.clone());
        }
        let columns = filter_record_batch(&self.columns, keep)?;
        let times = self.times.as_ref().map(|times| {
            let times = FilterBuilder::new(keep).build().filter(&Int64Array::new(times.clone(), None))?;
            Ok::<_, ArrowError>(ScalarBuffer::new(times.to_data().buffers()[0].clone(), 0, kept))
        });
        Ok(Self { columns, times: times.transpose()? })
    }

    /// Some of the rows that follow each other; nothing is copied.
    #[must_use]
    pub fn slice(&self, start: usize, len: usize) -> Self {
        let times = self.times.as_ref().map(|times| times.slice(start, len));
        Self { columns: self.columns.slice(start, len), times }
    }

    /// Its columns, and its times as one more.
    pub(crate) fn with_times_as_column(&self, schema: &Arc<Schema>) -> Result<RecordBatch, ArrowError> {
        let Some(times) = &self.times else { return Ok(self.columns.clone()) };
        let mut columns = self.columns.columns().to_vec();
        columns.push(Arc::new(Int64Array::new(times.clone(), None)));
        RecordBatch::try_new(Arc::clone(schema), columns)
    }

    /// Takes back [`with_times_as_column`](Self::with_times_as_column).
    pub(crate) fn from_times_as_column(mut batch: RecordBatch) -> Self {
        let times = batch.remove_column(batch.num_columns() - 1).to_data();
        let times = ScalarBuffer::new(times.buffers()[0].clone(), times.offset(), times.len());
        Self { columns: batch, times: Some(times) }
    }
}

/// A schema with times as one more column, whose name no user's is.
pub(crate) fn with_times(schema: &Schema) -> Schema {
    let time = Field::new("\0time", DataType::Int64, false);
    Schema::new(schema.fields().iter().cloned().chain([Arc::new(time)]).collect::<Vec<_>>())
}
