//! Event time of a source with splits: one watermark generator for each split, and the least of their times.
//!
//! A split that has not begun delays event time as much as one that is being read: its records may have any
//! time. So the order of reading matters. [`SplitWatermarks::wanted`] returns the split to read next: the one
//! that lags most.
//!
//! # Invariants
//! - I1: watermarks never go back. They never pass the time of a split that has not ended and is not idle,
//!   read or not.
//! - I2: the idle clock runs for the split that is being read, and for those that are reported to have no
//!   records. For all others it is stopped.
//! - I3: after a source was reported idle, it is reported active before its next record or watermark.
//! - I4: a split that has ended has no influence. After all have ended, no more watermarks are emitted: the
//!   end of the input follows. A source whose splits are found as it runs is idle as long as it has none.
//! - I5: if a source is aligned with others, no split reads more than one record after it has passed the
//!   limit. If other splits lag, it may read one batch.
//! - I6: if a source is known to have splits, records that come before it announces them move no event time.
//!   They were in flight when the job was restored, and belong to any split.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use super::alignment::Limit;
use super::outliers::SplitOutliers;
use super::record_pace::RecordPace;
use super::waiting_splits::WaitingSplits;
use super::{GeneratedSignals, Generator, Watermarks};
use crate::time::{NO_TIMESTAMP, TimeSignal};

/// Signal of a source about the splits of its input, among its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitSignal {
    /// It reads this number of splits, numbered from 0. Sent once, before its first record.
    Among(u32),
    /// It reads this number of splits by now, numbered from 0, and more may come. Then the signal is
    /// repeated.
    Growing(u32),
    /// No later record of this split is before this time; `ms` since 1970. Sent for unread splits, too.
    NotBefore {
        /// The split.
        split: u32,
        /// The lower bound of its times.
        time_ms: i64,
    },
    /// The records that follow belong to this split.
    Of(u32),
    /// This split has no records for now. Its idle clock runs until a signal names it as the next.
    Silent(u32),
    /// This split has no more records.
    Ended(u32),
}

/// Records between two watermarks of a source of objects, if it sends to few channels.
pub const RECORDS_PER_WATERMARK: u32 = 8_192;

/// Generates the watermarks of the splits of one source, and of the source.
#[derive(Debug)]
pub struct SplitWatermarks {
    watermarks: Watermarks,
    idle_after_ms: Option<u64>,
    /// The split that is being read.
    current: u32,
    generator: Generator,
    /// The other splits that have not ended.
    others: WaitingSplits,
    /// Splits that have no records for now.
    silent: BTreeSet<u32>,
    /// True after all splits have ended.
    is_over: bool,
    /// True after the source has announced splits.
    has_splits: bool,
    /// True if the source announces splits, and has not done so yet.
    awaits_splits: bool,
    /// Number of splits so far, for a source whose splits are found as it runs.
    growing: Option<u32>,
    /// The watermark and the idleness of the source.
    told: Generator,
    pace: RecordPace,
    limit: Limit,
    /// None: every record moves event time.
    outliers: Option<SplitOutliers>,
}

impl SplitWatermarks {
    /// Assumes one split until the source announces others. Without a record for `idle_after_ms` a split is
    /// idle.
    pub fn new(watermarks: Watermarks, idle_after_ms: Option<u64>) -> Self {
        Self {
            watermarks,
            idle_after_ms,
            current: 0,
            generator: Generator::new(watermarks, idle_after_ms),
            others: WaitingSplits::default(),
            silent: BTreeSet::new(),
            is_over: false,
            has_splits: false,
            awaits_splits: false,
            growing: None,
            told: Generator::new(Watermarks::Own, None),
            pace: RecordPace::new(RECORDS_PER_WATERMARK, 0),
            limit: Limit::none(),
            outliers: None,
        }
    }

    /// Sets a bound: records that are further ahead of the others of their split do not move event time.
    #[must_use]
    pub fn with_max_ahead(self, max_ahead_ms: Option<NonZeroU64>) -> Self {
        Self { outliers: max_ahead_ms.map(SplitOutliers::new), ..self }
    }

    /// Emits a watermark after `records` records, or more if the source sends to many channels.
    pub fn set_pace(&mut self, records: u32, channels: u32) {
        self.pace = RecordPace::new(records, channels);
    }

    /// Returns how many records were found to be ahead of the others since the last call.
    pub fn take_ahead(&mut self) -> u64 {
        self.outliers.as_mut().map_or(0, SplitOutliers::take_ahead)
    }

    /// Notes that all splits have ended, even without a signal.
    pub fn finish(&mut self) {
        self.outliers.iter_mut().for_each(SplitOutliers::end_all);
    }

    /// If `awaits_splits`, the source announces its splits before its first record.
    #[must_use]
    pub fn awaiting_splits(self, awaits_splits: bool) -> Self {
        Self { awaits_splits, ..self }
    }

    /// Aligns the source with others. Until it has a limit, it waits with its first record.
    #[must_use]
    pub fn aligned(self) -> Self {
        Self { limit: Limit::of(NO_TIMESTAMP, self.watermarks), ..self }
    }

    /// Kind of the watermarks of each split.
    pub fn watermarks(&self) -> Watermarks {
        self.watermarks
    }

    /// Returns true if the source is aligned with others.
    pub fn is_aligned(&self) -> bool {
        self.limit.is_some()
    }

    /// Sets the event time up to which the source may read.
    pub fn align(&mut self, limit_ms: i64) {
        if self.is_aligned() {
            self.limit = Limit::of(limit_ms, self.watermarks);
        }
    }

    /// Returns true if all splits of the source have passed the limit.
    pub fn is_ahead(&self) -> bool {
        self.limit.is_some_and(|limit_ms| self.reached_ms().is_some_and(|reached_ms| reached_ms > limit_ms))
    }

    /// Returns true if this record may have passed the limit. Called for each record.
    #[inline]
    pub fn may_be_ahead(&self, timestamp_ms: i64) -> bool {
        self.limit.may_be_behind(timestamp_ms)
    }

    /// Event time that the source has reached, for the sources aligned with it: the watermark that it would
    /// emit now. None if no source needs to wait for it.
    pub fn reached_ms(&self) -> Option<i64> {
        if self.awaits_splits {
            return Some(self.told.told_ms);
        }
        self.least_due_ms().map(|due_ms| due_ms.max(self.told.told_ms))
    }

    /// Called if [`may_be_ahead`](Self::may_be_ahead) was true, but other splits lag. It suspends that check
    /// until the end of the batch.
    pub fn go_on_to_end_of_batch(&mut self) {
        self.limit.rest();
    }

    /// Ends the batch.
    pub fn end_batch(&mut self) {
        self.limit.wake();
    }

    /// The last watermark.
    pub fn told_ms(&self) -> i64 {
        self.told.told_ms()
    }

    /// Continues from a watermark: no earlier one is emitted.
    pub fn set_told_ms(&mut self, told_ms: i64) {
        self.told.set_told_ms(told_ms);
    }

    /// The split that is being read.
    pub fn current(&self) -> u32 {
        self.current
    }

    /// Follows a signal of the source about its splits.
    pub fn follow(&mut self, signal: SplitSignal) -> GeneratedSignals {
        self.awaits_splits &= !matches!(signal, SplitSignal::Among(_) | SplitSignal::Growing(_));
        match signal {
            SplitSignal::Among(count) => {
                self.others.clear();
                (1..count)
                    .for_each(|split| self.others.insert(split, Generator::new(self.watermarks, self.idle_after_ms)));
                self.has_splits = true;
                GeneratedSignals::default()
            }
            SplitSignal::Growing(count) => self.grow(count),
            SplitSignal::NotBefore { split, time_ms } => {
                self.update(split, |generator| generator.bound_from_below(time_ms));
                GeneratedSignals::default()
            }
            SplitSignal::Of(split) => {
                self.silent.remove(&split);
                self.turn_to(split);
                GeneratedSignals::default()
            }
            SplitSignal::Silent(split) => {
                self.silent.insert(split);
                GeneratedSignals::default()
            }
            SplitSignal::Ended(split) => self.end(split),
        }
    }

    /// Handles a record of this time, which is sent afterwards. Returns true if the source must be reported
    /// active first.
    #[inline]
    pub fn on_record(&mut self, timestamp_ms: i64) -> bool {
        self.on_records(&[timestamp_ms], timestamp_ms)
    }

    /// Like [`on_record`](Self::on_record), for consecutive records whose latest time is `latest_ms`.
    #[inline]
    pub fn on_records(&mut self, times: &[i64], latest_ms: i64) -> bool {
        if self.awaits_splits {
            return false;
        }
        let moving_ms = match &mut self.outliers {
            None => latest_ms,
            Some(outliers) => outliers.judge(self.current, times.iter().copied()),
        };
        self.pace.count(times.len());
        self.generator.on_record(moving_ms) && self.told.on_record(moving_ms)
    }

    /// The watermark to emit after the records so far, if there were enough of them since the last one.
    #[inline]
    pub fn after_records(&mut self) -> GeneratedSignals {
        if self.pace.is_due() { self.settle() } else { GeneratedSignals::default() }
    }

    #[cold]
    fn settle(&mut self) -> GeneratedSignals {
        self.pace.settle();
        if self.awaits_splits { GeneratedSignals::default() } else { self.combined() }
    }

    /// Handles a record of this time, if no signal has to precede it and no limit may apply after it. Returns
    /// false, without effect, otherwise.
    #[inline]
    pub fn take_plain(&mut self, timestamp_ms: i64) -> bool {
        let is_held = self.awaits_splits || self.outliers.is_some();
        let is_plain =
            !self.generator.is_idle && !is_held && !self.pace.is_almost_due() && !self.may_be_ahead(timestamp_ms);
        if is_plain {
            self.pace.count(1);
            self.generator.on_record(timestamp_ms);
        }
        is_plain
    }

    /// Time of the next call of [`on_period`](Self::on_period).
    pub fn next_ms(&self) -> Option<i64> {
        self.generator.next_ms()
    }

    /// Returns true if a period has ended by now.
    pub fn is_due(&self, now_ms: i64) -> bool {
        self.generator.is_due(now_ms)
    }

    /// Ends a period. Time in which records cannot be sent, or the source may not read, does not count as
    /// idle.
    pub fn on_period(&mut self, now_ms: i64, is_available: bool) -> GeneratedSignals {
        if self.awaits_splits {
            return self.generator.on_period(now_ms, false);
        }
        self.generator.on_period(now_ms, is_available);
        let silent = &self.silent;
        self.others.for_each(|split, generator| {
            generator.on_period(now_ms, is_available && silent.contains(&split));
        });
        if self.pace.end_period() {
            // Records decide when the next watermark is emitted, so that a replay emits the same ones at any
            // speed.
            return GeneratedSignals::default();
        }
        self.combined()
    }

    /// Handles a signal of the user's generator of a split. Returns the signals to emit.
    pub fn said(&mut self, split: u32, signal: TimeSignal) -> GeneratedSignals {
        self.update(split, |generator| {
            generator.said(signal);
        });
        self.combined()
    }

    /// The lower bound of future records of the split being read; `NO_TIMESTAMP` if there is none.
    pub fn lower_bound_ms(&self) -> i64 {
        self.generator.lower_bound_ms
    }

    fn update(&mut self, split: u32, change: impl FnOnce(&mut Generator)) {
        if split == self.current { change(&mut self.generator) } else { self.others.update(split, change) }
    }

    /// The least watermark of the splits that have not ended and are not idle.
    fn least_due_ms(&self) -> Option<i64> {
        let current_ms = (!self.generator.is_idle).then(|| self.generator.due_ms());
        current_ms.into_iter().chain(self.others.least_due_ms()).min().filter(|_| !self.is_over)
    }

    /// The split to read next, so that event time is delayed least: the one that lags most, or the first of
    /// several. None if the order makes no difference.
    pub fn wanted(&self) -> Option<u32> {
        // If the watermarks promise no order, time passes at the end of a split. So the source's own order is
        // as good as any.
        if !self.has_splits || self.is_over || matches!(self.watermarks, Watermarks::Never | Watermarks::Unordered) {
            return None;
        }
        let current = (self.generator.due_ms(), self.current);
        Some(self.others.furthest_behind().map_or(current, |other| other.min(current)).1)
    }

    /// Sets the number of splits so far. New splits delay event time, like any that has not begun.
    fn grow(&mut self, count: u32) -> GeneratedSignals {
        let (watermarks, idle_after_ms) = (self.watermarks, self.idle_after_ms);
        let fresh = || Generator::new(watermarks, idle_after_ms);
        let before = self.growing.replace(count);
        self.has_splits = true;
        self.is_over |= before.is_none();
        let mut added = before.unwrap_or(0)..count;
        if self.is_over
            && let Some(first) = added.next()
        {
            (self.current, self.generator, self.is_over) = (first, fresh(), false);
        }
        added.for_each(|split| self.others.insert(split, fresh()));
        self.combined()
    }

    fn turn_to(&mut self, split: u32) {
        let Some(next) = self.others.remove(split) else { return };
        let before = std::mem::replace(&mut self.generator, next);
        self.others.insert(std::mem::replace(&mut self.current, split), before);
    }

    fn end(&mut self, split: u32) -> GeneratedSignals {
        self.outliers.iter_mut().for_each(|outliers| outliers.end(split));
        if split != self.current {
            self.others.remove(split);
        } else if let Some((next, generator)) = self.others.pop_first() {
            (self.current, self.generator) = (next, generator);
        } else {
            self.is_over = true;
        }
        self.combined()
    }

    /// Signals of all splits combined.
    fn combined(&mut self) -> GeneratedSignals {
        if self.is_over {
            let has_none = self.growing.is_some();
            return if has_none { self.told.said(TimeSignal::Idle(true)) } else { GeneratedSignals::default() };
        }
        let Some(least_ms) = self.least_due_ms() else {
            // A jump to the latest of their times would let the clock decide which records are late.
            return self.told.said(TimeSignal::Idle(true));
        };
        self.told.said(TimeSignal::Idle(false)).and(self.tell(least_ms))
    }

    fn tell(&mut self, timestamp_ms: i64) -> GeneratedSignals {
        if timestamp_ms == NO_TIMESTAMP {
            return GeneratedSignals::default();
        }
        self.told.said(TimeSignal::Watermark(timestamp_ms))
    }
}

#[cfg(test)]
mod tests;
