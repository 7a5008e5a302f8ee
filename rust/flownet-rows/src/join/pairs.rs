//! Behind the exchange: the columns of two rows that meet.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions, new_null_array};
use arrow_schema::{ArrowError, SchemaRef};
use flownet_runtime::TaskError;
use flownet_runtime::operator::{BothSides, Fold, KeyedRecord, Pairing};
use flownet_runtime::snapshot::{Input, Snapshot};
use flownet_runtime::window::Window;
use smallvec::SmallVec;

use super::met::Met;
use crate::column::Rows;
use crate::layout::Layout;
use crate::medium::{Flow, OperatorInfo, RowRecord, RowsMedium};
use crate::parts::take_block;
use crate::run::RunWriter;

/// Puts rows side by side. A row is kept as a run of its own.
pub(crate) struct RowPairs {
    met: Met,
    /// A row of the second side of which nothing is there.
    missing: Vec<u8>,
}

impl RowPairs {
    /// Of rows of these two schemas.
    pub(crate) fn new([left, right]: [SchemaRef; 2], may_miss: bool, info: OperatorInfo) -> Result<Self, TaskError> {
        let layout = |schema| Layout::new(schema).map_err(|error| TaskError::Config(error.to_string()));
        let (left, right) = (layout(left)?, layout(right)?);
        let missing = if may_miss { missing(&right) } else { Ok(Vec::new()) };
        let missing = missing.map_err(|error| TaskError::Config(error.to_string()))?;
        Ok(Self { missing, met: Met::new([left, right], info) })
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

/// The blocks that these bytes are, if they are nothing else.
fn blocks(mut bytes: &[u8]) -> Option<SmallVec<[&[u8]; 4]>> {
    let mut blocks = SmallVec::new();
    while !bytes.is_empty() {
        blocks.push(take_block(&mut bytes)?);
    }
    Some(blocks)
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
        self.met.add([left, right.unwrap_or(&self.missing)], flow.timestamp_ms, flow)
    }

    fn hand_on(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        self.met.hand_on(flow)
    }

    fn record<'m>(&self, _: &[u8], _: &Flow<'_, 'm>) -> Result<RowRecord, TaskError> {
        Err(TaskError::Config("late rows of a join have no side output".into()))
    }

    fn without_timestamp(&self, (): (), _: &KeyedRecord<'_>) -> TaskError {
        let advice = "a join by event time got a row without one: say event_time= where rows begin, or call \
                      assign_timestamps() on both streams before key_by()";
        self.met.info().failed("ValueError", advice, None)
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
        let [lefts, rights] = rows.get();
        if lefts.is_empty() || rights.is_empty() {
            return Ok(());
        }
        let [lefts, rights] = [lefts, rights].map(|rows| blocks(rows).ok_or_else(|| self.met.malformed()));
        self.met.add_all([&lefts?, &rights?], flow.timestamp_ms, flow)
    }

    fn emit_so_far(&mut self, _: &[u8], _: &BothSides, _: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        Err(TaskError::Config("a join of windows was given none".into()))
    }

    fn hand_on(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        self.met.hand_on(flow)
    }

    fn record<'m>(&self, record: &KeyedRecord<'_>, flow: &Flow<'_, 'm>) -> Result<RowRecord, TaskError> {
        Pairing::record(self, record.value(), flow)
    }

    fn without_timestamp(&self, (): (), record: &KeyedRecord<'_>) -> TaskError {
        Pairing::without_timestamp(self, (), record)
    }
}
