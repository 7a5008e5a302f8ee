//! Flow controls other than credit, for comparison. A job uses one only if it asks for it.
//!
//! This module holds all of their code. The credit path meets it in four places:
//! - A `RemoteChannel` without credit owns a `ReceivePolicy`, which handles payloads that have no reserved segment.
//!   Each policy fails in its own way. `tcp` waits for a segment and so stops its socket. `lossy` drops whole
//!   records. `unbounded` allocates memory from the heap.
//! - `receive` is where a connection delivers payloads: with credit they go on to the channel, else to its policy.
//! - A gate counts and limits the bytes that it queues in a `receive_queue`.
//! - A connection pauses above its `write_buffer_water_mark`.
//!
//! A channel without credit announces [`Credit::UNLIMITED`](crate::Credit) to its producer and owns no segments. Its
//! life cycle, sequence numbers and events are the same as under credit.

mod lossy;
mod receive;
pub(crate) mod receive_queue;
mod tcp;
mod unbounded;
pub(crate) mod write_buffer_water_mark;

use std::fmt;
use std::sync::Arc;
use std::task::{Poll, Waker};

use flownet_memory::{Buffer, BufferPool, MemorySegment};

use self::lossy::Lossy;
use self::tcp::TcpWait;
use self::unbounded::UnboundedPolicy;
use crate::channel::RemoteChannel;
use crate::error::PeerViolation;
use crate::gate::InputGate;
use crate::subpartition::Element;

/// Flow control of a channel: limits a producer to the buffers that its consumer can hold.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum ChannelControl {
    /// Credit: the producer sends only buffers for which the consumer has reserved a segment.
    #[default]
    Credit,
    /// TCP alone: a payload without a segment stops the socket and all channels of the exchange that share it. Each
    /// exchange has its own sockets, as in Flink before 1.5. On a shared socket, an exchange could wait for ever for an
    /// exchange downstream of it.
    Tcp {
        /// Exchange whose channels share a socket.
        exchange: u32,
    },
    /// No flow control: records that do not fit into the gate's queue are dropped and counted.
    Drop,
    /// No flow control: the gate's queue grows on the heap, up to a limit at which the gate fails.
    Unbounded,
}

/// See the [module docs](self). Called for an open channel, by the single thread that reads its connection.
pub(crate) trait ReceivePolicy: fmt::Debug + Send + Sync {
    /// Returns a segment for a payload of `bytes` bytes. Returns `None` if there will be none: the channel is closed,
    /// or fails because memory is exhausted. If pending, `waker` is woken when the caller should ask again.
    fn poll_place(&self, channel: &RemoteChannel, bytes: usize, waker: &Waker) -> Poll<Option<MemorySegment>>;

    /// Passes on the payload in the first `len` bytes of such a segment.
    fn hand_on(
        &self,
        channel: &RemoteChannel,
        gate: &InputGate,
        segment: MemorySegment,
        len: usize,
    ) -> Result<(), PeerViolation> {
        gate.on_element(channel.index(), Element::Data(Buffer::from_segment(segment, len)))
    }

    /// Handles the close of the channel: wakes a waiting reader and returns the segments.
    fn close(&self) {}
}

impl ChannelControl {
    /// Returns the policy; `None` under credit, where every payload has a segment before it is sent.
    pub(crate) fn policy(self, pool: &Arc<BufferPool>) -> Option<Box<dyn ReceivePolicy>> {
        let pool = Arc::clone(pool);
        match self {
            Self::Credit => None,
            Self::Tcp { .. } => Some(Box::new(TcpWait::new(pool))),
            Self::Drop => Some(Box::new(Lossy::new(pool))),
            Self::Unbounded => Some(Box::new(UnboundedPolicy::new(pool))),
        }
    }
}

/// Returns a segment of the pool, or else of the heap. If the allocation fails, the channel fails, and with it the
/// gate.
fn pooled_or_not(pool: &BufferPool, channel: &RemoteChannel, bytes: usize) -> Option<MemorySegment> {
    pool.try_take(0).or_else(|| unpooled(channel, bytes))
}

fn unpooled(channel: &RemoteChannel, bytes: usize) -> Option<MemorySegment> {
    MemorySegment::unpooled(bytes).map_err(|error| channel.fail(error.into())).ok()
}
