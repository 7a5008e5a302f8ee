//! Paces a source: by its own limit, and by orders of the coordinator.
//!
//! A state machine whose caller reads the clock. The task calls [`Pace::begin`] before it polls its source,
//! and [`Pace::end`] with the result, so the clock is read once a poll. In between, the source asks after
//! each record whether to end the poll.
//!
//! # Invariants
//! - P1: up to any moment the output is at most the rate times the time, plus one burst, plus the excess of
//!   one record.
//! - P2: a source that waited too long catches up within the burst. So its actual rate is the configured
//!   rate.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Throttle;
use crate::error::TaskError;

/// Unit that a [`RateLimit`] counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateUnit {
    /// Records.
    Records,
    /// Bytes of records, as the chain measures them.
    Bytes,
}

/// Highest rate of a source, or of one subtask of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    /// Units per second, above 0.
    pub per_second: f64,
    /// Unit of the rate.
    pub unit: RateUnit,
}

/// Order of the coordinator to a subtask of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceOrder {
    /// If true, emits nothing until the next order.
    pub is_stopped: bool,
    /// Most records per second.
    pub records_per_second: Option<f64>,
}

/// The pace of a source: the strictest of its own limit and the coordinator's orders. The caller reads the
/// clock.
#[derive(Debug, Default)]
pub struct Pace {
    limit: Option<(RateUnit, Throttle)>,
    is_stopped: bool,
    ordered: Option<Throttle>,
    /// Records that may still be emitted in this poll.
    records: f64,
    bytes: f64,
    spent_bytes: f64,
}

/// Permission of a source for the next poll.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Turn {
    /// Emit some records.
    Go,
    /// Wait for its own limit.
    Wait(Duration),
    /// Wait for the coordinator, at most for this time.
    Held(Option<Duration>),
}

impl Pace {
    /// Sets or removes the source's own limit.
    pub fn set_limit(&mut self, limit: Option<RateLimit>) -> Result<(), TaskError> {
        self.limit = limit.map(|limit| Ok::<_, TaskError>((limit.unit, throttle(limit.per_second)?))).transpose()?;
        Ok(())
    }

    /// Returns true if no limit applies, so that the clock need not be read.
    #[inline]
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.limit.is_none() && self.ordered.is_none()
    }

    /// Returns true if the coordinator has stopped the source.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.is_stopped
    }

    /// Applies an order. An invalid rate is ignored.
    pub fn follow(&mut self, order: SourceOrder, now: Duration) {
        self.is_stopped = order.is_stopped;
        self.ordered = match (self.ordered.take(), order.records_per_second) {
            (_, None) => None,
            (Some(mut throttle), Some(rate)) => {
                throttle.set_rate(rate, burst_of(rate), now);
                Some(throttle)
            }
            (None, Some(rate)) => throttle(rate).ok(),
        };
    }

    /// Begins a poll at `now`, if the limits allow one.
    pub fn begin(&mut self, now: Duration) -> Turn {
        (self.records, self.bytes, self.spent_bytes) = (f64::INFINITY, f64::INFINITY, 0.0);
        if self.is_stopped {
            return Turn::Held(None);
        }
        if let Some(throttle) = &mut self.ordered {
            self.records = throttle.available(now);
            if self.records < 1.0 {
                return Turn::Held(Some(throttle.wait_for(1.0).max(SHORTEST_WAIT)));
            }
        }
        if let Some((unit, throttle)) = &mut self.limit {
            let available = throttle.available(now);
            if available < 1.0 {
                return Turn::Wait(throttle.wait_for(1.0).max(SHORTEST_WAIT));
            }
            match unit {
                RateUnit::Records => self.records = self.records.min(available),
                RateUnit::Bytes => self.bytes = available,
            }
        }
        Turn::Go
    }

    /// Counts a record of `bytes` bytes. Returns false if it was the last one for this poll.
    #[inline]
    pub fn spend(&mut self, bytes: usize) -> bool {
        self.records -= 1.0;
        self.bytes -= bytes as f64;
        self.spent_bytes += bytes as f64;
        self.records >= 1.0 && self.bytes > 0.0
    }

    /// Makes the current record the last one for this poll.
    pub fn end_poll(&mut self) {
        self.records = 0.0;
    }

    /// Returns true if [`Self::spend`] needs the length of records.
    #[inline]
    pub fn counts_bytes(&self) -> bool {
        matches!(self.limit, Some((RateUnit::Bytes, _)))
    }

    /// Ends a poll that began at `now`. It emitted `records`, even if the source did not ask.
    pub fn end(&mut self, records: u64, now: Duration) {
        if let Some(throttle) = &mut self.ordered {
            throttle.spend(records as f64, now);
        }
        if let Some((unit, throttle)) = &mut self.limit {
            throttle.spend(if *unit == RateUnit::Records { records as f64 } else { self.spent_bytes }, now);
        }
    }
}

fn throttle(rate: f64) -> Result<Throttle, TaskError> {
    // Holds one token only: a source begins at its rate, not with a burst.
    Ok(Throttle::new(rate, burst_of(rate))?.with_tokens(1.0))
}

fn burst_of(rate: f64) -> f64 {
    rate * BURST.as_secs_f64()
}

/// Time at its rate that a source may catch up on at once after a pause. Sleeps overshoot by less than this.
pub const BURST: Duration = Duration::from_millis(100);

/// Shorter waits are accumulated: a sleep costs tens of microseconds.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls for `seconds` of virtual time. Every wait takes `overshoot` longer than requested. Returns the
    /// output.
    fn run(pace: &mut Pace, from: Duration, seconds: u64, record_bytes: usize, overshoot: Duration) -> (u64, Duration) {
        let (mut now, mut sent) = (from, 0);
        let end = from + Duration::from_secs(seconds);
        while now < end {
            match pace.begin(now) {
                Turn::Go => {
                    let mut records = 1;
                    while pace.spend(record_bytes) {
                        records += 1;
                    }
                    pace.end(records, now);
                    sent += records;
                }
                Turn::Wait(wait) | Turn::Held(Some(wait)) => now += wait + overshoot,
                Turn::Held(None) => return (sent, now),
            }
        }
        (sent, now)
    }

    fn limited(per_second: f64, unit: RateUnit) -> Pace {
        let mut pace = Pace::default();
        pace.set_limit(Some(RateLimit { per_second, unit })).unwrap();
        pace
    }

    #[test]
    fn records_keep_their_rate_though_every_sleep_overshoots() {
        for rate in [3.0, 100.0, 12_345.0, 5_000_000.0] {
            let (sent, _) = run(&mut limited(rate, RateUnit::Records), Duration::ZERO, 10, 8, Duration::from_millis(4));
            let expected = 10.0 * rate;
            assert!((sent as f64 - expected).abs() <= 1.0 + 0.11 * rate, "{sent} of {expected}");
        }
    }

    #[test]
    fn bytes_keep_their_rate_whatever_a_record_takes() {
        for record_bytes in [1, 1000, 3_000_000] {
            let mut pace = limited(2e6, RateUnit::Bytes);
            let (sent, _) = run(&mut pace, Duration::ZERO, 10, record_bytes, Duration::from_millis(1));
            let bytes = sent as f64 * record_bytes as f64;
            assert!((bytes - 2e7).abs() <= 0.2e6 + record_bytes as f64, "{bytes}");
        }
    }

    #[test]
    fn a_pause_saves_up_no_more_than_the_burst() {
        let mut pace = limited(1000.0, RateUnit::Records);
        run(&mut pace, Duration::ZERO, 1, 1, Duration::ZERO);
        assert_eq!(pace.begin(Duration::from_secs(100)), Turn::Go);
        let mut records = 1;
        while pace.spend(1) {
            records += 1;
        }
        assert_eq!(records, 100);
    }

    #[test]
    fn an_order_holds_the_source_and_the_next_one_lets_it_go() {
        let mut pace = Pace::default();
        pace.follow(SourceOrder { is_stopped: true, ..SourceOrder::default() }, Duration::ZERO);
        assert!(pace.is_held());
        assert_eq!(pace.begin(Duration::from_secs(9)), Turn::Held(None));
        pace.follow(SourceOrder { is_stopped: false, records_per_second: Some(100.0) }, Duration::from_secs(9));
        let (sent, now) = run(&mut pace, Duration::from_secs(9), 10, 1, Duration::from_millis(2));
        assert!((990..=1010).contains(&sent), "{sent}");
        pace.follow(SourceOrder { is_stopped: false, records_per_second: Some(1000.0) }, now);
        let (sent, now) = run(&mut pace, now, 10, 1, Duration::from_millis(2));
        assert!((9_890..=10_110).contains(&sent), "{sent}");
        pace.follow(SourceOrder::default(), now);
        assert_eq!(pace.begin(now), Turn::Go);
        assert!((0..1_000_000).all(|_| pace.spend(1000)), "nothing limits it any more");
    }

    #[test]
    fn a_source_that_does_not_ask_pays_afterwards() {
        let mut pace = limited(100.0, RateUnit::Records);
        assert_eq!(pace.begin(Duration::ZERO), Turn::Go);
        pace.end(51, Duration::ZERO);
        assert_eq!(pace.begin(Duration::ZERO), Turn::Wait(Duration::from_millis(510)));
    }
}
