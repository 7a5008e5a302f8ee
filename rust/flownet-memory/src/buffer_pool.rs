//! Buffer pool of one result partition or one input gate.
//!
//! The task thread takes segments, and any thread returns them by dropping. A pool is *available* if the next take
//! needs no overdraft and no lane is at its quota. A task checks this before each batch. In the middle of a record it
//! takes the segments that it needs.
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
//! The limit restricts a few busy lanes in a pool made for many as much as in a pool made for few. With 100 busy lanes
//! of 10,000 it halved the memory in use.
//!
//! # Standing segments
//! A segment *stands* if its holder may leave it unused for ever. It is promised to a producer that has nothing to
//! send, or open in a subpartition without writes. Holders book such segments. A pool short of its maximum lets only
//! three quarters of its segments stand. The rest circulates, so that holders with data make progress. Standing
//! segments are guaranteed to their pool, because they may never come back.

use std::fmt;
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::pool_core::PoolCore;
use crate::pool_state::PoolState;
use crate::{MemoryError, MemorySegment, SegmentListener};

/// Size limits of a [`BufferPool`], and limits of its lanes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BufferPoolSettings {
    /// Segments that belong to the pool for its lifetime. With 0 the pool uses only spare segments.
    pub min: usize,
    /// Most segments that the pool may grow to, at least 1 and `min`. `None`: no bound.
    pub max: Option<usize>,
    /// Lanes by which segments are counted, at least 1: the subpartitions of a partition. A gate has 1.
    pub lanes: usize,
    /// Segments that one lane may use before the pool counts as unavailable, at least 1. A soft limit: it refuses no
    /// take. `usize::MAX`: no limit.
    pub max_per_lane: usize,
    /// Segments that may be taken beyond the pool's size to finish a record. Only if the segment pool has free segments
    /// that are promised to no pool.
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

    /// Takes a segment for `lane`: an idle one, else one from the segment pool while below the pool's size, else as
    /// overdraft.
    ///
    /// A `lane` beyond the pool's lanes counts towards no quota.
    pub fn try_take(&self, lane: usize) -> Option<MemorySegment> {
        self.core.try_take(lane)
    }

    /// Takes a segment for `lane` as soon as [`try_take`](Self::try_take) can take one. Quotas do not delay it.
    pub fn poll_take(&self, lane: usize, waker: &Waker) -> Poll<Result<MemorySegment, MemoryError>> {
        self.core.poll_take(lane, waker)
    }

    /// Waits for [`is_available`](Self::is_available). Several tasks may wait; all are woken, so check again. Returns
    /// [`MemoryError::Closed`] once the pool is destroyed.
    pub fn poll_available(&self, waker: &Waker) -> Poll<Result<(), MemoryError>> {
        self.core.poll_available(waker)
    }

    /// Queues `listener` for one segment. Returns `false` if it was not queued: a segment is idle (take it) or the pool
    /// is destroyed.
    ///
    /// Listeners are served in order, before any segment becomes idle. When the pool is destroyed, remaining listeners
    /// are dropped without a call.
    pub fn offer_to(&self, listener: Arc<dyn SegmentListener>) -> bool {
        self.core.offer_to(listener)
    }

    /// Books one standing segment, which the caller has or is about to take. Returns `false` if the pool cannot spare
    /// it, or is destroyed.
    pub fn try_stand(&self) -> bool {
        self.core.try_stand()
    }

    /// Ends the booking of `count` standing segments, which came back or were not needed after all.
    pub fn end_standing(&self, count: usize) {
        self.core.end_standing(count);
    }

    /// Returns whether a holder should return a standing segment as soon as it is unused. True if the pool is short,
    /// and a listener waits or too many segments stand. One atomic load.
    #[inline]
    pub fn claims_standing(&self) -> bool {
        self.core.claims_standing()
    }

    /// Returns how many of `wanted` standing segments a holder may begin with, if the pool's maximum allows for all
    /// holders to have as many. It is the same for each holder, so that the first ones do not take the segments that
    /// others need. Each segment must still be booked.
    pub fn standing_share(&self, wanted: usize) -> usize {
        self.core.inspect(|state| state.standing_share(wanted))
    }

    /// Returns the most segments that one holder should request for its data: all but one, or a quarter if the pool is
    /// short, and at least 1. One atomic load.
    #[inline]
    pub fn lend_limit(&self) -> usize {
        self.core.lend_limit()
    }

    /// Destroys the pool. Its guarantee and idle segments go to other pools now, segments in use when they come back.
    /// Waiting tasks are woken and get [`MemoryError::Closed`]. Idempotent.
    pub fn destroy(&self) {
        self.core.global.destroy(&self.core);
    }

    /// Returns whether the next [`try_take`](Self::try_take) succeeds without overdraft and no lane is at its quota.
    /// One atomic load.
    #[inline]
    pub fn is_available(&self) -> bool {
        self.core.is_available()
    }

    /// Returns the reason why the pool is not available. True if more segments would help. False if its lanes are at
    /// their limit, or if all segments it may have are in use.
    pub fn lacks_segments(&self) -> bool {
        self.core.inspect(PoolState::lacks_segments)
    }

    /// Returns the number of standing segments booked.
    pub fn standing(&self) -> usize {
        self.core.inspect(|state| state.standing)
    }

    /// Returns the number of segments reserved for the pool with its current standing segments.
    pub fn guaranteed(&self) -> usize {
        self.core.inspect(|state| state.guarantee)
    }

    /// Returns the number of segments that the pool may hold now without overdraft: `min` to `max`.
    pub fn size(&self) -> usize {
        self.core.inspect(|state| state.size)
    }

    /// Returns the minimum number of segments, which is guaranteed to the pool.
    pub fn min(&self) -> usize {
        self.core.settings.min
    }

    /// Returns the most segments that the pool may grow to; `None`: no bound.
    pub fn max(&self) -> Option<usize> {
        self.core.settings.max
    }

    /// Returns the number of segments idle or in use.
    pub fn held(&self) -> usize {
        self.core.inspect(|state| state.held)
    }

    /// Returns the number of segments taken and not returned yet.
    pub fn in_use(&self) -> usize {
        self.core.inspect(|state| state.held - state.idle.len())
    }

    /// Returns the length of every segment in bytes.
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
