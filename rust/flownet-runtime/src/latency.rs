//! Records the travel times of latency markers to a task, by the source that they came from.
//!
//! The task's thread records one number per marker, which is far rarer than one per record. Readers copy all of them.
//!
//! # Invariants
//! - L1: a subtask tracks no more than `MOST_SOURCES` sources, and for each as many numbers as there are buckets.
//! - L2: no latency is below zero, whatever the clocks of two machines show.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The latencies of one subtask.
#[derive(Debug, Default)]
pub struct Latencies(Mutex<Vec<Latency>>);

/// The latencies of one source's markers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// The source: its index among the tasks of the job.
    pub source: u32,
    /// Sum over all markers.
    pub sum: Duration,
    /// The longest latency.
    pub max: Duration,
    /// Number of markers up to each of [`LATENCY_BOUNDS`], and above the last.
    pub buckets: Vec<u64>,
}

impl Latencies {
    /// Records a marker of this source.
    pub(crate) fn note(&self, source: u32, latency: Duration) {
        let mut all = self.lock();
        if let Some(known) = all.iter_mut().find(|known| known.source == source) {
            known.note(latency);
        } else if all.len() < MOST_SOURCES {
            let mut new = Latency::of(source);
            new.note(latency);
            all.push(new);
        }
    }

    /// Returns a copy of all latencies.
    pub fn snapshot(&self) -> Vec<Latency> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Latency>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Latency {
    /// A source without markers.
    pub fn of(source: u32) -> Self {
        Self { source, sum: Duration::ZERO, max: Duration::ZERO, buckets: vec![0; LATENCY_BOUNDS.len() + 1] }
    }

    /// Number of markers.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, bucket| sum.saturating_add(*bucket))
    }

    /// Adds the markers of another subtask.
    pub fn add(&mut self, more: &Self) {
        self.sum = self.sum.saturating_add(more.sum);
        self.max = self.max.max(more.max);
        let buckets = self.buckets.iter_mut().zip(&more.buckets);
        buckets.for_each(|(sum, more)| *sum = sum.saturating_add(*more));
    }

    /// Subtracts the markers of an earlier snapshot. `max` stays as it is: it may be from one of them.
    pub fn remove(&mut self, earlier: &Self) {
        self.sum = self.sum.saturating_sub(earlier.sum);
        let buckets = self.buckets.iter_mut().zip(&earlier.buckets);
        buckets.for_each(|(left, earlier)| *left = left.saturating_sub(*earlier));
    }

    /// Returns the latency that this share of the markers did not exceed, as far as buckets show. `None` without
    /// markers.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let rank = share * self.count() as f64;
        let max = self.max.as_secs_f64();
        let uppers = LATENCY_BOUNDS.into_iter().chain([f64::INFINITY]);
        let (mut below, mut lower) = (0.0, 0.0);
        for (upper, &bucket) in uppers.zip(&self.buckets) {
            let upper = f64::min(upper, max);
            if bucket > 0 && below + bucket as f64 >= rank {
                let seconds = lower + (upper - lower) * (rank - below) / bucket as f64;
                return Duration::try_from_secs_f64(seconds.max(0.0)).ok();
            }
            below += bucket as f64;
            lower = upper;
        }
        None
    }

    fn note(&mut self, latency: Duration) {
        let bucket = LATENCY_BOUNDS.partition_point(|bound| *bound < latency.as_secs_f64());
        self.buckets[bucket] += 1;
        self.sum = self.sum.saturating_add(latency);
        self.max = self.max.max(latency);
    }
}

/// Upper bounds of the buckets, in seconds, each included.
pub const LATENCY_BOUNDS: [f64; 19] = [
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0,
    100.0,
];
/// Most sources that a subtask tracks.
const MOST_SOURCES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn of(latencies: impl IntoIterator<Item = Duration>) -> Latency {
        let mut latency = Latency::of(0);
        latencies.into_iter().for_each(|each| latency.note(each));
        latency
    }

    #[test]
    fn each_source_has_its_own_and_there_are_only_so_many() {
        let latencies = Latencies::default();
        for source in [3, 1, 3] {
            latencies.note(source, MS);
        }
        let told: Vec<_> = latencies.snapshot().iter().map(|latency| (latency.source, latency.count())).collect();
        assert_eq!(told, [(3, 2), (1, 1)]);
        (0..1000).for_each(|source| latencies.note(source, MS));
        assert_eq!(latencies.snapshot().len(), MOST_SOURCES);
    }

    #[test]
    fn bounds_are_included_and_what_is_beyond_the_last_is_counted() {
        let latency = of([MS / 10, MS / 10 + Duration::from_nanos(1), Duration::MAX]);
        assert_eq!((latency.buckets[0], latency.buckets[1]), (1, 1));
        assert_eq!((latency.buckets[LATENCY_BOUNDS.len()], latency.max), (1, Duration::MAX));
        assert_eq!(of([Duration::MAX, Duration::MAX]).sum, Duration::MAX);
    }

    #[test]
    fn quantiles_lie_within_their_buckets_and_none_is_beyond_the_longest() {
        assert_eq!(of([]).quantile(0.5), None);
        let latency = of((1..=100).map(|each| MS * each));
        let quantile = |share| latency.quantile(share).unwrap().as_secs_f64();
        assert!((quantile(0.5) - 0.05).abs() < 1e-6, "{}", quantile(0.5));
        assert!((quantile(0.99) - 0.099).abs() < 1e-6, "{}", quantile(0.99));
        assert_eq!(of([MS * 3]).quantile(1.0), Some(MS * 3));
        assert!(of([MS * 150_000; 2]).quantile(0.5).unwrap() > MS * 100_000);
    }

    #[test]
    fn subtasks_add_up_and_what_came_before_is_taken_away() {
        let mut both = of([MS, MS * 30]);
        both.add(&of([MS]));
        assert_eq!((both.count(), both.sum, both.max), (3, MS * 32, MS * 30));
        both.remove(&of([MS * 30]));
        assert_eq!((both.count(), both.sum, both.max), (2, MS * 2, MS * 30));
        let foreign = Latency { buckets: vec![u64::MAX; 3], ..Latency::of(0) };
        both.add(&foreign);
        assert_eq!(both.count(), u64::MAX, "a peer's numbers are only numbers");
    }
}
