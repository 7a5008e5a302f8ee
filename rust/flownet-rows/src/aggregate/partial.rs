//! Partial aggregation upstream of the exchange: rows of one key and time slice become one record, so that few records
//! travel.
//!
//! # Invariants
//! - I1: no partial aggregate of a slice leaves after the watermark that closes the slice. None of a session leaves
//!   after a watermark that has reached its first row.
//! - I2: the buffered groups are part of every checkpoint, so nothing has to leave before a barrier.
//! - I3: there are never more than [`MOST_GROUPS`] groups plus those of one batch. Their lists and sketches take no
//!   more than [`MOST_BYTES`] plus those of one batch.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_arith::boolean::not;
use arrow_array::BooleanArray;
use arrow_schema::{ArrowError, Schema};
use flownet_core::keygroup::hash_key;
use flownet_runtime::TaskError;
use flownet_runtime::operator::Operator;
use flownet_runtime::snapshot::{RestoredState, Snapshot, put_block, put_signed};
use flownet_runtime::spec::WindowSpec;
use flownet_runtime::time::END_OF_TIME_MS;

use super::columns::{AggregateColumn, Aggregations};
use super::function::{AggregationError, Times};
use super::group::{Columns, Groups, row_by_row};
use super::user_aggregate::{OwnCells, OwnFront, OwnFunctions};
use crate::batch::RowBatch;
use crate::expr::EvalError;
use crate::key::KeyColumns;
use crate::layout::Layout;
use crate::partial_aggregate::{PartialAggregate, Parts, hand_on};
use crate::record_format::{Collector, OperatorInfo, RowRecord, RowsFormat};
use crate::row_block::RunWriter;
use crate::slice_assigner::SliceAssigner;

/// Makes partial aggregates of rows.
pub(crate) struct Partial {
    keys: KeyColumns,
    aggregates: Aggregations,
    /// Calls the user aggregates, if there are any.
    front: Option<OwnFront>,
    pieces: SliceAssigner,
    /// Layout of rows that travel whole, if they do.
    whole: Option<Layout>,
    /// Incomplete groups, by the start of their time slice.
    slices: BTreeMap<i64, Groups>,
    /// Empty groups, reused to save allocations.
    spare: Vec<Groups>,
    watermark_ms: i64,
    /// Partial aggregates that were restored and have not left again.
    restored: Vec<Parts>,
    info: OperatorInfo,
}

/// Limit of groups. Beyond it all groups leave, complete or not.
const MOST_GROUPS: usize = 1 << 16;
/// Limit of the memory of their cells in bytes, with the same effect.
const MOST_BYTES: usize = 16 << 20;

impl Partial {
    /// Creates the operator for rows of this schema.
    pub(crate) fn new(
        input: &Schema,
        keys: &[String],
        (aggregates, functions): (&[AggregateColumn], Option<Box<dyn OwnFunctions>>),
        window: Option<&WindowSpec>,
        info: OperatorInfo,
    ) -> Result<Self, TaskError> {
        let refused = |error: AggregationError| TaskError::Config(error.to_string());
        let aggregates = Aggregations::new(aggregates, input).map_err(refused)?;
        let front = functions.map(|functions| OwnFront::new(Arc::clone(&aggregates.own), functions, info.clone()));
        let is_whole = window.is_some_and(|window| window.late_tag.is_some());
        let whole = is_whole.then(|| Layout::new(Arc::new(input.clone()))).transpose();
        Ok(Self {
            whole: whole.map_err(|error| TaskError::Config(error.to_string()))?,
            keys: KeyColumns::new(input, keys).map_err(|error| refused(error.into()))?,
            aggregates,
            front,
            pieces: SliceAssigner::of(window)?,
            slices: BTreeMap::new(),
            spare: Vec::new(),
            watermark_ms: i64::MIN,
            restored: Vec::new(),
            info,
        })
    }

    fn columns(&self, batch: &RowBatch) -> Result<Columns, TaskError> {
        let keys = self.keys.of(&batch.columns).map_err(|error| TaskError::Config(error.to_string()))?;
        let failed = |error: EvalError| self.info.evaluation_failed(&error);
        let inputs = self.aggregates.built_in.iter().map(|aggregate| aggregate.values(&batch.columns));
        let inputs = inputs.collect::<Result<_, _>>().map_err(failed)?;
        let own = self.aggregates.own.iter().map(|aggregate| aggregate.values(&batch.columns));
        Ok(Columns { keys, inputs, own: own.collect::<Result<_, _>>().map_err(failed)? })
    }

    fn add(&mut self, slice_ms: i64, columns: &Columns, (start, rows): (usize, usize), times: Times<'_>) {
        let Self { slices, spare, aggregates, .. } = self;
        let is_session = matches!(self.pieces, SliceAssigner::Sessions(_));
        // Rows after a watermark need not leave before the next one.
        let slice_ms = if is_session { slice_ms.max(self.watermark_ms.saturating_add(1)) } else { slice_ms };
        let new = if is_session { Groups::with_spans } else { Groups::new };
        let groups = slices.entry(slice_ms).or_insert_with(|| spare.pop().unwrap_or_else(|| new(aggregates)));
        groups.add(columns, start, rows, times.slice(start, rows));
    }

    /// Passes the rows of a batch to the user aggregates.
    fn settle(&mut self, columns: &Columns) -> Result<(), TaskError> {
        let Self { front, slices, aggregates, .. } = self;
        let Some(front) = front else { return Ok(()) };
        front.settle(own_of(slices.values_mut(), aggregates), &columns.own)
    }

    fn is_full(&self) -> bool {
        let (groups, bytes) = (self.slices.values().map(Groups::len), self.slices.values().map(Groups::bytes));
        groups.sum::<usize>() > MOST_GROUPS || bytes.sum::<usize>() > MOST_BYTES
    }

    /// Emits complete slices, or all.
    fn leave(&mut self, all: bool, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        for parts in self.restored.drain(..) {
            hand_on(parts, collector)?;
        }
        let (pieces, watermark_ms) = (self.pieces, self.watermark_ms);
        let is_leaving = |slice_ms: i64| match pieces {
            _ if all => true,
            SliceAssigner::Slices(grid) => grid.slice_end_ms(slice_ms) <= watermark_ms.saturating_add(1),
            SliceAssigner::Sessions(_) => slice_ms <= watermark_ms,
            _ => false,
        };
        let Self { front, slices, aggregates, .. } = self;
        if let Some(front) = front {
            let leaving = slices.iter_mut().take_while(|(slice_ms, _)| is_leaving(**slice_ms));
            front.merge_all(own_of(leaving.map(|(_, groups)| groups), aggregates))?;
        }
        while let Some(entry) = slices.first_entry().filter(|entry| is_leaving(*entry.key())) {
            let (slice_ms, mut groups) = entry.remove_entry();
            groups.drain(slice_ms, |parts| hand_on(parts, collector))?;
            if self.spare.len() < MOST_SPARE {
                self.spare.push(groups);
            }
        }
        Ok(())
    }

    /// Emits late rows one by one, and returns the others. Whether a late row still has a session depends on the rows
    /// before it; a row that is not late always has one.
    fn apart_from_late(&self, batch: RowBatch, collector: &mut Collector<'_, '_>) -> Result<RowBatch, TaskError> {
        let times = batch.times.as_deref().unwrap_or_default();
        // Without late rows the batch needs no split.
        if times.iter().all(|time_ms| *time_ms > self.watermark_ms) {
            return Ok(batch);
        }
        let is_late: BooleanArray = times.iter().map(|time_ms| Some(*time_ms <= self.watermark_ms)).collect();
        let [late, others] = [Ok(is_late.clone()), not(&is_late)].map(|rows| batch.filter(&rows?));
        let refused = |error: ArrowError| TaskError::Config(error.to_string());
        self.one_by_one(&late.map_err(refused)?, collector)?;
        others.map_err(refused)
    }

    fn one_by_one(&self, batch: &RowBatch, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        let whole = self.whole.as_ref().map(|layout| RunWriter::new(layout, &batch.columns));
        let (of_rows, columns) = ((&self.aggregates, self.front.as_ref()), self.columns(batch)?);
        row_by_row(of_rows, &columns, whole.as_ref(), (batch.len(), Times::of_batch(batch)), |parts| {
            hand_on(parts, collector)
        })
    }

    #[cold]
    fn without_times(&self) -> TaskError {
        let advice = "rows have no event time, which these windows go by: say event_time= where they begin, or call \
                      assign_timestamps() on the stream";
        self.info.failed("ValueError", advice, None)
    }
}

/// Limit of reusable groups: one slice is open while the next one is.
const MOST_SPARE: usize = 2;

impl Operator<RowsFormat> for Partial {
    fn process<'m>(&mut self, record: RowRecord, collector: &mut Collector<'_, 'm>) -> Result<(), TaskError> {
        let batch = match (record.into_batch()?, self.pieces) {
            (batch, SliceAssigner::Sessions(_)) => self.apart_from_late(batch, collector)?,
            (batch, _) => batch,
        };
        if batch.is_empty() {
            return Ok(());
        }
        if matches!(self.pieces, SliceAssigner::Rows) {
            return self.one_by_one(&batch, collector);
        }
        let (rows, times) = (batch.len(), Times::of_batch(&batch));
        let columns = self.columns(&batch)?;
        match self.pieces.grid() {
            None => self.add(0, &columns, (0, rows), times),
            Some(grid) => {
                let Some(of_rows) = times.ms else { return Err(self.without_times()) };
                let mut start = 0;
                while start < rows {
                    let slice_ms = grid.slice_of(of_rows[start]);
                    let count = grid.count_in_slice(&of_rows[start..], slice_ms);
                    self.add(slice_ms, &columns, (start, count), times);
                    start += count;
                }
            }
        }
        self.settle(&columns)?;
        if self.is_full() { self.leave(true, collector) } else { Ok(()) }
    }

    fn end_batch(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        self.leave(matches!(self.pieces, SliceAssigner::Batches), collector)
    }

    fn on_watermark(&mut self, timestamp_ms: i64, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        if timestamp_ms == END_OF_TIME_MS {
            // Does not advance the event time: rows of a job that resumes must not be late because the input ended.
            return self.leave(true, collector);
        }
        self.watermark_ms = self.watermark_ms.max(timestamp_ms);
        self.leave(false, collector)
    }

    fn finish(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        self.leave(true, collector)
    }

    fn snapshot(&mut self, (): (), to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        let kept = self.slices.iter().map(|(slice_ms, groups)| groups.parts(*slice_ms));
        let items: Vec<_> = kept.map(|parts| written(&parts)).chain(self.restored.iter().map(written)).collect();
        to.add_items(STATE, items);
        if matches!(self.pieces, SliceAssigner::Sessions(_)) {
            let mut watermark = Vec::new();
            put_signed(&mut watermark, self.watermark_ms);
            to.add_items(WATERMARK, [watermark]);
        }
        Ok(())
    }

    /// Takes partial aggregates of any subtask: they are merged downstream of the exchange.
    fn restore(&mut self, (): (), from: &RestoredState<'_>) -> Result<(), TaskError> {
        for mut item in from.dealt_items(STATE, self.info.parallelism)? {
            let mut parts = Parts::default();
            while !item.is_empty() {
                let (timestamp_ms, key, value) = (item.signed()?, item.block()?, item.block()?);
                parts.push(timestamp_ms, hash_key(key), key, |out| out.extend_from_slice(value));
            }
            self.restored.push(parts);
        }
        // Late rows stay late. Downstream, event time had advanced no further than the least of these watermarks.
        let before = from.items(WATERMARK)?.into_iter().map(|(_, mut item)| item.signed());
        let before = before.collect::<Result<Vec<_>, _>>()?.into_iter().min();
        self.watermark_ms = before.unwrap_or(self.watermark_ms);
        Ok(())
    }
}

/// Returns the state of the user aggregates in these groups, by aggregate.
fn own_of<'a>(groups: impl Iterator<Item = &'a mut Groups>, aggregates: &Aggregations) -> Vec<Vec<&'a mut OwnCells>> {
    let mut own: Vec<_> = aggregates.own.iter().map(|_| Vec::new()).collect();
    for groups in groups {
        own.iter_mut().zip(groups.own_mut()).for_each(|(own, cells)| own.push(cells));
    }
    own
}

fn written(parts: &Parts) -> Vec<u8> {
    let mut out = Vec::new();
    for PartialAggregate { timestamp_ms, key, value, .. } in parts.iter() {
        put_signed(&mut out, timestamp_ms);
        put_block(&mut out, key);
        put_block(&mut out, value);
    }
    out
}

/// Name of the state with buffered partial aggregates.
const STATE: &str = "parts";

/// Name of the state with the watermark of session slices.
const WATERMARK: &str = "watermark";
