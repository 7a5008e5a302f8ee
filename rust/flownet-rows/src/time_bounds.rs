//! Lower bounds of the event times still to come from a table in memory.
//!
//! A table is complete before its first row is emitted. One pass over its column of times gives, for every position,
//! the least time of the rows from there on. So event time advances to that bound, and the rows need no order.

use arrow_array::{Array, ArrayRef};
use arrow_schema::ArrowError;

use crate::BATCH_ROWS;
use crate::event_time::milliseconds_of;

/// Least time of the rows from each position of a table on.
#[derive(Debug)]
pub struct TimeBounds {
    /// First row, and least time from it on in milliseconds since 1970-01-01 UTC. One entry per [`BATCH_ROWS`] rows of
    /// a batch.
    places: Vec<(u64, i64)>,
}

impl TimeBounds {
    /// Computes the bounds from consecutive batches of the column of times. Rows without a time do not count.
    pub fn new<'a>(columns: impl IntoIterator<Item = &'a ArrayRef>) -> Result<Self, ArrowError> {
        let (mut places, mut row) = (Vec::new(), 0);
        for column in columns {
            let times = milliseconds_of(column)?;
            for start in (0..times.len()).step_by(BATCH_ROWS) {
                let some = times.slice(start, BATCH_ROWS.min(times.len() - start));
                let least = match some.null_count() {
                    0 => some.values().iter().copied().min(),
                    _ => some.iter().flatten().min(),
                };
                places.push((row + start as u64, least.unwrap_or(i64::MAX)));
            }
            row += times.len() as u64;
        }
        let mut ahead = i64::MAX;
        for (_, least_ms) in places.iter_mut().rev() {
            ahead = ahead.min(*least_ms);
            *least_ms = ahead;
        }
        Ok(Self { places })
    }

    /// Returns a lower bound of the times from `row` on, or none at the end.
    pub fn from_row(&self, row: u64) -> Option<i64> {
        let next = self.places.partition_point(|(first, _)| *first <= row);
        Some(self.places[next.checked_sub(1)?].1).filter(|least_ms| *least_ms != i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::Int64Array;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares with the minimum of all rows from each position on.
        #[test]
        fn no_row_is_before_the_bound(
            batches in prop::collection::vec((0..3_usize, prop::collection::vec(prop::option::of(-50..50_i64), 0..6)), 0..6),
        ) {
            // Some batches are longer than a block of rows, so that a bound falls within one.
            let batches: Vec<Vec<Option<i64>>> = batches
                .into_iter()
                .map(|(blocks, times)| std::iter::repeat_n(Some(70), blocks * BATCH_ROWS).chain(times).collect())
                .collect();
            let columns: Vec<ArrayRef> = batches.iter().map(|times| Arc::new(Int64Array::from(times.clone())) as _).collect();
            let bounds = TimeBounds::new(&columns).unwrap();
            let all: Vec<Option<i64>> = batches.concat();
            let mut least = None;
            for row in (0..all.len()).rev() {
                least = least.into_iter().chain(all[row]).min();
                let bound = bounds.from_row(row as u64);
                if let Some(least_ms) = least {
                    prop_assert!(bound.is_some_and(|bound_ms| bound_ms <= least_ms), "row {}: {:?}", row, bound);
                }
            }
            // The first bound of a batch is its exact minimum.
            let mut row = 0;
            for times in &batches {
                if !times.is_empty() {
                    prop_assert_eq!(bounds.from_row(row), all[row as usize..].iter().flatten().copied().min());
                }
                row += times.len() as u64;
            }
        }
    }
}
