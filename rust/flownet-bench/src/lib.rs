//! Measures the exchange: throughput, CPU time, memory and latency, always beside a raw TCP twin that does the same
//! work without an exchange.
//!
//! ```text
//! Bench (the calling process)                        party = a process of its own, or a thread
//!   run_exchange ── Begin, Go, End ──> sender        W writer threads ── one connection ──> one reading thread
//!                <─ Ready, Done ────── receiver      raw twin: one thread ── one connection ──> one thread
//!   run_latency                                      the same, records sent by the clock; ping-pong; wake-up
//! ```
//! A loaded or throttled machine changes faster than a run takes. So a run is a pair: the twin, then the exchange, a
//! moment later. Believe the ratio rather than the figures, and the median of several pairs rather than one.
//!
//! The command `flownet bench` and the benches under `benches/` are two doors to the same functions:
//! [`run_exchange`] and [`run_latency`] measure one pair, [`table`] shows many runs, [`BenchRun`] is one line of JSON.
//!
//! # Invariants
//! - I1: what is measured is checked: a run in which a record was lost, doubled or changed is an error, not a figure.
//! - I2: setting up (processes, connections, channels, pools) is not measured; closing down is not either, but all
//!   bytes have left the sender and every channel has ended before the clock stops.
//! - I3: no party outlives its bench: a party whose bench is gone ends itself, a bench that is stopped kills its parties.
#![forbid(unsafe_code)]

mod clock;
mod error;
mod exchange;
mod latency;
mod machine;
mod network;
mod party;
mod raw;
mod report;
mod role;
mod run;
mod spec;
mod stats;

pub use error::BenchError;
pub use machine::Machine;
pub use party::{Launcher, ProcessCommand, Stop, run_party};
pub use report::{BenchRun, Details, LatencyFigures, Workload, table};
pub use run::{run_exchange, run_latency};
pub use spec::{ExchangeSpec, FlowControl, LatencySpec, NetworkSpec, Partitioner, flink_grid};
pub use stats::{Spread, median};
