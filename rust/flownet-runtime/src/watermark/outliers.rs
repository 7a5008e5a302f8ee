//! Detects records whose clock is ahead: a record far ahead of the others of its split does not move event time.
//!
//! ```text
//! record at or before latest + max_ahead   moves event time, as without a bound
//! record beyond                            does not; it goes on to its window all the same
//! eight beyond in a row                    do, as far as the least of them and max_ahead: a gap, such as a night, is over
//! ```
//!
//! # Invariants
//! - I1: only times of records of the split decide, never a clock, so a replay has the same result at any speed.
//! - I2: fewer than [`AGREEING`] records beyond the bound never move event time, neither at the start of a
//!   split nor after a restore. So the state need not be in checkpoints: a restore delays event time by a few
//!   records, and never advances it.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use crate::time::NO_TIMESTAMP;

/// Number of consecutive records that have to agree that time has jumped.
const AGREEING: usize = 8;

/// The records of one split, compared with the bound.
#[derive(Debug)]
struct Outliers {
    max_ahead_ms: i64,
    /// The latest time within the bound. If there is none, the least of all times.
    latest_ms: i64,
    /// Times of consecutive records beyond the bound, fewer than would move event time.
    beyond: Vec<i64>,
}

/// Result for some records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct JudgedTimes {
    /// The latest time that moves event time, if any does.
    latest_ms: Option<i64>,
    /// Number of records, of these and of the ones directly before, that are known to be ahead of the others.
    ahead: u64,
}

/// The bounds of the splits of one subtask.
#[derive(Debug)]
pub(super) struct SplitOutliers {
    max_ahead_ms: NonZeroU64,
    splits: BTreeMap<u32, Outliers>,
    /// Records that were found to be ahead and are not reported yet.
    ahead: u64,
}

impl SplitOutliers {
    pub(super) fn new(max_ahead_ms: NonZeroU64) -> Self {
        Self { max_ahead_ms, splits: BTreeMap::new(), ahead: 0 }
    }

    /// The latest of these times of a split that moves event time; the least of all times, if none does.
    pub(super) fn judge(&mut self, split: u32, times: impl IntoIterator<Item = i64>) -> i64 {
        let judged = self.splits.entry(split).or_insert_with(|| Outliers::new(self.max_ahead_ms)).judge(times);
        self.ahead += judged.ahead;
        judged.latest_ms.unwrap_or(NO_TIMESTAMP)
    }

    /// Notes that a split has no more records.
    pub(super) fn end(&mut self, split: u32) {
        self.ahead += self.splits.remove(&split).map_or(0, |outliers| outliers.end());
    }

    /// Notes that no split has more records.
    pub(super) fn end_all(&mut self) {
        let splits = std::mem::take(&mut self.splits);
        self.ahead += splits.into_values().map(|outliers| outliers.end()).sum::<u64>();
    }

    /// Returns how many records were found to be ahead since the last call.
    pub(super) fn take_ahead(&mut self) -> u64 {
        std::mem::take(&mut self.ahead)
    }
}

impl Outliers {
    /// For a split without records.
    fn new(max_ahead_ms: NonZeroU64) -> Self {
        let max_ahead_ms = i64::try_from(max_ahead_ms.get()).unwrap_or(i64::MAX);
        Self { max_ahead_ms, latest_ms: NO_TIMESTAMP, beyond: Vec::new() }
    }

    /// Judges consecutive records.
    fn judge(&mut self, times: impl IntoIterator<Item = i64>) -> JudgedTimes {
        let mut judged = JudgedTimes::default();
        for time_ms in times {
            self.judge_one(time_ms, &mut judged);
        }
        judged
    }

    /// Ends the split. Returns the number of records that were waiting for others to agree. If the split has
    /// no others, that is 0.
    fn end(&self) -> u64 {
        if self.latest_ms == NO_TIMESTAMP { 0 } else { self.beyond.len() as u64 }
    }

    fn judge_one(&mut self, time_ms: i64, judged: &mut JudgedTimes) {
        if self.latest_ms != NO_TIMESTAMP && time_ms <= self.latest_ms.saturating_add(self.max_ahead_ms) {
            judged.ahead += self.beyond.drain(..).len() as u64;
            self.accept(time_ms, judged);
            return;
        }
        self.beyond.push(time_ms);
        if self.beyond.len() < AGREEING {
            return;
        }
        // All of them agree that time has reached the least. Records far ahead of that one do not move it.
        let least_ms = self.beyond.iter().copied().min().unwrap_or(time_ms);
        let bound_ms = least_ms.saturating_add(self.max_ahead_ms);
        for time_ms in std::mem::take(&mut self.beyond) {
            if time_ms <= bound_ms { self.accept(time_ms, judged) } else { judged.ahead += 1 }
        }
    }

    fn accept(&mut self, time_ms: i64, judged: &mut JudgedTimes) {
        self.latest_ms = self.latest_ms.max(time_ms);
        judged.latest_ms = judged.latest_ms.max(Some(self.latest_ms));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: i64 = 3_600_000;

    fn outliers() -> Outliers {
        Outliers::new(NonZeroU64::new(HOUR as u64).expect("above zero"))
    }

    fn begun() -> Outliers {
        let mut outliers = outliers();
        assert_eq!(outliers.judge(0..7), JudgedTimes::default(), "too few agree");
        assert_eq!(outliers.judge([7]).latest_ms, Some(7));
        outliers
    }

    #[test]
    fn a_record_far_ahead_is_counted_and_moves_nothing() {
        let mut outliers = begun();
        assert_eq!(outliers.judge([24 * HOUR]), JudgedTimes::default(), "a gap may be over");
        assert_eq!(outliers.judge([8]), JudgedTimes { latest_ms: Some(8), ahead: 1 });
        assert_eq!(outliers.judge([HOUR + 8]).latest_ms, Some(HOUR + 8), "at the bound");
        outliers.judge([48 * HOUR]);
        assert_eq!(outliers.end(), 1);
    }

    #[test]
    fn a_gap_is_over_after_eight_records_whatever_strays_are_among_them() {
        let mut outliers = begun();
        let morning = 10 * HOUR;
        let mixed = [99 * HOUR, morning, 99 * HOUR, morning + 1, 500 * HOUR, morning + 2, 99 * HOUR];
        assert_eq!(outliers.judge(mixed), JudgedTimes::default());
        assert_eq!(outliers.judge([morning + 3]), JudgedTimes { latest_ms: Some(morning + 3), ahead: 4 });
    }

    #[test]
    fn the_first_record_is_not_believed_alone_and_a_short_split_has_no_outliers() {
        let mut outliers = outliers();
        assert_eq!(outliers.judge([99 * HOUR, 0, 1, 2, 3, 4]), JudgedTimes::default());
        assert_eq!(outliers.end(), 0);
        assert_eq!(outliers.judge([5, 6]), JudgedTimes { latest_ms: Some(6), ahead: 1 });
    }

    #[test]
    fn records_further_apart_than_the_bound_delay_time_and_do_not_stop_it() {
        let mut outliers = outliers();
        let judged = outliers.judge((0..100).map(|day| 24 * HOUR * day));
        assert!(judged.latest_ms >= Some(24 * HOUR * 84), "{judged:?}");
    }

    proptest! {
        #[test]
        fn strays_never_move_time_and_the_cut_into_batches_makes_no_difference(
            // Hours far ahead, or an honest record; at most seven strays follow each other.
            groups in proptest::collection::vec(proptest::collection::vec(1_000i64..9_000, 0..8), 0..40),
            batch in 1usize..20,
        ) {
            let honest = (0..groups.len() as i64).map(|number| number * 1_000);
            let strays = groups.iter().map(|group| group.iter().map(|hours| hours * HOUR));
            let times: Vec<i64> = strays.zip(honest).flat_map(|(group, honest)| group.chain([honest])).collect();
            let (mut whole, mut cut) = (outliers(), outliers());
            let all = whole.judge(times.iter().copied());
            let mut sum = JudgedTimes::default();
            for part in times.chunks(batch) {
                let judged = cut.judge(part.iter().copied());
                sum = JudgedTimes { latest_ms: sum.latest_ms.max(judged.latest_ms), ahead: sum.ahead + judged.ahead };
            }
            prop_assert_eq!((sum, cut.end()), (all, whole.end()));
            prop_assert!(sum.latest_ms.is_none_or(|latest_ms| latest_ms < 40_000), "{:?}", sum);
            prop_assert_eq!(sum.latest_ms.is_some(), times.len() >= AGREEING);
            if sum.latest_ms.is_some() {
                let ahead = sum.ahead + cut.end();
                prop_assert_eq!(ahead as usize, times.len() - groups.len());
            }
        }

        #[test]
        fn any_times_are_judged(times: Vec<i64>) {
            let mut outliers = outliers();
            let judged = outliers.judge(times.iter().copied());
            prop_assert!(judged.ahead + outliers.end() <= times.len() as u64);
        }
    }
}
