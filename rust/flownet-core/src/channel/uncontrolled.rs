//! A remote channel without credit: what becomes of a payload that nobody promised to hold.
//!
//! These exist to be compared with credit; each fails in its own way. `Tcp` waits for a segment and so stops its socket,
//! `Drop` throws whole records away, `Unbounded` takes memory from the heap.
//!
//! # Invariants
//! - U1: such a channel owns no segment but the one that a `Tcp` channel waited for, from the moment it comes until the
//!   header it came for is taken up again, or the channel closes.
//! - U2: a header that has to wait is not in sequence yet: it is checked, once, when its payload has a place.
//! - U3: of a record, a `Drop` channel hands on every byte or none.

use std::task::{Poll, Waker};

use flownet_memory::{Buffer, MemorySegment};

use super::{ChannelControl, Phase, RemoteChannel};
use crate::error::PeerViolation;
use crate::subpartition::Element;

impl RemoteChannel {
    /// A place for a payload of so many bytes whose header arrived; `None` for a closed channel (skip the payload).
    /// Pending: nothing that follows on the connection may be read. `waker` is woken when the header should be brought
    /// again.
    pub(crate) fn poll_place(
        &self,
        sequence: u32,
        bytes: usize,
        waker: &Waker,
    ) -> Poll<Result<Option<MemorySegment>, PeerViolation>> {
        match self.control {
            ChannelControl::Credit => Poll::Ready(self.take_for_receive(sequence)),
            ChannelControl::Tcp { .. } => self.poll_segment(waker).map(|segment| self.in_sequence(sequence, segment)),
            ChannelControl::Drop | ChannelControl::Unbounded => {
                if !self.is_open() {
                    return Poll::Ready(Ok(None));
                }
                let segment = self.pool.try_take(0).or_else(|| self.unpooled(bytes));
                Poll::Ready(self.in_sequence(sequence, segment))
            }
        }
    }

    /// Takes a payload that lies in the segment of [`Self::poll_place`].
    pub(super) fn on_uncontrolled(&self, mut segment: MemorySegment, len: usize) -> Result<(), PeerViolation> {
        let Some(gate) = self.gate.upgrade().filter(|_| self.is_open()) else { return Ok(()) };
        if self.control != ChannelControl::Drop {
            return gate.on_element(self.index, Element::Data(Buffer::from_segment(segment, len)));
        }
        // Nobody else cuts: a connection is read by one thread at a time.
        let mut cutter = std::mem::take(&mut self.state.lock().cutter);
        let cut = gate.admit(|intake| cutter.cut(&mut segment.as_mut_slice()[..len], |bytes| intake.admit(bytes)));
        self.state.lock().cutter = cutter;
        if let Some(carried) = cut.carried()
            && let Some(mut front) = self.unpooled(carried.len())
        {
            front.as_mut_slice().copy_from_slice(carried);
            gate.on_admitted(self.index, Buffer::from_segment(front, carried.len()))?;
        }
        if cut.kept > 0 {
            gate.on_admitted(self.index, Buffer::from_segment(segment, cut.kept))?;
        }
        Ok(())
    }

    /// The segment that a `Tcp` channel waited for.
    pub(super) fn on_awaited(&self, segment: MemorySegment) -> Option<MemorySegment> {
        let mut state = self.state.lock();
        state.is_waiting = false;
        if state.phase != Phase::Open {
            return Some(segment);
        }
        state.awaited = Some(segment);
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
        None
    }

    fn poll_segment(&self, waker: &Waker) -> Poll<Option<MemorySegment>> {
        loop {
            {
                let mut state = self.state.lock();
                if state.phase != Phase::Open {
                    return Poll::Ready(None);
                }
                if let Some(segment) = state.awaited.take() {
                    return Poll::Ready(Some(segment));
                }
                state.reader = Some(waker.clone());
                if std::mem::replace(&mut state.is_waiting, true) {
                    return Poll::Pending;
                }
            }
            if let Some(segment) = self.pool.try_take(0) {
                self.state.lock().is_waiting = false;
                return Poll::Ready(Some(segment));
            }
            let Some(me) = self.me.upgrade() else { return Poll::Ready(None) };
            if self.pool.offer_to(me) {
                return Poll::Pending;
            }
            self.state.lock().is_waiting = false;
            // Refused because a segment became idle: ask again. Or because the pool is gone, and so is the gate.
            if let Poll::Ready(Err(_)) = self.pool.poll_available(Waker::noop()) {
                return Poll::Ready(None);
            }
        }
    }

    /// Memory beyond the pool. Where the system gives none, the channel fails, and with it the gate.
    fn unpooled(&self, bytes: usize) -> Option<MemorySegment> {
        MemorySegment::unpooled(bytes).map_err(|error| self.fail(error.into())).ok()
    }

    /// U2.
    fn in_sequence(
        &self,
        sequence: u32,
        segment: Option<MemorySegment>,
    ) -> Result<Option<MemorySegment>, PeerViolation> {
        if segment.is_some() {
            self.state.lock().expect_sequence(sequence)?;
        }
        Ok(segment)
    }
}
