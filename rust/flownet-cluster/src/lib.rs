//! Plans jobs, coordinates them and runs their tasks: the control plane of flownet.
//!
//! - [`plan`]: turns a [`Dataflow`] into tasks placed on workers; no I/O.
//! - [`explain()`]: describes the resources of a plan, as numbers and as text.
//! - [`Coordinator::submit`]: starts a job. Its [`JobHandle`] owns the job; a [`JobView`] observes and cancels it
//!   without owning it.
//! - [`run_worker`]: runs a worker process.
//! - [`WorkerPool`], [`serve_pool`]: workers that are started elsewhere, and the function that they run.
//!
//! ```text
//! Dataflow --plan--> tasks --Coordinator--> RegionsMachine decides, Driver carries out
//!                                              |  calls (tarpc, after the handshake)
//!                                              v
//!                                           Agent: builds, starts, watches, cancels tasks
//! ```
//!
//! Every decision about a running job is in `machine`, which has no I/O and no clock. `coordinator` and `worker` only
//! carry out its decisions.

#![forbid(unsafe_code)]

mod agent;
mod alignment;
mod bottleneck;
mod checkpoint;
mod coordinator;
mod encoding;
mod error;
mod explain;
mod flow;
mod latency;
mod launcher;
mod machine;
mod member;
mod operators;
pub mod plan;
mod port;
mod probe;
mod report;
mod resources;
mod rpc;
mod sample;
mod settings;
mod shown;
mod snapshots;
mod stall;
mod threads;
mod time_parts;
mod tls;
mod tracker;
mod user_metrics;
mod worker;

pub use flownet_runtime::{StatePart, flame::FlameOrder, log::LogLevel};
pub use flownet_store::{ListedCheckpoint, Listing, OperatorEntry, StoreError};

pub use self::{
    bottleneck::{Bottleneck, BottleneckWaiters},
    checkpoint::{CheckpointPart, Restart, RestoreMismatch},
    coordinator::{
        ChannelEnd, CheckpointContents, Coordinator, FlameFrame, InputChannel, JobHandle, JobLogEntry, JobView,
        LogPage, LogPrinter, LogQuery, NoFlame, OutputChannel, PendingSavepoint, Savepoint, TaskChannels, TaskFlame,
        checkpoints, read_checkpoint, read_medium, save_checkpoint,
    },
    error::{ClusterError, WorkerExit, WorkerIdentity, way_out},
    explain::{Explanation, WorkerDemand, explain},
    latency::LatencyReport,
    launcher::{Launcher, PoolWorker, Refill, WorkerCommand, WorkerPool},
    machine::JobState,
    member::{Enlistment, MemberEnd, serve_pool},
    operators::OperatorReport,
    plan::{Dataflow, PlanError},
    port::DialError,
    probe::Probe,
    report::{
        CheckpointSummary, CheckpointUnderWay, History, JobOutcome, JobReport, JobStatus, RestartSummary,
        UnansweredTask, VertexReport,
    },
    sample::{JobSample, TaskSample, WorkerSample},
    settings::{JobSettings, MAX_PARALLELISM, Setting, SettingKind, SettingsError, StatePlace},
    stall::{Stall, StallCause, StallHistory},
    time_parts::TimeParts,
    tls::Tls,
    user_metrics::UserMetric,
    worker::{FactoryBuilder, WorkerError, run_worker},
};
