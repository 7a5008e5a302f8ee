//! What is said between a bench and its parties: one line of JSON each.
//!
//! ```text
//! bench                     sender, pong                          receiver, ping
//!   Begin(role) ──────────> sets up; Listening(address)
//!   Begin(role, address) ────────────────────────────────────────> connects; Ready
//!   Go ───────────────────> sends everything                       receives everything; Done(usage)
//!   End ──────────────────> its threads are idle; Done(usage)
//! ```
//! The clock runs from Go to the receiver's Done. The sender hears of the end only then, so that what its own threads
//! still had to write is counted as its CPU time. A party that works alone says Ready, hears Go, says Done.

use std::net::SocketAddr;

use flownet_net::NetCounters;
use serde::{Deserialize, Serialize};

use crate::report::LatencyFigures;
use crate::spec::{ExchangeSpec, LatencySpec};

/// What moves the records.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) enum Shape {
    /// The exchange.
    Flownet,
    /// One blocking socket and nothing else.
    Raw,
}

/// What a party is there for.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum Role {
    ExchangeSender {
        shape: Shape,
        spec: ExchangeSpec,
        credentials: String,
    },
    ExchangeReceiver {
        shape: Shape,
        spec: ExchangeSpec,
        credentials: String,
        sender: SocketAddr,
    },
    /// Both ends of an exchange in one process.
    ExchangeLocal {
        spec: ExchangeSpec,
    },
    LatencySender {
        shape: Shape,
        spec: LatencySpec,
        credentials: String,
    },
    LatencyReceiver {
        shape: Shape,
        spec: LatencySpec,
        credentials: String,
        sender: SocketAddr,
    },
    /// Sends back what comes.
    Pong {
        message_bytes: usize,
    },
    /// Sends a message and waits for it to come back, again and again.
    Ping {
        message_bytes: usize,
        pong: SocketAddr,
    },
    /// Wakes a thread, again and again.
    WakeUp,
}

/// From the bench.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum Instruction {
    Begin(Box<Role>),
    Go,
    End,
}

/// From a party.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum Answer {
    Listening(SocketAddr),
    Ready,
    Done(Box<Usage>),
    Failed(String),
}

/// What a party used, and what it found.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Usage {
    /// CPU time since it was ready.
    pub(crate) cpu_ns: u64,
    pub(crate) peak_rss_bytes: u64,
    /// Its pool; 0 without one.
    pub(crate) network_memory_bytes: u64,
    pub(crate) latency: Option<LatencyFigures>,
    /// All latencies, encoded.
    pub(crate) histogram: Option<String>,
    pub(crate) net: NetFigures,
}

/// What the network threads of one side did.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct NetFigures {
    /// Bytes read from sockets.
    pub bytes_in: u64,
    /// Bytes written to sockets.
    pub bytes_out: u64,
    /// Frames decoded.
    pub frames_in: u64,
    /// System calls that read.
    pub reads: u64,
    /// System calls that wrote.
    pub writes: u64,
    /// Turns of the connection drivers: wake-ups and yields.
    pub turns: u64,
}

impl From<NetCounters> for NetFigures {
    fn from(counters: NetCounters) -> Self {
        let NetCounters { bytes_in, bytes_out, frames_in, reads, writes, turns, .. } = counters;
        Self { bytes_in, bytes_out, frames_in, reads, writes, turns }
    }
}

impl Role {
    /// Its name in errors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::ExchangeSender { shape: Shape::Flownet, .. } => "sender",
            Self::ExchangeReceiver { shape: Shape::Flownet, .. } => "receiver",
            Self::ExchangeSender { shape: Shape::Raw, .. } => "sender of the raw twin",
            Self::ExchangeReceiver { shape: Shape::Raw, .. } => "receiver of the raw twin",
            Self::ExchangeLocal { .. } => "exchange",
            Self::LatencySender { shape: Shape::Flownet, .. } => "sender",
            Self::LatencyReceiver { shape: Shape::Flownet, .. } => "receiver",
            Self::LatencySender { shape: Shape::Raw, .. } => "sender of the raw twin",
            Self::LatencyReceiver { shape: Shape::Raw, .. } => "receiver of the raw twin",
            Self::Pong { .. } => "answering side of the ping-pong",
            Self::Ping { .. } => "asking side of the ping-pong",
            Self::WakeUp => "wake-up twin",
        }
    }
}
