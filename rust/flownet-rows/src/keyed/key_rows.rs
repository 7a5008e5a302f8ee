//! In front of the exchange: rows one by one, by their key.

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_row::{RowConverter, SortField};
use arrow_schema::{ArrowError, Schema, SchemaRef, SortOptions};
use flownet_core::keygroup::hash_key;
use flownet_runtime::TaskError;
use flownet_runtime::operator::Operator;
use flownet_runtime::snapshot::Snapshot;
use flownet_runtime::spec::RowsRank;
use flownet_runtime::time::NO_TIMESTAMP;
use flownet_runtime::varint::put_varint;

use super::best::Best;
use crate::batch::RowBatch;
use crate::column::Rows;
use crate::key::KeyColumns;
use crate::layout::Layout;
use crate::medium::{Flow, OperatorInfo, RowRecord, RowsMedium};
use crate::parts::{Parts, hand_on};
use crate::run::RunWriter;

/// Sends each row to where its key is.
pub(crate) struct KeyRows {
    keys: KeyColumns,
    /// Whether rows go whose key has a value that is missing.
    keeps_null_keys: bool,
    carried: Vec<usize>,
    layout: Layout,
    rank: Option<Ranks>,
    info: OperatorInfo,
}

/// What rows are ranked by: bytes that are less, the better a row is.
struct Ranks {
    column: usize,
    converter: RowConverter,
    best: Best,
}

impl Ranks {
    fn new(input: &Schema, rank: &RowsRank) -> Result<Self, TaskError> {
        let refused = |error: ArrowError| TaskError::Config(error.to_string());
        let column = input.index_of(&rank.by).map_err(refused)?;
        // What is missing is the worst.
        let options = SortOptions { descending: rank.descending, nulls_first: false };
        let field = SortField::new_with_options(input.field(column).data_type().clone(), options);
        Ok(Self { column, converter: RowConverter::new(vec![field]).map_err(refused)?, best: Best::new(rank)? })
    }

    fn of(&self, batch: &RecordBatch) -> Result<arrow_row::Rows, ArrowError> {
        self.converter.convert_columns(std::slice::from_ref(batch.column(self.column)))
    }
}

/// Of the time, at the end of a rank.
pub(super) const TIME_BYTES: usize = size_of::<i64>();

/// Of equal rows the earlier one is better.
fn put_rank(rank: arrow_row::Row<'_>, time_ms: i64, out: &mut Vec<u8>) {
    put_varint(out, (rank.as_ref().len() + TIME_BYTES) as u64);
    out.extend_from_slice(rank.as_ref());
    out.extend_from_slice(&(time_ms ^ i64::MIN).to_be_bytes());
}

impl KeyRows {
    /// Of rows of this schema, of which these columns go, called as the `output` says.
    pub(crate) fn new(
        (input, keys): (&Schema, &[String]),
        (carried, output): (&[String], SchemaRef),
        keeps_null_keys: bool,
        rank: Option<&RowsRank>,
        info: OperatorInfo,
    ) -> Result<Self, TaskError> {
        let refused = |error: &dyn std::fmt::Display| TaskError::Config(error.to_string());
        let rank = rank.map(|rank| Ranks::new(input, rank)).transpose()?;
        let carried = carried.iter().map(|column| input.index_of(column)).collect::<Result<_, _>>();
        Ok(Self {
            keys: KeyColumns::new(input, keys).map_err(|error| refused(&error))?,
            keeps_null_keys,
            carried: carried.map_err(|error| refused(&error))?,
            layout: Layout::new(output).map_err(|error| refused(&error))?,
            rank,
            info,
        })
    }

    fn carried(&self, batch: &RowBatch) -> Result<RecordBatch, ArrowError> {
        let columns = self.carried.iter().map(|column| batch.columns.column(*column).clone()).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.len()));
        RecordBatch::try_new_with_options(self.layout.schema().clone(), columns, &options)
    }
}

impl Operator<RowsMedium> for KeyRows {
    fn process<'m>(&mut self, record: RowRecord, flow: &mut Flow<'_, 'm>) -> Result<(), TaskError> {
        let batch = record.into_batch()?;
        let failed = |error: ArrowError| self.info.failed("ValueError", error.to_string(), None);
        let writer = RunWriter::new(&self.layout, &self.carried(&batch).map_err(failed)?);
        let keys = self.keys.of(&batch.columns).map_err(failed)?;
        let ranks = self.rank.as_ref().map(|rank| rank.of(&batch.columns)).transpose().map_err(failed)?;
        let left_out = if self.keeps_null_keys { None } else { self.keys.nulls(&batch.columns) };
        let times = batch.times.as_deref();
        let best = self.rank.as_mut().zip(ranks.as_ref()).map(|(rank, ranks)| rank.best.of(&keys, ranks, times));
        let rows = best.unwrap_or_else(|| (0..batch.len()).collect());
        let (mut parts, mut key) = (Parts::default(), Vec::new());
        for row in rows {
            if left_out.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                continue;
            }
            key.clear();
            keys.put(row, &mut key);
            let time_ms = times.map_or(NO_TIMESTAMP, |times| times[row]);
            parts.push(time_ms, hash_key(&key), &key, |out| {
                if let Some(ranks) = &ranks {
                    put_rank(ranks.row(row), time_ms, out);
                }
                writer.write(Rows::Range { start: row, end: row + 1 }, out);
            });
            if parts.is_full() {
                hand_on(std::mem::take(&mut parts), flow)?;
            }
        }
        if parts.is_empty() { Ok(()) } else { hand_on(parts, flow) }
    }

    fn snapshot(&mut self, (): (), _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }
}
