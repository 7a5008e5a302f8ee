//! What a job looks like from outside: a page to look at, REST under it, and metrics for Prometheus.
//!
//! ```text
//! browser, flownet top, Prometheus --HTTP--> Server (thread "flownet-web") --asks--> JobView of each job it shows
//! ```
//!
//! - [`Server`]: listens, and shows the jobs that it is told of, those that have ended too.
//! - [`families`]: what is measured of jobs, for whoever exports it; `prometheus` is one.
//! - `api`: the routes; `document`: what they answer with; `history`: what was.
//! - `archive`: jobs that have ended, in a folder.
//! - `channels`: the route that shows those of a subtask, with rates; `flame`: the route that takes samples of a subtask.
//! - `guard`: who may ask.
//!
//! # Invariants
//! - I1: nothing here waits for a job, for the interpreter, or for a client that does not read: a job does not notice who looks.
//!   Closing waits half a second at most, for clients to read what they asked for.
//! - I2: what is kept is bounded: jobs that have ended, in memory and in a folder, points of their history, connections, bytes of a request.
//! - I3: who has no token where there is one, or comes from a page of somebody else, is told nothing and changes nothing.
//!   Without a token nobody changes anything.

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
