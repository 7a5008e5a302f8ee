//! A running job, subtask by subtask and process by process, for whoever draws
//! curves. [`JobStatus`](crate::JobStatus) is the same for people.

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

/// All that is known of a job at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobSample {
    /// Where the job is.
    pub state: JobState,
    /// Time since it was submitted.
    #[serde(rename = "seconds", serialize_with = "shown::seconds")]
    pub elapsed: Duration,
    /// All subtasks, in the order of the plan.
    pub tasks: Vec<TaskSample>,
    /// Processes that have reported.
    pub workers: Vec<WorkerSample>,
    /// What the job waits for, if nothing moves although records wait.
    #[serde(rename = "stalled", serialize_with = "shown::headline")]
    pub stall: Option<Stall>,
}

/// One subtask, as of its worker's last report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskSample {
    /// Names of its operators.
    pub name: String,
    /// Position of its vertex, upstream first.
    #[serde(rename = "task")]
    pub vertex: u32,
    /// Index among the subtasks of the vertex.
    pub subtask: u32,
    /// Worker it runs on; 0 is the submitting process.
    pub worker: u32,
    /// Whether it has ended.
    #[serde(rename = "ended")]
    pub has_ended: bool,
    /// When it was reported, since the job was submitted.
    #[serde(rename = "seconds", serialize_with = "shown::seconds")]
    pub at: Duration,
    /// Counters since the start, and what is queued.
    #[serde(flatten, with = "Counters")]
    pub metrics: MetricsSnapshot,
    /// Records read, or produced, a second since the report before.
    pub records_in_per_second: f64,
    /// Records sent on, or written, a second since the report before.
    pub records_out_per_second: f64,
    /// Share of the time at work since the report before, 0 to 1.
    pub busy: f64,
    /// Share of the time waiting for what is downstream, or for the
    /// coordinator's leave.
    pub back_pressured: f64,
    /// Share of the time without input.
    pub idle: f64,
    /// Share of the time waiting for the interpreter.
    pub interpreter: f64,
    /// The part of `idle` that it spent waiting for calls of its functions.
    pub awaiting: f64,
    /// The part of `idle` that a source spent waiting for those it is aligned with.
    pub aligning: f64,
    /// Bytes of its state in the last checkpoint that counts, if one does.
    pub state_bytes: Option<u64>,
    /// What these are made of.
    #[serde(flatten)]
    pub parts: TimeParts,
    /// What its functions count.
    #[serde(rename = "metrics")]
    pub user_metrics: Vec<UserMetric>,
    /// What went through each of its operators, upstream first; none before it began.
    pub operators: Vec<OperatorReport>,
}

/// Which counters of a task are shown, and what they are called then.
#[derive(Serialize)]
#[serde(remote = "MetricsSnapshot")]
struct Counters {
    records_in: u64,
    records_out: u64,
    rows_in: u64,
    rows_out: u64,
    #[serde(rename = "bytes_local")]
    bytes_in_local: u64,
    #[serde(rename = "bytes_tcp")]
    bytes_in_remote: u64,
    bytes_out: u64,
    dropped_records: u64,
    dropped_bytes: u64,
    #[serde(flatten)]
    queues: QueueSnapshot,
    #[serde(flatten, with = "EventTime")]
    event_time: EventTimeSnapshot,
    #[serde(flatten)]
    tally: StateStats,
    #[serde(skip)]
    in_flight: InFlightSnapshot,
    #[serde(skip)]
    time: TimeShares,
}

/// The same of its event time.
#[derive(Serialize)]
#[serde(remote = "EventTimeSnapshot")]
struct EventTime {
    watermark_ms: Option<i64>,
    #[serde(rename = "watermark_lag_seconds", serialize_with = "shown::milliseconds")]
    lag_ms: Option<i64>,
    late_records: u64,
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

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WorkerSample {
    /// Its number; 0 is the submitting process.
    pub worker: u32,
    /// When it was reported, since the job was submitted.
    #[serde(rename = "seconds", serialize_with = "shown::seconds")]
    pub at: Duration,
    /// Memory that is in RAM; none where the system does not tell.
    pub resident_bytes: Option<u64>,
    /// Its threads; none where the system does not tell.
    pub threads: Option<u64>,
    /// Files, sockets and the like that it has open; none where the system does not tell at once.
    pub open_files: Option<u64>,
    /// Time of processors that it took since it began.
    #[serde(rename = "cpu_seconds", serialize_with = "shown::seconds")]
    pub cpu: Duration,
    /// What its interpreter took to collect garbage.
    #[serde(flatten, with = "Garbage")]
    pub garbage: GarbageCollections,
    /// Segments of its network memory that pools have taken.
    pub segments_used: u64,
    /// All of them.
    pub segments: u64,
}

/// What the collections of a process are called.
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

/// What the functions of a task counted, as of its last two reports.
#[derive(Debug, Default)]
pub(crate) struct FunctionCounts {
    pub(crate) latest: Vec<UserMetricSnapshot>,
    pub(crate) previous: Vec<UserMetricSnapshot>,
}

/// Who a task is, for its samples.
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
        (has_ended, state_bytes): (bool, Option<u64>),
        (previous, latest): (&Sample, &Sample),
        counted: &FunctionCounts,
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
