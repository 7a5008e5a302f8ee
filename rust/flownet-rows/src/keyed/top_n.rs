//! Selects the best rows of each key and window.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use flownet_runtime::TaskError;
use flownet_runtime::operator::{Fold, KeyedRecord};
use flownet_runtime::snapshot::{Input, Snapshot, put_block};
use flownet_runtime::spec::RowsRank;
use flownet_runtime::varint::put_varint;
use flownet_runtime::window::Window;

use super::key_rows::TIME_BYTES;
use crate::event_time::split_nanos;
use crate::gathered_rows::{GatheredRows, late_row};
use crate::layout::Layout;
use crate::partial_aggregate::take_block;
use crate::record_format::{Collector, OperatorInfo, RowRecord, RowsFormat};

/// Stores up to `count` rows, the best first. Among rows of one rank, the one with the lesser bytes is better. So the
/// result depends only on the rows.
pub(crate) struct TopN {
    count: usize,
    /// Whether rows that tie with the last one are stored, too.
    ties: bool,
    layout: Arc<Layout>,
    best: GatheredRows,
}

/// Row and its rank. Within one millisecond the [nanoseconds](crate::event_time) of the rows decide.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RankedRow {
    rank: Box<[u8]>,
    run: Box<[u8]>,
}

impl TopN {
    /// Creates the fold for rows of this schema.
    pub(crate) fn new(schema: SchemaRef, rank: &RowsRank, info: OperatorInfo) -> Result<Self, TaskError> {
        let layout = Layout::new(schema).map_err(|error| TaskError::Config(error.to_string()))?;
        let count = usize::try_from(rank.count.get()).unwrap_or(usize::MAX);
        Ok(Self { count, ties: rank.ties, layout: Arc::new(layout.clone()), best: GatheredRows::new(layout, info) })
    }

    fn add(&self, (rank, run): (&[u8], &[u8]), rows: &mut Vec<RankedRow>) {
        let place = rows.partition_point(|row| (&*row.rank, &*row.run) <= (rank, run));
        let is_tied = self.ties && rows.get(self.count - 1).is_some_and(|last| value_of(&last.rank) == value_of(rank));
        if place >= self.count && !is_tied {
            return;
        }
        rows.insert(place, RankedRow { rank: rank.into(), run: run.into() });
        match rows.get(self.count - 1) {
            Some(last) if self.ties => {
                rows.truncate(rows.partition_point(|row| value_of(&row.rank) <= value_of(&last.rank)));
            }
            _ => rows.truncate(self.count),
        }
    }
}

/// Returns the rank without the time at its end.
fn value_of(rank: &[u8]) -> &[u8] {
    rank.split_last_chunk::<TIME_BYTES>().map_or(rank, |(value, _)| value)
}

impl Fold<RowsFormat> for TopN {
    /// Rows, the best first.
    type Value = Vec<RankedRow>;

    #[inline]
    fn absorb(&self, record: &KeyedRecord<'_>, rows: &mut Vec<RankedRow>) -> bool {
        let mut run = record.value();
        let Some(rank) = take_block(&mut run) else { return false };
        self.add((rank, run), rows);
        true
    }

    fn fold(&self, (): (), record: &KeyedRecord<'_>, rows: &mut Vec<RankedRow>) -> Result<(), TaskError> {
        if self.absorb(record, rows) { Ok(()) } else { Err(self.best.malformed()) }
    }

    fn merge(&self, (): (), rows: &mut Vec<RankedRow>, later: &Vec<RankedRow>) -> Result<(), TaskError> {
        later.iter().for_each(|row| self.add((&row.rank, &row.run), rows));
        Ok(())
    }

    fn has_records(&self, rows: &Vec<RankedRow>) -> bool {
        !rows.is_empty()
    }

    fn emit(
        &mut self,
        window: Window,
        _: &[u8],
        rows: &mut Vec<RankedRow>,
        collector: &mut Collector<'_, '_>,
    ) -> Result<(), TaskError> {
        // A result has the time of its window.
        rows.iter().try_for_each(|row| self.best.add(split_nanos(&row.run).1, window.max_ms(), collector))
    }

    fn emit_so_far(&mut self, _: &[u8], _: &Vec<RankedRow>, _: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        Err(TaskError::Config("the best rows of windows were given none".into()))
    }

    fn hand_on(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        self.best.hand_on(collector)
    }

    fn write(&self, (): (), _: &[u8], rows: &Vec<RankedRow>, out: &mut Vec<u8>) -> Result<(), TaskError> {
        put_varint(out, rows.len() as u64);
        for row in rows {
            put_block(out, &row.rank);
            put_block(out, &row.run);
        }
        Ok(())
    }

    fn read(&self, (): (), input: &mut Input<'_>) -> Result<Vec<RankedRow>, TaskError> {
        let count = input.varint()?;
        (0..count).map(|_| Ok(RankedRow { rank: input.block()?.into(), run: input.block()?.into() })).collect()
    }

    /// Holds no state beside the values: pending results were emitted at the end of their batch.
    fn snapshot(&mut self, (): (), _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }

    fn record<'m>(&self, record: &KeyedRecord<'_>, _: &Collector<'_, 'm>) -> Result<RowRecord, TaskError> {
        let mut run = record.value();
        take_block(&mut run).ok_or_else(|| self.best.malformed())?;
        late_row(&self.layout, run, record.timestamp_ms).map_err(|error| self.best.info().malformed(&error))
    }

    fn without_timestamp(&self, (): (), _: &KeyedRecord<'_>) -> TaskError {
        self.best.info().failed("ValueError", "rows have no event time, which these windows go by", None)
    }
}

#[cfg(test)]
mod tests {
    use arrow_schema::{DataType, Field, Schema};
    use proptest::prelude::*;

    use super::*;
    use crate::keyed::best::tests::rank;

    fn top(count: usize, ties: bool) -> TopN {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int8, false)]));
        let rank = rank(count as u64, ties, 1);
        TopN::new(schema, &rank, OperatorInfo { operator: "top_n".into(), subtask: 0, parallelism: 1 }).unwrap()
    }

    proptest! {
        #[test]
        fn the_best_stay_whatever_the_order_and_however_they_are_cut(
            rows in proptest::collection::vec((0u8..5, 0u64..3, any::<u8>()), 0..40),
            count in 1usize..6,
            ties: bool,
            cut in 0usize..40,
        ) {
            let top = top(count, ties);
            let of = |rows: &[(u8, u64, u8)]| {
                let mut best = Vec::new();
                for (value, time, run) in rows {
                    top.add((&[&[*value][..], &time.to_be_bytes()].concat(), &[*run]), &mut best);
                }
                best
            };
            let (one, other) = rows.split_at(cut.min(rows.len()));
            let mut merged = of(other);
            Fold::<RowsFormat>::merge(&top, (), &mut merged, &of(one)).unwrap();
            let mut sorted = rows.clone();
            sorted.sort_unstable();
            let last = sorted.get(count - 1).map_or(u8::MAX, |last| last.0);
            let stay = if ties { sorted.partition_point(|row| row.0 <= last) } else { count.min(sorted.len()) };
            let shown: Vec<_> = merged.iter().map(|row| (row.rank[0], row.run[0])).collect();
            let expected: Vec<_> = sorted[..stay].iter().map(|row| (row.0, row.2)).collect();
            prop_assert_eq!(&shown, &expected);
            prop_assert_eq!(of(&rows), merged);
        }
    }
}
