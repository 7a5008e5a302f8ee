//! Event time of a source that reads its input in parts: a generator for each, and the least of their times.
//!
//! A part that has not begun holds time back as much as one that is read: its records may be of any time. So which part is
//! read next matters, and [`SplitWatermarks::wanted`] says: the one that is furthest behind.
//!
//! # Invariants
//! - I1: what is told never goes back, and never passes the time of a part that has not ended and is not idle.
//! - I2: of the parts only the one whose turn it is can fall silent; for all others the idle clock stands.
//! - I3: who was said to be idle is said to be back before its next record or watermark.
//! - I4: a part that has ended has no say; when all have, nothing more is told: the end of the input speaks for itself.

use std::collections::BTreeMap;

use super::{Generated, Generator, Watermarks};
use crate::time::{NO_TIMESTAMP, TimeSignal};

/// What a source says of the parts of its input, among its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitSignal {
    /// It reads so many, numbered from 0; said once, before its first record.
    Among(u32),
    /// The records that follow are of this one.
    Of(u32),
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
    /// All parts have ended.
    is_over: bool,
    /// Whether the source has said that there are parts.
    has_parts: bool,
    /// What was told of all together.
    told: Generator,
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
            is_over: false,
            has_parts: false,
            told: Generator::new(Watermarks::Own, None),
        }
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
        match signal {
            SplitSignal::Among(count) => {
                let fresh = || Generator::new(self.watermarks, self.idle_after_ms);
                self.others = (1..count).map(|split| (split, fresh())).collect();
                self.has_parts = true;
                Generated::default()
            }
            SplitSignal::Of(split) => {
                self.turn_to(split);
                Generated::default()
            }
            SplitSignal::Ended(split) => self.end(split),
        }
    }

    /// A record of this time is about to be sent on; whether it is to be said before that the source is idle no more.
    #[inline]
    pub fn on_record(&mut self, timestamp_ms: i64) -> bool {
        self.generator.on_record(timestamp_ms) && self.told.on_record(timestamp_ms)
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
        self.generator.on_period(now_ms, is_available);
        for generator in self.others.values_mut() {
            generator.on_period(now_ms, false);
        }
        self.combined()
    }

    /// What is to be told where the user's generator of a part says this.
    pub fn said(&mut self, split: u32, signal: TimeSignal) -> Generated {
        if split == self.current {
            self.generator.said(signal);
        } else if let Some(generator) = self.others.get_mut(&split) {
            generator.said(signal);
        }
        self.combined()
    }

    /// The part to read next, so that time is held back least: of those furthest behind the first. None where it makes no
    /// difference.
    pub fn wanted(&self) -> Option<u32> {
        if !self.has_parts || self.is_over || self.watermarks == Watermarks::Never {
            return None;
        }
        let others = self.others.iter().map(|(split, generator)| (generator.reached_ms(), *split));
        others.chain([(self.generator.reached_ms(), self.current)]).min().map(|(_, split)| split)
    }

    fn turn_to(&mut self, split: u32) {
        let Some(next) = self.others.remove(&split) else { return };
        let before = std::mem::replace(&mut self.generator, next);
        self.others.insert(std::mem::replace(&mut self.current, split), before);
    }

    fn end(&mut self, split: u32) -> Generated {
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
            return Generated::default();
        }
        let parts = || self.others.values().chain([&self.generator]);
        let Some(least_ms) = parts().filter(|part| !part.is_idle).map(|part| part.told_ms).min() else {
            // Nobody is held back any more: the latest time that any of them came to counts.
            let latest_ms = parts().map(|part| part.told_ms).max().unwrap_or(NO_TIMESTAMP);
            let flushed = if self.told.is_idle { Generated::default() } else { self.tell(latest_ms) };
            return flushed.and(self.told.said(TimeSignal::Idle(true)));
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
        assert_eq!(told(splits.on_period(1000, true)), [TimeSignal::Watermark(99), TimeSignal::Idle(true)]);
        assert!(splits.on_record(10));
        assert_eq!(told(splits.on_period(1200, true)), [], "time does not go back");
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

    /// What the rules say, computed anew each time from all that happened to each part.
    #[derive(Clone, Default)]
    struct Part {
        times: Vec<i64>,
        seen: Option<i64>,
        has_ended: bool,
        has_records: bool,
        quiet_ms: i64,
        is_idle: bool,
    }

    #[derive(Clone, Debug)]
    enum Step {
        Record(i64),
        Turn(usize),
        End(usize),
        Period(bool),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (-50i64..200).prop_map(Step::Record),
            2 => (0usize..4).prop_map(Step::Turn),
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
                match step {
                    Step::Record(at) if !parts[current].has_ended => {
                        let back = splits.on_record(at);
                        prop_assert_eq!(back, is_idle, "I3");
                        is_idle &= !back;
                        parts[current].times.push(at);
                        (parts[current].has_records, parts[current].is_idle) = (true, false);
                    }
                    Step::Turn(to) if !parts[to].has_ended => {
                        current = to;
                        splits.follow(SplitSignal::Of(to as u32));
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
                            } else if is_available && at == current && has_begun {
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
                if let Some(least) = active.iter().min() {
                    prop_assert!(last_ms >= *least, "told {} of {:?}", last_ms, active);
                }
                prop_assert!(splits.wanted().is_some_and(|wanted| !parts[wanted as usize].has_ended));
            }
        }
    }
}
