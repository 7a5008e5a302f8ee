//! Tasks with native chains, within one process and over loopback TCP.

#![allow(clippy::unwrap_used, reason = "a panic in a test is the report")]

mod bytes;
mod chains;
mod rig;

mod cancel;
mod channels;
mod checkpoints;
mod deploy;
mod exchange;
mod failures;
mod iterations;
mod joins;
mod latency;
mod pressure;
pub(crate) mod time;
mod unaligned;
mod written_later;
