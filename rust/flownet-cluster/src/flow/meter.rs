//! Measures a stream as batches: the number of elements in an interval, their processing delay and their scheduling
//! delay.
//!
//! Each task counts as a server. Its speed is the bytes that it read divided by its busy time. Its processing delay is
//! the time for everything that arrived in the interval, at that speed. Its scheduling delay is the time for everything
//! that was queued when the interval began. The delays of a job are those of its slowest task. So the meter handles
//! records that become ten on their way, and no record has to be tracked.

use std::time::Duration;

use flownet_runtime::MetricsSnapshot;

/// Meter of a job's batches. See the module documentation.
#[derive(Debug)]
pub(super) struct BatchMeter {
    tasks: Vec<Task>,
}

/// Measurement of one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Batch {
    /// Records that the sources produced.
    pub(super) elements: u64,
    pub(super) processing: Duration,
    pub(super) scheduling: Duration,
}

#[derive(Debug, Default)]
struct Task {
    is_source: bool,
    /// Counters at the beginning of the interval, and now.
    base: MetricsSnapshot,
    latest: MetricsSnapshot,
    /// Last known cost of a byte, in seconds.
    cost: Option<f64>,
}

impl BatchMeter {
    pub(super) fn new(is_source: impl Iterator<Item = bool>) -> Self {
        Self { tasks: is_source.map(|is_source| Task { is_source, ..Task::default() }).collect() }
    }

    /// Stores the current counters of a task.
    pub(super) fn see(&mut self, task: u32, metrics: &MetricsSnapshot) {
        if let Some(task) = self.tasks.get_mut(task as usize) {
            task.latest = *metrics;
        }
    }

    /// Ends the interval and begins the next. Returns `None` if the cost of a byte is not known yet for any task except
    /// sources.
    pub(super) fn end_batch(&mut self) -> Option<Batch> {
        let sources = self.tasks.iter().filter(|task| task.is_source);
        let elements = sources.map(|task| task.latest.records_in.saturating_sub(task.base.records_in)).sum();
        let delays: Vec<(f64, f64)> = self.tasks.iter_mut().filter_map(Task::delays).collect();
        self.tasks.iter_mut().for_each(|task| task.base = task.latest);
        let longest = |part: fn(&(f64, f64)) -> f64| {
            let seconds = delays.iter().map(part).fold(0.0, f64::max);
            Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
        };
        (!delays.is_empty()).then(|| Batch {
            elements,
            processing: longest(|(processing, _)| *processing),
            scheduling: longest(|(_, scheduling)| *scheduling),
        })
    }
}

impl Task {
    /// Returns processing and scheduling delay, in seconds.
    fn delays(&mut self) -> Option<(f64, f64)> {
        if self.is_source {
            return None;
        }
        let read = bytes_in(&self.latest).saturating_sub(bytes_in(&self.base)) as f64;
        let busy = self.latest.time.since(&self.base.time).busy.as_secs_f64();
        if read > 0.0 && busy > 0.0 {
            self.cost = Some(busy / read);
        }
        let (before, after) = (self.base.queues.receive_bytes as f64, self.latest.queues.receive_bytes as f64);
        // Bytes that were read, plus the growth of the queue.
        let arrived = (read + after - before).max(0.0);
        self.cost.map(|cost| (arrived * cost, before * cost))
    }
}

fn bytes_in(metrics: &MetricsSnapshot) -> u64 {
    metrics.bytes_in_local + metrics.bytes_in_remote
}

#[cfg(test)]
pub(super) mod tests {
    use flownet_runtime::{QueueSnapshot, time_accounting::TimeShares};

    use super::*;

    pub(in crate::flow) fn source(records_in: u64) -> MetricsSnapshot {
        MetricsSnapshot { records_in, ..MetricsSnapshot::default() }
    }

    pub(in crate::flow) fn consumer(bytes_in_remote: u64, receive_bytes: u64, busy: Duration) -> MetricsSnapshot {
        let queues = QueueSnapshot { receive_bytes, ..QueueSnapshot::default() };
        let time = TimeShares { busy, ..TimeShares::default() };
        MetricsSnapshot { bytes_in_remote, queues, time, ..MetricsSnapshot::default() }
    }

    #[test]
    fn delays_are_those_of_the_slowest_task() {
        let mut meter = BatchMeter::new([true, false, false].into_iter());
        meter.see(0, &source(1000));
        // 100 bytes a second, 50 more queued: what arrived takes 1.5 s.
        meter.see(1, &consumer(100, 50, Duration::from_secs(1)));
        meter.see(2, &consumer(100, 0, Duration::from_millis(100)));
        let batch = meter.end_batch().expect("two tasks have read");
        assert_eq!(
            batch,
            Batch { elements: 1000, processing: Duration::from_millis(1500), scheduling: Duration::ZERO }
        );
        // Nothing new arrived, and half of the queue is read.
        meter.see(1, &consumer(125, 25, Duration::from_millis(1250)));
        let batch = meter.end_batch().expect("known from before");
        assert_eq!((batch.elements, batch.scheduling), (0, Duration::from_millis(500)));
        assert_eq!(batch.processing, Duration::ZERO);
    }

    #[test]
    fn a_job_without_exchanges_has_no_batches() {
        let mut meter = BatchMeter::new([true].into_iter());
        meter.see(0, &source(1000));
        meter.see(9, &source(1000));
        assert_eq!(meter.end_batch(), None);
    }
}
