//! A payload waits for a segment of the gate's pool, and all that follows it on its socket waits with it.
//!
//! # Invariants
//! - T1: the wait holds no segment but the one it waited for, from the moment it comes until the header it came for is
//!   taken up again, or the channel closes.
//! - T2: it is in the pool's queue at most once.

use std::sync::Arc;
use std::task::{Poll, Waker};

use flownet_memory::{Buffer, BufferPool, MemorySegment, SegmentListener};

use super::ReceivePolicy;
use crate::channel::RemoteChannel;
use crate::error::PeerViolation;
use crate::gate::InputGate;
use crate::lock::Lock;
use crate::subpartition::Element;

/// See the [module docs](self).
#[derive(Debug)]
pub(super) struct TcpWait {
    pool: Arc<BufferPool>,
    wait: Arc<Wait>,
}

/// What the pool serves.
#[derive(Debug, Default)]
struct Wait {
    state: Lock<State>,
}

#[derive(Debug, Default)]
struct State {
    is_closed: bool,
    is_waiting: bool,
    awaited: Option<MemorySegment>,
    /// Who reads the socket once it is there.
    reader: Option<Waker>,
}

impl TcpWait {
    pub(super) fn new(pool: Arc<BufferPool>) -> Self {
        Self { pool, wait: Arc::default() }
    }
}

impl ReceivePolicy for TcpWait {
    fn poll_place(&self, _: &RemoteChannel, _: usize, waker: &Waker) -> Poll<Option<MemorySegment>> {
        loop {
            {
                let mut state = self.wait.state.lock();
                if state.is_closed {
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
                self.wait.state.lock().is_waiting = false;
                return Poll::Ready(Some(segment));
            }
            if self.pool.offer_to(Arc::clone(&self.wait) as Arc<dyn SegmentListener>) {
                return Poll::Pending;
            }
            self.wait.state.lock().is_waiting = false;
            // Refused because a segment became idle: ask again. Or because the pool is gone, and so is the gate.
            if let Poll::Ready(Err(_)) = self.pool.poll_available(Waker::noop()) {
                return Poll::Ready(None);
            }
        }
    }

    fn hand_on(
        &self,
        channel: &RemoteChannel,
        gate: &InputGate,
        segment: MemorySegment,
        len: usize,
    ) -> Result<(), PeerViolation> {
        gate.on_element(channel.index(), Element::Data(Buffer::from_segment(segment, len)))
    }

    fn close(&self) {
        let State { awaited, reader, .. } =
            std::mem::replace(&mut *self.wait.state.lock(), State { is_closed: true, ..State::default() });
        drop(awaited);
        if let Some(reader) = reader {
            // What follows on its socket is for others.
            reader.wake();
        }
    }
}

impl SegmentListener for Wait {
    fn on_segment(&self, segment: MemorySegment) -> Option<MemorySegment> {
        let mut state = self.state.lock();
        state.is_waiting = false;
        if state.is_closed {
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
}
