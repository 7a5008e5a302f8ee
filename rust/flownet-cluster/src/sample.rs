//! Samples a running job by subtask and process, for charts. [`JobStatus`](crate::JobStatus) is the summary for people.

use std::{sync::Arc, time::Duration};

use flownet_runtime::{
    EventTimeSnapshot, GarbageCollections, InFlightSnapshot, MetricsSnapshot, QueueSnapshot, state_stats::StateStats,
    time_accounting::TimeShares, user_metrics::UserMetricSnapshot,
};
use serde::Serialize;

use crate::{
    machine::JobState, operators::OperatorReport, resources::Resources, rpc::StatusReport, shown, stall::Stall,
    time_parts::TimeParts, tracker::Sample, user_metrics::UserMetric,
};

/// State of a job at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobSample {
    /// State in its life cycle.
    pub state: JobState,
    /// Time since the job was submitted.
    #[serde(rename = "seconds", serialize_with = "shown::seconds")]
    pub elapsed: Duration,
    /// All subtasks, in the order of the plan.
    pub tasks: Vec<TaskSample>,
    /// Processes that have reported.
    pub workers: Vec<WorkerSample>,
    /// Stall of the job, if nothing makes progress although records wait.
    #[serde(rename = "stalled", serialize_with = "shown::headline")]
    pub stall: Option<Stall>,
}

/// Sample of one subtask, from its worker's last report.
///
/// Counters are since its start, queues are current, rates and shares are since the previous report. Data in flight to
/// a subtask is queued upstream (`send_bytes`), on its way, or queued by the subtask itself (`receive_bytes`).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskSample {
    /// Names of its operators, `a -> b`.
    pub name: String,
    /// Index of its task in the job, upstream first. All subtasks of a task share it.
    #[serde(rename = "task")]
    pub vertex: u32,
    /// Index among the subtasks, from 0.
    pub subtask: u32,
    /// Number of the worker that runs it. 0 is the process that called `execute()`.
    pub worker: u32,
    /// Whether it has ended.
    #[serde(rename = "ended")]
    pub has_ended: bool,
    /// Time of the report, in seconds since the job was submitted; 0 before the first.
    #[serde(rename = "seconds", serialize_with = "shown::seconds")]
    pub at: Duration,
    /// Counters since the start, and current queues.
    #[serde(flatten, with = "Counters")]
    pub metrics: MetricsSnapshot,
    /// Rate of `records_in` since the previous report, per second.
    pub records_in_per_second: f64,
    /// Rate of `records_out` since the previous report, per second.
    pub records_out_per_second: f64,
    /// Share of time spent on records since the previous report, 0 to 1.
    pub busy: f64,
    /// Share of time waiting for downstream, or for the coordinator under `"storm"` and `"pid"`, 0 to 1.
    pub back_pressured: f64,
    /// Share of time waiting for records, or for the `rate_limit` of a source, 0 to 1.
    pub idle: f64,
    /// Share of time waiting for the interpreter of its process, 0 to 1.
    pub interpreter: f64,
    /// Part of `idle` spent waiting for calls of `Stream.map_async`, 0 to 1.
    pub awaiting: f64,
    /// Part of `idle` in which a source waited for the sources that it is aligned with, 0 to 1.
    pub aligning: f64,
    /// Bytes of its state in the last published checkpoint. None before the first.
    pub state_bytes: Option<u64>,
    /// Finer parts of these shares.
    #[serde(flatten)]
    pub parts: TimeParts,
    /// Metrics of its functions, from `ctx.metrics`.
    #[serde(rename = "metrics")]
    pub user_metrics: Vec<UserMetric>,
    /// Counters of its operators, upstream first, with rates since the previous report. Empty before it began.
    pub operators: Vec<OperatorReport>,
}

/// Names of the counters that are shown for a task.
#[derive(Serialize)]
#[serde(remote = "MetricsSnapshot")]
struct Counters {
    /// Records read from upstream, or produced by a source.
    records_in: u64,
    /// Records emitted downstream, or written by a sink.
    records_out: u64,
    /// Rows of the records read. A numpy array has as many as its first dimension; any other object is one.
    rows_in: u64,
    /// Rows of the records emitted or written.
    rows_out: u64,
    /// Bytes read from tasks of the same process.
    #[serde(rename = "bytes_local")]
    bytes_in_local: u64,
    /// Bytes read over TCP.
    #[serde(rename = "bytes_tcp")]
    bytes_in_remote: u64,
    /// Bytes written for downstream, including the length of each record.
    bytes_out: u64,
    /// Records that arrived and were dropped, if `flow_control="drop"` allows it.
    dropped_records: u64,
    /// Bytes of these records.
    dropped_bytes: u64,
    #[serde(flatten)]
    queues: QueueSnapshot,
    #[serde(flatten, with = "EventTimeCounters")]
    event_time: EventTimeSnapshot,
    #[serde(flatten)]
    tally: StateStats,
    #[serde(skip)]
    in_flight: InFlightSnapshot,
    #[serde(skip)]
    time: TimeShares,
}

/// Names of its event-time counters.
#[derive(Serialize)]
#[serde(remote = "EventTimeSnapshot")]
struct EventTimeCounters {
    /// Its watermark, in milliseconds since 1970-01-01 UTC, as in `TaskReport`.
    watermark_ms: Option<i64>,
    /// Seconds by which the wall clock was ahead of the watermark, as in `TaskReport`.
    #[serde(rename = "watermark_lag_seconds", serialize_with = "shown::milliseconds")]
    lag_ms: Option<i64>,
    /// Records that its windows dropped because they came later than allowed.
    late_records: u64,
    /// Records that did not advance event time, as in `TaskReport`.
    records_ahead: u64,
    #[serde(skip)]
    timed_records: u64,
    #[serde(skip)]
    out_of_order_records: u64,
    #[serde(skip)]
    out_of_order_ms: u64,
    #[serde(skip)]
    aligned_ms: Option<i64>,
}

/// Sample of one process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WorkerSample {
    /// Number of the worker; 0 is the submitting process.
    pub worker: u32,
    /// Time of the report, since the job was submitted.
    #[serde(rename = "seconds", serialize_with = "shown::seconds")]
    pub at: Duration,
    /// Resident memory; none if the system does not report it.
    pub resident_bytes: Option<u64>,
    /// Number of threads; none if the system does not report it.
    pub threads: Option<u64>,
    /// Number of open files, sockets and similar; none if the system does not report it at once.
    pub open_files: Option<u64>,
    /// Processor time since it began.
    #[serde(rename = "cpu_seconds", serialize_with = "shown::seconds")]
    pub cpu: Duration,
    /// Garbage collections of its interpreter.
    #[serde(flatten, with = "Garbage")]
    pub garbage: GarbageCollections,
    /// Segments of its network memory that pools have taken.
    pub segments_used: u64,
    /// All segments of its network memory.
    pub segments: u64,
}

/// Names of a process's garbage collection counters.
#[derive(Serialize)]
#[serde(remote = "GarbageCollections")]
struct Garbage {
    #[serde(rename = "gc_collections")]
    count: u64,
    #[serde(rename = "gc_seconds", serialize_with = "shown::seconds")]
    time: Duration,
}

impl WorkerSample {
    pub(crate) fn new(worker: u32, news: &StatusReport, at: Duration) -> Self {
        let Resources { resident_bytes, threads, open_files, cpu, garbage, segments_used, segments } = news.resources;
        Self { worker, at, resident_bytes, threads, open_files, cpu, garbage, segments_used, segments }
    }
}

/// Metrics of a task's functions, from its last two reports.
#[derive(Debug, Default)]
pub(crate) struct FunctionCounts {
    pub(crate) latest: Vec<UserMetricSnapshot>,
    pub(crate) previous: Vec<UserMetricSnapshot>,
}

/// Identity of a task in its samples.
#[derive(Clone, Debug)]
pub(crate) struct TaskPlace {
    pub(crate) name: String,
    pub(crate) vertex: u32,
    pub(crate) subtask: u32,
    pub(crate) worker: u32,
    /// Names of its operators, upstream first.
    pub(crate) operators: Vec<Arc<str>>,
}

impl TaskPlace {
    pub(crate) fn sample(
        &self,
        previous: &Sample,
        latest: &Sample,
        counted: &FunctionCounts,
        has_ended: bool,
        state_bytes: Option<u64>,
    ) -> TaskSample {
        let time = latest.metrics.time.since(&previous.metrics.time);
        let seconds = time.total().as_secs_f64();
        let per_second = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
        let rate = |count: fn(&MetricsSnapshot) -> u64| {
            per_second(count(&latest.metrics).saturating_sub(count(&previous.metrics)) as f64)
        };
        let Self { name, vertex, subtask, worker, .. } = self.clone();
        TaskSample {
            name,
            vertex,
            subtask,
            worker,
            has_ended,
            at: latest.at,
            metrics: latest.metrics,
            records_in_per_second: rate(|metrics| metrics.records_in),
            records_out_per_second: rate(|metrics| metrics.records_out),
            busy: per_second(time.busy.as_secs_f64()),
            back_pressured: per_second(time.back_pressured().as_secs_f64()),
            idle: per_second(time.idle.as_secs_f64()),
            interpreter: per_second(time.interpreter.as_secs_f64()),
            awaiting: per_second(time.awaiting.as_secs_f64()),
            aligning: per_second(time.aligning.as_secs_f64()),
            state_bytes,
            parts: TimeParts::of(&time),
            user_metrics: UserMetric::all(&counted.latest, &counted.previous, seconds),
            operators: OperatorReport::all(&self.operators, &latest.operators, &previous.operators, seconds),
        }
    }
}
