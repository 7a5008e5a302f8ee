//! Reports the progress and the result of a job by vertex.

use std::time::Duration;

use flownet_runtime::state_stats::StateStats;
use serde::Serialize;

use crate::{
    bottleneck::Bottleneck,
    checkpoint::CheckpointPart,
    error::WorkerIdentity,
    latency::LatencyReport,
    machine::JobState,
    operators::OperatorReport,
    plan::Exchange,
    shown,
    stall::{Stall, StallHistory},
    time_parts::TimeParts,
    user_metrics::UserMetric,
};

/// Status of a running job, from its workers' last reports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobStatus {
    /// Name of the job, from the settings.
    #[serde(rename = "name")]
    pub job_name: String,
    /// State of the job.
    pub state: JobState,
    /// Time since the job was submitted.
    #[serde(rename = "seconds", serialize_with = "shown::seconds")]
    pub elapsed: Duration,
    /// Registered workers; includes the submitting process only if it runs tasks.
    #[serde(skip)]
    pub workers: Vec<WorkerIdentity>,
    /// Vertices in topological order, with rates and ratios over the last seconds.
    #[serde(rename = "tasks")]
    pub vertices: Vec<VertexReport>,
    /// Exchanges between the vertices.
    #[serde(skip)]
    pub exchanges: Vec<Exchange>,
    /// Memory limit of each process for the data plane, in bytes.
    pub network_memory_bytes: usize,
    /// Vertex that limits the throughput of the job, if one stands out.
    #[serde(serialize_with = "shown::text")]
    pub bottleneck: Option<Bottleneck>,
    /// Stall of the job, if nothing makes progress although records wait.
    #[serde(rename = "stalled", serialize_with = "shown::headline")]
    pub stall: Option<Stall>,
    /// Checkpoint that is triggered and neither published nor failed.
    pub checkpoint_under_way: Option<CheckpointUnderWay>,
    /// Metrics of users' functions, over all subtasks.
    #[serde(rename = "metrics")]
    pub user_metrics: Vec<UserMetric>,
    /// Checkpoints and restarts of the job.
    #[serde(flatten)]
    pub history: History,
}

/// Report of a finished job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobReport {
    /// Name of the job, from the settings.
    #[serde(rename = "name")]
    pub job_name: String,
    /// Time from the submission to the end of the last worker.
    #[serde(rename = "seconds", serialize_with = "shown::seconds")]
    pub elapsed: Duration,
    /// Vertices in topological order, with rates and ratios over each task's whole life.
    #[serde(rename = "tasks")]
    pub vertices: Vec<VertexReport>,
    /// Vertex that limited the throughput of the job, if one stood out.
    #[serde(serialize_with = "shown::text")]
    pub bottleneck: Option<Bottleneck>,
    /// Stalls of the job, in which records waited without progress.
    #[serde(rename = "stalled", serialize_with = "shown::text")]
    pub stalls: Option<StallHistory>,
    /// Memory limit of each process for the data plane, in bytes.
    pub network_memory_bytes: usize,
    /// Metrics of users' functions, over all subtasks.
    #[serde(rename = "metrics")]
    pub user_metrics: Vec<UserMetric>,
    /// Checkpoints and restarts of the job.
    #[serde(flatten)]
    pub history: History,
}

/// Kind of end of a job.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JobOutcome {
    /// The sources ended, or the user stopped the job.
    Finished,
    /// The user cancelled the job.
    Cancelled,
    /// The job failed, and no restart followed.
    Failed,
}

/// History of a job over its attempts.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct History {
    /// Checkpoint of an earlier run from which the first attempt resumed.
    pub resumed_from: Option<u64>,
    /// Number of published checkpoints, over all attempts.
    pub checkpoints_made: u64,
    /// Number of failed checkpoints.
    pub checkpoints_failed: u64,
    /// Reason for the last failed checkpoint.
    pub last_failed_checkpoint: Option<String>,
    /// The last 100 published checkpoints.
    pub checkpoints: Vec<CheckpointSummary>,
    /// Number of failed attempts that another followed.
    pub restarted: u64,
    /// The last 100 restarts.
    pub restarts: Vec<RestartSummary>,
}

/// Checkpoint that is triggered and neither published nor failed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckpointUnderWay {
    /// Number of the checkpoint.
    pub number: u64,
    /// Time since its trigger.
    #[serde(rename = "seconds", serialize_with = "shown::seconds")]
    pub elapsed: Duration,
    /// Tasks with subtasks that have not answered. Empty while the checkpoint is being published.
    pub unanswered: Vec<UnansweredTask>,
}

/// Task with subtasks that have not answered a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UnansweredTask {
    /// Names of its operators.
    pub name: String,
    /// Number of subtasks that have not answered.
    pub count: u64,
    /// The first ten of these subtasks.
    pub subtasks: Vec<u32>,
}

/// Published checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckpointSummary {
    /// Number of the checkpoint; it increases over all attempts and runs.
    pub number: u64,
    /// Time of its publication, since the job was submitted.
    #[serde(rename = "at_seconds", serialize_with = "shown::seconds")]
    pub at: Duration,
    /// Size of its state in bytes.
    pub bytes: u64,
    /// Bytes of that state that this checkpoint wrote.
    pub written_bytes: u64,
    /// Time from its trigger to its publication.
    #[serde(rename = "seconds", serialize_with = "shown::seconds")]
    pub duration: Duration,
    /// Longest time between the first and the last barrier of a task.
    #[serde(rename = "aligned_seconds", serialize_with = "shown::seconds")]
    pub aligned: Duration,
    /// Longest single pause of a task to take its snapshot or to write some of it.
    #[serde(rename = "stood_still_seconds", serialize_with = "shown::seconds")]
    pub stood_still: Duration,
    /// Statistics by task, for the last few checkpoints.
    pub parts: Vec<CheckpointPart>,
}

/// Failed attempt that another followed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RestartSummary {
    /// Time of the failure, since the job was submitted.
    #[serde(rename = "at_seconds", serialize_with = "shown::seconds")]
    pub at: Duration,
    /// Cause of the failure.
    pub cause: String,
    /// Python's traceback, if a user's function failed. Stored for the last few restarts; of a long one only its end.
    pub traceback: Option<String>,
    /// Checkpoint from which the next attempt resumed; none if it began from the start.
    pub resumed_from: Option<u64>,
    /// Restarted tasks, if others continued: the failed tasks and all that share an exchange with them. Empty: the
    /// whole job.
    pub tasks: Vec<String>,
}

/// Progress of one task, a chain of operators, over all its subtasks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VertexReport {
    /// Names of its operators, `a -> b`.
    pub name: String,
    /// Number of subtasks.
    pub parallelism: u32,
    /// Time at which the counters began, in seconds since the job was submitted: 0, or the restart after a failure.
    #[serde(rename = "began_seconds", serialize_with = "shown::seconds")]
    pub began: Duration,
    /// Number of subtasks that have ended.
    #[serde(skip)]
    pub ended: u32,
    /// Records read from upstream, or produced by a source.
    pub records_in: u64,
    /// Records emitted downstream, or written by a sink.
    pub records_out: u64,
    /// Rows of the records read. A numpy array has as many as its first dimension; any other object is one.
    pub rows_in: u64,
    /// Rows of the records emitted or written.
    pub rows_out: u64,
    /// Rate of `records_in`, per second.
    pub records_per_second: f64,
    /// Bytes read from tasks of the same process.
    pub bytes_local: u64,
    /// Bytes read over TCP.
    pub bytes_tcp: u64,
    /// Share of time spent on records, 0 to 1, mean over the running subtasks.
    pub busy: f64,
    /// Share of time waiting for downstream to take records, 0 to 1.
    pub back_pressured: f64,
    /// Share of time waiting for records, 0 to 1.
    pub idle: f64,
    /// Share of time waiting for the interpreter, which runs one subtask of a process at a time. More workers have more
    /// interpreters.
    pub interpreter: f64,
    /// Part of `idle` spent waiting for calls of `Stream.map_async`, with `capacity` calls under way. The task reads no
    /// records meanwhile.
    pub awaiting: f64,
    /// Part of `idle` in which a source waited for the sources that `WatermarkStrategy.with_watermark_alignment` aligns
    /// it with.
    pub aligning: f64,
    /// Finer parts of these shares.
    #[serde(flatten)]
    pub parts: TimeParts,
    /// `busy` of the busiest subtask, 0 to 1: a hot key is visible here and not in the mean.
    pub busiest: f64,
    /// Number of subtasks about as busy as the busiest.
    #[serde(skip)]
    pub busiest_subtasks: u32,
    /// Bytes to which its producers fill buffers, so that in-flight data stays within its limit. None: to the end of
    /// the buffer.
    #[serde(rename = "fill_limit")]
    pub fill_limit_bytes: Option<u64>,
    /// Largest time that one of its subtasks needs for its in-flight data: now, while the job runs, or over the whole
    /// life. 0 without `max_in_flight_time`.
    #[serde(rename = "in_flight_seconds", serialize_with = "shown::seconds")]
    pub in_flight: Duration,
    /// Records that arrived and were dropped, if `flow_control="drop"` allows it.
    pub dropped_records: u64,
    /// Bytes of these records.
    pub dropped_bytes: u64,
    /// Records that its windows dropped because they came later than allowed.
    pub late_records: u64,
    /// Records that did not advance event time, because they were ahead of the others of their split by more than
    /// `max_ahead` of `WatermarkStrategy.with_max_ahead`. Windows received them.
    pub records_ahead: u64,
    /// Records to which it assigned timestamps.
    pub timed_records: u64,
    /// Number of these records that were later than the delay of its watermarks allows. Each is compared with the
    /// latest record of its split. 0 without a delay.
    pub out_of_order_records: u64,
    /// Largest delay of one of them relative to the latest record of its split, in milliseconds: a sufficient delay.
    pub out_of_order_ms: u64,
    /// Split of that record: a file with its row group, or a partition of a topic. None if the source has no splits.
    pub out_of_order_split: Option<String>,
    /// Smallest watermark of its subtasks, in milliseconds since 1970-01-01 UTC; 2**63 - 1 after the end of event time.
    /// None before the first watermark.
    pub watermark_ms: Option<i64>,
    /// Seconds by which the wall clock was ahead of that watermark at the last report: the least age of results by
    /// event time. Below 0, records are ahead of the clock. None before the first watermark and after the end of event
    /// time.
    #[serde(rename = "watermark_lag_seconds", serialize_with = "shown::milliseconds")]
    pub lag_ms: Option<i64>,
    /// State and pending input of its operators, over all subtasks.
    #[serde(flatten)]
    pub tally: StateStats,
    /// Bytes of its state in the last published checkpoint. None before the first.
    pub state_bytes: Option<u64>,
    /// Latency from the sources to it, if markers are enabled: recent, or since the attempt began in a report.
    #[serde(flatten)]
    pub latency: LatencyReport,
    /// Counters of its operators, upstream first, over all subtasks. Empty before they began.
    pub operators: Vec<OperatorReport>,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn vertex(name: &str, busy: f64, back_pressured: f64) -> VertexReport {
        VertexReport {
            name: name.into(),
            parallelism: 1,
            began: Duration::ZERO,
            ended: 0,
            records_in: 0,
            records_out: 0,
            rows_in: 0,
            rows_out: 0,
            records_per_second: 0.0,
            bytes_local: 0,
            bytes_tcp: 0,
            busy,
            back_pressured,
            idle: 1.0 - busy - back_pressured,
            interpreter: 0.0,
            awaiting: 0.0,
            aligning: 0.0,
            parts: TimeParts::default(),
            busiest: busy,
            busiest_subtasks: 1,
            fill_limit_bytes: None,
            in_flight: Duration::ZERO,
            dropped_records: 0,
            dropped_bytes: 0,
            late_records: 0,
            records_ahead: 0,
            timed_records: 0,
            out_of_order_records: 0,
            out_of_order_ms: 0,
            out_of_order_split: None,
            watermark_ms: None,
            lag_ms: None,
            tally: StateStats::default(),
            state_bytes: None,
            latency: LatencyReport::default(),
            operators: Vec::new(),
        }
    }

    pub(crate) const LINE: [(usize, usize); 2] = [(0, 1), (1, 2)];
}
