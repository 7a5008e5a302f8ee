//! Batches: records that one operator passes to the next, with rows by column and their event times.

use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Int64Type, UInt32Type};
use arrow_array::{ArrayRef, BooleanArray, Int64Array, PrimitiveArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_buffer::{ArrowNativeType, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use arrow_select::filter::{FilterBuilder, filter_record_batch};
use flownet_runtime::time::{ExactTime, NO_TIMESTAMP};

use crate::event_time::RowTimes;

/// Batch of rows.
#[derive(Clone, Debug)]
pub struct RowBatch {
    /// Columns of the rows.
    pub columns: RecordBatch,
    /// Event time of each row in milliseconds since 1970-01-01 UTC, rounded down. None if no times were assigned.
    pub times: Option<ScalarBuffer<i64>>,
    /// Nanoseconds of these times within their milliseconds. None if all are zero.
    pub nanos: Option<ScalarBuffer<u32>>,
}

impl RowBatch {
    /// Creates a batch without times.
    pub fn new(columns: RecordBatch) -> Self {
        Self { columns, times: None, nanos: None }
    }

    /// Creates a batch with `times`. Either all rows of a batch have a time or none.
    pub(crate) fn with_times(columns: RecordBatch, times: RowTimes) -> Self {
        if times.first_ms().is_none_or(|time_ms| time_ms == NO_TIMESTAMP) {
            return Self::new(columns);
        }
        let nanos = (!times.nanos.is_empty()).then(|| times.nanos.into());
        Self { columns, times: Some(times.ms.into()), nanos }
    }

    /// Returns the time of a row, or `NO_TIMESTAMP` if the batch has no times.
    #[inline]
    pub(crate) fn time(&self, row: usize) -> ExactTime {
        let ms = self.times.as_ref().map_or(NO_TIMESTAMP, |times| times[row]);
        ExactTime { ms, nanos: self.nanos.as_ref().map_or(0, |nanos| nanos[row]) }
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.columns.num_rows()
    }

    /// Returns true if the batch has no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the same rows and times with other columns.
    pub fn with_columns(&self, schema: Arc<Schema>, columns: Vec<ArrayRef>) -> Result<Self, ArrowError> {
        let options = RecordBatchOptions::new().with_row_count(Some(self.len()));
        let columns = RecordBatch::try_new_with_options(schema, columns, &options)?;
        Ok(Self { columns, times: self.times.clone(), nanos: self.nanos.clone() })
    }

    /// Returns the rows for which `keep` is true.
    pub fn filter(&self, keep: &BooleanArray) -> Result<Self, ArrowError> {
        let kept = keep.true_count();
        // All rows stay: share the columns instead of copying them.
        if kept == self.len() {
            return Ok(self.clone());
        }
        let columns = filter_record_batch(&self.columns, keep)?;
        let times = self.times.as_ref().map(|times| filtered::<Int64Type>(times, keep)).transpose()?;
        let nanos = self.nanos.as_ref().map(|nanos| filtered::<UInt32Type>(nanos, keep)).transpose()?;
        Ok(Self { columns, times, nanos })
    }

    /// Returns `len` consecutive rows from `start` on, without a copy.
    #[must_use]
    pub fn slice(&self, start: usize, len: usize) -> Self {
        let times = self.times.as_ref().map(|times| times.slice(start, len));
        let nanos = self.nanos.as_ref().map(|nanos| nanos.slice(start, len));
        Self { columns: self.columns.slice(start, len), times, nanos }
    }

    /// Returns the columns followed by the times: milliseconds, then nanoseconds if there are any.
    pub(crate) fn with_times_as_column(&self, schema: &Arc<Schema>) -> Result<RecordBatch, ArrowError> {
        let Some(times) = &self.times else { return Ok(self.columns.clone()) };
        let mut columns = self.columns.columns().to_vec();
        columns.push(Arc::new(Int64Array::new(times.clone(), None)));
        if let Some(nanos) = &self.nanos {
            columns.push(Arc::new(UInt32Array::new(nanos.clone(), None)));
        }
        RecordBatch::try_new(Arc::clone(schema), columns)
    }

    /// Reverses [`with_times_as_column`](Self::with_times_as_column).
    pub(crate) fn from_times_as_column(mut batch: RecordBatch, has_nanos: bool) -> Self {
        let nanos = has_nanos.then(|| last_values(&mut batch));
        let times = last_values(&mut batch);
        Self { columns: batch, times: Some(times), nanos }
    }
}

/// Removes the last column and returns its values.
fn last_values<T: ArrowNativeType>(batch: &mut RecordBatch) -> ScalarBuffer<T> {
    let values = batch.remove_column(batch.num_columns() - 1).to_data();
    ScalarBuffer::new(values.buffers()[0].clone(), values.offset(), values.len())
}

fn filtered<T: ArrowPrimitiveType>(
    values: &ScalarBuffer<T::Native>,
    keep: &BooleanArray,
) -> Result<ScalarBuffer<T::Native>, ArrowError> {
    let kept = FilterBuilder::new(keep).build().filter(&PrimitiveArray::<T>::new(values.clone(), None))?;
    Ok(ScalarBuffer::new(kept.to_data().buffers()[0].clone(), 0, kept.len()))
}

/// Appends the columns of times to a schema, under names that no column of a user has.
pub(crate) fn with_times(schema: &Schema, has_nanos: bool) -> Schema {
    let nanos = has_nanos.then(|| Field::new("\0nanos", DataType::UInt32, false));
    let times = std::iter::once(Field::new("\0time", DataType::Int64, false)).chain(nanos);
    Schema::new(schema.fields().iter().cloned().chain(times.map(Arc::new)).collect::<Vec<_>>())
}
