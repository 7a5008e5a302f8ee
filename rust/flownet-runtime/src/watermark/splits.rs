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

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use super::alignment::Limit;
use super::outliers::SplitOutliers;
use super::{Generated, Generator, Watermarks};
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

/// Makes the watermarks of the parts of one source, and of the source.
#[derive(Debug)]
pub struct SplitWatermarks {
    watermarks: Watermarks,
    idle_after_ms: Option<u64>,
    /// The part whose turn it is.
    current: u32,
    generator: Generator,
    /// The other parts that have not ended.
    others: BTreeMap<u32, Generator>,
    /// Those that have nothing for now.
    silent: BTreeSet<u32>,
    /// All parts have ended.
    is_over: bool,
    /// Whether the source has said that there are parts.
    has_parts: bool,
    /// Whether it will, and has not yet.
    awaits_parts: bool,
    /// How many it has had, where others may come.
    growing: Option<u32>,
    /// What was told of all together.
    told: Generator,
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
            others: BTreeMap::new(),
            silent: BTreeSet::new(),
            is_over: false,
            has_parts: false,
            awaits_parts: false,
            growing: None,
            told: Generator::new(Watermarks::Own, None),
            limit: Limit::none(),
            outliers: None,
        }
    }

    /// The same, of which records further ahead of the others of their part than this do not move event time.
    #[must_use]
    pub fn with_max_ahead(self, max_ahead_ms: Option<NonZeroU64>) -> Self {
        Self { outliers: max_ahead_ms.map(SplitOutliers::new), ..self }
    }

    /// How many records were found to be ahead of the others since this was last asked.
    pub fn take_ahead(&mut self) -> u64 {
        self.outliers.as_mut().map_or(0, SplitOutliers::take_ahead)
    }

    /// All parts have ended, said or not.
    pub fn finish(&mut self) {
        self.outliers.iter_mut().for_each(SplitOutliers::end_all);
    }

    /// The same, of a source that says which parts it has before its first record, if `awaits_parts`.
    #[must_use]
    pub fn awaiting_parts(self, awaits_parts: bool) -> Self {
        Self { awaits_parts, ..self }
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
        if self.awaits_parts {
            return Some(self.told.told_ms);
        }
        let parts = self.others.values().chain([&self.generator]).filter(|part| !self.is_over && !part.is_idle);
        parts.map(Generator::due_ms).min().map(|due_ms| due_ms.max(self.told.told_ms))
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
    pub fn follow(&mut self, signal: SplitSignal) -> Generated {
        self.awaits_parts &= !matches!(signal, SplitSignal::Among(_) | SplitSignal::Growing(_));
        match signal {
            SplitSignal::Among(count) => {
                let fresh = || Generator::new(self.watermarks, self.idle_after_ms);
                self.others = (1..count).map(|split| (split, fresh())).collect();
                self.has_parts = true;
                Generated::default()
            }
            SplitSignal::Growing(count) => self.grow(count),
            SplitSignal::NotBefore { split, time_ms } => {
                if let Some(generator) = self.part(split) {
                    generator.bound_from_below(time_ms);
                }
                Generated::default()
            }
            SplitSignal::Of(split) => {
                self.silent.remove(&split);
                self.turn_to(split);
                Generated::default()
            }
            SplitSignal::Silent(split) => {
                self.silent.insert(split);
                Generated::default()
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
        if self.awaits_parts {
            return false;
        }
        let moving_ms = match &mut self.outliers {
            None => latest_ms,
            Some(outliers) => outliers.judge(self.current, times.iter().copied()),
        };
        self.generator.on_record(moving_ms) && self.told.on_record(moving_ms)
    }

    /// Takes a record of this time, if there is nothing to be said before it and nobody to be held behind it; false leaves it.
    #[inline]
    pub fn take_plain(&mut self, timestamp_ms: i64) -> bool {
        let is_held = self.awaits_parts || self.outliers.is_some();
        let is_plain = !self.generator.is_idle && !is_held && !self.may_be_ahead(timestamp_ms);
        if is_plain {
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
    pub fn on_period(&mut self, now_ms: i64, is_available: bool) -> Generated {
        if self.awaits_parts {
            return self.generator.on_period(now_ms, false);
        }
        self.generator.on_period(now_ms, is_available);
        for (split, generator) in &mut self.others {
            generator.on_period(now_ms, is_available && self.silent.contains(split));
        }
        self.combined()
    }

    /// What is to be told where the user's generator of a part says this.
    pub fn said(&mut self, split: u32, signal: TimeSignal) -> Generated {
        if let Some(generator) = self.part(split) {
            generator.said(signal);
        }
        self.combined()
    }

    /// The lower bound of the records to come of the split being read; `NO_TIMESTAMP` if there is none.
    pub fn lower_bound_ms(&self) -> i64 {
        self.generator.lower_bound_ms
    }

    fn part(&mut self, split: u32) -> Option<&mut Generator> {
        if split == self.current { Some(&mut self.generator) } else { self.others.get_mut(&split) }
    }

    /// The part to read next, so that time is held back least: of those furthest behind the first. None where it makes no
    /// difference.
    pub fn wanted(&self) -> Option<u32> {
        // Without a promise of order time passes at the end of a split, so the source's own order is as good as any.
        if !self.has_parts || self.is_over || matches!(self.watermarks, Watermarks::Never | Watermarks::Unordered) {
            return None;
        }
        let others = self.others.iter().map(|(split, generator)| (generator.reached_ms(), *split));
        others.chain([(self.generator.reached_ms(), self.current)]).min().map(|(_, split)| split)
    }

    /// So many parts there are by now: those that are new hold time back, as any that has not begun.
    fn grow(&mut self, count: u32) -> Generated {
        let fresh = || Generator::new(self.watermarks, self.idle_after_ms);
        let before = self.growing.replace(count);
        self.has_parts = true;
        self.is_over |= before.is_none();
        let mut added = before.unwrap_or(0)..count;
        if self.is_over
            && let Some(first) = added.next()
        {
            (self.current, self.generator, self.is_over) = (first, fresh(), false);
        }
        self.others.extend(added.map(|split| (split, fresh())));
        self.combined()
    }

    fn turn_to(&mut self, split: u32) {
        let Some(next) = self.others.remove(&split) else { return };
        let before = std::mem::replace(&mut self.generator, next);
        self.others.insert(std::mem::replace(&mut self.current, split), before);
    }

    fn end(&mut self, split: u32) -> Generated {
        self.outliers.iter_mut().for_each(|outliers| outliers.end(split));
        if split != self.current {
            self.others.remove(&split);
        } else if let Some((next, generator)) = self.others.pop_first() {
            (self.current, self.generator) = (next, generator);
        } else {
            self.is_over = true;
        }
        self.combined()
    }

    /// What all parts together have to tell.
    fn combined(&mut self) -> Generated {
        if self.is_over {
            let has_none = self.growing.is_some();
            return if has_none { self.told.said(TimeSignal::Idle(true)) } else { Generated::default() };
        }
        let parts = || self.others.values().chain([&self.generator]);
        let Some(least_ms) = parts().filter(|part| !part.is_idle).map(|part| part.told_ms).min() else {
            // A jump to the latest of their times would let the clock decide whose next record is late.
            return self.told.said(TimeSignal::Idle(true));
        };
        self.told.said(TimeSignal::Idle(false)).and(self.tell(least_ms))
    }

    fn tell(&mut self, timestamp_ms: i64) -> Generated {
        if timestamp_ms == NO_TIMESTAMP {
            return Generated::default();
        }
        self.told.said(TimeSignal::Watermark(timestamp_ms))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PERIOD_MS: i64 = super::super::PERIOD_MS;

    fn told(generated: Generated) -> Vec<TimeSignal> {
        generated.signals().collect()
    }

    fn bounded(delay_ms: u64, idle_after_ms: Option<u64>, count: u32) -> SplitWatermarks {
        let mut splits = SplitWatermarks::new(Watermarks::Bounded { delay_ms }, idle_after_ms);
        splits.follow(SplitSignal::Among(count));
        splits
    }

    #[test]
    fn time_waits_for_parts_that_are_still_to_come() {
        let mut splits = bounded(0, None, 2);
        splits.on_record(100);
        assert_eq!(told(splits.on_period(0, true)), []);
        assert_eq!(splits.wanted(), Some(1), "nothing is known of it");
        splits.follow(SplitSignal::Of(1));
        splits.on_record(40);
        assert_eq!(told(splits.on_period(200, true)), [TimeSignal::Watermark(39)]);
        assert_eq!(splits.wanted(), Some(1));
        assert_eq!(told(splits.follow(SplitSignal::Ended(1))), [TimeSignal::Watermark(99)], "it has left");
        assert_eq!((splits.wanted(), splits.current()), (Some(0), 0));
        assert_eq!(told(splits.follow(SplitSignal::Ended(0))), []);
        assert_eq!(splits.wanted(), None);
    }

    #[test]
    fn a_source_without_parts_is_one() {
        let mut splits = SplitWatermarks::new(Watermarks::Bounded { delay_ms: 0 }, Some(400));
        splits.on_record(100);
        assert_eq!(told(splits.on_period(0, true)), [TimeSignal::Watermark(99)]);
        assert_eq!(told(splits.on_period(200, true)), []);
        assert_eq!(told(splits.on_period(400, true)), [TimeSignal::Idle(true)]);
        assert!(splits.on_record(101) && !splits.on_record(102));
        assert_eq!(splits.wanted(), None, "there is nothing to choose from");
    }

    #[test]
    fn a_part_whose_turn_it_is_not_never_is_idle() {
        let mut splits = bounded(0, Some(200), 2);
        splits.on_record(100);
        for now_ms in [0, 200, 400, 600] {
            // The second holds time back, and its clock stands; the first falls silent.
            assert_eq!(told(splits.on_period(now_ms, true)), []);
        }
        splits.follow(SplitSignal::Of(1));
        assert_eq!(told(splits.on_period(800, false)), [], "those behind take nothing");
        assert_eq!(told(splits.on_period(1000, true)), [TimeSignal::Idle(true)], "and no jump to where the first was");
        assert!(splits.on_record(10));
        assert_eq!(told(splits.on_period(1200, true)), [TimeSignal::Watermark(9)]);
    }

    #[test]
    fn parts_that_have_nothing_fall_idle_beside_the_one_that_has() {
        let mut splits = bounded(0, Some(400), 3);
        splits.on_record(100);
        splits.follow(SplitSignal::Silent(1));
        splits.follow(SplitSignal::Silent(2));
        assert_eq!(told(splits.on_period(0, true)), []);
        splits.on_record(200);
        assert_eq!(told(splits.on_period(200, true)), []);
        splits.follow(SplitSignal::Of(2));
        splits.on_record(150);
        splits.follow(SplitSignal::Of(0));
        splits.on_record(300);
        assert_eq!(told(splits.on_period(400, true)), [TimeSignal::Watermark(149)], "1 is idle, and 2 was back before");
    }

    #[test]
    fn a_source_whose_parts_come_as_it_runs_is_idle_as_long_as_it_has_none() {
        let mut splits = SplitWatermarks::new(Watermarks::Bounded { delay_ms: 0 }, Some(400));
        assert_eq!(told(splits.follow(SplitSignal::Growing(0))), [TimeSignal::Idle(true)]);
        assert_eq!((splits.wanted(), splits.reached_ms(), told(splits.on_period(0, true))), (None, None, vec![]));
        assert_eq!(told(splits.follow(SplitSignal::Growing(1))), [TimeSignal::Idle(false)]);
        assert_eq!((splits.wanted(), splits.current()), (Some(0), 0));
        assert!(!splits.on_record(100), "that it is back was said");
        assert_eq!(told(splits.on_period(200, true)), [TimeSignal::Watermark(99)]);
        // Those that come hold time back until they have records, or have had none for long.
        assert_eq!(told(splits.follow(SplitSignal::Growing(3))), []);
        splits.on_record(200);
        assert_eq!(told(splits.on_period(400, true)), []);
        assert_eq!(splits.wanted(), Some(1));
        splits.follow(SplitSignal::Silent(1));
        splits.follow(SplitSignal::Ended(2));
        splits.on_record(300);
        assert_eq!(told(splits.on_period(600, true)), []);
        splits.on_record(400);
        assert_eq!(told(splits.on_period(800, true)), [TimeSignal::Watermark(399)], "1 is idle");
        splits.follow(SplitSignal::Ended(1));
        assert_eq!(told(splits.follow(SplitSignal::Ended(0))), [TimeSignal::Idle(true)]);
        assert_eq!(told(splits.follow(SplitSignal::Growing(4))), [TimeSignal::Idle(false)]);
        assert_eq!((splits.wanted(), splits.current()), (Some(3), 3));
        splits.on_record(50);
        assert_eq!(told(splits.on_period(1000, true)), [], "time does not go back");
    }

    #[test]
    fn without_a_promise_of_order_time_advances_to_the_least_bound_of_what_is_left() {
        let mut splits = SplitWatermarks::new(Watermarks::Unordered, None);
        splits.follow(SplitSignal::Among(3));
        for (split, time_ms) in [(0, 100), (1, 50), (2, 200)] {
            assert_eq!(told(splits.follow(SplitSignal::NotBefore { split, time_ms })), []);
        }
        assert_eq!(told(splits.on_period(0, true)), [TimeSignal::Watermark(49)], "a record may be of the bound itself");
        splits.follow(SplitSignal::Of(1));
        splits.on_record(500);
        assert_eq!(told(splits.on_period(200, true)), [], "an earlier record may follow");
        assert_eq!(splits.wanted(), None, "no split is better to read than another");
        assert_eq!(told(splits.follow(SplitSignal::Ended(1))), [TimeSignal::Watermark(99)]);
        splits.follow(SplitSignal::NotBefore { split: 0, time_ms: 150 });
        assert_eq!((splits.current(), splits.lower_bound_ms()), (0, 150));
        assert_eq!(told(splits.on_period(400, true)), [TimeSignal::Watermark(149)], "bounds may rise");
        splits.follow(SplitSignal::NotBefore { split: 7, time_ms: 900 });
        assert_eq!(told(splits.on_period(600, true)), [], "there is no such split");
    }

    #[test]
    fn a_split_of_which_nothing_is_known_holds_time_until_it_has_ended() {
        let mut splits = SplitWatermarks::new(Watermarks::Unordered, None);
        splits.follow(SplitSignal::Among(2));
        splits.follow(SplitSignal::NotBefore { split: 1, time_ms: 300 });
        splits.on_record(200);
        assert_eq!(told(splits.on_period(0, true)), []);
        assert_eq!(told(splits.follow(SplitSignal::Ended(0))), [TimeSignal::Watermark(299)]);
    }

    #[test]
    fn a_promise_of_order_and_a_bound_hold_together() {
        let mut splits = bounded(10, None, 2);
        splits.follow(SplitSignal::NotBefore { split: 0, time_ms: 100 });
        splits.follow(SplitSignal::NotBefore { split: 1, time_ms: 400 });
        assert_eq!(splits.wanted(), Some(0));
        splits.on_record(105);
        assert_eq!(told(splits.on_period(0, true)), [TimeSignal::Watermark(99)], "the delay alone would say less");
        splits.on_record(450);
        assert_eq!(told(splits.on_period(200, true)), [TimeSignal::Watermark(399)]);
        assert_eq!(splits.wanted(), Some(1), "it holds time back");
    }

    #[test]
    fn a_record_far_ahead_of_the_others_of_its_part_does_not_move_time_and_is_counted() {
        let hour = 3_600_000;
        let mut splits = bounded(0, None, 2).with_max_ahead(NonZeroU64::new(1_000));
        splits.on_records(&[0, 1, 2, 3, hour, 4, 5, 6], hour);
        splits.follow(SplitSignal::Of(1));
        // The other is hours later, which is no fault of its clock.
        (0..8).for_each(|number| assert!(!splits.on_record(9 * hour + number)));
        assert!(!splits.take_plain(9 * hour), "each is judged");
        assert_eq!(told(splits.on_period(0, true)), [TimeSignal::Watermark(5)]);
        assert_eq!((splits.take_ahead(), splits.take_ahead()), (1, 0));
        splits.on_record(99 * hour);
        assert_eq!(told(splits.follow(SplitSignal::Ended(0))), [TimeSignal::Watermark(9 * hour + 6)]);
        splits.finish();
        assert_eq!(splits.take_ahead(), 1);
    }

    #[test]
    fn records_before_the_parts_are_known_move_no_time() {
        let mut splits = SplitWatermarks::new(Watermarks::Bounded { delay_ms: 0 }, Some(200)).awaiting_parts(true);
        splits.set_told_ms(5);
        splits.on_record(100);
        for now_ms in [0, 200, 400] {
            assert_eq!(told(splits.on_period(now_ms, true)), [], "nor is it idle");
        }
        assert_eq!((splits.reached_ms(), splits.take_plain(100)), (Some(5), false));
        splits.follow(SplitSignal::Among(2));
        splits.on_record(50);
        assert_eq!(told(splits.on_period(600, true)), []);
        splits.follow(SplitSignal::Of(1));
        splits.on_record(40);
        assert_eq!(told(splits.on_period(800, true)), [TimeSignal::Watermark(39)]);
    }

    #[test]
    fn where_time_ends_with_the_input_the_order_of_parts_makes_no_difference() {
        let mut splits = SplitWatermarks::new(Watermarks::Never, None);
        splits.follow(SplitSignal::Among(3));
        assert_eq!(splits.wanted(), None);
    }

    #[test]
    fn generators_of_the_user_are_of_one_part_each() {
        let mut splits = SplitWatermarks::new(Watermarks::Own, None);
        splits.follow(SplitSignal::Among(2));
        assert_eq!(told(splits.said(0, TimeSignal::Watermark(50))), []);
        assert_eq!(splits.wanted(), Some(1));
        assert_eq!(told(splits.said(1, TimeSignal::Watermark(20))), [TimeSignal::Watermark(20)]);
        assert_eq!(told(splits.said(1, TimeSignal::Idle(true))), [TimeSignal::Watermark(50)]);
        assert_eq!(told(splits.said(0, TimeSignal::Idle(true))), [TimeSignal::Idle(true)]);
        let back = [TimeSignal::Idle(false), TimeSignal::Watermark(60)];
        assert_eq!(told(splits.said(1, TimeSignal::Watermark(60))), back);
        assert_eq!(told(splits.said(7, TimeSignal::Watermark(99))), [], "there is no such part");
    }

    #[test]
    fn an_aligned_source_waits_with_its_first_record_until_it_is_told_how_far_it_may_go() {
        let mut splits = SplitWatermarks::new(Watermarks::Bounded { delay_ms: 10 }, Some(200)).aligned();
        assert!(!splits.is_ahead(), "there was no record");
        splits.on_record(100);
        assert!(splits.may_be_ahead(100) && splits.is_ahead());
        assert_eq!(splits.reached_ms(), Some(89), "told or not");
        splits.align(89);
        assert!(!splits.is_ahead() && !splits.may_be_ahead(100) && splits.may_be_ahead(101));
        splits.on_record(101);
        assert!(splits.is_ahead());
        // As long as it waits, its clock stands; later it may fall silent, and nobody waits for it.
        splits.on_period(0, false);
        splits.on_period(200, false);
        assert_eq!(splits.reached_ms(), Some(90));
        splits.align(1000);
        splits.on_period(400, true);
        assert_eq!((splits.reached_ms(), splits.is_ahead()), (None, false));
        splits.align(20);
        assert!(
            splits.on_record(50) && splits.is_ahead(),
            "back, it is where it was: limits may step back, time does not"
        );
    }

    #[test]
    fn a_source_that_is_not_aligned_never_waits() {
        let mut splits = bounded(0, None, 2);
        splits.align(-1000);
        splits.on_record(i64::MAX - 1);
        assert!(!splits.is_aligned() && !splits.is_ahead() && !splits.may_be_ahead(i64::MAX - 1));
    }

    #[test]
    fn of_several_parts_the_one_furthest_behind_says_whether_the_source_waits() {
        let mut splits = SplitWatermarks::new(Watermarks::Bounded { delay_ms: 0 }, None).aligned();
        splits.follow(SplitSignal::Among(2));
        splits.on_record(100);
        splits.align(50);
        assert!(splits.may_be_ahead(100) && !splits.is_ahead(), "nothing is known of the other one");
        splits.go_on_to_end_of_batch();
        assert!(!splits.may_be_ahead(200));
        splits.end_batch();
        splits.follow(SplitSignal::Of(1));
        splits.on_record(52);
        assert!(splits.may_be_ahead(52) && splits.is_ahead());
        splits.follow(SplitSignal::Ended(1));
        assert_eq!(splits.reached_ms(), Some(99));
        splits.follow(SplitSignal::Ended(0));
        assert_eq!((splits.reached_ms(), splits.is_ahead()), (None, false));
    }

    #[test]
    fn of_the_users_own_watermarks_what_was_told_counts() {
        let mut splits = SplitWatermarks::new(Watermarks::Own, None).aligned();
        splits.on_record(100);
        assert!(splits.may_be_ahead(100) && !splits.is_ahead());
        splits.said(0, TimeSignal::Watermark(100));
        assert!(splits.is_ahead());
    }

    proptest! {
        /// Splits of records in any order, read in any order, with bounds of which some are unknown: no record is late.
        #[test]
        fn without_a_promise_no_record_is_late(
            parts in prop::collection::vec((any::<bool>(), prop::collection::vec(0..100_i64, 0..5)), 1..6),
            turns in prop::collection::vec((0..6_usize, any::<bool>()), 0..60),
        ) {
            let mut splits = SplitWatermarks::new(Watermarks::Unordered, None);
            splits.follow(SplitSignal::Among(parts.len() as u32));
            for (split, (_, times)) in (0..).zip(&parts).filter(|(_, (is_known, _))| *is_known) {
                if let Some(time_ms) = times.iter().copied().min() {
                    splits.follow(SplitSignal::NotBefore { split, time_ms });
                }
            }
            let mut left: BTreeMap<u32, Vec<i64>> = (0..).zip(parts).map(|(split, (_, times))| (split, times)).collect();
            // Reads all to the end, whatever the turns say.
            let turns = turns.into_iter().chain((0..200).map(|turn| (turn, turn % 3 == 0)));
            for (at, (turn, is_period)) in turns.enumerate() {
                if is_period {
                    splits.on_period(at as i64 * PERIOD_MS, true);
                }
                let Some(split) = left.keys().nth(turn % left.len().max(1)).copied() else { break };
                splits.follow(SplitSignal::Of(split));
                match left.get_mut(&split).and_then(Vec::pop) {
                    Some(time_ms) => {
                        prop_assert!(time_ms > splits.told_ms(), "{} after {}", time_ms, splits.told_ms());
                        splits.on_record(time_ms);
                    }
                    None => {
                        left.remove(&split);
                        splits.follow(SplitSignal::Ended(split));
                    }
                }
            }
            prop_assert!(left.is_empty());
        }
    }

    /// What the rules say, computed anew each time from all that happened to each part.
    #[derive(Clone, Default)]
    struct Part {
        times: Vec<i64>,
        seen: Option<i64>,
        has_ended: bool,
        has_records: bool,
        is_silent: bool,
        quiet_ms: i64,
        is_idle: bool,
    }

    #[derive(Clone, Debug)]
    enum Step {
        Record(i64),
        Turn(usize),
        Silent(usize),
        End(usize),
        Period(bool),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (-50i64..200).prop_map(Step::Record),
            2 => (0usize..4).prop_map(Step::Turn),
            1 => (0usize..4).prop_map(Step::Silent),
            1 => (0usize..4).prop_map(Step::End),
            4 => any::<bool>().prop_map(Step::Period),
        ];
        proptest::collection::vec(step, 0..120)
    }

    proptest! {
        #[test]
        fn time_is_the_least_of_the_parts_that_are_left_and_not_idle(
            steps in steps(), delay in 0i64..20, idle_periods in proptest::option::of(1i64..4),
        ) {
            let mut splits = bounded(delay as u64, idle_periods.map(|periods| (periods * PERIOD_MS) as u64), 4);
            let (mut parts, mut current, mut now_ms) = (vec![Part::default(); 4], 0, 0);
            let (mut last_ms, mut is_idle, mut has_begun) = (NO_TIMESTAMP, false, false);
            for step in steps {
                let mut signals = Vec::new();
                // A record that brings a part back tells of it; how far time has come is told with the next period.
                let settles = matches!(step, Step::Period(_) | Step::End(_));
                match step {
                    Step::Record(at) if !parts[current].has_ended => {
                        let back = splits.on_record(at);
                        prop_assert_eq!(back, is_idle, "I3");
                        is_idle &= !back;
                        parts[current].times.push(at);
                        (parts[current].has_records, parts[current].is_idle) = (true, false);
                    }
                    Step::Turn(to) if !parts[to].has_ended => {
                        (current, parts[to].is_silent) = (to, false);
                        splits.follow(SplitSignal::Of(to as u32));
                    }
                    Step::Silent(of) if !parts[of].has_ended => {
                        parts[of].is_silent = true;
                        splits.follow(SplitSignal::Silent(of as u32));
                    }
                    Step::End(of) if !parts[of].has_ended => {
                        parts[of].has_ended = true;
                        signals = told(splits.follow(SplitSignal::Ended(of as u32)));
                        if of == current {
                            current = splits.current() as usize;
                        }
                    }
                    Step::Period(is_available) => {
                        signals = told(splits.on_period(now_ms, is_available));
                        for (at, part) in parts.iter_mut().enumerate() {
                            part.seen = part.times.iter().max().map(|latest| latest - delay - 1);
                            if std::mem::take(&mut part.has_records) {
                                part.quiet_ms = 0;
                            } else if is_available && (at == current || part.is_silent) && has_begun {
                                part.quiet_ms += PERIOD_MS;
                            }
                            part.is_idle |= idle_periods.is_some_and(|periods| part.quiet_ms >= periods * PERIOD_MS);
                        }
                        has_begun = true;
                        now_ms += PERIOD_MS;
                    }
                    _ => continue,
                }
                let left: Vec<&Part> = parts.iter().filter(|part| !part.has_ended).collect();
                for signal in signals {
                    match signal {
                        TimeSignal::Watermark(at) => {
                            prop_assert!(at > last_ms && !is_idle, "I1");
                            last_ms = at;
                        }
                        TimeSignal::Idle(idle) => {
                            prop_assert_ne!(idle, is_idle);
                            is_idle = idle;
                        }
                    }
                }
                if left.is_empty() {
                    break;
                }
                let active: Vec<i64> = left.iter().filter(|part| !part.is_idle).map(|part| part.seen.unwrap_or(NO_TIMESTAMP)).collect();
                prop_assert_eq!(is_idle, active.is_empty());
                // A part that came back from being idle may be behind what was told meanwhile.
                if let Some(least) = active.iter().min().filter(|_| settles) {
                    prop_assert!(last_ms >= *least, "told {} of {:?}", last_ms, active);
                }
                prop_assert!(splits.wanted().is_some_and(|wanted| !parts[wanted as usize].has_ended));
            }
        }
    }
}
