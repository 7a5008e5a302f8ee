//! Rows that leave who kept them as runs, until there are enough of them for a batch.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};
use flownet_runtime::TaskError;
use flownet_runtime::time::{END_OF_TIME_MS, NO_TIMESTAMP};

use crate::batch::RowBatch;
use crate::layout::Layout;
use crate::medium::{BATCH_ROWS, Flow, OperatorInfo, RowRecord};
use crate::run::{Gather, MalformedRun};

/// Rows that are made of so many runs each, side by side.
pub(crate) struct Gathered<const SIDES: usize> {
    sides: [Gather; SIDES],
    schema: SchemaRef,
    times: Vec<i64>,
    /// Of their runs.
    bytes: usize,
    info: OperatorInfo,
}

/// Behind the end of all time nothing is told apart any more.
pub(crate) fn time_of_result(time_ms: i64) -> i64 {
    if time_ms == END_OF_TIME_MS { NO_TIMESTAMP } else { time_ms }
}

/// Rows of more bytes do not wait for others.
const MOST_BYTES: usize = 4 << 20;

impl<const SIDES: usize> Gathered<SIDES> {
    /// Of runs of these layouts.
    pub(crate) fn new(sides: [Layout; SIDES], info: OperatorInfo) -> Self {
        let fields = sides.iter().flat_map(|layout| layout.schema().fields().iter().cloned());
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let sides = sides.map(|layout| Gather::new(Arc::new(layout)));
        Self { sides, schema, times: Vec::new(), bytes: 0, info }
    }

    /// Adds a row of this time, and hands on what there is if that is enough.
    pub(crate) fn add(&mut self, runs: [&[u8]; SIDES], time_ms: i64, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let time_ms = time_of_result(time_ms);
        // A batch has times for all of its rows, or for none.
        if self.times.first().is_some_and(|first_ms| (*first_ms == NO_TIMESTAMP) != (time_ms == NO_TIMESTAMP)) {
            self.hand_on(flow)?;
        }
        self.push(runs, time_ms).map_err(|error| self.info.malformed(&error))?;
        if self.times.len() < BATCH_ROWS && self.bytes < MOST_BYTES { Ok(()) } else { self.hand_on(flow) }
    }

    fn push(&mut self, runs: [&[u8]; SIDES], time_ms: i64) -> Result<(), MalformedRun> {
        self.times.push(time_ms);
        for (gather, run) in self.sides.iter_mut().zip(runs) {
            gather.push(run)?;
            self.bytes += run.len();
            if gather.rows() != self.times.len() {
                return Err(MalformedRun::NotOneRow);
            }
        }
        Ok(())
    }

    fn take(&mut self) -> Result<RowBatch, MalformedRun> {
        let times = std::mem::take(&mut self.times);
        self.bytes = 0;
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        for gather in &mut self.sides {
            columns.extend(gather.take()?.columns().iter().cloned());
        }
        let options = RecordBatchOptions::new().with_row_count(Some(times.len()));
        let columns = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?;
        let has_times = times.first().is_some_and(|time_ms| *time_ms != NO_TIMESTAMP);
        Ok(RowBatch { columns, times: has_times.then(|| times.into()) })
    }

    /// Hands on what there is.
    pub(crate) fn hand_on(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        if self.times.is_empty() {
            return Ok(());
        }
        let batch = self.take().map_err(|error| self.info.malformed(&error))?;
        flow.emit(RowRecord::Batch(batch))
    }

    /// What a peer sent is no row.
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
    use arrow_array::types::Int64Type;
    use arrow_array::{Int64Array, StringArray};
    use arrow_schema::{DataType, Field};
    use proptest::prelude::*;

    use super::*;
    use crate::column::Rows;
    use crate::run::RunWriter;

    fn layout(name: &str, data_type: DataType) -> Layout {
        Layout::new(Arc::new(Schema::new(vec![Field::new(name, data_type, true)]))).unwrap()
    }

    fn gathered() -> Gathered<2> {
        let info = OperatorInfo { operator: "join".into(), subtask: 0, parallelism: 1 };
        Gathered::new([layout("number", DataType::Int64), layout("text", DataType::Utf8)], info)
    }

    fn run_of(layout: &Layout, column: arrow_array::ArrayRef, rows: usize) -> Vec<u8> {
        let batch = RecordBatch::try_new(Arc::clone(layout.schema()), vec![column]).unwrap();
        let mut run = Vec::new();
        RunWriter::new(layout, &batch).write(Rows::Range { start: 0, end: rows }, &mut run);
        run
    }

    fn number(value: Option<i64>) -> Vec<u8> {
        run_of(&layout("number", DataType::Int64), Arc::new(Int64Array::from(vec![value])), 1)
    }

    fn text(value: Option<&str>) -> Vec<u8> {
        run_of(&layout("text", DataType::Utf8), Arc::new(StringArray::from(vec![value])), 1)
    }

    proptest! {
        #[test]
        fn rows_come_side_by_side_in_their_order(
            rows in proptest::collection::vec((any::<Option<i64>>(), any::<Option<String>>(), 0i64..99), 0..40),
        ) {
            let mut gathered = gathered();
            for (one, other, time_ms) in &rows {
                gathered.push([&number(*one), &text(other.as_deref())], *time_ms).unwrap();
            }
            let batch = gathered.take().unwrap();
            prop_assert_eq!(batch.len(), rows.len());
            let numbers = batch.columns.column(0).as_primitive::<Int64Type>();
            let texts = batch.columns.column(1).as_string::<i32>();
            for (row, (one, other, time_ms)) in rows.iter().enumerate() {
                prop_assert_eq!(numbers.iter().nth(row).flatten(), *one);
                prop_assert_eq!(texts.iter().nth(row).flatten(), other.as_deref());
                prop_assert_eq!(batch.times.as_ref().map(|times| times[row]), Some(*time_ms));
            }
        }

        #[test]
        fn any_bytes_are_a_row_or_an_error(one: Vec<u8>, other: Vec<u8>, at: usize, to: u8) {
            let _ = gathered().push([&one, &other], 0);
            let mut changed = text(Some("a text"));
            let at = at % changed.len();
            changed[at] = to;
            let mut gathered = gathered();
            let _ = gathered.push([&number(Some(7)), &changed], 0).and_then(|()| gathered.take().map(drop));
        }
    }

    #[test]
    fn two_rows_where_one_was_kept_are_an_error() {
        let two = Arc::new(Int64Array::from(vec![1, 2]));
        let two = run_of(&layout("number", DataType::Int64), two, 2);
        assert!(matches!(gathered().push([&two, &text(None)], 0), Err(MalformedRun::NotOneRow)));
    }
}
