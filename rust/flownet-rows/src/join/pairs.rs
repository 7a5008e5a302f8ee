//! Behind the exchange: the columns of two rows that meet.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions, new_null_array};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use flownet_runtime::TaskError;
use flownet_runtime::operator::{BothSides, Fold, KeyedRecord, Pairing};
use flownet_runtime::snapshot::{Input, Snapshot};
use flownet_runtime::time::NO_TIMESTAMP;
use flownet_runtime::varint::take_varint;
use flownet_runtime::window::Window;

use crate::batch::RowBatch;
use crate::column::Rows;
use crate::layout::Layout;
use crate::medium::{BATCH_ROWS, Flow, OperatorInfo, RowRecord, RowsMedium};
use crate::run::{Gather, MalformedRun, RunWriter};

/// Puts rows side by side. A row is kept as a run of its own.
pub(crate) struct RowPairs {
    /// Of either side, those that have met.
    met: [Gather; 2],
    /// When they did.
    times: Vec<i64>,
    /// Bytes of those.
    bytes: usize,
    /// A row of the second side of which nothing is there.
    missing: Vec<u8>,
    schema: SchemaRef,
    info: OperatorInfo,
}

/// Pairs of more bytes do not wait to be more.
const MOST_BYTES: usize = 4 << 20;

impl RowPairs {
    /// Of rows of these two schemas.
    pub(crate) fn new([left, right]: [SchemaRef; 2], may_miss: bool, info: OperatorInfo) -> Result<Self, TaskError> {
        let fields: Vec<_> = left.fields().iter().chain(right.fields()).cloned().collect();
        let layout = |schema| Layout::new(schema).map_err(|error| TaskError::Config(error.to_string()));
        let (left, right) = (layout(left)?, layout(right)?);
        let missing = if may_miss { missing(&right) } else { Ok(Vec::new()) };
        Ok(Self {
            missing: missing.map_err(|error| TaskError::Config(error.to_string()))?,
            met: [left, right].map(|layout| Gather::new(Arc::new(layout))),
            times: Vec::new(),
            bytes: 0,
            schema: Arc::new(Schema::new(fields)),
            info,
        })
    }

    fn push(&mut self, left: &[u8], right: Option<&[u8]>, time_ms: i64) -> Result<(), MalformedRun> {
        let right = right.unwrap_or(&self.missing);
        for (gather, run) in self.met.iter_mut().zip([left, right]) {
            gather.push(run)?;
        }
        self.bytes += left.len() + right.len();
        self.times.push(time_ms);
        if self.met.iter().all(|gather| gather.rows() == self.times.len()) {
            Ok(())
        } else {
            Err(MalformedRun::TooManyRows { rows: self.met.iter().map(|gather| gather.rows() as u64).sum() })
        }
    }

    fn take(&mut self) -> Result<RowBatch, MalformedRun> {
        let times = std::mem::take(&mut self.times);
        self.bytes = 0;
        let [left, right] = &mut self.met;
        let columns = [left.take()?, right.take()?].iter().flat_map(|batch| batch.columns().to_vec()).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(times.len()));
        let columns = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?;
        let has_times = times.first().is_some_and(|time_ms| *time_ms != NO_TIMESTAMP);
        Ok(RowBatch { columns, times: has_times.then(|| times.into()) })
    }

    fn give(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        if self.times.is_empty() {
            return Ok(());
        }
        let batch = self.take().map_err(|error| self.info.malformed(&error))?;
        flow.emit(RowRecord::Batch(batch))
    }
}

/// A run of one row whose values are all missing.
fn missing(layout: &Layout) -> Result<Vec<u8>, ArrowError> {
    let columns = layout.schema().fields().iter().map(|field| new_null_array(field.data_type(), 1)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let batch = RecordBatch::try_new_with_options(Arc::clone(layout.schema()), columns, &options)?;
    let mut run = Vec::new();
    RunWriter::new(layout, &batch).write(Rows::Range { start: 0, end: 1 }, &mut run);
    Ok(run)
}

impl Pairing<RowsMedium> for RowPairs {
    type Met<'b, 'm> = &'b [u8];

    #[inline]
    fn met<'b, 'm>(&self, bytes: &'b [u8], _: &Flow<'_, 'm>) -> Result<&'b [u8], TaskError> {
        Ok(bytes)
    }

    #[inline]
    fn again<'b, 'm>(&self, _: &&'b [u8], bytes: &'b [u8], _: &Flow<'_, 'm>) -> Result<&'b [u8], TaskError> {
        Ok(bytes)
    }

    fn pair<'m>(&mut self, left: &[u8], right: Option<&[u8]>, flow: &mut Flow<'_, 'm>) -> Result<(), TaskError> {
        self.push(left, right, flow.timestamp_ms).map_err(|error| self.info.malformed(&error))?;
        if self.times.len() < BATCH_ROWS && self.bytes < MOST_BYTES { Ok(()) } else { self.give(flow) }
    }

    fn hand_on(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        self.give(flow)
    }

    fn record<'m>(&self, _: &[u8], _: &Flow<'_, 'm>) -> Result<RowRecord, TaskError> {
        Err(TaskError::Config("late rows of a join have no side output".into()))
    }

    fn without_timestamp(&self, (): (), _: &KeyedRecord<'_>) -> TaskError {
        let advice = "a join by event time got a row without one: say event_time= where rows begin, or call \
                      assign_timestamps() on both streams before key_by()";
        self.info.failed("ValueError", advice, None)
    }
}

impl Fold<RowsMedium> for RowPairs {
    /// Rows as blocks.
    type Value = BothSides;

    #[inline]
    fn absorb(&self, record: &KeyedRecord<'_>, rows: &mut BothSides) -> bool {
        rows.add_block(record);
        true
    }

    fn fold(&self, (): (), record: &KeyedRecord<'_>, rows: &mut BothSides) -> Result<(), TaskError> {
        rows.add_block(record);
        Ok(())
    }

    fn merge(&self, (): (), rows: &mut BothSides, later: &BothSides) -> Result<(), TaskError> {
        rows.merge(later);
        Ok(())
    }

    fn write(&self, (): (), _: &[u8], rows: &BothSides, out: &mut Vec<u8>) -> Result<(), TaskError> {
        rows.write(out);
        Ok(())
    }

    fn read(&self, (): (), input: &mut Input<'_>) -> Result<BothSides, TaskError> {
        BothSides::read(input)
    }

    /// What has met has left with its batch.
    fn snapshot(&mut self, (): (), _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }

    /// Each of one with each of the other.
    fn emit(&mut self, _: Window, _: &[u8], rows: &mut BothSides, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let malformed = |this: &Self| this.info.malformed(&MalformedRun::Truncated { missing: 1 });
        let [mut lefts, rights] = rows.get();
        while !lefts.is_empty() {
            let left = take_block(&mut lefts).ok_or_else(|| malformed(self))?;
            let mut rights = rights;
            while !rights.is_empty() {
                let right = take_block(&mut rights).ok_or_else(|| malformed(self))?;
                self.pair(left, Some(right), flow)?;
            }
            flow.cancel().check()?;
        }
        Ok(())
    }

    fn emit_so_far(&mut self, _: &[u8], _: &BothSides, _: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        Err(TaskError::Config("a join of windows was given none".into()))
    }

    fn hand_on(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        self.give(flow)
    }

    fn record<'m>(&self, record: &KeyedRecord<'_>, flow: &Flow<'_, 'm>) -> Result<RowRecord, TaskError> {
        Pairing::record(self, record.value(), flow)
    }

    fn without_timestamp(&self, (): (), record: &KeyedRecord<'_>) -> TaskError {
        Pairing::without_timestamp(self, (), record)
    }
}

fn take_block<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, rest) = take_varint(bytes).ok()?;
    let (block, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
    *bytes = rest;
    Some(block)
}
