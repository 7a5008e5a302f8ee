//! The way of a payload into the gate: from a header to its place, and from there to the queue.

use std::task::{Poll, Waker};

use flownet_memory::{Buffer, MemorySegment};

use super::{Phase, RemoteChannel};
use crate::credit::Backlog;
use crate::error::PeerViolation;
use crate::subpartition::Element;

impl RemoteChannel {
    /// Takes the segment for a payload whose header arrived; `None` for a closed channel (skip the payload). Checks
    /// the sequence and the credit.
    pub fn take_for_receive(&self, sequence: u32) -> Result<Option<MemorySegment>, PeerViolation> {
        let mut state = self.state.lock();
        if state.phase != Phase::Open {
            return Ok(None);
        }
        state.expect_sequence(sequence)?;
        state.announced.spend_one()?;
        // Until the next backlog is known, what was asked for is now on its way.
        state.wanted = state.wanted.saturating_sub(1);
        let segment = state.free.pop();
        self.finish_change(state, false);
        Ok(Some(segment.expect("I1: every announced credit has its segment")))
    }

    /// A place for a payload of so many bytes whose header arrived; `None` for a closed channel (skip the payload). Under
    /// credit it is there. Pending: nothing that follows on the connection may be read; `waker` is woken when the header
    /// should be brought again, which is not in sequence yet: it is checked, once, when its payload has a place.
    pub(crate) fn poll_place(
        &self,
        sequence: u32,
        bytes: usize,
        waker: &Waker,
    ) -> Poll<Result<Option<MemorySegment>, PeerViolation>> {
        match &self.policy {
            None => Poll::Ready(self.take_for_receive(sequence)),
            Some(_) if !self.is_open() => Poll::Ready(Ok(None)),
            Some(policy) => policy.poll_place(self, bytes, waker).map(|place| match place {
                Some(segment) => self.state.lock().expect_sequence(sequence).map(|()| Some(segment)),
                None => Ok(None),
            }),
        }
    }

    /// Takes a payload that lies in the segment of [`Self::take_for_receive`].
    pub fn on_buffer(&self, segment: MemorySegment, len: usize, backlog: Backlog) -> Result<(), PeerViolation> {
        if let Some(policy) = &self.policy {
            let gate = self.gate.upgrade().filter(|_| self.is_open());
            return gate.map_or(Ok(()), |gate| policy.hand_on(self, &gate, segment, len));
        }
        let is_open = self.state.lock().phase == Phase::Open;
        if let (true, Some(me), Some(gate)) = (is_open, self.me.upgrade(), self.gate.upgrade()) {
            let buffer = Buffer::with_recycler(segment, len, me);
            gate.on_element(self.index, Element::Data(buffer))?;
        } else {
            self.forfeit(segment);
        }
        self.on_backlog(backlog);
        Ok(())
    }

    /// Takes a data frame without payload: its credit comes straight back.
    pub fn on_empty_buffer(&self, sequence: u32, backlog: Backlog) -> Result<(), PeerViolation> {
        let mut state = self.state.lock();
        if state.phase == Phase::Open {
            state.expect_sequence(sequence)?;
            if self.policy.is_none() {
                state.announced.spend_one()?;
                state.unannounced.earn_one();
            }
        }
        self.finish_change(state, false);
        self.on_backlog(backlog);
        Ok(())
    }

    /// A segment taken for receive that nothing was received into.
    pub(crate) fn forfeit(&self, segment: MemorySegment) {
        if self.policy.is_none() {
            self.state.lock().owned -= 1;
        }
        drop(segment);
    }
}
