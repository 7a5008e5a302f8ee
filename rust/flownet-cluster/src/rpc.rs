//! The calls between coordinator and workers, and the stream they travel on.
//!
//! The coordinator is the client. Both ends have proved that they are
//! of the job before the first call is read. Messages are MessagePack in
//! length-delimited frames of at most [`MAX_FRAME_BYTES`].

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use flownet_net::Stream;
use flownet_runtime::{MetricsSnapshot, TaskError, TaskInspection, source::SourceOrder, spec::TaskSpec};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tarpc::serde_transport::{self, Transport};
use tokio_serde::formats::MessagePack;
use tokio_util::codec::LengthDelimitedCodec;

use crate::{resources::Resources, settings::JobSettings};

/// What a worker does for its coordinator.
#[tarpc::service]
pub(crate) trait Worker {
    /// Says who it is.
    async fn introduce() -> Introduction;
    /// Builds tasks; answers where its data plane listens.
    async fn deploy(request: Deployment) -> Result<SocketAddr, WorkerFault>;
    /// Connects the tasks to the workers at these addresses and starts them.
    async fn start(peers: BTreeMap<u32, SocketAddr>) -> Result<(), WorkerFault>;
    /// Answers as soon as a task has ended or congestion has changed, at the latest after `wait`.
    async fn poll(wait: Duration) -> News;
    /// Says how fast its sources may go; of several orders the one of the
    /// highest number holds, whichever comes first.
    async fn order(number: u64, order: SourceOrder);
    /// Ends its sources, with what waits for time if the job is drained.
    async fn end_sources(drain: bool);
    /// Says what each of its tasks waits for. Dear: asked only if nothing moves.
    async fn inspect() -> Inspection;
    /// Cancels what runs, gives back everything, answers with the last news.
    async fn stop() -> News;
}

/// Who a worker is.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Introduction {
    pub(crate) worker: u32,
    pub(crate) pid: u32,
}

/// What a worker is to run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Deployment {
    pub(crate) settings: JobSettings,
    pub(crate) tasks: Vec<TaskSpec>,
}

/// Why a worker could not do what it was asked.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) enum WorkerFault {
    /// One of its tasks could not be built or connected.
    Task { task: u32, error: TaskError },
    /// Anything else.
    Worker(String),
}

/// What happened on a worker since the last call.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct News {
    /// Tasks that have ended, each reported once.
    pub(crate) ended: Vec<TaskEnd>,
    /// Counters of all its tasks.
    pub(crate) metrics: Vec<(u32, MetricsSnapshot)>,
    /// One of its tasks has a congested input, where flow control asks.
    pub(crate) is_congested: bool,
    /// What its process uses.
    pub(crate) resources: Resources,
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
}

/// A stream of `In` from the peer and `Out` to it.
pub(crate) type ControlTransport<In, Out> = Transport<Stream, In, Out, MessagePack<In, Out>>;

/// Puts messages on a stream whose ends have authenticated each other.
pub(crate) fn transport<In, Out>(stream: Stream) -> ControlTransport<In, Out>
where
    In: DeserializeOwned,
    Out: Serialize,
{
    let codec = LengthDelimitedCodec::builder().max_frame_length(MAX_FRAME_BYTES).new_framed(stream);
    serde_transport::new(codec, MessagePack::default())
}

/// The context of a call that may take until `limit` from now.
pub(crate) fn within(limit: Duration) -> tarpc::context::Context {
    let mut context = tarpc::context::current();
    context.deadline = std::time::Instant::now() + limit;
    context
}

/// Tasks carry the user's functions and small data; more is a mistake.
pub(crate) const MAX_FRAME_BYTES: usize = 256 * 1024 * 1024;
