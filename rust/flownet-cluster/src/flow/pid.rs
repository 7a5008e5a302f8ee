//! Implements Spark Streaming's `PIDRateEstimator`, step by step.
//!
//! The original is `org.apache.spark.streaming.scheduler.rate.PIDRateEstimator` of Spark 1.5 to 3.5, with the defaults
//! of `spark.streaming.backpressure.pid.*`. In Spark a batch is its own job, which measures how long it took and how
//! long it waited. Here [`meter`](super::meter) derives both.
//!
//! # Invariants
//! - P1: a batch without elements, without processing time, or from the past changes nothing.
//! - P2: no rate is below [`MIN_RATE`].

use std::time::Duration;

/// Estimator of the source rate. Rates are in records per second, for all sources together.
#[derive(Debug)]
pub(super) struct PidEstimator {
    batch_interval: Duration,
    latest: Option<LatestSample>,
}

#[derive(Debug)]
struct LatestSample {
    time: Duration,
    rate: f64,
    error: f64,
}

impl PidEstimator {
    pub(super) fn new(batch_interval: Duration) -> Self {
        Self { batch_interval, latest: None }
    }

    /// Adds a batch that ended at `time`, with its elements, processing delay and scheduling delay. Returns the new
    /// rate, or `None` for the first batch, which only sets the starting point.
    pub(super) fn compute(
        &mut self,
        time: Duration,
        elements: u64,
        processing: Duration,
        scheduling: Duration,
    ) -> Option<f64> {
        let is_late = self.latest.as_ref().is_some_and(|latest| time <= latest.time);
        if is_late || elements == 0 || processing.is_zero() {
            return None;
        }
        let processing_rate = elements as f64 / processing.as_secs_f64();
        let Some(latest) = &mut self.latest else {
            self.latest = Some(LatestSample { time, rate: processing_rate, error: 0.0 });
            return None;
        };
        // Difference between the rate of the sources and the rate at which the batch was processed.
        let error = latest.rate - processing_rate;
        // The accumulated error is visible as waiting batches.
        let historical_error = scheduling.as_secs_f64() * processing_rate / self.batch_interval.as_secs_f64();
        let d_error = (error - latest.error) / (time - latest.time).as_secs_f64();
        let change = PROPORTIONAL * error + INTEGRAL * historical_error + DERIVATIVE * d_error;
        *latest = LatestSample { time, rate: (latest.rate - change).max(MIN_RATE), error };
        Some(latest.rate)
    }
}

/// `spark.streaming.backpressure.pid.proportional`.
const PROPORTIONAL: f64 = 1.0;
/// `spark.streaming.backpressure.pid.integral`.
const INTEGRAL: f64 = 0.2;
/// `spark.streaming.backpressure.pid.derived`.
const DERIVATIVE: f64 = 0.0;
/// `spark.streaming.backpressure.pid.minRate`, in records per second.
const MIN_RATE: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn each_step_is_what_one_computes_by_hand() {
        let mut estimator = PidEstimator::new(SECOND);
        // 5000 in 1.25 s: the first rate is 4000/s.
        assert_eq!(estimator.compute(SECOND, 5000, millis(1250), Duration::ZERO), None);
        // 6000 in 2 s: 3000/s; error 1000. Waited 0.5 s: 1500. 4000 - 1000 - 0.2 * 1500.
        assert_eq!(estimator.compute(SECOND * 2, 6000, millis(2000), millis(500)), Some(2700.0));
        // 2700 in 0.9 s: 3000/s; error -300. Waited 1.5 s: 4500. 2700 + 300 - 0.2 * 4500.
        assert_eq!(estimator.compute(SECOND * 3, 2700, millis(900), millis(1500)), Some(2100.0));
        // 2100 in 0.7 s without waiting: the rate is the processing rate.
        let rate = estimator.compute(SECOND * 4, 2100, millis(700), Duration::ZERO).expect("a rate");
        assert!((rate - 3000.0).abs() < 1e-9, "{rate}");
    }

    #[test]
    fn the_rate_does_not_fall_below_the_least() {
        let mut estimator = PidEstimator::new(SECOND);
        assert_eq!(estimator.compute(SECOND, 10, SECOND, Duration::ZERO), None);
        assert_eq!(estimator.compute(SECOND * 2, 10, SECOND, SECOND * 100), Some(100.0));
    }

    #[test]
    fn a_batch_that_says_nothing_changes_nothing() {
        let mut estimator = PidEstimator::new(SECOND);
        assert_eq!(estimator.compute(SECOND, 1000, SECOND, Duration::ZERO), None);
        assert_eq!(estimator.compute(SECOND * 2, 0, SECOND, SECOND), None);
        assert_eq!(estimator.compute(SECOND * 2, 1000, Duration::ZERO, SECOND), None);
        assert_eq!(estimator.compute(SECOND, 1000, SECOND, SECOND), None, "it ended before the last one");
        assert_eq!(estimator.compute(SECOND * 2, 1000, SECOND, Duration::ZERO), Some(1000.0));
    }
}
