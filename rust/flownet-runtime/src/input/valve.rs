//! Event time of a gate: the minimum over its channels.
//!
//! # Invariants
//! - I1: emitted event time never regresses.
//! - I2: a channel counts from the moment at which its watermark has caught up with the emitted one. Idle and ended
//!   channels do not count.
//! - I3: the end of time is emitted once all channels have reported it. The end of one channel is no watermark: it
//!   never moves the event time of the others.
//! - I4: if all channels that have not ended are idle, event time does not move. With a jump to the greatest watermark,
//!   the wall clock would decide which channel's next record is late.

use std::collections::BTreeSet;

use flownet_core::ChannelIndex;

use crate::time::{END_OF_TIME_MS, TimeSignal};

/// Combines the watermarks and idle states of the channels of one gate.
#[derive(Debug)]
pub(crate) struct WatermarkValve {
    channels: Vec<ChannelTime>,
    /// Watermarks of the channels that count, smallest first.
    aligned: BTreeSet<(i64, usize)>,
    active: usize,
    /// Channels that have reported the end of time, or have ended.
    at_end: usize,
    /// True if one of them has reported it.
    has_end: bool,
    is_idle: bool,
    last_ms: i64,
}

#[derive(Clone, Copy, Debug)]
struct ChannelTime {
    watermark_ms: i64,
    state: ChannelState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChannelState {
    Active,
    Idle,
    Ended,
}

impl WatermarkValve {
    pub(crate) fn new(channels: usize) -> Self {
        let fresh = ChannelTime { watermark_ms: i64::MIN, state: ChannelState::Active };
        Self {
            channels: vec![fresh; channels],
            aligned: (0..channels).map(|channel| (i64::MIN, channel)).collect(),
            active: channels,
            at_end: 0,
            has_end: false,
            is_idle: false,
            last_ms: i64::MIN,
        }
    }

    /// Handles a watermark. Ignores one that does not advance its channel, or comes from an idle one.
    pub(crate) fn on_watermark(&mut self, channel: ChannelIndex, timestamp_ms: i64) -> Option<TimeSignal> {
        let index = channel.index();
        let time = &mut self.channels[index];
        if time.state != ChannelState::Active || timestamp_ms <= time.watermark_ms {
            return None;
        }
        if timestamp_ms == END_OF_TIME_MS {
            self.has_end = true;
            return self.leave(index, ChannelState::Ended);
        }
        self.aligned.remove(&(time.watermark_ms, index));
        time.watermark_ms = timestamp_ms;
        self.align(index);
        self.advance_to_minimum()
    }

    /// A channel went idle or became active again.
    pub(crate) fn on_idle(&mut self, channel: ChannelIndex, idle: bool) -> Option<TimeSignal> {
        let index = channel.index();
        match (self.channels[index].state, idle) {
            (ChannelState::Active, true) => self.leave(index, ChannelState::Idle),
            (ChannelState::Idle, false) => {
                self.channels[index].state = ChannelState::Active;
                self.active += 1;
                self.align(index);
                std::mem::take(&mut self.is_idle).then_some(TimeSignal::Idle(false))
            }
            _ => None,
        }
    }

    /// A channel ended: it no longer delays the others.
    pub(crate) fn on_end(&mut self, channel: ChannelIndex) -> Option<TimeSignal> {
        let index = channel.index();
        match self.channels[index].state {
            ChannelState::Active => self.leave(index, ChannelState::Ended),
            ChannelState::Idle => {
                self.channels[index].state = ChannelState::Ended;
                self.at_end += 1;
                self.end_of_time()
            }
            ChannelState::Ended => None,
        }
    }

    fn leave(&mut self, index: usize, state: ChannelState) -> Option<TimeSignal> {
        let time = &mut self.channels[index];
        time.state = state;
        self.aligned.remove(&(time.watermark_ms, index));
        self.active -= 1;
        self.at_end += usize::from(state == ChannelState::Ended);
        if self.active > 0 {
            return self.advance_to_minimum();
        }
        if self.at_end == self.channels.len() {
            return self.end_of_time();
        }
        // All channels that have not ended are idle, so event time stays where it is (I4).
        self.is_idle = true;
        Some(TimeSignal::Idle(true))
    }

    /// Emits the end of time if all channels are at their end. If none has reported it, the end of the input follows by
    /// itself.
    fn end_of_time(&mut self) -> Option<TimeSignal> {
        if self.at_end < self.channels.len() {
            return None;
        }
        self.is_idle = false;
        if self.has_end { self.advance_to(END_OF_TIME_MS) } else { None }
    }

    /// Counts an active channel, if it has caught up.
    fn align(&mut self, index: usize) {
        let watermark_ms = self.channels[index].watermark_ms;
        if watermark_ms >= self.last_ms {
            self.aligned.insert((watermark_ms, index));
        }
    }

    fn advance_to_minimum(&mut self) -> Option<TimeSignal> {
        let (minimum_ms, _) = *self.aligned.first()?;
        self.advance_to(minimum_ms)
    }

    fn advance_to(&mut self, timestamp_ms: i64) -> Option<TimeSignal> {
        if timestamp_ms <= self.last_ms {
            return None;
        }
        self.last_ms = timestamp_ms;
        Some(TimeSignal::Watermark(timestamp_ms))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::TimeSignal::{Idle, Watermark};
    use super::*;

    const A: ChannelIndex = ChannelIndex::new(0);
    const B: ChannelIndex = ChannelIndex::new(1);

    fn two() -> WatermarkValve {
        WatermarkValve::new(2)
    }

    #[test]
    fn time_is_the_minimum_over_channels() {
        let mut valve = two();
        assert_eq!(valve.on_watermark(A, 10), None);
        assert_eq!(valve.on_watermark(B, 5), Some(Watermark(5)));
        assert_eq!(valve.on_watermark(B, 20), Some(Watermark(10)));
        assert_eq!(valve.on_watermark(B, 20), None);
    }

    #[test]
    fn a_watermark_that_regresses_is_passed_over() {
        let mut valve = WatermarkValve::new(1);
        assert_eq!(valve.on_watermark(A, 10), Some(Watermark(10)));
        assert_eq!(valve.on_watermark(A, 9), None);
        assert_eq!(valve.on_watermark(A, 11), Some(Watermark(11)));
    }

    #[test]
    fn an_idle_channel_holds_nobody_back() {
        let mut valve = two();
        valve.on_watermark(A, 10);
        assert_eq!(valve.on_idle(B, true), Some(Watermark(10)));
        assert_eq!(valve.on_watermark(A, 12), Some(Watermark(12)));
        assert_eq!(valve.on_watermark(B, 50), None, "idle channels have no say");
    }

    #[test]
    fn when_all_go_idle_time_stays_where_it_is() {
        let mut valve = two();
        valve.on_watermark(A, 10);
        valve.on_watermark(B, 5);
        assert_eq!(valve.on_idle(A, true), None);
        assert_eq!(valve.on_idle(B, true), Some(Idle(true)), "and not where A was");
        assert_eq!(valve.on_idle(A, false), Some(Idle(false)));
        assert_eq!(valve.on_watermark(A, 11), Some(Watermark(11)));
    }

    #[test]
    fn a_channel_that_comes_back_counts_once_it_has_caught_up() {
        let mut valve = two();
        valve.on_watermark(B, 1);
        valve.on_watermark(A, 10);
        valve.on_idle(B, true);
        assert_eq!(valve.on_idle(B, false), None);
        assert_eq!(valve.on_watermark(A, 11), Some(Watermark(11)), "a late channel does not hold time back");
        assert_eq!(valve.on_watermark(B, 12), None);
        assert_eq!(valve.on_watermark(A, 15), Some(Watermark(12)), "one that caught up does");
    }

    #[test]
    fn an_ended_channel_holds_nobody_back_and_ends_that_say_no_end_of_time_say_nothing() {
        let mut valve = two();
        valve.on_watermark(A, 10);
        assert_eq!(valve.on_end(B), Some(Watermark(10)));
        assert_eq!(valve.on_end(A), None);
    }

    #[test]
    fn idle_channels_remain_idle_when_the_last_active_one_ends() {
        let mut valve = two();
        valve.on_idle(A, true);
        assert_eq!(valve.on_end(B), Some(Idle(true)));
        assert_eq!(valve.on_end(A), None);
    }

    #[test]
    fn the_end_of_one_channel_does_not_end_time_while_the_others_are_idle() {
        let mut valve = two();
        valve.on_watermark(A, 10);
        valve.on_watermark(B, 5);
        assert_eq!(valve.on_watermark(A, END_OF_TIME_MS), None, "it has left the minimum");
        assert_eq!(valve.on_idle(B, true), Some(Idle(true)), "and not the end of time");
        assert_eq!(valve.on_end(A), None);
        assert_eq!(valve.on_idle(B, false), Some(Idle(false)));
        assert_eq!(valve.on_watermark(B, 7), Some(Watermark(7)));
        assert_eq!(valve.on_watermark(B, END_OF_TIME_MS), Some(Watermark(END_OF_TIME_MS)));
    }

    #[test]
    fn time_ends_if_the_last_channel_ends_while_it_is_idle() {
        let mut valve = two();
        valve.on_idle(B, true);
        assert_eq!(valve.on_watermark(A, END_OF_TIME_MS), Some(Idle(true)));
        assert_eq!(valve.on_end(B), Some(Watermark(END_OF_TIME_MS)));
    }

    proptest! {
        #[test]
        fn time_never_regresses_and_ends_only_behind_all_channels(
            steps in proptest::collection::vec((0usize..3, 0u8..5, 0i64..50), 0..200)
        ) {
            let mut valve = WatermarkValve::new(3);
            let (mut last, mut at_end) = (i64::MIN, [false; 3]);
            for (index, step, at) in steps {
                let channel = ChannelIndex::new(index as u32);
                let is_idle = valve.channels[index].state == ChannelState::Idle;
                let signal = match step {
                    0 if !at_end[index] => valve.on_idle(channel, at % 2 == 0),
                    1 if at == 0 => {
                        at_end[index] = true;
                        valve.on_end(channel)
                    }
                    2 if at == 0 && !is_idle => {
                        at_end[index] = true;
                        valve.on_watermark(channel, END_OF_TIME_MS)
                    }
                    3.. if !at_end[index] => valve.on_watermark(channel, at),
                    _ => None,
                };
                if let Some(Watermark(now)) = signal {
                    prop_assert!(now > last);
                    prop_assert!(now < END_OF_TIME_MS || at_end == [true; 3]);
                    last = now;
                }
                prop_assert!(valve.aligned.iter().all(|(watermark, _)| *watermark >= valve.last_ms));
                let active = valve.channels.iter().filter(|time| time.state == ChannelState::Active).count();
                prop_assert_eq!(active, valve.active);
                prop_assert_eq!(valve.is_idle, active == 0 && valve.at_end < 3);
            }
        }
    }
}
