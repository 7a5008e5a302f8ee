//! Reader side of a segment that is still being written.

use std::fmt;

use crate::Buffer;
use crate::buffer::{CommittedLength, Lease};
use crate::sync::LeaseArc;

/// Reads the bytes that a [`BufferBuilder`](crate::BufferBuilder) commits, each once.
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

    /// Returns the bytes committed since the last poll, or `None` if there are none.
    pub fn poll(&mut self) -> Option<Buffer> {
        let (seen, buffer) = Buffer::committed_from(&self.lease, self.read);
        self.seen = seen;
        self.read = seen.len();
        buffer
    }

    /// Returns whether the builder is finished and all bytes were polled, as of now.
    pub fn is_drained(&mut self) -> bool {
        self.seen = self.lease.committed();
        self.seen.is_finished() && self.seen.len() == self.read
    }

    /// Returns whether the builder was finished at the last poll or the last call of [`is_drained`](Self::is_drained).
    /// If so, that poll returned the last of the bytes.
    #[inline]
    pub fn is_finished(&self) -> bool {
        self.seen.is_finished()
    }

    /// Returns whether a poll would return bytes, as of now.
    #[inline]
    pub fn has_data(&self) -> bool {
        self.lease.committed().len() > self.read
    }

    /// Returns the number of bytes that a poll would return, as of now.
    #[inline]
    pub fn unread_bytes(&self) -> usize {
        self.lease.committed().len().saturating_sub(self.read)
    }

    /// Creates another reader of the same bytes, from the position of this one onwards.
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
