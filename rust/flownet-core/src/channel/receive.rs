//! Path of a payload into the gate under credit: from its header to a segment, and from there to the queue.

use flownet_memory::{Buffer, MemorySegment};

use super::{Phase, RemoteChannel};
use crate::credit::Backlog;
use crate::error::PeerViolation;
use crate::subpartition::Element;

impl RemoteChannel {
    /// Takes the segment for a payload whose header arrived. Checks the sequence number and the credit. Returns `None`
    /// if the channel is closed: the caller skips the payload.
    pub fn take_for_receive(&self, sequence: u32) -> Result<Option<MemorySegment>, PeerViolation> {
        let mut state = self.state.lock();
        if state.phase != Phase::Open {
            return Ok(None);
        }
        state.expect_sequence(sequence)?;
        state.announced.spend_one()?;
        // This buffer was part of the last reported backlog and is now in transit; the next report corrects the count.
        state.wanted = state.wanted.saturating_sub(1);
        let segment = state.free.pop();
        self.finish_change(state, false);
        Ok(Some(segment.expect("I1: every announced credit has its segment")))
    }

    /// Receives a payload in the segment of [`Self::take_for_receive`].
    pub fn on_buffer(&self, segment: MemorySegment, len: usize, backlog: Backlog) -> Result<(), PeerViolation> {
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

    /// Checks the sequence number of a payload that needs no credit.
    pub(crate) fn expect_sequence(&self, sequence: u32) -> Result<(), PeerViolation> {
        self.state.lock().expect_sequence(sequence)
    }

    /// Receives a data frame without payload, whose credit is earned again at once.
    pub fn on_empty_buffer(&self, sequence: u32, backlog: Backlog) -> Result<(), PeerViolation> {
        let mut state = self.state.lock();
        if state.phase == Phase::Open {
            state.expect_sequence(sequence)?;
            if self.has_credit() {
                state.announced.spend_one()?;
                state.unannounced.earn_one();
            }
        }
        self.finish_change(state, false);
        self.on_backlog(backlog);
        Ok(())
    }

    /// Returns a segment that was taken for a payload but not filled.
    pub(crate) fn forfeit(&self, segment: MemorySegment) {
        if self.has_credit() {
            self.state.lock().owned -= 1;
        }
        drop(segment);
    }
}
