//! Makes a payload wait for a segment of the gate's pool. All later data on the same socket waits with it.
//!
//! # Invariants
//! - T1: the wait holds no segment except the one it waited for. It holds that one until the reader offers the header
//!   again, or until the channel closes.
//! - T2: the wait is in the pool's queue at most once.

use std::sync::Arc;
use std::task::{Poll, Waker};

use flownet_memory::{BufferPool, MemorySegment, SegmentListener};

use super::ReceivePolicy;
use crate::channel::RemoteChannel;
use crate::lock::Lock;

/// See the [module docs](self).
#[derive(Debug)]
pub(super) struct TcpWait {
    pool: Arc<BufferPool>,
    wait: Arc<Wait>,
}

/// Listener that the pool serves.
#[derive(Debug, Default)]
struct Wait {
    state: Lock<State>,
}

#[derive(Debug, Default)]
struct State {
    is_closed: bool,
    is_waiting: bool,
    awaited: Option<MemorySegment>,
    /// Reader of the socket, to be woken when the segment is there.
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
                // T2: it may already be in the pool's queue.
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
            // The pool refused because a segment became idle, so try again. If the pool is gone, so is the gate.
            if let Poll::Ready(Err(_)) = self.pool.poll_available(Waker::noop()) {
                return Poll::Ready(None);
            }
        }
    }

    fn close(&self) {
        let State { awaited, reader, .. } =
            std::mem::replace(&mut *self.wait.state.lock(), State { is_closed: true, ..State::default() });
        drop(awaited);
        if let Some(reader) = reader {
            // The socket also carries data of other channels, so the reader must continue.
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
