//! Defines the calls between coordinator and workers, and their transport.
//!
//! The coordinator is the client. Both ends have proved that they belong to the job before the first call is read.
//! Messages are [encoded](Encoding) in length-delimited frames of at most [`MAX_FRAME_BYTES`].

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use flownet_net::Stream;
use flownet_runtime::{
    CheckpointOrder, CheckpointReport, MetricsSnapshot, TaskError, TaskInspection,
    flame::{Flame, FlameOrder},
    inspection::TaskChannels,
    latency::Latency,
    log::DrainedLog,
    operator_counts::OperatorCounts,
    source::SourceOrder,
    spec::TaskSpec,
    user_metrics::UserMetricSnapshot,
};
use flownet_store::{PartRef, StoreError, TaskSnapshot};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tarpc::serde_transport::{self, Transport};
use tokio_util::codec::LengthDelimitedCodec;

use crate::{encoding::Encoding, resources::Resources, settings::JobSettings};

/// Calls that a worker serves for its coordinator.
#[tarpc::service]
pub(crate) trait Worker {
    /// Returns the number and process id of the worker.
    async fn introduce() -> Introduction;
    /// Builds tasks of a region. Returns the address of their data plane.
    async fn deploy(request: Deployment) -> Result<SocketAddr, WorkerFault>;
    /// Connects the tasks to the workers at these addresses and starts them.
    async fn start(attempt: Attempt, peers: BTreeMap<u32, SocketAddr>) -> Result<(), WorkerFault>;
    /// Returns as soon as a task has ended or congestion has changed, shortly after a log record, and at the latest
    /// after `wait`. Returns at most `log_room` bytes of log records, plus one record.
    async fn poll(wait: Duration, log_room: u64) -> StatusReport;
    /// Sets the rate limit of the worker's sources. Of several orders the one with the highest number holds, in any
    /// order of arrival.
    async fn order(number: u64, order: SourceOrder);
    /// Sets event-time limits of aligned sources, by task, if the tasks belong to this attempt. Of several calls the
    /// one with the highest number holds.
    async fn align(generation: u64, number: u64, limits: Vec<(u32, i64)>);
    /// Passes new splits to a source, if its tasks belong to this attempt.
    async fn add_splits(generation: u64, operator: u32, splits: Vec<u8>);
    /// Ends the worker's sources of a region. If the job is drained, pending timers fire.
    async fn end_sources(attempt: Attempt, drain: bool);
    /// Passes a checkpoint order to the worker's tasks, if they belong to this attempt of the job. Their region
    /// attempts must have begun by then: up to number `latest`.
    async fn checkpoint(generation: u64, latest: u64, order: CheckpointOrder);
    /// Returns what each task waits for. Expensive: called only if nothing makes progress.
    async fn inspect() -> Inspection;
    /// Returns the channels of one task, if the worker runs it. Expensive: called only when a user views the task.
    async fn channels(task: u32) -> Option<TaskChannels>;
    /// Samples one task, if the worker runs it. This takes as long as the order says. Returns an error if sampling is
    /// impossible.
    async fn flame(task: u32, order: FlameOrder) -> Result<Option<Flame>, String>;
    /// Cancels the tasks of a region and frees its resources. Returns the last report.
    async fn stop(region: u32) -> StatusReport;
}

/// Identity of a worker.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Introduction {
    pub(crate) worker: u32,
    pub(crate) pid: u32,
}

/// One attempt to run a region. Numbers increase over all attempts of a job, across regions.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Attempt {
    pub(crate) region: u32,
    pub(crate) number: u64,
}

/// Tasks that a worker is to run, with their resources.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Deployment {
    /// Attempt of the job to which the tasks belong.
    pub(crate) generation: u64,
    /// Attempt of their region.
    pub(crate) attempt: Attempt,
    pub(crate) settings: JobSettings,
    /// Segments of network memory of this worker, for the tasks of all regions.
    pub(crate) segments: usize,
    pub(crate) tasks: Vec<TaskSpec>,
    /// State that each task restores, by its number. None without checkpoints.
    pub(crate) restored: Option<BTreeMap<u32, TaskRestore>>,
    /// Whether snapshots get digests, because manifests are signed.
    pub(crate) has_digests: bool,
}

/// State that a task restores.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct TaskRestore {
    pub(crate) parts: Vec<PartRef>,
    /// Whether the task had finished.
    pub(crate) has_finished: bool,
}

/// Reason why a worker could not carry out a request.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) enum WorkerFault {
    /// One of its tasks could not be built or connected.
    Task { task: u32, error: TaskError },
    /// The state that its tasks restore could not be read.
    Store(StoreError),
    /// Any other failure.
    Worker(String),
}

/// Events on a worker since the last call.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct StatusReport {
    /// Attempts of its tasks, one per region.
    pub(crate) attempts: Vec<Attempt>,
    /// Tasks that have ended, each reported once.
    pub(crate) ended: Vec<TaskEnd>,
    /// Checkpoint reports of its tasks, in order.
    pub(crate) reports: Vec<TaskReport>,
    /// Counters of all its tasks.
    pub(crate) metrics: Vec<(u32, MetricsSnapshot)>,
    /// Counters of each task's operators.
    pub(crate) operators: Vec<(u32, Vec<OperatorCounts>)>,
    /// Metrics of users' functions, for tasks that have any.
    pub(crate) user_metrics: Vec<(u32, Vec<UserMetricSnapshot>)>,
    /// Latencies, for tasks that received latency markers.
    pub(crate) latencies: Vec<(u32, Vec<Latency>)>,
    /// Split of the latest record, for tasks with records later than their watermarks allow.
    pub(crate) latest_splits: Vec<(u32, String)>,
    /// Whether one of its tasks has a congested input, if flow control needs this.
    pub(crate) is_congested: bool,
    /// Resources that its process uses.
    pub(crate) resources: Resources,
    /// Log records of its tasks and of the worker itself.
    pub(crate) said: DrainedLog,
}

impl StatusReport {
    /// Keeps only the entries of the tasks that `is_kept` accepts.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(u32) -> bool) {
        self.ended.retain(|end| is_kept(end.task));
        self.reports.retain(|report| is_kept(report.task));
        self.metrics.retain(|(task, _)| is_kept(*task));
        self.operators.retain(|(task, _)| is_kept(*task));
        self.user_metrics.retain(|(task, _)| is_kept(*task));
        self.latencies.retain(|(task, _)| is_kept(*task));
        self.latest_splits.retain(|(task, _)| is_kept(*task));
    }
}

/// Wait states of a worker's tasks.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Inspection {
    /// Started tasks, by their ids.
    pub(crate) tasks: Vec<(u32, TaskInspection)>,
    /// Segments of the worker's network memory that no pool has.
    pub(crate) free: u64,
}

/// End of a task.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct TaskEnd {
    pub(crate) task: u32,
    pub(crate) error: Option<TaskError>,
    /// Whether the task had begun to run.
    pub(crate) has_run: bool,
}

/// Checkpoint report of a task, with the location of its state.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct TaskReport {
    pub(crate) task: u32,
    pub(crate) report: CheckpointReport<TaskSnapshot>,
}

/// Transport of messages `In` from the peer and `Out` to it.
pub(crate) type ControlTransport<In, Out> = Transport<Stream, In, Out, Encoding>;

/// Creates a transport on a stream whose ends have authenticated each other.
pub(crate) fn transport<In, Out>(stream: Stream) -> ControlTransport<In, Out>
where
    In: DeserializeOwned,
    Out: Serialize,
{
    let codec = LengthDelimitedCodec::builder().max_frame_length(MAX_FRAME_BYTES).new_framed(stream);
    serde_transport::new(codec, Encoding)
}

/// Returns the context of a call with a deadline `limit` from now.
pub(crate) fn within(limit: Duration) -> tarpc::context::Context {
    let mut context = tarpc::context::current();
    context.deadline = std::time::Instant::now() + limit;
    context
}

/// Tasks carry the user's functions and small data; more is a mistake.
pub(crate) const MAX_FRAME_BYTES: usize = 256 * 1024 * 1024;
