//! Counts the records of a source that come later than the delay of its watermarks allows.
//!
//! A record is out of order if it is earlier than the latest one of its split by more than the delay. That
//! depends on the split alone: neither on the speed of reading, nor on the times at which watermarks are
//! emitted.

use std::collections::BTreeMap;

use super::{SplitSignal, Watermarks};
use crate::metrics::TaskMetrics;
use crate::time::NO_TIMESTAMP;

/// Counts the records of one subtask.
#[derive(Debug)]
pub struct OutOfOrder {
    /// None: the watermarks promise no order.
    delay_ms: Option<i64>,
    /// None before the source has announced splits.
    split: Option<u32>,
    current: u32,
    latest_ms: i64,
    /// Latest times of the splits that are not being read.
    others: BTreeMap<u32, i64>,
    counts: OutOfOrderCounts,
}

/// The counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutOfOrderCounts {
    /// All records.
    pub records: u64,
    /// Records that came too late.
    pub out_of_order: u64,
    /// The most by which one was earlier than the latest one of its split, in milliseconds. This delay would
    /// have been enough.
    pub most_ms: u64,
    /// The split of that record, if the source has splits.
    pub split: Option<u32>,
}

/// The range of the times of some records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// The least of them.
    pub least_ms: i64,
    /// The greatest of them.
    pub latest_ms: i64,
    /// True if no time is before the one in front of it.
    pub is_sorted: bool,
}

impl TimeRange {
    /// Finds the range; none of no times. Most input is sorted, which one pass without branches detects.
    pub fn of(times: &[i64]) -> Option<Self> {
        let (first_ms, last_ms) = (*times.first()?, *times.last()?);
        if times.is_sorted() {
            return Some(Self { least_ms: first_ms, latest_ms: last_ms, is_sorted: true });
        }
        let widen = |(least, latest): (i64, i64), time_ms: &i64| (least.min(*time_ms), latest.max(*time_ms));
        let (least_ms, latest_ms) = times.iter().fold((first_ms, first_ms), widen);
        Some(Self { least_ms, latest_ms, is_sorted: false })
    }
}

impl OutOfOrder {
    /// A counter for a source with these watermarks.
    pub fn new(watermarks: Watermarks) -> Self {
        let delay_ms = match watermarks {
            Watermarks::Bounded { delay_ms } => Some(i64::try_from(delay_ms).unwrap_or(i64::MAX)),
            _ => None,
        };
        Self {
            delay_ms,
            split: None,
            current: 0,
            latest_ms: NO_TIMESTAMP,
            others: BTreeMap::new(),
            counts: OutOfOrderCounts::default(),
        }
    }

    /// Counts a record of this time.
    #[inline]
    pub fn add(&mut self, timestamp_ms: i64) {
        self.counts.records += 1;
        if timestamp_ms >= self.latest_ms {
            self.latest_ms = timestamp_ms;
        } else {
            self.add_earlier(timestamp_ms);
        }
    }

    /// Counts records in their order, whose times have this range.
    pub fn add_all(&mut self, times: &[i64], range: TimeRange) {
        let Some(delay_ms) = self.delay_ms else { return };
        let TimeRange { least_ms, latest_ms, is_sorted } = range;
        let is_within_delay = least_ms >= self.latest_ms.max(latest_ms).saturating_sub(delay_ms);
        if is_within_delay || (is_sorted && least_ms >= self.latest_ms) {
            self.counts.records += times.len() as u64;
            self.latest_ms = self.latest_ms.max(latest_ms);
        } else {
            times.iter().for_each(|timestamp_ms| self.add(*timestamp_ms));
        }
    }

    #[cold]
    fn add_earlier(&mut self, timestamp_ms: i64) {
        let behind_ms = self.latest_ms.saturating_sub(timestamp_ms);
        if self.delay_ms.is_some_and(|delay_ms| behind_ms > delay_ms) {
            self.counts.out_of_order += 1;
            if behind_ms.unsigned_abs() > self.counts.most_ms {
                (self.counts.most_ms, self.counts.split) = (behind_ms.unsigned_abs(), self.split);
            }
        }
    }

    /// Follows the source's signals about its splits.
    pub fn follow(&mut self, signal: SplitSignal) {
        if let SplitSignal::Of(split) = signal {
            self.split = Some(split);
        }
        match signal {
            SplitSignal::Of(split) if split != self.current => {
                let latest_ms = self.others.remove(&split).unwrap_or(NO_TIMESTAMP);
                let before_ms = std::mem::replace(&mut self.latest_ms, latest_ms);
                self.others.insert(std::mem::replace(&mut self.current, split), before_ms);
            }
            SplitSignal::Ended(split) => drop(self.others.remove(&split)),
            _ => {}
        }
    }

    /// Reports the counts so far.
    pub fn tell(&self, metrics: &TaskMetrics) {
        metrics.set_out_of_order(self.counts);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bounded(delay_ms: u64) -> OutOfOrder {
        OutOfOrder::new(Watermarks::Bounded { delay_ms })
    }

    #[test]
    fn records_are_compared_with_their_own_split_alone() {
        let mut order = bounded(10);
        order.follow(SplitSignal::Among(2));
        [100, 90, 200].into_iter().for_each(|at| order.add(at));
        order.follow(SplitSignal::Of(1));
        [5, 0].into_iter().for_each(|at| order.add(at));
        assert_eq!(order.counts.out_of_order, 0);
        order.follow(SplitSignal::Of(0));
        [189, 190].into_iter().for_each(|at| order.add(at));
        assert_eq!(order.counts, OutOfOrderCounts { records: 7, out_of_order: 1, most_ms: 11, split: Some(0) });
    }

    #[test]
    fn without_a_promise_nothing_is_out_of_order() {
        let mut order = OutOfOrder::new(Watermarks::Own);
        [100, 0].into_iter().for_each(|at| order.add(at));
        assert_eq!(order.counts.out_of_order, 0);
    }

    proptest! {
        #[test]
        fn batches_count_as_their_records_do(
            batches in proptest::collection::vec(proptest::collection::vec(-50i64..50, 1..20), 0..10), delay in 0u64..60,
        ) {
            let (mut whole, mut one_by_one) = (bounded(delay), bounded(delay));
            let (mut latest, mut late) = (i64::MIN, 0);
            for times in batches {
                let range = TimeRange::of(&times).unwrap();
                prop_assert_eq!(range.least_ms, *times.iter().min().unwrap());
                prop_assert_eq!(range.latest_ms, *times.iter().max().unwrap());
                whole.add_all(&times, range);
                for at in times {
                    one_by_one.add(at);
                    latest = latest.max(at);
                    late += u64::from(latest - at > delay as i64);
                }
            }
            prop_assert_eq!(whole.counts, one_by_one.counts);
            prop_assert_eq!(whole.counts.out_of_order, late);
        }
    }
}
