//! Gathers rows that an operator emits from its state, one row block each, until they fill a batch.

use std::sync::Arc;

use flownet_runtime::TaskError;
use flownet_runtime::time::{END_OF_TIME_MS, ExactTime, NO_TIMESTAMP};

use crate::batch::RowBatch;
use crate::event_time::{RowTimes, split_nanos};
use crate::layout::Layout;
use crate::record_format::{BATCH_ROWS, Collector, OperatorInfo, RowRecord};
use crate::row_block::{Gather, MalformedRun};

/// Emitted rows that wait for a full batch.
pub(crate) struct GatheredRows {
    rows: Gather,
    times: RowTimes,
    /// Total size of their row blocks in bytes.
    bytes: usize,
    info: OperatorInfo,
}

/// Returns the time of a result. The end of all time maps to no timestamp.
pub(crate) fn time_of_result(time_ms: i64) -> i64 {
    if time_ms == END_OF_TIME_MS { NO_TIMESTAMP } else { time_ms }
}

/// Decodes a late row by key, with time `time_ms`.
pub(crate) fn late_row(layout: &Arc<Layout>, row: &[u8], time_ms: i64) -> Result<RowRecord, MalformedRun> {
    let mut rows = Gather::new(Arc::clone(layout));
    let (nanos, run) = split_nanos(row);
    push_one(&mut rows, run)?;
    let times = RowTimes::of_one(ExactTime { ms: time_ms, nanos });
    Ok(RowRecord::Batch(RowBatch::with_times(rows.take()?, times)))
}

/// Limit of gathered bytes; a batch that reaches it is emitted.
pub(crate) const MOST_BYTES: usize = 4 << 20;

/// Adds a row block, which must hold exactly one row.
#[inline]
pub(crate) fn push_one(rows: &mut Gather, run: &[u8]) -> Result<(), MalformedRun> {
    let before = rows.rows();
    rows.push(run)?;
    if rows.rows() == before + 1 { Ok(()) } else { Err(MalformedRun::NotOneRow) }
}

impl GatheredRows {
    /// Creates an empty collection for row blocks of this layout.
    pub(crate) fn new(layout: Layout, info: OperatorInfo) -> Self {
        Self { rows: Gather::new(Arc::new(layout)), times: RowTimes::default(), bytes: 0, info }
    }

    /// Adds a row by key with its time. Emits the gathered rows if they fill a batch.
    pub(crate) fn add(&mut self, row: &[u8], time_ms: i64, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        let time_ms = time_of_result(time_ms);
        // A batch has times for all of its rows, or for none.
        if self.times.first_ms().is_some_and(|first_ms| (first_ms == NO_TIMESTAMP) != (time_ms == NO_TIMESTAMP)) {
            self.hand_on(collector)?;
        }
        self.push(row, time_ms).map_err(|error| self.info.malformed(&error))?;
        if self.times.len() < BATCH_ROWS && self.bytes < MOST_BYTES { Ok(()) } else { self.hand_on(collector) }
    }

    fn push(&mut self, row: &[u8], time_ms: i64) -> Result<(), MalformedRun> {
        let (nanos, run) = split_nanos(row);
        self.times.push(ExactTime { ms: time_ms, nanos });
        self.bytes += run.len();
        push_one(&mut self.rows, run)
    }

    fn take(&mut self) -> Result<RowBatch, MalformedRun> {
        let times = std::mem::take(&mut self.times);
        self.bytes = 0;
        Ok(RowBatch::with_times(self.rows.take()?, times))
    }

    /// Emits the gathered rows, if any.
    pub(crate) fn hand_on(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        if self.times.is_empty() {
            return Ok(());
        }
        let batch = self.take().map_err(|error| self.info.malformed(&error))?;
        collector.emit(RowRecord::Batch(batch))
    }

    /// Builds the error for bytes of a peer that are not one row.
    #[cold]
    pub(crate) fn malformed(&self) -> TaskError {
        self.info.malformed(&MalformedRun::NotOneRow)
    }

    pub(crate) fn info(&self) -> &OperatorInfo {
        &self.info
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::{RecordBatch, StringArray};
    use arrow_schema::{DataType, Field, Schema};
    use proptest::prelude::*;

    use super::*;
    use crate::column::Rows;
    use crate::row_block::RunWriter;

    fn layout() -> Layout {
        Layout::new(Arc::new(Schema::new(vec![Field::new("text", DataType::Utf8, true)]))).unwrap()
    }

    fn gathered() -> GatheredRows {
        let info = OperatorInfo { operator: "top_n".into(), subtask: 0, parallelism: 1 };
        GatheredRows::new(layout(), info)
    }

    fn texts(values: Vec<Option<&str>>) -> Vec<u8> {
        let (layout, rows) = (layout(), values.len());
        let batch = RecordBatch::try_new(Arc::clone(layout.schema()), vec![Arc::new(StringArray::from(values))]);
        let mut run = Vec::new();
        RunWriter::new(&layout, &batch.unwrap()).write(Rows::Range { start: 0, end: rows }, &mut run);
        run
    }

    proptest! {
        #[test]
        fn rows_come_in_their_order(rows in proptest::collection::vec((any::<Option<String>>(), 0i64..99), 0..40)) {
            let mut gathered = gathered();
            for (text, time_ms) in &rows {
                gathered.push(&texts(vec![text.as_deref()]), *time_ms).unwrap();
            }
            let batch = gathered.take().unwrap();
            prop_assert_eq!(batch.len(), rows.len());
            let texts = batch.columns.column(0).as_string::<i32>();
            for (row, (text, time_ms)) in rows.iter().enumerate() {
                prop_assert_eq!(texts.iter().nth(row).flatten(), text.as_deref());
                prop_assert_eq!(batch.times.as_ref().map(|times| times[row]), Some(*time_ms));
            }
        }

        #[test]
        fn any_bytes_are_a_row_or_an_error(bytes: Vec<u8>, at: usize, to: u8) {
            let _ = gathered().push(&bytes, 0);
            let mut changed = texts(vec![Some("a text")]);
            let at = at % changed.len();
            changed[at] = to;
            let mut gathered = gathered();
            let _ = gathered.push(&changed, 0).and_then(|()| gathered.take().map(drop));
        }
    }

    #[test]
    fn several_rows_where_one_was_kept_are_an_error() {
        assert!(matches!(gathered().push(&texts(vec![None, Some("b"), None]), 0), Err(MalformedRun::NotOneRow)));
    }
}
