//! Collects joined rows as columns: each row once, and the row indices of each pair. Then picks the pairs by column.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::take::take;
use flownet_runtime::TaskError;
use flownet_runtime::time::{ExactTime, NO_TIMESTAMP};
use smallvec::{SmallVec, smallvec};

use crate::batch::RowBatch;
use crate::event_time::{RowTimes, split_nanos};
use crate::gathered_rows::{MOST_BYTES, push_one, time_of_result};
use crate::layout::Layout;
use crate::record_format::{BATCH_ROWS, Collector, OperatorInfo, RowRecord};
use crate::row_block::{Gather, MalformedRun};

/// Collects pairs until they fill a batch.
pub(super) struct JoinedBatchBuilder {
    sides: [Side; 2],
    schema: SchemaRef,
    /// Times of the pairs.
    times: RowTimes,
    /// Total bytes of the rows of all pairs. It bounds the size of the result.
    bytes: usize,
    /// Number of earlier batches.
    batch: u64,
    info: OperatorInfo,
}

/// Index of a row in the batch being built.
#[derive(Clone, Copy, Debug)]
struct RowIndex {
    batch: u64,
    row: u32,
}

/// Rows of one side.
struct Side {
    rows: Gather,
    /// Indices of the columns that pairs have.
    shown: Vec<usize>,
    /// Row index of each pair.
    of_pairs: Vec<u32>,
    /// Last row that was added by itself, and its index. A row that matches several rows is added again and again.
    last: (Vec<u8>, Option<RowIndex>),
}

impl Side {
    fn new(layout: Arc<Layout>, shown: Vec<usize>) -> Self {
        Self { rows: Gather::new(layout), shown, of_pairs: Vec::new(), last: (Vec::new(), None) }
    }

    /// Returns the index of this row, if it is the last one that was added.
    #[inline]
    fn known(&mut self, run: &[u8]) -> Option<RowIndex> {
        let (last, place) = &mut self.last;
        if last != run {
            last.clear();
            last.extend_from_slice(run);
            *place = None;
        }
        *place
    }

    /// Adds a row to a pair. Stores the row first, unless it is in the batch already.
    #[inline]
    fn push(&mut self, run: &[u8], place: &mut Option<RowIndex>, batch: u64) -> Result<(), MalformedRun> {
        let row = match *place {
            Some(known) if known.batch == batch => known.row,
            _ => {
                let row = self.rows.rows() as u32;
                push_one(&mut self.rows, split_nanos(run).1)?;
                place.insert(RowIndex { batch, row }).row
            }
        };
        self.of_pairs.push(row);
        Ok(())
    }

    /// Returns the columns of all pairs.
    fn take(&mut self) -> Result<Vec<ArrayRef>, MalformedRun> {
        let (rows, of_pairs) = (self.rows.take()?, std::mem::take(&mut self.of_pairs));
        // Rows are stored in the order of their first pair. If there are as many pairs as rows, each row is in one
        // pair.
        let mut shown = self.shown.iter().map(|column| rows.column(*column));
        if rows.num_rows() == of_pairs.len() {
            return Ok(shown.cloned().collect());
        }
        let of_pairs = UInt32Array::from(of_pairs);
        Ok(shown.try_fold(Vec::new(), |mut columns, column| {
            columns.push(take(column, &of_pairs, None)?);
            Ok::<_, ArrowError>(columns)
        })?)
    }
}

impl JoinedBatchBuilder {
    /// Creates a builder for rows of these layouts. Pairs have the given columns, named by `schema`.
    pub(super) fn new(sides: [(Arc<Layout>, Vec<usize>); 2], schema: SchemaRef, info: OperatorInfo) -> Self {
        let sides = sides.map(|(layout, shown)| Side::new(layout, shown));
        Self { sides, schema, times: RowTimes::default(), bytes: 0, batch: 0, info }
    }

    /// Adds a pair with its time. Emits the pairs before it first, if they fill a batch.
    pub(super) fn add(
        &mut self,
        [left, right]: [&[u8]; 2],
        time: ExactTime,
        collector: &mut Collector<'_, '_>,
    ) -> Result<(), TaskError> {
        self.make_room(time.ms, collector)?;
        self.push_alone([left, right], time).map_err(|error| self.info.malformed(&error))
    }

    /// Adds each row of one side with each row of the other.
    pub(super) fn add_all(
        &mut self,
        [lefts, rights]: [&[&[u8]]; 2],
        time_ms: i64,
        collector: &mut Collector<'_, '_>,
    ) -> Result<(), TaskError> {
        let mut places: SmallVec<[_; 4]> = smallvec![None; rights.len()];
        for left in lefts {
            // The number of pairs is the product of both sides, so each row checks for cancellation.
            collector.cancel().check()?;
            let mut of_left = None;
            for (right, of_right) in rights.iter().zip(&mut places) {
                self.make_room(time_ms, collector)?;
                let pushed = self.push([(left, &mut of_left), (right, of_right)], ExactTime::of_ms(time_ms));
                pushed.map_err(|error| self.info.malformed(&error))?;
            }
        }
        Ok(())
    }

    /// Emits the pending pairs if they fill a batch. A batch has times for all of its rows, or for none.
    #[inline]
    fn make_room(&mut self, time_ms: i64, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        let Some(first_ms) = self.times.first_ms() else { return Ok(()) };
        let is_other = (first_ms == NO_TIMESTAMP) != (time_of_result(time_ms) == NO_TIMESTAMP);
        let is_full = self.times.len() >= BATCH_ROWS || self.bytes >= MOST_BYTES;
        if is_full || is_other { self.hand_on(collector) } else { Ok(()) }
    }

    /// Adds a pair of rows, either of which may be that of the previous pair.
    #[inline]
    fn push_alone(&mut self, runs: [&[u8]; 2], time: ExactTime) -> Result<(), MalformedRun> {
        let [left, right] = &mut self.sides;
        let [mut of_left, mut of_right] = [left.known(runs[0]), right.known(runs[1])];
        self.push([(runs[0], &mut of_left), (runs[1], &mut of_right)], time)?;
        for (side, place) in self.sides.iter_mut().zip([of_left, of_right]) {
            side.last.1 = place;
        }
        Ok(())
    }

    /// Adds a pair. Reads the indices of its rows if they are known, and sets them.
    #[inline]
    fn push(&mut self, rows: [(&[u8], &mut Option<RowIndex>); 2], time: ExactTime) -> Result<(), MalformedRun> {
        for (side, (run, place)) in self.sides.iter_mut().zip(rows) {
            side.push(run, place, self.batch)?;
            self.bytes += run.len();
        }
        self.times.push(ExactTime { ms: time_of_result(time.ms), ..time });
        Ok(())
    }

    fn take(&mut self) -> Result<RowBatch, MalformedRun> {
        let times = std::mem::take(&mut self.times);
        (self.bytes, self.batch) = (0, self.batch + 1);
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        for side in &mut self.sides {
            columns.extend(side.take()?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(times.len()));
        let columns = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?;
        Ok(RowBatch::with_times(columns, times))
    }

    /// Emits the pending pairs, if any.
    pub(super) fn hand_on(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        if self.times.is_empty() {
            return Ok(());
        }
        let batch = self.take().map_err(|error| self.info.malformed(&error))?;
        collector.emit(RowRecord::Batch(batch))
    }

    /// Builds the error for bytes of a peer that are not one row.
    #[cold]
    pub(super) fn malformed(&self) -> TaskError {
        self.info.malformed(&MalformedRun::NotOneRow)
    }

    pub(super) fn info(&self) -> &OperatorInfo {
        &self.info
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{Int64Array, StringArray};
    use arrow_schema::{DataType, Field, Schema};
    use proptest::prelude::*;

    use super::*;
    use crate::column::Rows;
    use crate::row_block::RunWriter;

    fn layout(name: &str, data_type: DataType) -> Layout {
        Layout::new(Arc::new(Schema::new(vec![Field::new(name, data_type, true)]))).unwrap()
    }

    fn met() -> JoinedBatchBuilder {
        let info = OperatorInfo { operator: "join".into(), subtask: 0, parallelism: 1 };
        let sides = [layout("number", DataType::Int64), layout("text", DataType::Utf8)];
        let fields = sides.iter().flat_map(|layout| layout.schema().fields().iter().cloned());
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        JoinedBatchBuilder::new(sides.map(|layout| (Arc::new(layout), vec![0])), schema, info)
    }

    fn run_of(layout: &Layout, column: ArrayRef) -> Vec<u8> {
        let rows = column.len();
        let batch = RecordBatch::try_new(Arc::clone(layout.schema()), vec![column]).unwrap();
        let mut run = Vec::new();
        RunWriter::new(layout, &batch).write(Rows::Range { start: 0, end: rows }, &mut run);
        run
    }

    fn number(value: Option<i64>) -> Vec<u8> {
        run_of(&layout("number", DataType::Int64), Arc::new(Int64Array::from(vec![value])))
    }

    fn text(value: Option<&str>) -> Vec<u8> {
        run_of(&layout("text", DataType::Utf8), Arc::new(StringArray::from(vec![value])))
    }

    proptest! {
        #[test]
        fn pairs_come_side_by_side_in_their_order(
            // Few values, so that a row often repeats the row before it, and rows of more than one batch.
            rows in proptest::collection::vec((any::<Option<bool>>(), any::<Option<bool>>(), any::<bool>(), 0i64..99), 0..60),
            taken_at in 0usize..60,
        ) {
            let (mut met, mut batches) = (met(), Vec::new());
            let known = [None, Some(false), Some(true)];
            let mut places = [None; 3];
            let words = |of: Option<bool>| of.map(|is_long| if is_long { "a long text" } else { "" });
            for (at, (one, other, is_known, time_ms)) in rows.iter().enumerate() {
                if at == taken_at {
                    batches.push(met.take().unwrap());
                }
                let (left, right) = (number(one.map(i64::from)), text(words(*other)));
                let place = &mut places[known.iter().position(|value| value == other).unwrap()];
                if *is_known {
                    met.push([(&left, &mut None), (&right, place)], ExactTime::of_ms(*time_ms)).unwrap();
                } else {
                    met.push_alone([&left, &right], ExactTime::of_ms(*time_ms)).unwrap();
                }
            }
            batches.push(met.take().unwrap());
            let mut found = Vec::new();
            for batch in batches {
                let numbers = batch.columns.column(0).as_primitive::<Int64Type>().iter();
                let texts = batch.columns.column(1).as_string::<i32>().iter();
                for (row, (number, text)) in numbers.zip(texts).enumerate() {
                    found.push((number, text.map(str::to_owned), batch.times.as_ref().map(|times| times[row])));
                }
            }
            let expected = rows.iter().map(|(one, other, _, time_ms)| {
                (one.map(i64::from), words(*other).map(str::to_owned), Some(*time_ms))
            });
            prop_assert_eq!(found, expected.collect::<Vec<_>>());
        }

        #[test]
        fn any_bytes_are_a_pair_or_an_error(one: Vec<u8>, other: Vec<u8>, at: usize, to: u8) {
            let _ = met().push_alone([&one, &other], ExactTime::of_ms(0));
            let mut changed = text(Some("a text"));
            let at = at % changed.len();
            changed[at] = to;
            let mut met = met();
            let _ = met.push_alone([&number(Some(7)), &changed], ExactTime::of_ms(0)).and_then(|()| met.take().map(drop));
        }
    }

    #[test]
    fn a_row_that_meets_several_is_kept_once() {
        let (mut met, left, right) = (met(), number(Some(7)), text(Some("a")));
        for other in ["a", "b", "c"] {
            met.push_alone([&left, &text(Some(other))], ExactTime::of_ms(0)).unwrap();
        }
        let mut place = None;
        for other in [8, 9] {
            met.push([(&number(Some(other)), &mut None), (&right, &mut place)], ExactTime::of_ms(0)).unwrap();
        }
        assert_eq!(met.sides.each_ref().map(|side| side.rows.rows()), [3, 4]);
        assert_eq!(met.take().unwrap().len(), 5);
    }

    #[test]
    fn several_rows_where_one_was_kept_are_an_error() {
        let several = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let several = run_of(&layout("number", DataType::Int64), several);
        let pushed = met().push_alone([&several, &text(None)], ExactTime::of_ms(0));
        assert!(matches!(pushed, Err(MalformedRun::NotOneRow)));
    }
}
