//! The reader's side of a segment that is still being written.

use std::fmt;

use crate::Buffer;
use crate::buffer::{CommittedLength, Lease};
use crate::sync::LeaseArc;

/// Reads what a [`BufferBuilder`](crate::BufferBuilder) commits, each byte once.
pub struct BufferConsumer {
    lease: LeaseArc<Lease>,
    read: usize,
    /// As of the last poll or refresh.
    seen: CommittedLength,
}

impl BufferConsumer {
    pub(crate) fn new(lease: LeaseArc<Lease>) -> Self {
        let seen = lease.committed();
        Self { lease, read: 0, seen }
    }

    /// What was committed since the last poll, or `None` if nothing was.
    pub fn poll(&mut self) -> Option<Buffer> {
        let (seen, buffer) = Buffer::committed_from(&self.lease, self.read);
        self.seen = seen;
        self.read = seen.len();
        buffer
    }

    /// Whether the builder is finished and everything was polled, as of now.
    pub fn is_drained(&mut self) -> bool {
        self.seen = self.lease.committed();
        self.seen.is_finished() && self.seen.len() == self.read
    }

    /// Whether the builder was finished when last polled (or [`is_drained`](Self::is_drained)
    /// last asked). If so, that poll returned the last of the bytes.
    #[inline]
    pub fn is_finished(&self) -> bool {
        self.seen.is_finished()
    }

    /// Whether a poll would return bytes, as of now.
    #[inline]
    pub fn has_data(&self) -> bool {
        self.lease.committed().len() > self.read
    }

    /// Bytes that a poll would return, as of now.
    #[inline]
    pub fn unread_bytes(&self) -> usize {
        self.lease.committed().len().saturating_sub(self.read)
    }

    /// Another reader of the same bytes, from this one's position on.
    pub fn copy(&self) -> Self {
        Self { lease: LeaseArc::clone(&self.lease), read: self.read, seen: self.seen }
    }
}

impl fmt::Debug for BufferConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferConsumer")
            .field("read", &self.read)
            .field("seen", &self.seen)
            .field("committed", &self.lease.committed())
            .finish()
    }
}
