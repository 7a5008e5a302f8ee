//! Web UI of jobs: a page, a REST API for it, and metrics for Prometheus.
//!
//! ```text
//! browser, flownet top, Prometheus --HTTP--> Server (thread "flownet-web") --asks--> JobView of each job it shows
//! ```
//!
//! - [`Server`]: listens, and shows the jobs that it is given, including ended ones.
//! - [`families`]: metrics of jobs, for any exporter; `prometheus` is one.
//! - `api`: the routes; `document`: their answers; `history`: time lines of the last hour.
//! - `archive`: ended jobs, in a folder.
//! - `channels`: route for the channels of a subtask, with rates; `flame`: route that samples a subtask.
//! - `guard`: access control.
//!
//! # Invariants
//! - I1: this crate never waits for a job, for the interpreter, or for a client that does not read. A job does not
//!   notice its viewers. Closing waits at most half a second for clients to read pending answers.
//! - I2: stored data is bounded: ended jobs in memory and in a folder, points of their history, connections, bytes of a
//!   request.
//! - I3: a client without the required token, or from a page of another origin, sees nothing and changes nothing.
//!   Without a token, no client can change anything.

#![forbid(unsafe_code)]

mod api;
mod archive;
mod channels;
mod document;
mod error;
mod flame;
mod guard;
mod history;
mod jobs;
mod latency;
mod metrics;
mod page;
mod prometheus;
mod server;
mod user_metrics;

pub use self::archive::ArchiveOptions;
pub use self::error::ServeError;
pub use self::metrics::{Family, Kind, Labels, MeasuredJob, Point, Value, families};
pub use self::server::{Options, Server};
