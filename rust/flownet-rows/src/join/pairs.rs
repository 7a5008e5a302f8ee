//! Joins rows downstream of the exchange: combines the columns of two matching rows.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions, new_null_array};
use arrow_schema::{ArrowError, SchemaRef};
use flownet_runtime::TaskError;
use flownet_runtime::operator::{BothSides, Fold, KeyedRecord, Pairing};
use flownet_runtime::snapshot::{Input, Snapshot};
use flownet_runtime::time::ExactTime;
use flownet_runtime::window::Window;
use smallvec::SmallVec;

use super::joined_batch::JoinedBatchBuilder;
use crate::batch::RowBatch;
use crate::column::Rows;
use crate::event_time::split_nanos;
use crate::gathered_rows::late_row;
use crate::layout::Layout;
use crate::partial_aggregate::take_block;
use crate::record_format::{Collector, OperatorInfo, RowRecord, RowsFormat};
use crate::row_block::RunWriter;

/// Columns of a join.
pub(crate) struct PairColumns<'a> {
    /// Columns of the rows of each side, as they arrive.
    pub(crate) sides: [SchemaRef; 2],
    /// Columns of the second side that pairs have. Of the first side, pairs have all.
    pub(crate) shown: &'a [String],
    /// Columns of pairs.
    pub(crate) pairs: SchemaRef,
    /// Columns of late rows of each side, if a late output was requested.
    pub(crate) late: [Option<SchemaRef>; 2],
}

/// Combines matching rows. A row is stored as a row block of its own, after its [nanoseconds](crate::event_time).
pub(crate) struct RowPairs {
    met: JoinedBatchBuilder,
    /// Layouts in which rows of each side arrive.
    layouts: [Arc<Layout>; 2],
    late: [Option<SchemaRef>; 2],
    /// A row of the second side that is all null, for unmatched rows.
    missing: Vec<u8>,
}

impl RowPairs {
    /// Creates the pairing of rows with these columns.
    pub(crate) fn new(columns: PairColumns<'_>, may_miss: bool, info: OperatorInfo) -> Result<Self, TaskError> {
        let PairColumns { sides: [left, right], shown, pairs, late } = columns;
        let refused = |error: ArrowError| TaskError::Config(error.to_string());
        let layout = |schema| Layout::new(schema).map(Arc::new).map_err(|error| TaskError::Config(error.to_string()));
        let of_left = (0..left.fields().len()).collect();
        let of_right = shown.iter().map(|column| right.index_of(column)).collect::<Result<_, _>>().map_err(refused)?;
        let layouts = [layout(left)?, layout(right)?];
        let missing = if may_miss { missing(&layouts[1]).map_err(refused)? } else { Vec::new() };
        let [left, right] = layouts.clone();
        Ok(Self {
            missing,
            met: JoinedBatchBuilder::new([(left, of_left), (right, of_right)], pairs, info),
            layouts,
            late,
        })
    }
}

/// Encodes a row block of one row whose values are all null.
fn missing(layout: &Layout) -> Result<Vec<u8>, ArrowError> {
    let columns = layout.schema().fields().iter().map(|field| new_null_array(field.data_type(), 1)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let batch = RecordBatch::try_new_with_options(Arc::clone(layout.schema()), columns, &options)?;
    let mut run = Vec::new();
    RunWriter::new(layout, &batch).write(Rows::Range { start: 0, end: 1 }, &mut run);
    Ok(run)
}

/// Splits bytes into length-prefixed blocks. Returns none if they are malformed.
fn blocks(mut bytes: &[u8]) -> Option<SmallVec<[&[u8]; 4]>> {
    let mut blocks = SmallVec::new();
    while !bytes.is_empty() {
        blocks.push(take_block(&mut bytes)?);
    }
    Some(blocks)
}

impl Pairing<RowsFormat> for RowPairs {
    type JoinRecord<'b, 'm> = &'b [u8];

    /// A row block begins with its number of rows, which is one, and nanoseconds with 02. Mini-batches begin with
    /// another byte.
    const MAY_BE_BUNDLED: bool = true;

    #[inline]
    fn met<'b, 'm>(&self, bytes: &'b [u8], _: &Collector<'_, 'm>) -> Result<&'b [u8], TaskError> {
        Ok(bytes)
    }

    #[inline]
    fn again<'b, 'm>(&self, _: &&'b [u8], bytes: &'b [u8], _: &Collector<'_, 'm>) -> Result<&'b [u8], TaskError> {
        Ok(bytes)
    }

    #[inline]
    fn nanos(bytes: &[u8]) -> u32 {
        split_nanos(bytes).0
    }

    fn pair<'m>(
        &mut self,
        left: &[u8],
        right: Option<&[u8]>,
        nanos: u32,
        collector: &mut Collector<'_, 'm>,
    ) -> Result<(), TaskError> {
        let time = ExactTime { ms: collector.timestamp_ms, nanos };
        self.met.add([left, right.unwrap_or(&self.missing)], time, collector)
    }

    fn hand_on(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        self.met.hand_on(collector)
    }

    fn record<'m>(&self, record: &KeyedRecord<'_>, _: &Collector<'_, 'm>) -> Result<RowRecord, TaskError> {
        let side = usize::from(record.side & 1);
        let row = late_row(&self.layouts[side], record.value(), record.timestamp_ms);
        let row = row.map_err(|error| self.met.info().malformed(&error))?;
        let Some(schema) = &self.late[side] else { return Ok(row) };
        // A pair may lack columns of a late row, or name them differently.
        let RowBatch { columns, times, nanos } = row.into_batch()?;
        let columns = RecordBatch::try_new(Arc::clone(schema), columns.columns().to_vec());
        let columns = columns.map_err(|error| TaskError::Config(error.to_string()))?;
        Ok(RowRecord::Batch(RowBatch { columns, times, nanos }))
    }

    fn without_timestamp(&self, (): (), _: &KeyedRecord<'_>) -> TaskError {
        let advice = "a join by event time got a row without one: say event_time= where rows begin, or call \
                      assign_timestamps() on both streams before key_by()";
        self.met.info().failed("ValueError", advice, None)
    }
}

impl Fold<RowsFormat> for RowPairs {
    /// Rows of both sides, as blocks.
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

    /// Holds no state beside the values: pending pairs were emitted at the end of their batch.
    fn snapshot(&mut self, (): (), _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }

    fn has_records(&self, rows: &BothSides) -> bool {
        !rows.is_empty()
    }

    /// Pairs each row of one side with each row of the other.
    fn emit(
        &mut self,
        _: Window,
        _: &[u8],
        rows: &mut BothSides,
        collector: &mut Collector<'_, '_>,
    ) -> Result<(), TaskError> {
        let [lefts, rights] = rows.get();
        if lefts.is_empty() || rights.is_empty() {
            return Ok(());
        }
        let [lefts, rights] = [lefts, rights].map(|rows| blocks(rows).ok_or_else(|| self.met.malformed()));
        self.met.add_all([&lefts?, &rights?], collector.timestamp_ms, collector)
    }

    fn emit_so_far(&mut self, _: &[u8], _: &BothSides, _: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        Err(TaskError::Config("a join of windows was given none".into()))
    }

    fn hand_on(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        self.met.hand_on(collector)
    }

    fn record<'m>(&self, record: &KeyedRecord<'_>, collector: &Collector<'_, 'm>) -> Result<RowRecord, TaskError> {
        Pairing::record(self, record, collector)
    }

    fn without_timestamp(&self, (): (), record: &KeyedRecord<'_>) -> TaskError {
        Pairing::without_timestamp(self, (), record)
    }
}
