//! Delivers payloads from a connection: under credit to the channel, else to the channel's policy.

use std::task::{Poll, Waker};

use flownet_memory::MemorySegment;

use crate::channel::RemoteChannel;
use crate::credit::Backlog;
use crate::error::PeerViolation;

impl RemoteChannel {
    /// Returns a segment for a payload of `bytes` bytes whose header arrived. Under credit it is always there. Returns
    /// `None` if the channel is closed: the caller skips the payload. While this is pending, the caller must read
    /// nothing more from the connection. `waker` is woken when the caller should offer the header again. The sequence
    /// number is checked once, when the payload has a segment.
    pub(crate) fn poll_place(
        &self,
        sequence: u32,
        bytes: usize,
        waker: &Waker,
    ) -> Poll<Result<Option<MemorySegment>, PeerViolation>> {
        match self.policy() {
            None => Poll::Ready(self.take_for_receive(sequence)),
            Some(_) if !self.is_open() => Poll::Ready(Ok(None)),
            Some(policy) => policy.poll_place(self, bytes, waker).map(|place| match place {
                Some(segment) => self.expect_sequence(sequence).map(|()| Some(segment)),
                None => Ok(None),
            }),
        }
    }

    /// Receives a payload in the segment of [`Self::poll_place`].
    pub(crate) fn deliver(&self, segment: MemorySegment, len: usize, backlog: Backlog) -> Result<(), PeerViolation> {
        match self.policy() {
            None => self.on_buffer(segment, len, backlog),
            Some(policy) => self.open_gate().map_or(Ok(()), |gate| policy.hand_on(self, &gate, segment, len)),
        }
    }
}
