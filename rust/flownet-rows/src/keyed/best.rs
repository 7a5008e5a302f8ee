//! Pre-selects the best rows of a batch upstream of the exchange, so that worse rows need not travel.

use arrow_row::Rows;
use flownet_runtime::TaskError;
use flownet_runtime::spec::RowsRank;
use hashbrown::HashMap;

use crate::aggregate::KeyTable;
use crate::batch::RowBatch;
use crate::key::Keys;
use crate::slice_assigner::SliceAssigner;

/// Finds the rows of a batch that may be among the best of their key and window.
pub(super) struct BestRows {
    count: usize,
    ties: bool,
    pieces: SliceAssigner,
    keys: KeyTable,
    /// Key number of each row. Reused, to save allocations.
    of_row: Vec<u32>,
}

impl BestRows {
    pub(super) fn new(rank: &RowsRank) -> Result<Self, TaskError> {
        let count = usize::try_from(rank.count.get()).unwrap_or(usize::MAX);
        let pieces = SliceAssigner::of(Some(&rank.window))?;
        Ok(Self { count, ties: rank.ties, pieces, keys: KeyTable::default(), of_row: Vec::new() })
    }

    /// Returns the candidates, in row order. Returns all rows for sessions, and for windows that need each row on its
    /// own. Also returns all rows if event times are missing, so that the downstream operator reports the error.
    pub(super) fn of(&mut self, keys: &Keys, ranks: &Rows, batch: &RowBatch) -> Vec<usize> {
        let times = batch.times.as_deref();
        let slices = match (self.pieces, times) {
            // Rows that are not among the best of a session extend it, too.
            (SliceAssigner::Rows | SliceAssigner::Sessions(_), _) | (SliceAssigner::Slices(_), None) => {
                return (0..ranks.num_rows()).collect();
            }
            (SliceAssigner::Slices(grid), Some(times)) => Some((grid, times)),
            (SliceAssigner::Batches | SliceAssigner::All, _) => None,
        };
        let Self { count, ties, keys: table, of_row, .. } = self;
        table.clear();
        table.groups(keys, 0, ranks.num_rows(), of_row);
        // Less is better, as downstream of the exchange. There the bytes of the rows decide between equal ranks.
        let rank_of = |row: usize| (ranks.row(row), (!*ties).then(|| batch.time(row)));
        let mut best = HashMap::<(u32, i64), Vec<usize>>::new();
        for (row, key) in of_row.iter().enumerate() {
            let slice_ms = slices.map_or(0, |(grid, times)| grid.slice_of(times[row]));
            let rows = best.entry((*key, slice_ms)).or_default();
            let rank = rank_of(row);
            let is_worse = |rows: &[usize]| rows.get(*count - 1).is_some_and(|last| rank > rank_of(*last));
            if !is_worse(rows) {
                rows.insert(rows.partition_point(|better| rank_of(*better) <= rank), row);
                // Rows with the same rank as the last one stay.
                if let Some(last) = rows.get(*count - 1).map(|last| rank_of(*last)) {
                    rows.truncate(rows.partition_point(|row| rank_of(*row) <= last));
                }
            }
        }
        let mut rows: Vec<usize> = best.into_values().flatten().collect();
        // Rows with the same target keep their order.
        rows.sort_unstable();
        rows
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::num::NonZeroU64;
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    use arrow_row::{RowConverter, SortField};
    use arrow_schema::{DataType, Field, Schema};
    use flownet_runtime::spec::{WindowAssigner, WindowSpec};
    use flownet_runtime::time::{Clock, ExactTime};
    use proptest::prelude::*;

    use super::*;
    use crate::event_time::RowTimes;
    use crate::key::IntKey;

    pub(in crate::keyed) fn rank(count: u64, ties: bool, size_ms: i64) -> RowsRank {
        let assign = WindowAssigner::Grid { size_ms, slide_ms: size_ms, offset_ms: 0 };
        let window = WindowSpec {
            assign,
            clock: Clock::Event,
            trigger: None,
            lateness_ms: 0,
            late_tag: None,
            with_key: false,
            with_window: false,
            is_whole: false,
        };
        RowsRank { by: "n".into(), descending: false, count: NonZeroU64::new(count).unwrap(), ties, window }
    }

    proptest! {
        #[test]
        fn who_stays_is_worse_than_fewer_rows_of_its_key_and_slice_than_are_wanted(
            rows in proptest::collection::vec((0i64..3, 0i64..5, 0i64..90), 0..40),
            count in 1u64..4,
            ties: bool,
        ) {
            let ranks: ArrayRef = Arc::new(rows.iter().map(|row| Some(row.1)).collect::<Int64Array>());
            let mut times = RowTimes::default();
            rows.iter().for_each(|row| times.push(ExactTime { ms: row.2 / 3, nanos: row.2 as u32 % 3 * 333_333 }));
            let schema = Schema::new(vec![Field::new("n", DataType::Int64, true)]);
            let values = RecordBatch::try_new(Arc::new(schema), vec![Arc::clone(&ranks)]).unwrap();
            let batch = RowBatch::with_times(values, times);
            let converter = RowConverter::new(vec![SortField::new(DataType::Int64)]).unwrap();
            let ranks = converter.convert_columns(&[ranks]).unwrap();
            let keys = Keys::Ints(rows.iter().map(|row| Some(row.0)).collect(), IntKey::Number);
            let found = BestRows::new(&rank(count, ties, 10)).unwrap().of(&keys, &ranks, &batch);
            let better = |row: &(i64, i64, i64)| {
                let is_beside = |other: &&(i64, i64, i64)| other.0 == row.0 && other.2 / 30 == row.2 / 30;
                let is_better = |other: &&(i64, i64, i64)| other.1 < row.1 || !ties && other.1 == row.1 && other.2 < row.2;
                rows.iter().filter(is_beside).filter(is_better).count()
            };
            let expected: Vec<usize> = (0..rows.len()).filter(|row| (better(&rows[*row]) as u64) < count).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
