//! Sends rows by key to the downstream operator: one by one, or all rows of one key in a batch as a mini-batch.

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_buffer::NullBuffer;
use arrow_row::{RowConverter, SortField};
use arrow_schema::{ArrowError, Schema, SchemaRef, SortOptions};
use flownet_core::keygroup::hash_key;
use flownet_runtime::TaskError;
use flownet_runtime::operator::{MiniBatch, Operator};
use flownet_runtime::snapshot::Snapshot;
use flownet_runtime::spec::RowsRank;
use flownet_runtime::varint::put_varint;

use super::best::BestRows;
use crate::aggregate::KeyTable;
use crate::batch::RowBatch;
use crate::column::Rows;
use crate::event_time::put_nanos;
use crate::floats::canonical_column;
use crate::key::{KeyColumns, Keys};
use crate::layout::Layout;
use crate::partial_aggregate::{Parts, hand_on};
use crate::record_format::{Collector, OperatorInfo, RowRecord, RowsFormat};
use crate::row_block::RunWriter;
use crate::scatter::Targets;

/// Operator that routes each row by its key.
pub(crate) struct KeyRows {
    keys: KeyColumns,
    /// Whether rows with a null in their key are sent.
    keeps_null_keys: bool,
    carried: Vec<usize>,
    layout: Layout,
    rank: Option<Ranks>,
    /// Collects mini-batches, if the downstream operator takes them.
    bundles: Option<Bundles>,
    info: OperatorInfo,
}

/// Groups the rows of a batch by key into mini-batches.
#[derive(Default)]
struct Bundles {
    keys: KeyTable,
    of_keys: Targets,
    bundle: MiniBatch,
}

impl Bundles {
    /// Emits the rows of a batch. Rows of one key keep their order.
    fn of(
        &mut self,
        (keys, batch): (&Keys, &RowBatch),
        (writer, left_out): (&RunWriter, Option<&NullBuffer>),
        mut give: impl FnMut(Parts) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        let Self { keys: table, of_keys, bundle } = self;
        table.clear();
        table.groups(keys, 0, writer.rows(), &mut of_keys.of_row);
        of_keys.sort(table.len());
        let mut parts = Parts::default();
        for (group, rows) in of_keys.rows().enumerate() {
            if left_out.is_some_and(|nulls| nulls.is_null(rows[0] as usize)) {
                continue;
            }
            let (key, mut rows) = (table.key(group), rows.iter().map(|row| *row as usize).peekable());
            let hash = hash_key(key);
            while let Some(row) = rows.next() {
                let at = batch.time(row);
                bundle.add(at.ms, |out| {
                    put_nanos(at.nanos, out);
                    writer.write(Rows::Range { start: row, end: row + 1 }, out);
                });
                if rows.peek().is_some() && !bundle.is_full() {
                    continue;
                }
                parts.push_bundle(hash, key, bundle);
                if parts.is_full() {
                    give(std::mem::take(&mut parts))?;
                }
            }
        }
        if parts.is_empty() { Ok(()) } else { give(parts) }
    }
}

/// Ranks of rows, as bytes: less is better.
struct Ranks {
    column: usize,
    converter: RowConverter,
    best: BestRows,
}

impl Ranks {
    fn new(input: &Schema, rank: &RowsRank) -> Result<Self, TaskError> {
        let refused = |error: ArrowError| TaskError::Config(error.to_string());
        let column = input.index_of(&rank.by).map_err(refused)?;
        // Nulls rank last.
        let options = SortOptions { descending: rank.descending, nulls_first: false };
        let field = SortField::new_with_options(input.field(column).data_type().clone(), options);
        Ok(Self { column, converter: RowConverter::new(vec![field]).map_err(refused)?, best: BestRows::new(rank)? })
    }

    fn of(&self, batch: &RecordBatch) -> Result<arrow_row::Rows, ArrowError> {
        self.converter.convert_columns(&[canonical_column(batch.column(self.column))])
    }
}

/// Bytes of the time at the end of a rank.
pub(super) const TIME_BYTES: usize = size_of::<i64>();

/// Appends the rank and the time: among equal rows the earlier one is better.
fn put_rank(rank: arrow_row::Row<'_>, time_ms: i64, out: &mut Vec<u8>) {
    put_varint(out, (rank.as_ref().len() + TIME_BYTES) as u64);
    out.extend_from_slice(rank.as_ref());
    out.extend_from_slice(&(time_ms ^ i64::MIN).to_be_bytes());
}

impl KeyRows {
    /// Creates the operator for rows of schema `input`. It sends the columns `carried`, under the names of `output`.
    pub(crate) fn new(
        (input, keys): (&Schema, &[String]),
        (carried, output): (&[String], SchemaRef),
        keeps_null_keys: bool,
        (rank, bundles): (Option<&RowsRank>, bool),
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
            bundles: bundles.then(Bundles::default),
            info,
        })
    }

    fn carried(&self, batch: &RowBatch) -> Result<RecordBatch, ArrowError> {
        let columns = self.carried.iter().map(|column| batch.columns.column(*column).clone()).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.len()));
        RecordBatch::try_new_with_options(self.layout.schema().clone(), columns, &options)
    }
}

impl Operator<RowsFormat> for KeyRows {
    fn process<'m>(&mut self, record: RowRecord, collector: &mut Collector<'_, 'm>) -> Result<(), TaskError> {
        let batch = record.into_batch()?;
        let failed = |error: ArrowError| self.info.failed("ValueError", error.to_string(), None);
        let writer = RunWriter::new(&self.layout, &self.carried(&batch).map_err(failed)?);
        let keys = self.keys.of(&batch.columns).map_err(failed)?;
        let ranks = self.rank.as_ref().map(|rank| rank.of(&batch.columns)).transpose().map_err(failed)?;
        let left_out = if self.keeps_null_keys { None } else { self.keys.nulls(&batch.columns) };
        if let Some(bundles) = &mut self.bundles {
            return bundles.of((&keys, &batch), (&writer, left_out.as_ref()), |parts| hand_on(parts, collector));
        }
        let best = self.rank.as_mut().zip(ranks.as_ref()).map(|(rank, ranks)| rank.best.of(&keys, ranks, &batch));
        let rows = best.unwrap_or_else(|| (0..batch.len()).collect());
        let (mut parts, mut key) = (Parts::default(), Vec::new());
        for row in rows {
            if left_out.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                continue;
            }
            key.clear();
            keys.put(row, &mut key);
            let at = batch.time(row);
            parts.push(at.ms, hash_key(&key), &key, |out| {
                if let Some(ranks) = &ranks {
                    put_rank(ranks.row(row), at.ms, out);
                }
                put_nanos(at.nanos, out);
                writer.write(Rows::Range { start: row, end: row + 1 }, out);
            });
            if parts.is_full() {
                hand_on(std::mem::take(&mut parts), collector)?;
            }
        }
        if parts.is_empty() { Ok(()) } else { hand_on(parts, collector) }
    }

    fn snapshot(&mut self, (): (), _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{Array, ArrayRef, Int64Array};
    use arrow_schema::{DataType, Field};
    use flownet_runtime::operator::BatchRecords;
    use flownet_runtime::time::ExactTime;
    use proptest::prelude::*;

    use super::*;
    use crate::event_time::{RowTimes, split_nanos};
    use crate::key::IntKey;
    use crate::row_block::Gather;

    /// Returns a time given in thirds of a millisecond.
    fn exact(thirds: i64) -> ExactTime {
        ExactTime { ms: thirds.div_euclid(3), nanos: thirds.rem_euclid(3) as u32 * 333_333 }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn rows_of_a_key_go_together_in_their_order_and_those_without_one_stay(
            batches in proptest::collection::vec(proptest::collection::vec((proptest::option::of(0i64..3), -50i64..50), 0..2_500), 0..3),
            keeps_null_keys: bool,
        ) {
            let layout = Layout::new(Arc::new(Schema::new(vec![Field::new("row", DataType::Int64, false)]))).unwrap();
            let mut bundles = Bundles::default();
            for batch in batches {
                let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..batch.len() as i64));
                let rows = RecordBatch::try_new(Arc::clone(layout.schema()), vec![numbers]).unwrap();
                let of_rows: Int64Array = batch.iter().map(|row| row.0).collect();
                let nulls = of_rows.nulls().cloned().filter(|_| !keeps_null_keys);
                let (keys, times) = (Keys::Ints(of_rows, IntKey::Number), batch.iter().map(|row| row.1).collect::<Vec<_>>());
                let (mut found, mut all_rows) = (BTreeMap::<Vec<u8>, Vec<(i64, ExactTime)>>::new(), 0);
                let mut of_batch = RowTimes::default();
                times.iter().for_each(|time| of_batch.push(exact(*time)));
                let rows = RowBatch::with_times(rows, of_batch);
                bundles.of((&keys, &rows), (&RunWriter::new(&layout, &rows.columns), nulls.as_ref()), |parts| {
                    all_rows += parts.rows();
                    for part in parts.iter() {
                        assert_eq!(part.hash, hash_key(part.key));
                        let of_key = found.entry(part.key.to_vec()).or_default();
                        let mut add = |ms: i64, row: &[u8]| {
                            let (nanos, run) = split_nanos(row);
                            let mut row = Gather::new(Arc::new(layout.clone()));
                            row.push(run).unwrap();
                            let row = row.take().unwrap();
                            let number = row.column(0).as_primitive::<Int64Type>();
                            assert_eq!(number.len(), 1);
                            of_key.push((number.value(0), ExactTime { ms, nanos }));
                        };
                        let Some(mut bundled) = BatchRecords::of(part.value, part.timestamp_ms)? else {
                            add(part.timestamp_ms, part.value);
                            continue;
                        };
                        while let Some((time_ms, run)) = bundled.next()? {
                            add(time_ms, run);
                        }
                    }
                    Ok(())
                }).unwrap();
                let mut expected = BTreeMap::<Vec<u8>, Vec<(i64, ExactTime)>>::new();
                for (row, (_, time)) in batch.iter().enumerate().filter(|(_, (key, _))| keeps_null_keys || key.is_some()) {
                    let mut bytes = Vec::new();
                    keys.put(row, &mut bytes);
                    expected.entry(bytes).or_default().push((row as i64, exact(*time)));
                }
                prop_assert_eq!(all_rows, expected.values().map(Vec::len).sum::<usize>());
                prop_assert_eq!(&found, &expected);
            }
        }
    }
}
