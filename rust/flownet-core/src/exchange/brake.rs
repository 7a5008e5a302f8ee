//! What stops a producer's connection whose channels have no credit: the bytes that wait for its socket.
//!
//! # Invariants
//! - B1: while any channel without credit was opened, no data is taken between passing the high watermark and reaching
//!   the low one.

use crate::credit::Credit;

/// When the sending side of a connection without credit stops and goes on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Watermarks {
    /// Above so many bytes it stops.
    pub high_bytes: usize,
    /// Below so many bytes it goes on.
    pub low_bytes: usize,
}

impl Watermarks {
    /// Those of Flink before 1.5.
    #[must_use]
    pub const fn for_segments(segment_bytes: usize) -> Self {
        Self { high_bytes: 2 * segment_bytes, low_bytes: segment_bytes + 1 }
    }
}

/// See the [module docs](self). Off until a channel without credit is opened.
#[derive(Debug)]
pub(super) struct Brake {
    watermarks: Watermarks,
    is_on: bool,
    /// The high watermark was passed, and the low one was not reached since.
    is_stopped: bool,
}

impl Brake {
    pub(super) fn new(watermarks: Watermarks) -> Self {
        Self { watermarks, is_on: false, is_stopped: false }
    }

    pub(super) fn on_open(&mut self, credit: Credit) {
        self.is_on |= credit.is_unlimited();
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// B1. What waits for the socket wakes the driver when some of it is written; then it asks again.
    pub(super) fn may_queue(&mut self, queued_bytes: usize) -> bool {
        let Watermarks { high_bytes, low_bytes } = self.watermarks;
        self.is_stopped = self.is_on && queued_bytes > if self.is_stopped { low_bytes - 1 } else { high_bytes };
        !self.is_stopped
    }
}
