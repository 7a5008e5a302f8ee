//! Drops and counts records that do not fit into the gate's queue.
//!
//! # Invariants
//! - L1: the policy passes on every byte of a record, or none.

use std::sync::Arc;
use std::task::{Poll, Waker};

use flownet_memory::{Buffer, BufferPool, MemorySegment};

use super::{ReceivePolicy, pooled_or_not, unpooled};
use crate::channel::RemoteChannel;
use crate::error::PeerViolation;
use crate::gate::InputGate;
use crate::lock::Lock;
use crate::record::cutter::RecordCutter;

/// See the [module docs](self).
#[derive(Debug)]
pub(super) struct Lossy {
    pool: Arc<BufferPool>,
    /// Position of the channel in its stream of records.
    cutter: Lock<RecordCutter>,
}

impl Lossy {
    pub(super) fn new(pool: Arc<BufferPool>) -> Self {
        Self { pool, cutter: Lock::default() }
    }
}

impl ReceivePolicy for Lossy {
    fn poll_place(&self, channel: &RemoteChannel, bytes: usize, _: &Waker) -> Poll<Option<MemorySegment>> {
        Poll::Ready(pooled_or_not(&self.pool, channel, bytes))
    }

    fn hand_on(
        &self,
        channel: &RemoteChannel,
        gate: &InputGate,
        mut segment: MemorySegment,
        len: usize,
    ) -> Result<(), PeerViolation> {
        // Copying out the cutter is safe: one thread at a time reads a connection.
        let mut cutter = *self.cutter.lock();
        let cut =
            gate.with_receive_queue(|queue| cutter.cut(&mut segment.as_mut_slice()[..len], |bytes| queue.admit(bytes)));
        *self.cutter.lock() = cutter;
        // The start of the prefix came with the previous buffer, so it goes ahead in a segment of its own.
        if let Some(carried) = cut.carried()
            && let Some(mut front) = unpooled(channel, carried.len())
        {
            front.as_mut_slice().copy_from_slice(carried);
            gate.on_admitted(channel.index(), Buffer::from_segment(front, carried.len()))?;
        }
        if cut.kept > 0 {
            gate.on_admitted(channel.index(), Buffer::from_segment(segment, cut.kept))?;
        }
        Ok(())
    }
}
