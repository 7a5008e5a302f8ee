//! Plan expansion, coordinator and worker agent of flownet: the control plane.
//!
//! - [`plan`]: a [`Dataflow`](plan::Dataflow) becomes tasks placed on workers; no IO.
//! - [`Explanation`]: what a plan will take, as text and numbers.
//! - `machine`: every decision about a running job; no IO, no clock.

#![forbid(unsafe_code)]

mod error;
mod machine;
pub mod plan;
mod settings;

pub use self::{
    error::{ClusterError, WorkerExit, WorkerIdentity},
    machine::JobState,
    settings::{JobSettings, MAX_PARALLELISM, SettingsError},
};
