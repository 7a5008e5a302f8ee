//! Metrics of users' functions, by operator and name.
//!
//! A function requests a metric once and stores it. After that only atomics are used: a record costs no lock and no
//! look-up, and readers never wait. The lock here serves requests for metrics and reads of all of them.
//!
//! # Invariants
//! - U1: an operator has one metric per name, of one kind. Another request returns the same one.
//! - U2: a subtask has no more than [`MOST_METRICS`], with names that Prometheus accepts, and a histogram no more than
//!   [`MOST_BUCKETS`] bounds. So the data to send and scrape is bounded, whatever the records are.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

/// The metrics of one subtask.
#[derive(Debug, Default)]
pub struct UserMetrics(Mutex<Vec<UserMetric>>);

/// One live metric. Clones share it.
#[derive(Clone, Debug)]
pub struct UserMetric {
    operator: Arc<str>,
    name: Arc<str>,
    value: LiveValue,
}

#[derive(Clone, Debug)]
enum LiveValue {
    Counter(Arc<Count>),
    Meter(Arc<Count>),
    Gauge(Arc<Level>),
    Histogram(Arc<Distribution>),
}

/// The kind of a metric in a request.
#[derive(Clone, Debug, PartialEq)]
pub enum UserKind {
    /// A number that only grows.
    Counter,
    /// A counter that is shown with its rate.
    Meter,
    /// A current value.
    Gauge,
    /// The distribution of numbers over buckets with these upper bounds, and one above them all.
    Histogram(Vec<f64>),
}

/// The reason why a metric was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum UserMetricError {
    /// An invalid name, see U2.
    #[error(
        "{0:?} is no name for a metric: it takes 1 to {MOST_NAME} letters of a to z and A to Z, digits and \"_\", and no digit \
         first"
    )]
    Name(String),
    /// A name that is used with another kind, see U1.
    #[error(
        "the metric {name:?} of this operator is {before} and cannot be {wanted}, too: give one of them another name"
    )]
    Kind {
        /// Name of the metric.
        name: String,
        /// Its kind.
        before: &'static str,
        /// The requested kind.
        wanted: &'static str,
    },
    /// Too many metrics, see U2.
    #[error(
        "{0:?} would be one metric more than the {MOST_METRICS} that a subtask may have: what varies with the records, such \
         as keys, belongs into a stream and not into names"
    )]
    TooMany(String),
    /// Invalid bounds of a histogram.
    #[error("the buckets of {0:?} must be 1 to {MOST_BUCKETS} finite numbers, each above the one before")]
    Buckets(String),
}

impl UserMetrics {
    /// Returns the metric of an operator by name. Creates it if it does not exist.
    pub fn get(&self, operator: &str, name: &str, kind: UserKind) -> Result<UserMetric, UserMetricError> {
        let mut all = self.lock();
        if let Some(found) = all.iter().find(|metric| &*metric.name == name && &*metric.operator == operator) {
            return if found.is(&kind) { Ok(found.clone()) } else { Err(found.not(&kind)) };
        }
        check(name, &kind)?;
        if all.len() == MOST_METRICS {
            return Err(UserMetricError::TooMany(name.to_owned()));
        }
        let metric = UserMetric { operator: operator.into(), name: name.into(), value: LiveValue::of(kind) };
        all.push(metric.clone());
        Ok(metric)
    }

    /// Returns all metrics as they are now, in the order in which they were requested.
    pub fn snapshot(&self) -> Vec<UserMetricSnapshot> {
        self.lock().iter().map(UserMetric::snapshot).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<UserMetric>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UserMetric {
    /// The counter of a counter or meter.
    pub fn as_count(&self) -> Option<&Count> {
        match &self.value {
            LiveValue::Counter(count) | LiveValue::Meter(count) => Some(count),
            LiveValue::Gauge(_) | LiveValue::Histogram(_) => None,
        }
    }

    /// The level of a gauge.
    pub fn as_level(&self) -> Option<&Level> {
        if let LiveValue::Gauge(level) = &self.value { Some(level) } else { None }
    }

    /// The distribution of a histogram.
    pub fn as_distribution(&self) -> Option<&Distribution> {
        if let LiveValue::Histogram(distribution) = &self.value { Some(distribution) } else { None }
    }

    /// The name of the metric.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its current value.
    pub fn snapshot(&self) -> UserMetricSnapshot {
        let value = match &self.value {
            LiveValue::Counter(count) => UserValue::Counter(count.get()),
            LiveValue::Meter(count) => UserValue::Meter(count.get()),
            LiveValue::Gauge(level) => UserValue::Gauge(level.get()),
            LiveValue::Histogram(distribution) => UserValue::Histogram(distribution.snapshot()),
        };
        UserMetricSnapshot { operator: Arc::clone(&self.operator), name: Arc::clone(&self.name), value }
    }

    fn is(&self, kind: &UserKind) -> bool {
        match (&self.value, kind) {
            (LiveValue::Counter(_), UserKind::Counter)
            | (LiveValue::Meter(_), UserKind::Meter)
            | (LiveValue::Gauge(_), UserKind::Gauge) => true,
            (LiveValue::Histogram(one), UserKind::Histogram(bounds)) => *one.bounds == **bounds,
            _ => false,
        }
    }

    fn not(&self, kind: &UserKind) -> UserMetricError {
        let before = match &self.value {
            LiveValue::Counter(_) => "a counter",
            LiveValue::Meter(_) => "a meter",
            LiveValue::Gauge(_) => "a gauge",
            LiveValue::Histogram(_) => "a histogram",
        };
        let wanted = match kind {
            UserKind::Counter => "a counter",
            UserKind::Meter => "a meter",
            UserKind::Gauge => "a gauge",
            UserKind::Histogram(_) if before == "a histogram" => "one with other buckets",
            UserKind::Histogram(_) => "a histogram",
        };
        UserMetricError::Kind { name: self.name.to_string(), before, wanted }
    }
}

impl LiveValue {
    fn of(kind: UserKind) -> Self {
        match kind {
            UserKind::Counter => Self::Counter(Arc::default()),
            UserKind::Meter => Self::Meter(Arc::default()),
            UserKind::Gauge => Self::Gauge(Arc::default()),
            UserKind::Histogram(bounds) => Self::Histogram(Arc::new(Distribution::over(bounds))),
        }
    }
}

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds to it. Functions may do so on several threads, so this is an atomic add.
    pub fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    /// Returns its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number with the value that it was last set to. NaN before.
#[derive(Debug)]
pub struct Level(AtomicU64);

impl Level {
    /// Sets the value.
    pub fn set(&self, to: f64) {
        self.0.store(to.to_bits(), Ordering::Relaxed);
    }

    /// Adds to the value; to zero, if it was not set.
    pub fn add(&self, by: f64) {
        update(&self.0, |level| if level.is_nan() { by } else { level + by });
    }

    /// Returns the value.
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

impl Default for Level {
    fn default() -> Self {
        Self(AtomicU64::new(f64::NAN.to_bits()))
    }
}

/// Counts numbers by size.
#[derive(Debug)]
pub struct Distribution {
    bounds: Arc<[f64]>,
    /// One per bound, and one above them all.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
    max: AtomicU64,
}

impl Distribution {
    fn over(bounds: Vec<f64>) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        let most = AtomicU64::new(f64::NEG_INFINITY.to_bits());
        Self { bounds: bounds.into(), buckets, sum: AtomicU64::new(0_f64.to_bits()), max: most }
    }

    /// Counts a number. Ignores NaN.
    pub fn observe(&self, number: f64) {
        if number.is_nan() {
            return;
        }
        let bucket = self.bounds.partition_point(|bound| *bound < number);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        update(&self.sum, |sum| sum + number);
        update(&self.max, |max| max.max(number));
    }

    /// Returns a copy. A number that is being counted may be in one part and not yet in another.
    pub fn snapshot(&self) -> DistributionSnapshot {
        let buckets: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        let number = |of: &AtomicU64| f64::from_bits(of.load(Ordering::Relaxed));
        DistributionSnapshot {
            count: buckets.iter().sum(),
            sum: number(&self.sum),
            max: Some(number(&self.max)).filter(|max| *max != f64::NEG_INFINITY),
            bounds: Arc::clone(&self.bounds),
            buckets,
        }
    }
}

fn update(number: &AtomicU64, change: impl Fn(f64) -> f64) {
    let changed = |bits| Some(change(f64::from_bits(bits)).to_bits());
    // The closure always returns `Some`, so this never fails.
    let _ = number.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
}

/// One metric at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserMetricSnapshot {
    /// Name of the operator whose function updates it.
    pub operator: Arc<str>,
    /// Name of the metric.
    pub name: Arc<str>,
    /// Its value.
    pub value: UserValue,
}

/// The value of a metric at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum UserValue {
    /// A counter.
    Counter(u64),
    /// A meter.
    Meter(u64),
    /// A gauge; NaN before it was set.
    Gauge(f64),
    /// A histogram.
    Histogram(DistributionSnapshot),
}

/// The content of a histogram at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DistributionSnapshot {
    /// Number of counted values.
    pub count: u64,
    /// Sum of the values.
    pub sum: f64,
    /// The greatest value.
    pub max: Option<f64>,
    /// Upper bounds of the buckets, each included.
    pub bounds: Arc<[f64]>,
    /// Number of values in each bucket, and above the last bound.
    pub buckets: Vec<u64>,
}

fn check(name: &str, kind: &UserKind) -> Result<(), UserMetricError> {
    let is_letter = |letter: u8| letter.is_ascii_alphanumeric() || letter == b'_';
    let begins_well = name.bytes().next().is_some_and(|first| !first.is_ascii_digit());
    if !begins_well || name.len() > MOST_NAME || !name.bytes().all(is_letter) {
        return Err(UserMetricError::Name(name.to_owned()));
    }
    if let UserKind::Histogram(bounds) = kind {
        let rises = bounds.windows(2).all(|pair| pair[0] < pair[1]);
        if !(1..=MOST_BUCKETS).contains(&bounds.len()) || !rises || !bounds.iter().all(|bound| bound.is_finite()) {
            return Err(UserMetricError::Buckets(name.to_owned()));
        }
    }
    Ok(())
}

/// Most metrics of a subtask.
pub const MOST_METRICS: usize = 100;
/// Most buckets of a histogram.
pub const MOST_BUCKETS: usize = 50;
const MOST_NAME: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_has_one_metric_of_a_name() {
        let metrics = UserMetrics::default();
        let first = metrics.get("map", "bad", UserKind::Counter).unwrap();
        metrics.get("map", "bad", UserKind::Counter).unwrap().as_count().unwrap().add(2);
        first.as_count().unwrap().add(1);
        metrics.get("filter", "bad", UserKind::Gauge).unwrap();
        let error = metrics.get("map", "bad", UserKind::Gauge).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the metric \"bad\" of this operator is a counter and cannot be a gauge, too: give one of them another name"
        );
        let seen = metrics.snapshot();
        assert_eq!(seen.len(), 2);
        assert_eq!((&*seen[0].operator, &*seen[0].name, &seen[0].value), ("map", "bad", &UserValue::Counter(3)));
        assert!(matches!(seen[1].value, UserValue::Gauge(level) if level.is_nan()), "not set");
    }

    #[test]
    fn a_histogram_counts_by_bounds_that_are_included() {
        let metrics = UserMetrics::default();
        let kind = || UserKind::Histogram(vec![1.0, 2.5]);
        let sizes = metrics.get("map", "sizes", kind()).unwrap();
        let empty = sizes.as_distribution().unwrap().snapshot();
        assert_eq!((empty.count, empty.sum, empty.max), (0, 0.0, None));
        for number in [0.5, 1.0, 1.5, 2.5, 100.0, f64::NAN] {
            sizes.as_distribution().unwrap().observe(number);
        }
        let held = sizes.as_distribution().unwrap().snapshot();
        assert_eq!((held.buckets.as_slice(), held.count), ([2, 2, 1].as_slice(), 5));
        assert_eq!((held.sum, held.max), (105.5, Some(100.0)));
        assert!(metrics.get("map", "sizes", kind()).is_ok());
        let others = metrics.get("map", "sizes", UserKind::Histogram(vec![1.0])).unwrap_err();
        assert!(others.to_string().contains("one with other buckets"), "{others}");
    }

    #[test]
    fn a_gauge_is_what_it_was_set_to() {
        let metrics = UserMetrics::default();
        let open = metrics.get("map", "open", UserKind::Gauge).unwrap();
        open.as_level().unwrap().add(2.0);
        assert_eq!(open.as_level().unwrap().get(), 2.0);
        open.as_level().unwrap().set(-1.0);
        open.as_level().unwrap().add(0.5);
        assert_eq!(open.as_level().unwrap().get(), -0.5);
    }

    #[test]
    fn names_numbers_and_buckets_are_bounded() {
        let metrics = UserMetrics::default();
        for name in ["", "1st", "a b", "a-b", "ä", &"a".repeat(101)] {
            let error = metrics.get("map", name, UserKind::Counter).unwrap_err();
            assert_eq!(error, UserMetricError::Name(name.to_owned()));
        }
        let many = (0..51).map(f64::from).collect();
        for bounds in [vec![], vec![2.0, 1.0], vec![1.0, 1.0], vec![f64::NAN], vec![1.0, f64::INFINITY], many] {
            let error = metrics.get("map", "sizes", UserKind::Histogram(bounds)).unwrap_err();
            assert_eq!(error, UserMetricError::Buckets("sizes".to_owned()));
        }
        for number in 0..MOST_METRICS {
            metrics.get("map", &format!("m{number}"), UserKind::Counter).unwrap();
        }
        assert!(metrics.get("map", "m0", UserKind::Counter).is_ok(), "it is there");
        let error = metrics.get("map", "more", UserKind::Counter).unwrap_err();
        assert!(error.to_string().starts_with("\"more\" would be one metric more than the 100"), "{error}");
    }
}
