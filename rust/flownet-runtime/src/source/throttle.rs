//! Limits the rate of records with a token bucket, whose caller reads the clock.

use std::time::Duration;

use crate::error::TaskError;

/// Lets records pass at a rate.
///
/// ```
/// # use std::time::Duration;
/// # use flownet_runtime::source::Throttle;
/// let mut throttle = Throttle::new(10.0, 1.0)?;
/// assert_eq!(throttle.take(1, Duration::ZERO), Duration::ZERO);
/// assert_eq!(throttle.take(1, Duration::ZERO), Duration::from_millis(100), "wait that long before going on");
/// # Ok::<(), flownet_runtime::TaskError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Throttle {
    rate: f64,
    burst: f64,
    tokens: f64,
    last: Duration,
}

impl Throttle {
    /// Lets `rate` records pass a second, and up to `burst` at once after a pause (at least one).
    pub fn new(rate: f64, burst: f64) -> Result<Self, TaskError> {
        if !(rate.is_finite() && rate > 0.0) {
            return Err(TaskError::Config(format!("a rate is a number of records a second above 0, not {rate}")));
        }
        let burst = burst.max(1.0);
        Ok(Self { rate, burst, tokens: burst, last: Duration::ZERO })
    }

    /// Sets the number of tokens in the bucket.
    #[must_use]
    pub fn with_tokens(self, tokens: f64) -> Self {
        Self { tokens: tokens.min(self.burst), ..self }
    }

    /// Changes rate and burst. An invalid rate changes nothing.
    pub fn set_rate(&mut self, rate: f64, burst: f64, now: Duration) {
        if rate.is_finite() && rate > 0.0 {
            self.available(now);
            (self.rate, self.burst) = (rate, burst.max(1.0));
            self.tokens = self.tokens.min(self.burst);
        }
    }

    /// Number of records that may pass at `now`; a debt if below 0.
    pub fn available(&mut self, now: Duration) -> f64 {
        let since = now.saturating_sub(self.last);
        self.last = self.last.max(now);
        self.tokens = (self.tokens + since.as_secs_f64() * self.rate).min(self.burst);
        self.tokens
    }

    /// Takes tokens at `now`, which may result in a debt.
    pub fn spend(&mut self, tokens: f64, now: Duration) {
        self.available(now);
        self.tokens -= tokens;
    }

    /// Time until there are this many tokens.
    pub fn wait_for(&self, tokens: f64) -> Duration {
        // Even a debt of hundreds of years is a valid duration.
        Duration::try_from_secs_f64((tokens - self.tokens).max(0.0) / self.rate).unwrap_or(Duration::MAX)
    }

    /// Lets `records` pass at `now` (since any fixed moment). Returns the time to wait before continuing.
    pub fn take(&mut self, records: u32, now: Duration) -> Duration {
        self.spend(f64::from(records), now);
        self.wait_for(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_that_waits_as_told_keeps_the_rate() {
        let mut throttle = Throttle::new(1000.0, 1.0).unwrap();
        let mut now = Duration::ZERO;
        for _ in 0..=5000 {
            now += throttle.take(1, now);
        }
        assert!((now.as_secs_f64() - 5.0).abs() < 1e-6, "{now:?}");
    }

    #[test]
    fn a_batch_costs_what_its_records_cost() {
        let mut throttle = Throttle::new(100.0, 1.0).unwrap();
        assert_eq!(throttle.take(51, Duration::ZERO), Duration::from_millis(500));
        assert_eq!(throttle.take(0, Duration::from_millis(500)), Duration::ZERO);
    }

    #[test]
    fn a_pause_saves_up_no_more_than_the_burst() {
        let mut throttle = Throttle::new(10.0, 3.0).unwrap();
        throttle.take(3, Duration::ZERO);
        let now = Duration::from_secs(1000);
        assert_eq!(throttle.take(3, now), Duration::ZERO);
        assert_eq!(throttle.take(1, now), Duration::from_millis(100));
    }

    #[test]
    fn a_clock_that_steps_back_gives_no_tokens() {
        let mut throttle = Throttle::new(10.0, 1.0).unwrap();
        throttle.take(1, Duration::from_secs(10));
        assert_eq!(throttle.take(1, Duration::from_secs(5)), Duration::from_millis(100));
    }

    #[test]
    fn a_rate_that_is_no_rate_is_refused() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Throttle::new(rate, 1.0).is_err(), "{rate}");
        }
    }
}
