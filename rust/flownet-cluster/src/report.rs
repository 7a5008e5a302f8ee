//! What a job did and does, vertex by vertex.

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

/// A running job, as of its workers' last reports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobStatus {
    /// Name from the settings.
    #[serde(rename = "name")]
    pub job_name: String,
    /// Where the job is.
    pub state: JobState,
    /// Time since it was submitted.
    #[serde(rename = "seconds", serialize_with = "shown::seconds")]
    pub elapsed: Duration,
    /// Workers that have registered; the submitting process only if it runs tasks.
    #[serde(skip)]
    pub workers: Vec<WorkerIdentity>,
    /// Vertices in topological order; rates and ratios over the last seconds.
    #[serde(rename = "tasks")]
    pub vertices: Vec<VertexReport>,
    /// Exchanges between them.
    #[serde(skip)]
    pub exchanges: Vec<Exchange>,
    /// Memory no process exceeds for the data plane.
    pub network_memory_bytes: usize,
    /// Which vertex holds the job up, if one stands out.
    #[serde(serialize_with = "shown::text")]
    pub bottleneck: Option<Bottleneck>,
    /// What the job waits for, if nothing moves although records wait.
    #[serde(rename = "stalled", serialize_with = "shown::headline")]
    pub stall: Option<Stall>,
    /// The checkpoint that was triggered and neither counts nor has failed.
    pub checkpoint_under_way: Option<CheckpointUnderWay>,
    /// What its functions count, over all subtasks.
    #[serde(rename = "metrics")]
    pub user_metrics: Vec<UserMetric>,
    /// Its checkpoints and restarts.
    #[serde(flatten)]
    pub history: History,
}

/// A job that has finished.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobReport {
    /// Name from the settings.
    #[serde(rename = "name")]
    pub job_name: String,
    /// From submission to the last worker's end.
    #[serde(rename = "seconds", serialize_with = "shown::seconds")]
    pub elapsed: Duration,
    /// Vertices in topological order; rates and ratios over each task's whole life.
    #[serde(rename = "tasks")]
    pub vertices: Vec<VertexReport>,
    /// Which vertex held the job up, if one stands out.
    #[serde(serialize_with = "shown::text")]
    pub bottleneck: Option<Bottleneck>,
    /// How often nothing moved although records waited, if ever.
    #[serde(rename = "stalled", serialize_with = "shown::text")]
    pub stalls: Option<StallHistory>,
    /// Memory no process exceeded for the data plane.
    pub network_memory_bytes: usize,
    /// What its functions count, over all subtasks.
    #[serde(rename = "metrics")]
    pub user_metrics: Vec<UserMetric>,
    /// Its checkpoints and restarts.
    #[serde(flatten)]
    pub history: History,
}

/// How a job ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JobOutcome {
    /// Its sources ended, or it was stopped.
    Finished,
    /// Somebody cancelled it.
    Cancelled,
    /// Something failed, and nothing followed.
    Failed,
}

/// What has become of the attempts to run a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct History {
    /// The checkpoint of a run before that the first attempt went on from.
    pub resumed_from: Option<u64>,
    /// Checkpoints that count, of all attempts.
    pub checkpoints_made: u64,
    /// Those that failed.
    pub checkpoints_failed: u64,
    /// Why the last of these did.
    pub last_failed_checkpoint: Option<String>,
    /// The last 100 that count.
    pub checkpoints: Vec<CheckpointSummary>,
    /// Attempts that failed and were followed by another.
    pub restarted: u64,
    /// The last 100 of these.
    pub restarts: Vec<RestartSummary>,
}

/// A checkpoint that was triggered and neither counts nor has failed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckpointUnderWay {
    /// Its number.
    pub number: u64,
    /// Time since its trigger.
    #[serde(rename = "seconds", serialize_with = "shown::seconds")]
    pub elapsed: Duration,
    /// Tasks that have subtasks which have not answered. Empty while it is published.
    pub unanswered: Vec<UnansweredTask>,
}

/// A task whose subtasks have not all answered a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UnansweredTask {
    /// Names of its operators.
    pub name: String,
    /// Subtasks that have not answered.
    pub count: u64,
    /// The first ten of these.
    pub subtasks: Vec<u32>,
}

/// A checkpoint that counts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckpointSummary {
    /// Its number; they grow over all attempts and runs.
    pub number: u64,
    /// When it came to count, since the job was submitted.
    #[serde(rename = "at_seconds", serialize_with = "shown::seconds")]
    pub at: Duration,
    /// State that it is made of.
    pub bytes: u64,
    /// Of this, what was written for it.
    pub written_bytes: u64,
    /// From its trigger until it counted.
    #[serde(rename = "seconds", serialize_with = "shown::seconds")]
    pub duration: Duration,
    /// The longest that a task waited from its first barrier to its last.
    #[serde(rename = "aligned_seconds", serialize_with = "shown::seconds")]
    pub aligned: Duration,
    /// The longest that a task stood still to take its snapshot, or to write some of it, at once.
    #[serde(rename = "stood_still_seconds", serialize_with = "shown::seconds")]
    pub stood_still: Duration,
    /// What it is made of, task by task: of the last few.
    pub parts: Vec<CheckpointPart>,
}

/// An attempt that failed and was followed by another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RestartSummary {
    /// When it failed, since the job was submitted.
    #[serde(rename = "at_seconds", serialize_with = "shown::seconds")]
    pub at: Duration,
    /// Why.
    pub cause: String,
    /// Python's traceback, if a user's function failed: of the last few restarts, and the end of a long one.
    pub traceback: Option<String>,
    /// The checkpoint that the next went on from; none: it began anew.
    pub resumed_from: Option<u64>,
    /// Those that began anew, where others ran on: what failed, and all that share an exchange with it. Empty: the whole job.
    pub tasks: Vec<String>,
}

/// One vertex, all its subtasks together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VertexReport {
    /// Names of its operators.
    pub name: String,
    /// Subtasks.
    pub parallelism: u32,
    /// Since when they count, since the job was submitted: its beginning, or when they began anew after a failure.
    #[serde(rename = "began_seconds", serialize_with = "shown::seconds")]
    pub began: Duration,
    /// Subtasks that have ended.
    #[serde(skip)]
    pub ended: u32,
    /// Records read, or produced by a source, since the start.
    pub records_in: u64,
    /// Records sent on, or taken by a sink, since the start.
    pub records_out: u64,
    /// Rows of the records read: an array has many.
    pub rows_in: u64,
    /// Rows of the records sent on, or taken.
    pub rows_out: u64,
    /// Records read, or produced, a second.
    pub records_per_second: f64,
    /// Bytes read from tasks of the same process since the start.
    pub bytes_local: u64,
    /// Bytes read over TCP since the start.
    pub bytes_tcp: u64,
    /// Share of the time at work, 0 to 1, mean over the subtasks.
    pub busy: f64,
    /// Share of the time waiting for what is downstream.
    pub back_pressured: f64,
    /// Share of the time without input.
    pub idle: f64,
    /// Share of the time waiting for the interpreter that the tasks of a process share.
    pub interpreter: f64,
    /// The part of `idle` that was spent waiting for calls of its functions, as
    /// many under way as it may have: it took no records meanwhile.
    pub awaiting: f64,
    /// The part of `idle` that a source spent waiting for those it is aligned
    /// with, which were behind in event time.
    pub aligning: f64,
    /// What these are made of.
    #[serde(flatten)]
    pub parts: TimeParts,
    /// `busy` of the busiest subtask: a hot key shows here and not in the mean.
    pub busiest: f64,
    /// Subtasks about as busy as the busiest.
    #[serde(skip)]
    pub busiest_subtasks: u32,
    /// How far its producers fill buffers, at least, so that no more is in flight
    /// to it than is allowed. None: not bounded, or full buffers are no more.
    #[serde(rename = "fill_limit")]
    pub fill_limit_bytes: Option<u64>,
    /// The work that was in flight to one of its subtasks, at most: now, or over
    /// its whole life in a report. Zero where it is not bounded.
    #[serde(rename = "in_flight_seconds", serialize_with = "shown::seconds")]
    pub in_flight: Duration,
    /// Records thrown away in front of it, where its exchange may.
    pub dropped_records: u64,
    /// Bytes of these.
    pub dropped_bytes: u64,
    /// Records that its windows dropped because they came too late.
    pub late_records: u64,
    /// Records that did not move event time, as they were further ahead of the others of their split than `max_ahead`.
    pub records_ahead: u64,
    /// Records that got their times in it.
    pub timed_records: u64,
    /// Of these, records that came later than the delay of its watermarks
    /// allows.
    pub out_of_order_records: u64,
    /// The most that one of them was behind earlier ones of its split, in
    /// milliseconds.
    pub out_of_order_ms: u64,
    /// The split of that record.
    pub out_of_order_split: Option<String>,
    /// How far event time has come in its subtask that is furthest behind, in
    /// milliseconds since the epoch; the greatest number when time has ended.
    /// None before the first watermark.
    pub watermark_ms: Option<i64>,
    /// How far the wall's clock was ahead of that, at the last report. None
    /// before the first watermark and when time has ended.
    #[serde(rename = "watermark_lag_seconds", serialize_with = "shown::milliseconds")]
    pub lag_ms: Option<i64>,
    /// What its operators hold and have before them, over all subtasks.
    #[serde(flatten)]
    pub tally: StateStats,
    /// Bytes of its state in the last checkpoint that counts, if one does.
    pub state_bytes: Option<u64>,
    /// How long markers took from the sources to it, if they were on: lately, or since the attempt began in a report.
    #[serde(flatten)]
    pub latency: LatencyReport,
    /// What went through each of its operators, upstream first, over all subtasks; none before they began.
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
