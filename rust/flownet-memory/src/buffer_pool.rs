//! The pool of one result partition or one input gate.
//!
//! Callers: the task thread takes, any thread gives back by dropping. A pool is
//! *available* when the next take needs no overdraft and no lane is at its quota;
//! a task asks that before each batch, and mid-record takes what it must.
//!
//! ```text
//! size  = guarantee + its part of the spare segments (set whenever pools come or go)
//! guarantee = min, or more where more stands; never anybody else's
//! guarantee <= held = idle + in use <= size + max_overdraft   (above it only until a
//!                                                  shrunken pool's segments come back)
//! available = something idle, no lane at max_per_lane, in use < limit
//! limit     = max / lanes for each lane in use, and max_per_lane
//! ```
//!
//! The limit keeps the work of a few busy lanes as small in a pool that was made for
//! many as in one made for them: with 100 busy lanes of 10,000 it halved the memory used.
//!
//! # Standing segments
//! A segment *stands* when its holder may keep it unused for ever: promised to a
//! producer that has nothing to send, or open in a subpartition nobody writes to.
//! Holders book such segments, and a pool that is short of its maximum lets only
//! three quarters of it stand: the rest circulates, so whoever has data gets on.
//! A pool is guaranteed what stands in it, since that may never come back.

use std::fmt;
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::pool_core::PoolCore;
use crate::pool_state::PoolState;
use crate::{MemoryError, MemorySegment, SegmentListener};

/// How many segments a [`BufferPool`] gets and how its lanes share them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BufferPoolSettings {
    /// Segments that are the pool's own, from the start to its end. With 0 the pool lives on what is spare.
    pub min: usize,
    /// The most segments the pool may grow to, at least 1 and `min`. `None`: no bound.
    pub max: Option<usize>,
    /// Lanes that segments are counted by, at least 1: a partition's
    /// subpartitions. A gate has 1.
    pub lanes: usize,
    /// Segments one lane may use before the pool counts as unavailable, at least
    /// 1. A soft limit: it refuses no take. `usize::MAX`: no limit.
    pub max_per_lane: usize,
    /// Segments that may be taken beyond the pool's size, if the segment pool has any
    /// free that nobody was promised, so that a record begun can be finished.
    pub max_overdraft: usize,
}

/// A part of a [`SegmentPool`](crate::SegmentPool) that belongs to one partition or gate.
///
/// Dropping it destroys it.
pub struct BufferPool {
    core: Arc<PoolCore>,
}

impl BufferPool {
    pub(crate) fn new(core: Arc<PoolCore>) -> Self {
        Self { core }
    }

    /// Takes a segment for `lane`: an idle one, else one from the segment pool
    /// while below size, else as overdraft.
    ///
    /// A `lane` the pool was not made with counts towards no quota.
    pub fn try_take(&self, lane: usize) -> Option<MemorySegment> {
        self.core.try_take(lane)
    }

    /// Takes a segment for `lane` as soon as one can be had, by whatever means
    /// [`try_take`](Self::try_take) has. Quotas do not hold it up.
    pub fn poll_take(&self, lane: usize, waker: &Waker) -> Poll<Result<MemorySegment, MemoryError>> {
        self.core.poll_take(lane, waker)
    }

    /// Waits for [`is_available`](Self::is_available). Several tasks may wait; all
    /// are woken, so ask again. [`MemoryError::Closed`] once the pool is destroyed.
    pub fn poll_available(&self, waker: &Waker) -> Poll<Result<(), MemoryError>> {
        self.core.poll_available(waker)
    }

    /// Queues `listener` for one segment. `false` when it was not queued: a segment
    /// is idle (take it) or the pool is destroyed.
    ///
    /// Listeners are served in order, before any idle segment appears. Those left
    /// when the pool is destroyed are dropped without a call.
    pub fn offer_to(&self, listener: Arc<dyn SegmentListener>) -> bool {
        self.core.offer_to(listener)
    }

    /// Books one standing segment, which the caller has or is about to take. `false`:
    /// the pool cannot spare it, or is destroyed.
    pub fn try_stand(&self) -> bool {
        self.core.try_stand()
    }

    /// Ends the booking of `count` standing segments: they came back, or what was
    /// booked for them did not happen.
    pub fn end_standing(&self, count: usize) {
        self.core.end_standing(count);
    }

    /// Whether a holder should give back a standing segment as soon as it is unused:
    /// the pool is short, and somebody waits or too much stands. One atomic load.
    #[inline]
    pub fn claims_standing(&self) -> bool {
        self.core.claims_standing()
    }

    /// How many of `wanted` standing segments a holder may begin with, if the pool's
    /// maximum was made for all holders to have as many: the same for each, so that
    /// the first ones do not take what the others need. Each must still be booked.
    pub fn standing_share(&self, wanted: usize) -> usize {
        self.core.inspect(|state| state.standing_share(wanted))
    }

    /// The most one holder should ask for on account of its data: all but one, or a
    /// quarter if the pool is short, and at least 1. One atomic load.
    #[inline]
    pub fn lend_limit(&self) -> usize {
        self.core.lend_limit()
    }

    /// Ends the pool: its guarantee and idle segments go to others now, segments
    /// in use when they come back. Whoever waits is woken and finds
    /// [`MemoryError::Closed`]. Idempotent.
    pub fn destroy(&self) {
        self.core.global.destroy(&self.core);
    }

    /// Whether the next [`try_take`](Self::try_take) succeeds without overdraft
    /// and no lane is at its quota. One atomic load.
    #[inline]
    pub fn is_available(&self) -> bool {
        self.core.is_available()
    }

    /// Why it is not available: true where more segments would help, false where its lanes use all they may, or it has all
    /// it may have and every one of them is in use.
    pub fn lacks_segments(&self) -> bool {
        self.core.inspect(PoolState::lacks_segments)
    }

    /// Segments booked as standing.
    pub fn standing(&self) -> usize {
        self.core.inspect(|state| state.standing)
    }

    /// What the pool holds for itself while so much stands.
    pub fn guaranteed(&self) -> usize {
        self.core.inspect(|state| state.guarantee)
    }

    /// Segments the pool may hold now without overdraft: `min` to `max`.
    pub fn size(&self) -> usize {
        self.core.inspect(|state| state.size)
    }

    /// Segments guaranteed to the pool.
    pub fn min(&self) -> usize {
        self.core.settings.min
    }

    /// The most segments the pool may grow to; `None`: no bound.
    pub fn max(&self) -> Option<usize> {
        self.core.settings.max
    }

    /// Segments idle or in use.
    pub fn held(&self) -> usize {
        self.core.inspect(|state| state.held)
    }

    /// Segments taken and not yet back.
    pub fn in_use(&self) -> usize {
        self.core.inspect(|state| state.held - state.idle.len())
    }

    /// Length in bytes of every segment.
    pub fn segment_bytes(&self) -> usize {
        self.core.global.segment_bytes()
    }
}

impl Drop for BufferPool {
    fn drop(&mut self) {
        self.destroy();
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferPool")
            .field("at", &Arc::as_ptr(&self.core))
            .field("settings", &self.core.settings)
            .field("waiting", &self.core.waiting())
            .field("state", &self.core.inspect(ToString::to_string))
            .finish()
    }
}

impl BufferPoolSettings {
    pub(crate) fn check(&self) -> Result<(), MemoryError> {
        at_least("lanes", self.lanes, 1)?;
        at_least("max_per_lane", self.max_per_lane, 1)?;
        self.max.map_or(Ok(()), |max| at_least("max", max, self.min.max(1)))
    }
}

/// Checks a setting against its smallest allowed value.
pub(crate) fn at_least(what: &'static str, value: usize, min: usize) -> Result<(), MemoryError> {
    if value < min { Err(MemoryError::InvalidSize { what, value, min, max: usize::MAX }) } else { Ok(()) }
}
