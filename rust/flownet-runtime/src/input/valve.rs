//! Event time of a gate: the minimum over its channels.
//!
//! # Invariants
//! - I1: what goes out never regresses.
//! - I2: a channel counts from the moment its watermark has caught up with what went out; idle and ended channels do
//!   not count.

use std::collections::BTreeSet;

use flownet_core::ChannelIndex;

use crate::time::TimeSignal;

/// Combines the watermarks and idle states of the channels of one gate.
#[derive(Debug)]
pub(crate) struct WatermarkValve {
    channels: Vec<ChannelTime>,
    /// Watermarks of the channels that count, smallest first.
    aligned: BTreeSet<(i64, usize)>,
    active: usize,
    ended: usize,
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
            ended: 0,
            is_idle: false,
            last_ms: i64::MIN,
        }
    }

    /// A watermark arrived. One that does not advance its channel, or comes from an idle one, is passed over.
    pub(crate) fn on_watermark(&mut self, channel: ChannelIndex, timestamp_ms: i64) -> Option<TimeSignal> {
        let index = channel.index();
        let time = &mut self.channels[index];
        if time.state != ChannelState::Active || timestamp_ms <= time.watermark_ms {
            return None;
        }
        self.aligned.remove(&(time.watermark_ms, index));
        time.watermark_ms = timestamp_ms;
        self.align(index);
        self.advance_to_minimum()
    }

    /// A channel went idle or became active again. Up to two signals, in order.
    pub(crate) fn on_idle(&mut self, channel: ChannelIndex, idle: bool) -> [Option<TimeSignal>; 2] {
        let index = channel.index();
        match (self.channels[index].state, idle) {
            (ChannelState::Active, true) => self.leave(index, ChannelState::Idle),
            (ChannelState::Idle, false) => {
                self.channels[index].state = ChannelState::Active;
                self.active += 1;
                self.align(index);
                [std::mem::take(&mut self.is_idle).then_some(TimeSignal::Idle(false)), None]
            }
            _ => [None, None],
        }
    }

    /// A channel ended: it holds nobody back any more.
    pub(crate) fn on_end(&mut self, channel: ChannelIndex) -> [Option<TimeSignal>; 2] {
        let index = channel.index();
        self.ended += 1;
        match self.channels[index].state {
            ChannelState::Active => self.leave(index, ChannelState::Ended),
            ChannelState::Idle | ChannelState::Ended => {
                self.channels[index].state = ChannelState::Ended;
                [None, None]
            }
        }
    }

    fn leave(&mut self, index: usize, state: ChannelState) -> [Option<TimeSignal>; 2] {
        let time = &mut self.channels[index];
        time.state = state;
        let was_minimum = time.watermark_ms == self.last_ms;
        self.aligned.remove(&(time.watermark_ms, index));
        self.active -= 1;
        if self.active > 0 {
            return [self.advance_to_minimum(), None];
        }
        if self.ended == self.channels.len() {
            // The end of input speaks for itself.
            return [None, None];
        }
        self.is_idle = true;
        let flushed = if was_minimum { self.advance_to(self.maximum()) } else { None };
        [flushed, Some(TimeSignal::Idle(true))]
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

    fn maximum(&self) -> i64 {
        self.channels.iter().map(|time| time.watermark_ms).max().unwrap_or(i64::MIN)
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
        assert_eq!(valve.on_idle(B, true), [Some(Watermark(10)), None]);
        assert_eq!(valve.on_watermark(A, 12), Some(Watermark(12)));
        assert_eq!(valve.on_watermark(B, 50), None, "idle channels have no say");
    }

    #[test]
    fn when_all_go_idle_the_latest_time_is_flushed_first() {
        let mut valve = two();
        valve.on_watermark(A, 10);
        valve.on_watermark(B, 5);
        assert_eq!(valve.on_idle(A, true), [None, None]);
        assert_eq!(valve.on_idle(B, true), [Some(Watermark(10)), Some(Idle(true))]);
        assert_eq!(valve.on_idle(A, false), [Some(Idle(false)), None]);
    }

    #[test]
    fn nothing_is_flushed_when_the_last_to_go_idle_was_ahead() {
        let mut valve = two();
        valve.on_watermark(A, 10);
        valve.on_watermark(B, 5);
        assert_eq!(valve.on_idle(B, true), [Some(Watermark(10)), None]);
        valve.on_watermark(A, 20);
        assert_eq!(valve.on_idle(A, true), [None, Some(Idle(true))]);
    }

    #[test]
    fn a_channel_that_comes_back_counts_once_it_has_caught_up() {
        let mut valve = two();
        valve.on_watermark(B, 1);
        valve.on_watermark(A, 10);
        valve.on_idle(B, true);
        assert_eq!(valve.on_idle(B, false), [None, None]);
        assert_eq!(valve.on_watermark(A, 11), Some(Watermark(11)), "a late channel does not hold time back");
        assert_eq!(valve.on_watermark(B, 12), None);
        assert_eq!(valve.on_watermark(A, 15), Some(Watermark(12)), "one that caught up does");
    }

    #[test]
    fn an_ended_channel_holds_nobody_back_and_the_last_end_says_nothing() {
        let mut valve = two();
        valve.on_watermark(A, 10);
        assert_eq!(valve.on_end(B), [Some(Watermark(10)), None]);
        assert_eq!(valve.on_end(A), [None, None]);
    }

    #[test]
    fn idle_channels_remain_idle_when_the_last_active_one_ends() {
        let mut valve = two();
        valve.on_idle(A, true);
        assert_eq!(valve.on_end(B)[1], Some(Idle(true)));
        assert_eq!(valve.on_end(A), [None, None]);
    }

    proptest! {
        #[test]
        fn time_never_regresses_and_never_passes_an_active_channel_that_counts(
            steps in proptest::collection::vec((0usize..3, 0u8..3, 0i64..50), 0..200)
        ) {
            let mut valve = WatermarkValve::new(3);
            let mut last = i64::MIN;
            for (index, step, at) in steps {
                let channel = ChannelIndex::new(index as u32);
                let signals = match step {
                    0 => valve.on_idle(channel, at % 2 == 0),
                    _ => [valve.on_watermark(channel, at), None],
                };
                for signal in signals.into_iter().flatten() {
                    if let Watermark(now) = signal {
                        prop_assert!(now > last);
                        last = now;
                    }
                }
                prop_assert!(valve.aligned.iter().all(|(watermark, _)| *watermark >= valve.last_ms));
                let active = valve.channels.iter().filter(|time| time.state == ChannelState::Active).count();
                prop_assert_eq!(active, valve.active);
                prop_assert_eq!(valve.is_idle, active == 0);
            }
        }
    }
}
