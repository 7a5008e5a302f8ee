//! How long markers of latency took to a task: lately, or altogether.

use std::time::Duration;

use flownet_runtime::latency::Latency;
use serde::Serialize;

use crate::shown;

/// How long markers took to one vertex, all its subtasks together. All none where no marker came.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LatencyReport {
    /// Half of them took no longer.
    #[serde(rename = "latency_p50_seconds", serialize_with = "shown::optional_seconds")]
    pub p50: Option<Duration>,
    /// 99 of 100 took no longer.
    #[serde(rename = "latency_p99_seconds", serialize_with = "shown::optional_seconds")]
    pub p99: Option<Duration>,
    /// The longest since the attempt began.
    #[serde(rename = "latency_max_seconds", serialize_with = "shown::optional_seconds")]
    pub max: Option<Duration>,
    /// All since the attempt began, by the vertex of their source.
    #[serde(skip)]
    pub by_source: Vec<Latency>,
}

impl LatencyReport {
    /// Of the subtasks of a vertex: quantiles of `counted`, and `all` that came.
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

/// What was told of the latency of one task.
#[derive(Debug, Default)]
pub(crate) struct LatencySamples {
    /// What is lately is since then: one to two windows ago.
    base: Sample,
    /// Becomes the base when it is a window old.
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

    /// Of this attempt.
    pub(crate) fn altogether(&self) -> &[Latency] {
        &self.latest
    }

    /// Of the last seconds.
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

/// Long enough for some markers of every source, which come once a second or so.
const WINDOW: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// `fast` markers of up to 100 us and `slow` ones of up to 100 s.
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
