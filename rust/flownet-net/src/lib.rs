//! tokio TCP driver of flownet's exchange: handshake, connections, flusher.
//!
//! This crate makes no protocol decisions. It moves bytes between sockets and the machines of
//! [`flownet_core::exchange`]. It calls them when data arrived, when data may leave and when a timer expires.
//!
//! ```text
//! NetworkEnvironment
//!   listener ── handshake ── producer driver ── ProducerConnection ── subpartitions of registered partitions
//!   dialer ──── handshake ── consumer driver ── ConsumerConnection ── channels of this process' gates
//!   flusher ─── every flush timeout ── partitions that were written
//!   heartbeat ─ every interval ─────── both drivers: is the peer still there?
//! ```
//! Tasks use it from plain threads. [`PartitionWriter`] and [`GateReader`] block. [`ThreadParker`] lets a thread wait
//! wherever the core expects a waker. [`Inlets`] lets a thread read the sockets that it waits for.
//!
//! # Locks
//! These have one lock each: the table of partitions, the table of dialed connections, the flusher's groups, the
//! heartbeat's connections, and the set of running tasks. They are held for a few statements, never two at once. Under
//! them no code of another crate runs except tokio's.
//!
//! Each end of a connection has two more locks:
//! - The `Sender`'s lock: a thread with something to send holds it while the machine runs and the socket is written.
//!   Neither waits. Under it, the machine takes locks of the core and wakes tasks. A waker that leads back to the same
//!   `Sender` only tries the lock.
//! - The `Receiver`'s lock: the reading thread holds it. Under it, that thread takes the `Sender`'s lock, and the lock
//!   of the [`Inlets`]' list for a partition that was just opened.
//!
//! With TLS, each of these threads also takes the lock of its direction's records, innermost.
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
