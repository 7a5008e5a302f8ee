//! Events that reach the driver from outside its loop, grouped by origin.

use std::net::SocketAddr;

use flownet_runtime::flame::FlameOrder;
use flownet_store::{Manifest, PublishError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::{channels::ChannelsReply, flame::FlameReply, savepoints::SavepointRequest, sources::FoundSplits};
use crate::rpc::{Attempt, Inspection, Introduction, StatusReport, WorkerClient, WorkerFault};

/// Event for the driver.
pub(super) enum Event {
    /// The user requests something.
    Request(Request),
    /// A worker joins, reports or is lost. Counts in all attempts.
    Worker(WorkerEvent),
    /// Counts only in this attempt of the job.
    Job { generation: u64, event: JobEvent },
    /// Counts only in this attempt of a region.
    Region { attempt: Attempt, event: RegionEvent },
}

/// Request of a user.
pub(super) enum Request {
    Cancel,
    /// Stops the job. May include the place for a copy of its last checkpoint.
    Stop {
        drain: bool,
        savepoint: Option<String>,
    },
    /// Passes more splits to a source.
    Splits(FoundSplits),
    /// Shows the channels of a subtask.
    Channels {
        vertex: u32,
        subtask: u32,
        reply: ChannelsReply,
    },
    /// Shows the flame graph of a subtask.
    Flame {
        vertex: u32,
        subtask: u32,
        order: FlameOrder,
        reply: FlameReply,
    },
    Checkpoint,
    /// Copies a checkpoint.
    Savepoint(SavepointRequest),
}

/// Event of a worker.
pub(super) enum WorkerEvent {
    /// It has authenticated and introduced itself.
    Introduced { introduction: Introduction, client: WorkerClient },
    /// It answers a poll.
    Reported { worker: u32, report: Box<StatusReport> },
    /// A call failed because the connection has ended.
    Disconnected { worker: u32, reason: String },
}

/// Event of one attempt of the job.
pub(super) enum JobEvent {
    /// A worker answers an inspection.
    Inspected { worker: u32, round: u32, inspection: Inspection },
    /// Result of publishing a checkpoint.
    Published { checkpoint: u64, result: Result<Manifest, PublishError> },
    /// A call of the worker failed because of a bug.
    CallFailed { worker: u32, message: String },
}

/// Answer of a worker for one attempt of a region.
pub(super) enum RegionEvent {
    /// It has built its tasks and serves their data at this address.
    Deployed { worker: u32, address: SocketAddr },
    /// Its tasks run.
    Started { worker: u32 },
    /// It has freed everything of the region.
    Stopped { worker: u32, report: Box<StatusReport> },
    /// It failed to carry out a request.
    Faulty { worker: u32, fault: WorkerFault },
}

/// Channel for events to a driver.
pub(super) struct Events {
    pub(super) sender: UnboundedSender<Event>,
    pub(super) receiver: UnboundedReceiver<Event>,
}
