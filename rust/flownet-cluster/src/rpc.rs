//! The calls between coordinator and workers, and the stream they travel on.
//!
//! The coordinator is the client. Both ends have proved that they are
//! of the job before the first call is read. Messages are
//! [encoded](Encoding) in length-delimited frames of at most [`MAX_FRAME_BYTES`].

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use flownet_core::{
    CheckpointId,
    event::{Barrier, BarrierKind},
};
use flownet_net::Stream;
use flownet_runtime::{
    CheckpointOrder, MetricsSnapshot, RootCause, TaskError, TaskInspection,
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

/// What a worker does for its coordinator.
#[tarpc::service]
pub(crate) trait Worker {
    /// Says who it is.
    async fn introduce() -> Introduction;
    /// Builds tasks of a region; answers where their data plane listens.
    async fn deploy(request: Deployment) -> Result<SocketAddr, WorkerFault>;
    /// Connects the tasks to the workers at these addresses and starts them.
    async fn start(attempt: Attempt, peers: BTreeMap<u32, SocketAddr>) -> Result<(), WorkerFault>;
    /// Answers as soon as a task has ended or congestion has changed, soon after something was said, at the latest after
    /// `wait`. Of what was said it tells no more than `log_room` bytes, and an entry.
    async fn poll(wait: Duration, log_room: u64) -> StatusReport;
    /// Says how fast its sources may go; of several orders the one of the
    /// highest number holds, whichever comes first.
    async fn order(number: u64, order: SourceOrder);
    /// Says how far sources that are aligned may go in event time, by their task, if they are still those of this attempt;
    /// of several the one of the highest number holds.
    async fn align(generation: u64, number: u64, limits: Vec<(u32, i64)>);
    /// Says that there is more to read for a source, if its tasks are still those of this attempt.
    async fn add_splits(generation: u64, operator: u32, splits: Vec<u8>);
    /// Ends its sources of a region, with what waits for time if the job is drained.
    async fn end_sources(attempt: Attempt, drain: bool);
    /// Tells its tasks of a checkpoint, if they are still those of this attempt of the job, and of attempts of their regions
    /// that had begun by then: up to number `latest`.
    async fn checkpoint(generation: u64, latest: u64, order: Order);
    /// Says what each of its tasks waits for. Dear: asked only if nothing moves.
    async fn inspect() -> Inspection;
    /// Looks at the channels of one of its tasks, if it has it. Dear: asked only if somebody looks at the task.
    async fn channels(task: u32) -> Option<TaskChannels>;
    /// Takes samples of one of its tasks, if it has it, which takes the time of the order; or says why it cannot.
    async fn flame(task: u32, order: FlameOrder) -> Result<Option<Flame>, String>;
    /// Cancels what runs of a region, gives back all it had, answers with the last news.
    async fn stop(region: u32) -> StatusReport;
}

/// Who a worker is.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Introduction {
    pub(crate) worker: u32,
    pub(crate) pid: u32,
}

/// One attempt to run a region. Those of a job are numbered upwards, whatever region they are of.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Attempt {
    pub(crate) region: u32,
    pub(crate) number: u64,
}

/// What a worker is to run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Deployment {
    /// The attempt to run the job that they are of.
    pub(crate) generation: u64,
    /// The same of their region.
    pub(crate) attempt: Attempt,
    pub(crate) settings: JobSettings,
    /// Segments of the network memory of this worker, for the tasks of all regions.
    pub(crate) segments: usize,
    pub(crate) tasks: Vec<TaskSpec>,
    /// What each task is to go on from, by its number. None without checkpoints.
    pub(crate) restored: Option<BTreeMap<u32, TaskRestore>>,
    /// Manifests are signed, so what tasks keep gets digests.
    pub(crate) has_digests: bool,
}

/// What a task goes on from.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct TaskRestore {
    pub(crate) parts: Vec<PartRef>,
    /// It had come to its end.
    pub(crate) has_finished: bool,
}

/// What tasks are told of a checkpoint.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) enum Order {
    /// Take it; when it was triggered, in milliseconds since the epoch, and when its barriers overtake what is queued.
    Trigger { checkpoint: u64, triggered_ms: i64, overtakes: UnalignedMode },
    /// It has taken too long: it overtakes from now on.
    Overtake { checkpoint: u64, triggered_ms: i64 },
    /// It counts.
    Complete { checkpoint: u64 },
    /// It never will.
    Abort { checkpoint: u64 },
}

/// When the barriers of a checkpoint overtake what is queued.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) enum UnalignedMode {
    Never,
    AtOnce,
    /// When it is [told](Order::Overtake) to.
    Late,
}

impl From<Order> for CheckpointOrder {
    fn from(order: Order) -> Self {
        let barrier = |checkpoint, timestamp_ms, kind| {
            let checkpoint_id = CheckpointId::new(checkpoint);
            Barrier { checkpoint_id, timestamp_ms, kind }
        };
        match order {
            Order::Trigger { checkpoint, triggered_ms, overtakes } => {
                let kind = match overtakes {
                    UnalignedMode::Never => BarrierKind::Aligned,
                    UnalignedMode::AtOnce => BarrierKind::Unaligned,
                    UnalignedMode::Late => BarrierKind::AlignedWithTimeout,
                };
                Self::Trigger(barrier(checkpoint, triggered_ms, kind))
            }
            Order::Overtake { checkpoint, triggered_ms } => {
                Self::Overtake(barrier(checkpoint, triggered_ms, BarrierKind::AlignedWithTimeout))
            }
            Order::Complete { checkpoint } => Self::Complete(checkpoint),
            Order::Abort { checkpoint } => Self::Abort(checkpoint),
        }
    }
}

/// Why a worker could not do what it was asked.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) enum WorkerFault {
    /// One of its tasks could not be built or connected.
    Task { task: u32, error: TaskError },
    /// What its tasks are to go on from could not be read.
    Store(StoreError),
    /// Anything else.
    Worker(String),
}

/// What happened on a worker since the last call.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct StatusReport {
    /// What its tasks are of, region by region.
    pub(crate) attempts: Vec<Attempt>,
    /// Tasks that have ended, each reported once.
    pub(crate) ended: Vec<TaskEnd>,
    /// What tasks say of checkpoints, in their order.
    pub(crate) reports: Vec<TaskReport>,
    /// Counters of all its tasks.
    pub(crate) metrics: Vec<(u32, MetricsSnapshot)>,
    /// What went through the operators of each.
    pub(crate) operators: Vec<(u32, Vec<OperatorCounts>)>,
    /// Of those whose functions count something: what that is.
    pub(crate) user_metrics: Vec<(u32, Vec<UserMetricSnapshot>)>,
    /// Of those to which markers of latency came: how long they took.
    pub(crate) latencies: Vec<(u32, Vec<Latency>)>,
    /// Of those with records that came later than their watermarks allow: the split of the latest.
    pub(crate) latest_splits: Vec<(u32, String)>,
    /// One of its tasks has a congested input, where flow control asks.
    pub(crate) is_congested: bool,
    /// What its process uses.
    pub(crate) resources: Resources,
    /// What its tasks and it have said.
    pub(crate) said: DrainedLog,
}

impl StatusReport {
    /// Keeps what is of these tasks.
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

/// What the tasks of a worker wait for.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Inspection {
    /// Those that have started, by their ids.
    pub(crate) tasks: Vec<(u32, TaskInspection)>,
    /// Segments of the worker's network memory that no pool holds.
    pub(crate) free: u64,
}

/// How a task ended.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct TaskEnd {
    pub(crate) task: u32,
    pub(crate) error: Option<TaskError>,
    /// Whether it had come to run.
    pub(crate) has_run: bool,
}

/// What a task says of a checkpoint.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct TaskReport {
    pub(crate) task: u32,
    pub(crate) report: Report,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) enum Report {
    /// What it keeps is written.
    Acknowledged {
        checkpoint: u64,
        snapshot: TaskSnapshot,
        /// It had come to the end of its input.
        is_last: bool,
        /// That was the input's own end.
        has_finished: bool,
        /// From the first barrier to the last.
        aligned: Duration,
        /// How long it stood still to take its snapshot.
        stood_still: Duration,
    },
    /// It has overtaken what was in line at its outputs, and that is written.
    Overtook { checkpoint: u64, snapshot: TaskSnapshot },
    /// It could not.
    Declined { checkpoint: u64, reason: String, root_cause: Option<RootCause> },
    /// It has come to the end of its input, and waits for one more checkpoint.
    Finished,
}

/// A stream of `In` from the peer and `Out` to it.
pub(crate) type ControlTransport<In, Out> = Transport<Stream, In, Out, Encoding>;

/// Puts messages on a stream whose ends have authenticated each other.
pub(crate) fn transport<In, Out>(stream: Stream) -> ControlTransport<In, Out>
where
    In: DeserializeOwned,
    Out: Serialize,
{
    let codec = LengthDelimitedCodec::builder().max_frame_length(MAX_FRAME_BYTES).new_framed(stream);
    serde_transport::new(codec, Encoding)
}

/// The context of a call that may take until `limit` from now.
pub(crate) fn within(limit: Duration) -> tarpc::context::Context {
    let mut context = tarpc::context::current();
    context.deadline = std::time::Instant::now() + limit;
    context
}

/// Tasks carry the user's functions and small data; more is a mistake.
pub(crate) const MAX_FRAME_BYTES: usize = 256 * 1024 * 1024;
