//! What becomes of a payload that nobody promised to hold: the ways to receive without credit.
//!
//! They exist to be compared with credit; each fails in its own way. [`tcp`] waits for a segment and so stops its socket,
//! [`lossy`] throws whole records away, [`unbounded`] takes memory from the heap. A channel under one of them says so to
//! its producer with [`Credit::UNLIMITED`](crate::Credit), keeps its life, its sequence and its events as under credit,
//! and owns no segments.

mod lossy;
mod tcp;
mod unbounded;

use std::fmt;
use std::sync::Arc;
use std::task::{Poll, Waker};

use flownet_memory::{BufferPool, MemorySegment};

use self::lossy::Lossy;
use self::tcp::TcpWait;
use self::unbounded::UnboundedPolicy;
use super::RemoteChannel;
use crate::error::PeerViolation;
use crate::gate::InputGate;

/// What keeps a producer from sending more than its consumer can hold.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum ChannelControl {
    /// Credit: the producer sends only what the consumer has promised to hold.
    #[default]
    Credit,
    /// TCP alone: a payload that finds no segment stops the socket, and all channels of the exchange that share it.
    /// Exchanges have sockets of their own, as in Flink before 1.5: on one socket, an exchange could wait for another
    /// one downstream of it for ever.
    Tcp {
        /// The exchange whose channels share a socket.
        exchange: u32,
    },
    /// Nothing: records that do not fit into the gate's queue are thrown away, and counted.
    Drop,
    /// Nothing: the gate's queue grows on the heap, up to a limit at which the gate fails.
    Unbounded,
}

/// See the [module docs](self). Called for an open channel, by the one thread that reads its connection.
pub(super) trait ReceivePolicy: fmt::Debug + Send + Sync {
    /// A place for a payload of so many bytes. `None` if there is none any more: the channel closed, or fails for want
    /// of memory. Pending: `waker` is woken when to ask again.
    fn poll_place(&self, channel: &RemoteChannel, bytes: usize, waker: &Waker) -> Poll<Option<MemorySegment>>;

    /// Takes the payload that lies in the first `len` bytes of such a place.
    fn hand_on(
        &self,
        channel: &RemoteChannel,
        gate: &InputGate,
        segment: MemorySegment,
        len: usize,
    ) -> Result<(), PeerViolation>;

    /// The channel closed: whoever waits is woken, what it has goes home.
    fn close(&self) {}
}

impl ChannelControl {
    /// `None` under credit: there every payload has its place before it is sent.
    pub(super) fn policy(self, pool: &Arc<BufferPool>) -> Option<Box<dyn ReceivePolicy>> {
        let pool = Arc::clone(pool);
        match self {
            Self::Credit => None,
            Self::Tcp { .. } => Some(Box::new(TcpWait::new(pool))),
            Self::Drop => Some(Box::new(Lossy::new(pool))),
            Self::Unbounded => Some(Box::new(UnboundedPolicy::new(pool))),
        }
    }
}

/// A segment of the pool, or memory beyond it. Where the system gives none, the channel fails, and with it the gate.
fn pooled_or_not(pool: &BufferPool, channel: &RemoteChannel, bytes: usize) -> Option<MemorySegment> {
    pool.try_take(0).or_else(|| unpooled(channel, bytes))
}

fn unpooled(channel: &RemoteChannel, bytes: usize) -> Option<MemorySegment> {
    MemorySegment::unpooled(bytes).map_err(|error| channel.fail(error.into())).ok()
}
