//! Event time of a source that reads its input in parts: a generator for each, and the least of their times.
//!
//! A part that has not begun holds time back as much as one that is read: its records may be of any time. So which part is
//! read next matters, and [`SplitWatermarks::wanted`] says: the one that is furthest behind.
//!
//! # Invariants
//! - I1: what is told never goes back, and never passes the time of a part that has not ended and is not idle, read or not.
//! - I2: the idle clock runs for the part whose turn it is, and for those that are said to have nothing; for all others it
//!   stands.
//! - I3: who was said to be idle is said to be back before its next record or watermark.
//! - I4: a part that has ended has no say; when all have, nothing more is told: the end of the input speaks for itself. A
//!   source whose parts come as it runs is idle as long as it has none.
//! - I5: of a source that is aligned with others, no part takes more than one record, or one batch where other parts are
//!   behind, once it has come further than the source may go.
//! - I6: of a source that is known to have parts, records that come before it says which there are move no time: they were
//!   on their way when the job was restored, and are of any part.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use super::alignment::Limit;
use super::outliers::SplitOutliers;
use super::record_pace::RecordPace;
use super::waiting_splits::WaitingSplits;
use super::{GeneratedSignals, Generator, Watermarks};
use crate::time::{NO_TIMESTAMP, TimeSignal};

/// What a source says of the parts of its input, among its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitSignal {
    /// It reads so many, numbered from 0; said once, before its first record.
    Among(u32),
    /// It reads so many by now, numbered from 0, and others may come: then it is said again.
    Growing(u32),
    /// No later record of this split is before this time; `ms` since 1970. Said for splits that are unread, too.
    NotBefore {
        /// The split.
        split: u32,
        /// The lower bound of its times.
        time_ms: i64,
    },
    /// The records that follow are of this one.
    Of(u32),
    /// This one has nothing for now: until it is said to be the next, its idle clock runs.
    Silent(u32),
    /// This one has no more records.
    Ended(u32),
}

/// Records between two watermarks of a source of objects, if it sends to few channels.
pub const RECORDS_PER_WATERMARK: u32 = 8_192;

/// Makes the watermarks of the parts of one source, and of the source.
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
    /// All splits have ended.
    is_over: bool,
    /// The source has announced splits.
    has_splits: bool,
    /// The source announces splits, and has not yet.
    awaits_splits: bool,
    /// How many splits a source has had whose splits come as it runs.
    growing: Option<u32>,
    /// The watermark and the idleness of the source.
    told: Generator,
    pace: RecordPace,
    limit: Limit,
    /// None: every record moves event time.
    outliers: Option<SplitOutliers>,
}

impl SplitWatermarks {
    /// One part, until the source says otherwise. Without a record for `idle_after_ms` a part is idle.
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

    /// The same, of which records further ahead of the others of their part than this do not move event time.
    #[must_use]
    pub fn with_max_ahead(self, max_ahead_ms: Option<NonZeroU64>) -> Self {
        Self { outliers: max_ahead_ms.map(SplitOutliers::new), ..self }
    }

    /// Emit a watermark after so many records, or more if the source sends to many channels.
    pub fn set_pace(&mut self, records: u32, channels: u32) {
        self.pace = RecordPace::new(records, channels);
    }

    /// How many records were found to be ahead of the others since this was last asked.
    pub fn take_ahead(&mut self) -> u64 {
        self.outliers.as_mut().map_or(0, SplitOutliers::take_ahead)
    }

    /// All parts have ended, said or not.
    pub fn finish(&mut self) {
        self.outliers.iter_mut().for_each(SplitOutliers::end_all);
    }

    /// The same, of a source that says which parts it has before its first record, if `awaits_splits`.
    #[must_use]
    pub fn awaiting_splits(self, awaits_splits: bool) -> Self {
        Self { awaits_splits, ..self }
    }

    /// The same, of a source that is aligned with others: until it is told how far it may go, it waits with its first record.
    #[must_use]
    pub fn aligned(self) -> Self {
        Self { limit: Limit::of(NO_TIMESTAMP, self.watermarks), ..self }
    }

    /// Where the watermarks of each part come from.
    pub fn watermarks(&self) -> Watermarks {
        self.watermarks
    }

    /// Whether it is.
    pub fn is_aligned(&self) -> bool {
        self.limit.is_some()
    }

    /// It may go so far.
    pub fn align(&mut self, limit_ms: i64) {
        if self.is_aligned() {
            self.limit = Limit::of(limit_ms, self.watermarks);
        }
    }

    /// Whether it has come further: all its parts have.
    pub fn is_ahead(&self) -> bool {
        self.limit.is_some_and(|limit_ms| self.reached_ms().is_some_and(|reached_ms| reached_ms > limit_ms))
    }

    /// Whether this record may be why; asked for each.
    #[inline]
    pub fn may_be_ahead(&self, timestamp_ms: i64) -> bool {
        self.limit.may_be_behind(timestamp_ms)
    }

    /// How far those that are aligned with it may take it to have come: the watermark that would be told now. None where
    /// nobody waits for it.
    pub fn reached_ms(&self) -> Option<i64> {
        if self.awaits_splits {
            return Some(self.told.told_ms);
        }
        self.least_due_ms().map(|due_ms| due_ms.max(self.told.told_ms))
    }

    /// The record came to [`may_be_ahead`](Self::may_be_ahead), and other parts are behind: until the batch is over, it is no
    /// use to ask again.
    pub fn go_on_to_end_of_batch(&mut self) {
        self.limit.rest();
    }

    /// The batch is over.
    pub fn end_batch(&mut self) {
        self.limit.wake();
    }

    /// The last watermark that was told.
    pub fn told_ms(&self) -> i64 {
        self.told.told_ms()
    }

    /// Goes on from there: nothing that is behind it is told.
    pub fn set_told_ms(&mut self, told_ms: i64) {
        self.told.set_told_ms(told_ms);
    }

    /// The part whose turn it is.
    pub fn current(&self) -> u32 {
        self.current
    }

    /// Follows what the source says of its parts.
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

    /// A record of this time is about to be sent on; whether it is to be said before that the source is idle no more.
    #[inline]
    pub fn on_record(&mut self, timestamp_ms: i64) -> bool {
        self.on_records(&[timestamp_ms], timestamp_ms)
    }

    /// The same of records that follow each other, of which this is the latest time.
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

    /// Takes a record of this time, if there is nothing to be said before it and nobody to be held behind it; false leaves it.
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

    /// When [`on_period`](Self::on_period) is wanted.
    pub fn next_ms(&self) -> Option<i64> {
        self.generator.next_ms()
    }

    /// Whether it is by now.
    pub fn is_due(&self, now_ms: i64) -> bool {
        self.generator.is_due(now_ms)
    }

    /// A period is over. Time in which records cannot be sent on, or the source may not read, is no sign of there being none.
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
            // Records decide when the next watermark is emitted, so that a replay emits the same ones at any speed.
            return GeneratedSignals::default();
        }
        self.combined()
    }

    /// What is to be told where the user's generator of a part says this.
    pub fn said(&mut self, split: u32, signal: TimeSignal) -> GeneratedSignals {
        self.update(split, |generator| {
            generator.said(signal);
        });
        self.combined()
    }

    /// The lower bound of the records to come of the split being read; `NO_TIMESTAMP` if there is none.
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

    /// The part to read next, so that time is held back least: of those furthest behind the first. None where it makes no
    /// difference.
    pub fn wanted(&self) -> Option<u32> {
        // Without a promise of order time passes at the end of a split, so the source's own order is as good as any.
        if !self.has_splits || self.is_over || matches!(self.watermarks, Watermarks::Never | Watermarks::Unordered) {
            return None;
        }
        let current = (self.generator.due_ms(), self.current);
        Some(self.others.furthest_behind().map_or(current, |other| other.min(current)).1)
    }

    /// So many parts there are by now: those that are new hold time back, as any that has not begun.
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

    /// What all parts together have to tell.
    fn combined(&mut self) -> GeneratedSignals {
        if self.is_over {
            let has_none = self.growing.is_some();
            return if has_none { self.told.said(TimeSignal::Idle(true)) } else { GeneratedSignals::default() };
        }
        let Some(least_ms) = self.least_due_ms() else {
            // A jump to the latest of their times would let the clock decide whose next record is late.
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
