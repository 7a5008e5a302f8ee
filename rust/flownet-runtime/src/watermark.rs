//! Generates watermarks from the timestamps of records: a state machine without a clock.
//!
//! # Invariants
//! - I1: watermarks never move back, whatever generates them. None of them is the end of time.
//! - I2: a stream that was reported as idle is reported as active before its next record or watermark.

mod alignment;
mod out_of_order;
mod outliers;
mod record_pace;
pub(crate) mod split_events;
mod splits;
mod waiting_splits;

use serde::{Deserialize, Serialize};

pub use self::alignment::Alignment;
pub(crate) use self::alignment::StepMonitor;
pub use self::out_of_order::{OutOfOrder, OutOfOrderCounts, TimeRange};
pub use self::splits::{RECORDS_PER_WATERMARK, SplitSignal, SplitWatermarks};

use crate::time::{END_OF_TIME_MS, NO_TIMESTAMP, TimeSignal};

/// Interval between watermarks, in milliseconds of the wall clock.
pub const PERIOD_MS: i64 = 200;

/// The way watermarks are generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Watermarks {
    /// The latest timestamp so far, minus the bound on out-of-orderness, minus one.
    Bounded {
        /// The most that a record may be later than the latest one before it.
        delay_ms: u64,
    },
    /// No order is promised. Event time advances to the lower bounds that the source gives for its splits, and past a
    /// split after its end.
    Unordered,
    /// The user's own generator.
    Own,
    /// No watermarks: event time ends with the input, and does not advance before.
    Never,
}

/// Generates the watermarks of one stream of records.
#[derive(Debug)]
pub struct Generator {
    watermarks: Watermarks,
    idle_after_ms: Option<i64>,
    latest_ms: i64,
    /// The source's promise that no later record is before this time; `NO_TIMESTAMP` without one.
    lower_bound_ms: i64,
    told_ms: i64,
    is_idle: bool,
    /// True if records arrived in the current period.
    has_records: bool,
    period_ms: Option<i64>,
    quiet_ms: i64,
}

/// Signals to send, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GeneratedSignals([Option<TimeSignal>; 2]);

impl GeneratedSignals {
    /// The signals, in order.
    pub fn signals(&self) -> impl Iterator<Item = TimeSignal> {
        self.0.into_iter().flatten()
    }

    /// Both, in this order. There are never more signals than a watermark and a change between idle and active.
    fn and(self, later: Self) -> Self {
        let mut signals = self.signals().chain(later.signals());
        Self([signals.next(), signals.next()])
    }
}

impl Generator {
    /// A generator before the first record. Without a record for `idle_after_ms` the stream is idle.
    pub fn new(watermarks: Watermarks, idle_after_ms: Option<u64>) -> Self {
        Self {
            watermarks,
            idle_after_ms: idle_after_ms.map(|after_ms| i64::try_from(after_ms).unwrap_or(i64::MAX)),
            latest_ms: NO_TIMESTAMP,
            lower_bound_ms: NO_TIMESTAMP,
            told_ms: NO_TIMESTAMP,
            is_idle: false,
            has_records: false,
            period_ms: None,
            quiet_ms: 0,
        }
    }

    /// Takes the timestamp of a record that is about to be sent. Returns true if the stream has to be reported as
    /// active before.
    #[inline]
    pub fn on_record(&mut self, timestamp_ms: i64) -> bool {
        self.latest_ms = self.latest_ms.max(timestamp_ms);
        self.has_records = true;
        std::mem::take(&mut self.is_idle)
    }

    /// Records the source's promise that no later record is before this time.
    fn bound_from_below(&mut self, time_ms: i64) {
        self.lower_bound_ms = self.lower_bound_ms.max(time_ms);
    }

    /// The watermark that is due now.
    fn due_ms(&self) -> i64 {
        let from_order_ms = match self.watermarks {
            Watermarks::Bounded { delay_ms } => behind(self.latest_ms, delay_ms),
            Watermarks::Unordered => NO_TIMESTAMP,
            Watermarks::Own | Watermarks::Never => return self.told_ms,
        };
        // A record may have exactly this timestamp, so the watermark stays one millisecond before it.
        self.told_ms.max(from_order_ms).max(behind(self.lower_bound_ms, 0))
    }

    /// The time at which [`on_period`](Self::on_period) is due.
    pub fn next_ms(&self) -> Option<i64> {
        Some(self.period_ms.unwrap_or(i64::MIN))
    }

    /// Returns true if `on_period` is due.
    pub fn is_due(&self, now_ms: i64) -> bool {
        // A wall clock that was set back by much does not stop it.
        self.period_ms.is_none_or(|period_ms| period_ms <= now_ms || period_ms - now_ms > PERIOD_MS)
    }

    /// Ends a period. Time in which records could not be sent does not count towards idleness.
    pub fn on_period(&mut self, now_ms: i64, is_available: bool) -> GeneratedSignals {
        let begun_ms = self.period_ms.map_or(now_ms, |due_ms| due_ms - PERIOD_MS);
        let passed_ms = now_ms.saturating_sub(begun_ms).clamp(0, 2 * PERIOD_MS);
        self.period_ms = Some(now_ms.saturating_add(PERIOD_MS));
        if std::mem::take(&mut self.has_records) {
            self.quiet_ms = 0;
        } else if is_available {
            self.quiet_ms = self.quiet_ms.saturating_add(passed_ms);
        }
        let mut generated = self.said(TimeSignal::Watermark(self.due_ms()));
        if !self.is_idle && self.idle_after_ms.is_some_and(|after_ms| self.quiet_ms >= after_ms) {
            self.is_idle = true;
            generated.0[1] = Some(TimeSignal::Idle(true));
        }
        generated
    }

    /// The last watermark.
    fn told_ms(&self) -> i64 {
        self.told_ms
    }

    fn set_told_ms(&mut self, told_ms: i64) {
        self.told_ms = told_ms;
    }

    /// Returns the signals to send if this signal arrives.
    pub fn said(&mut self, signal: TimeSignal) -> GeneratedSignals {
        match signal {
            TimeSignal::Idle(idle) if idle == self.is_idle => GeneratedSignals::default(),
            TimeSignal::Idle(idle) => {
                self.is_idle = idle;
                GeneratedSignals([Some(signal), None])
            }
            TimeSignal::Watermark(timestamp_ms) => {
                let timestamp_ms = timestamp_ms.min(END_OF_TIME_MS - 1);
                if timestamp_ms <= self.told_ms {
                    return GeneratedSignals::default();
                }
                self.told_ms = timestamp_ms;
                let back = std::mem::take(&mut self.is_idle).then_some(TimeSignal::Idle(false));
                let told = Some(TimeSignal::Watermark(timestamp_ms));
                GeneratedSignals(if back.is_some() { [back, told] } else { [told, None] })
            }
        }
    }
}

/// The event time at which records may still come up to `delay_ms` before the latest one.
fn behind(latest_ms: i64, delay_ms: u64) -> i64 {
    latest_ms.saturating_sub(i64::try_from(delay_ms).unwrap_or(i64::MAX)).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(generated: GeneratedSignals) -> Vec<TimeSignal> {
        generated.signals().collect()
    }

    #[test]
    fn watermarks_stay_behind_the_latest_time_and_never_go_back() {
        let mut generator = Generator::new(Watermarks::Bounded { delay_ms: 10 }, None);
        assert_eq!(told(generator.on_period(0, true)), [], "there was no record");
        generator.on_record(100);
        generator.on_record(50);
        assert!(!generator.is_due(199) && generator.is_due(200));
        assert_eq!(told(generator.on_period(200, true)), [TimeSignal::Watermark(89)]);
        assert_eq!(told(generator.on_period(400, true)), []);
        generator.on_record(60);
        assert_eq!(told(generator.on_period(600, true)), []);
        assert_eq!(told(generator.said(TimeSignal::Watermark(70))), []);
        assert_eq!(told(generator.said(TimeSignal::Watermark(i64::MAX))), [TimeSignal::Watermark(i64::MAX - 1)]);
    }

    #[test]
    fn who_is_quiet_is_idle_and_who_is_held_up_is_not() {
        let mut generator = Generator::new(Watermarks::Bounded { delay_ms: 0 }, Some(400));
        generator.on_record(100);
        assert_eq!(told(generator.on_period(0, true)), [TimeSignal::Watermark(99)]);
        for now_ms in [200, 400, 600, 800] {
            assert_eq!(told(generator.on_period(now_ms, false)), [], "those behind do not take records");
        }
        assert_eq!(told(generator.on_period(1000, true)), []);
        assert_eq!(told(generator.on_period(1200, true)), [TimeSignal::Idle(true)]);
        assert_eq!(told(generator.on_period(1400, true)), []);
        assert!(generator.on_record(101) && !generator.on_record(102));
        assert_eq!(told(generator.on_period(1600, true)), [TimeSignal::Watermark(101)]);
    }

    #[test]
    fn a_stream_that_is_idle_is_back_before_a_watermark_of_its_own() {
        let mut generator = Generator::new(Watermarks::Own, None);
        assert_eq!(told(generator.said(TimeSignal::Idle(true))), [TimeSignal::Idle(true)]);
        let back = [TimeSignal::Idle(false), TimeSignal::Watermark(5)];
        assert_eq!(told(generator.said(TimeSignal::Watermark(5))), back);
    }
}
