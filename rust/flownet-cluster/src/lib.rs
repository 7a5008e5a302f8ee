//! Plan expansion, coordinator and worker agent of flownet: the control plane.
//!
//! - [`plan`]: a [`Dataflow`] becomes tasks placed on workers; no IO.
//! - [`explain()`]: what a plan will take, as numbers and as text.
//! - [`Coordinator::submit`] starts a job; its [`JobHandle`] waits, watches and cancels, a [`JobView`] of it without owning it.
//! - [`run_worker`]: the body of a worker process.
//! - [`WorkerPool`], [`serve_pool`]: workers that somebody else starts, and their body.
//!
//! ```text
//! Dataflow --plan--> tasks --Coordinator--> RegionsMachine decides, Driver carries out
//!                                              |  calls (tarpc, after the handshake)
//!                                              v
//!                                           Agent: builds, starts, watches, cancels tasks
//! ```
//!
//! Every decision about a running job is in `machine`, which has no IO and no
//! clock; `coordinator` and `worker` only carry it out.

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
