//! Accepts every payload: in a segment of the gate's pool while it has some, then on the heap.

use std::sync::Arc;
use std::task::{Poll, Waker};

use flownet_memory::{BufferPool, MemorySegment};

use super::{ReceivePolicy, pooled_or_not};
use crate::channel::RemoteChannel;

/// See the [module docs](self). The gate fails at its limit.
#[derive(Debug)]
pub(super) struct UnboundedPolicy {
    pool: Arc<BufferPool>,
}

impl UnboundedPolicy {
    pub(super) fn new(pool: Arc<BufferPool>) -> Self {
        Self { pool }
    }
}

impl ReceivePolicy for UnboundedPolicy {
    fn poll_place(&self, channel: &RemoteChannel, bytes: usize, _: &Waker) -> Poll<Option<MemorySegment>> {
        Poll::Ready(pooled_or_not(&self.pool, channel, bytes))
    }
}
