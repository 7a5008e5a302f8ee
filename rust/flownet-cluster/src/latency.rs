//! Computes the latency of markers to a task, for the last seconds and for the whole attempt.

use std::time::Duration;

use flownet_runtime::latency::Latency;
use serde::Serialize;

use crate::shown;

/// Latency of markers to one vertex, over all its subtasks. All values are none without markers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LatencyReport {
    /// Median latency of markers that sources emit every `latency_interval`, from the source to the input of this task.
    /// While the job runs, of the last 10 to 20 s. None without markers.
    #[serde(rename = "latency_p50_seconds", serialize_with = "shown::optional_seconds")]
    pub p50: Option<Duration>,
    /// Latency that 99 of 100 markers do not exceed. None without markers.
    #[serde(rename = "latency_p99_seconds", serialize_with = "shown::optional_seconds")]
    pub p99: Option<Duration>,
    /// Longest latency of a marker. None without markers.
    #[serde(rename = "latency_max_seconds", serialize_with = "shown::optional_seconds")]
    pub max: Option<Duration>,
    /// All latencies since the attempt began, by the vertex of their source.
    #[serde(skip)]
    pub by_source: Vec<Latency>,
}

impl LatencyReport {
    /// Combines the subtasks of a vertex: quantiles of `counted`, and the total of `all`.
    pub(crate) fn of<'a>(
        counted: impl IntoIterator<Item = &'a Latency>,
        all: impl IntoIterator<Item = &'a Latency>,
    ) -> Self {
        let mut by_source: Vec<Latency> = Vec::new();
        for latency in all {
            match by_source.iter_mut().find(|known| known.source == latency.source) {
                Some(known) => known.add(latency),
                None => by_source.push(latency.clone()),
            }
        }
        by_source.sort_unstable_by_key(|latency| latency.source);
        let mut together = Latency::of(0);
        counted.into_iter().for_each(|latency| together.add(latency));
        let (p50, p99) = (together.quantile(0.5), together.quantile(0.99));
        Self { p50, p99, max: by_source.iter().map(|latency| latency.max).max(), by_source }
    }
}

/// Reported latencies of one task.
#[derive(Debug, Default)]
pub(crate) struct LatencySamples {
    /// Start of the period for recent latencies: one to two windows ago.
    base: Sample,
    /// Becomes the base when it is one window old.
    next_base: Sample,
    latest: Vec<Latency>,
}

#[derive(Debug, Default)]
struct Sample {
    at: Duration,
    latencies: Vec<Latency>,
}

impl LatencySamples {
    pub(crate) fn sample(&mut self, at: Duration, latencies: Vec<Latency>) {
        if at >= self.next_base.at + WINDOW {
            let next = Sample { at, latencies: latencies.clone() };
            self.base = std::mem::replace(&mut self.next_base, next);
        }
        self.latest = latencies;
    }

    /// Returns the latencies of this attempt.
    pub(crate) fn altogether(&self) -> &[Latency] {
        &self.latest
    }

    /// Returns the latencies of the last seconds.
    pub(crate) fn lately(&self) -> Vec<Latency> {
        let before = |source| self.base.latencies.iter().find(|latency| latency.source == source);
        let since = |latest: &Latency| {
            let mut since = latest.clone();
            before(latest.source).into_iter().for_each(|before| since.remove(before));
            since
        };
        self.latest.iter().map(since).collect()
    }
}

/// Long enough for some markers of every source, at about one marker per second.
const WINDOW: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `fast` markers of up to 100 us and `slow` ones of up to 100 s.
    fn latency(source: u32, fast: u64, slow: u64) -> Latency {
        let mut latency = Latency::of(source);
        (latency.buckets[0], latency.buckets[18]) = (fast, slow);
        latency.max = Duration::from_secs(if slow > 0 { 80 } else { 0 });
        latency
    }

    #[test]
    fn subtasks_add_up_by_source_and_together() {
        let all = [latency(3, 10, 0), latency(0, 0, 1), latency(3, 89, 0)];
        let report = LatencyReport::of(&all, &all);
        let told: Vec<_> = report.by_source.iter().map(|latency| (latency.source, latency.count())).collect();
        assert_eq!((told, report.max), (vec![(0, 1), (3, 99)], Some(Duration::from_secs(80))));
        assert!(report.p99.unwrap() <= Duration::from_micros(100), "{report:?}");
        assert_eq!(LatencyReport::of(&[], &[]), LatencyReport::default());
    }

    #[test]
    fn what_is_lately_forgets_what_was_long_ago() {
        let mut samples = LatencySamples::default();
        let at = |seconds| Duration::from_secs(seconds);
        samples.sample(at(1), vec![latency(0, 0, 5)]);
        assert_eq!(samples.lately()[0].count(), 5);
        samples.sample(at(11), vec![latency(0, 0, 9)]);
        samples.sample(at(22), vec![latency(0, 3, 9)]);
        let lately = samples.lately();
        assert_eq!((lately[0].count(), lately[0].buckets[0], lately[0].max), (3, 3, at(80)));
        assert_eq!(samples.altogether()[0].count(), 12);
    }
}
