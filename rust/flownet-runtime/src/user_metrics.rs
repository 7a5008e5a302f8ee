//! What users' functions count: metrics of their own, by operator and name.
//!
//! A function asks for a metric once and keeps it. From then on it is atomics: no lock and no look-up for a record, and
//! whoever reads sees it without waiting. The lock here is for those who ask and for those who look at all of them.
//!
//! # Invariants
//! - U1: an operator has one metric of a name, of one kind; asking again gives the same one.
//! - U2: a subtask has no more than [`MOST_METRICS`], of names as Prometheus has them, and a histogram no more than
//!   [`MOST_BUCKETS`] bounds: what is sent and scraped is bounded, whatever goes through.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

/// The metrics of one subtask.
#[derive(Debug, Default)]
pub struct UserMetrics(Mutex<Vec<UserMetric>>);

/// One metric, live: clones are the same one.
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

/// What a metric is asked for as.
#[derive(Clone, Debug, PartialEq)]
pub enum UserKind {
    /// Only grows.
    Counter,
    /// The same, which is shown with its rate.
    Meter,
    /// What something is now.
    Gauge,
    /// How numbers are spread over buckets with these upper bounds, and one above them all.
    Histogram(Vec<f64>),
}

/// Why there is no such metric.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum UserMetricError {
    /// U2.
    #[error(
        "{0:?} is no name for a metric: it takes 1 to {MOST_NAME} letters of a to z and A to Z, digits and \"_\", and no digit \
         first"
    )]
    Name(String),
    /// U1.
    #[error(
        "the metric {name:?} of this operator is {before} and cannot be {wanted}, too: give one of them another name"
    )]
    Kind {
        /// Of the metric.
        name: String,
        /// What it is.
        before: &'static str,
        /// What it was asked for as.
        wanted: &'static str,
    },
    /// U2.
    #[error(
        "{0:?} would be one metric more than the {MOST_METRICS} that a subtask may have: what varies with the records, such \
         as keys, belongs into a stream and not into names"
    )]
    TooMany(String),
    /// The bounds of a histogram.
    #[error("the buckets of {0:?} must be 1 to {MOST_BUCKETS} finite numbers, each above the one before")]
    Buckets(String),
}

impl UserMetrics {
    /// The metric of an operator by name, which is made if it is not there.
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

    /// All of them as they are now, in the order in which they were asked for.
    pub fn snapshot(&self) -> Vec<UserMetricSnapshot> {
        self.lock().iter().map(UserMetric::snapshot).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<UserMetric>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UserMetric {
    /// The number of a counter or meter.
    pub fn as_count(&self) -> Option<&Count> {
        match &self.value {
            LiveValue::Counter(count) | LiveValue::Meter(count) => Some(count),
            LiveValue::Gauge(_) | LiveValue::Histogram(_) => None,
        }
    }

    /// What a gauge shows.
    pub fn as_level(&self) -> Option<&Level> {
        if let LiveValue::Gauge(level) = &self.value { Some(level) } else { None }
    }

    /// What a histogram holds.
    pub fn as_distribution(&self) -> Option<&Distribution> {
        if let LiveValue::Histogram(distribution) = &self.value { Some(distribution) } else { None }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is now.
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
    /// Adds to it. Whoever has the interpreter may: it is one of several threads where functions have some.
    pub fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    /// What it is.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that is what it was last set to. Not a number before.
#[derive(Debug)]
pub struct Level(AtomicU64);

impl Level {
    /// Sets it.
    pub fn set(&self, to: f64) {
        self.0.store(to.to_bits(), Ordering::Relaxed);
    }

    /// Adds to it; to nothing, if it was not set.
    pub fn add(&self, by: f64) {
        update(&self.0, |level| if level.is_nan() { by } else { level + by });
    }

    /// What it is.
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

impl Default for Level {
    fn default() -> Self {
        Self(AtomicU64::new(f64::NAN.to_bits()))
    }
}

/// How many numbers were how large.
#[derive(Debug)]
pub struct Distribution {
    bounds: Arc<[f64]>,
    /// By bound, and above them all.
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

    /// Counts a number in. One that is none is passed over.
    pub fn observe(&self, number: f64) {
        if number.is_nan() {
            return;
        }
        let bucket = self.bounds.partition_point(|bound| *bound < number);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        update(&self.sum, |sum| sum + number);
        update(&self.max, |max| max.max(number));
    }

    /// What it holds. A number that is being counted in may be in one part and not in another.
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
    // It always answers with a number, so it ends well.
    let _ = number.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
}

/// One metric at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserMetricSnapshot {
    /// Name of the operator whose function it is.
    pub operator: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// What it is.
    pub value: UserValue,
}

/// What a metric is at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum UserValue {
    /// Of a counter.
    Counter(u64),
    /// Of a meter.
    Meter(u64),
    /// Of a gauge; not a number before it was set.
    Gauge(f64),
    /// Of a histogram.
    Histogram(DistributionSnapshot),
}

/// What a histogram holds at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DistributionSnapshot {
    /// Numbers counted in.
    pub count: u64,
    /// Of them.
    pub sum: f64,
    /// The greatest.
    pub max: Option<f64>,
    /// Upper bounds of the buckets, each included.
    pub bounds: Arc<[f64]>,
    /// How many fell into each, and above the last bound.
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

/// That a subtask may have.
pub const MOST_METRICS: usize = 100;
/// That a histogram may have.
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
