//! The tokio TCP driver of flownet's exchange: handshake, connections, flusher.
//!
//! This crate decides nothing about the protocol: it moves bytes between sockets and the machines of
//! [`flownet_core::exchange`], and calls them when something arrived, when something may leave and when time is up.
#![forbid(unsafe_code)]

pub mod handshake;

mod config;
mod counters;
mod dialer;
mod driver;
mod environment;
mod error;
mod flusher;
mod listener;
mod parker;
mod reader;
mod registry;
mod secret;
mod socket;
mod writer;

pub use config::NetworkConfig;
pub use counters::NetCounters;
pub use environment::NetworkEnvironment;
pub use error::{HandshakeError, NetError, SecretError};
pub use parker::{ThreadParker, wait_until};
pub use reader::{GateReader, Input};
pub use secret::Secret;
pub use writer::PartitionWriter;
