//! The tokio TCP driver of flownet's exchange: handshake, connections, flusher.
//!
//! This crate decides nothing about the protocol: it moves bytes between sockets and the machines of
//! [`flownet_core::exchange`], and calls them when something arrived, when something may leave and when time is up.
//!
//! ```text
//! NetworkEnvironment
//!   listener ── handshake ── producer driver ── ProducerConnection ── subpartitions of registered partitions
//!   dialer ──── handshake ── consumer driver ── ConsumerConnection ── channels of this process' gates
//!   flusher ─── every flush timeout ── partitions that were written
//!   heartbeat ─ every interval ─────── both drivers: is the peer still there?
//! ```
//! Tasks use it from plain threads: [`PartitionWriter`] and [`GateReader`] block, [`ThreadParker`] lets a thread wait
//! wherever the core wants a waker, and [`Inlets`] lets it read the sockets it waits for itself.
//!
//! # Locks
//! The table of partitions, that of dialed connections, the flusher's groups, the heartbeat's connections and the set of
//! running tasks have one each.
//! They are held for a few statements, never two at once, and no code of another crate but tokio runs under them.
//!
//! Each end of a connection has two more. That of its `Sender`: whoever has something to send holds it while the machine
//! runs and the socket is written, neither of which waits. The machine takes the core's locks and wakes tasks under it; a
//! waker that leads back to the same `Sender` only tries the lock. And that of its `Receiver`, held by whoever reads, who
//! takes the `Sender`'s, and for a partition just opened that of its [`Inlets`]' list, in it. With TLS, each takes that of the
//! records of its direction in its own.
#![forbid(unsafe_code)]

pub mod handshake;

mod alarm;
mod config;
mod counters;
mod credentials;
mod dialer;
mod driver;
mod environment;
mod error;
mod flusher;
mod heartbeat;
mod inlets;
mod listener;
mod parker;
mod pending;
mod reader;
mod redial;
mod registry;
mod secret;
mod socket;
mod stream;
mod tls;
mod writer;

pub use config::{NetworkConfig, ReceiveBounds};
pub use counters::NetCounters;
pub use credentials::Credentials;
pub use environment::NetworkEnvironment;
pub use error::{CredentialsError, HandshakeError, NetError, SecretError};
pub use inlets::Inlets;
pub use parker::ThreadParker;
pub use pending::{PendingHandshake, PendingHandshakes};
pub use reader::{GateReader, Input};
pub use redial::redial;
pub use secret::Secret;
pub use stream::Stream;
pub use tls::{Certificates, TlsError};
pub use writer::PartitionWriter;
