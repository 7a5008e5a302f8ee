//! Plan expansion, coordinator and worker agent of flownet: the control plane.
//!
//! - [`plan`]: a [`Dataflow`](plan::Dataflow) becomes tasks placed on workers; no IO.
//! - `machine`: every decision about a running job; no IO, no clock.

#![forbid(unsafe_code)]

mod error;
mod launcher;
mod machine;
pub mod plan;
mod report;
mod rpc;
mod settings;
mod tracker;

pub use self::{
    error::{ClusterError, WorkerExit, WorkerIdentity},
    launcher::WorkerCommand,
    machine::JobState,
    report::{Bottleneck, JobReport, JobStatus, VertexReport, Waiting},
    settings::{JobSettings, MAX_PARALLELISM, SettingsError},
};
