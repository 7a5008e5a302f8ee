//! A leased segment, and the two traits that receive segments: listeners and recyclers.

use std::fmt;
use std::sync::Arc;

use crate::MemoryError;
use crate::buffer_pool::at_least;
use crate::pool_core::PoolCore;
use crate::region::{RawBytes, Region, Slot};

/// The only owner of one segment. When it is dropped, the segment returns to its [`BufferPool`](crate::BufferPool). The
/// pool stores it, passes it to a listener or returns it to the [`SegmentPool`](crate::SegmentPool).
///
/// The content is unspecified: earlier owners leave their bytes there.
pub struct MemorySegment {
    /// `None` only while the segment is being taken apart.
    slot: Option<Slot>,
    lane: usize,
    /// `None` for a segment outside of every pool, which is freed on drop.
    home: Option<Arc<PoolCore>>,
}

/// Waits in the queue of a [`BufferPool`](crate::BufferPool) for one segment.
pub trait SegmentListener: Send + Sync {
    /// Receives the awaited segment, once per registration. Returning the segment refuses it, and the next listener is
    /// asked.
    ///
    /// Called without any lock, on the thread that returned the segment. To wait for another segment, register again. A
    /// listener that refuses must not register within the same call: it would be asked again for ever.
    fn on_segment(&self, segment: MemorySegment) -> Option<MemorySegment>;
}

/// Receives the segment of a [`Buffer`](crate::Buffer) instead of its pool.
pub trait Recycler: Send + Sync {
    /// Receives a segment whose last [`Buffer`](crate::Buffer) was dropped. Called without any lock, on the thread that
    /// dropped it.
    fn recycle(&self, segment: MemorySegment);
}

impl MemorySegment {
    pub(crate) fn new(slot: Slot, lane: usize, home: Arc<PoolCore>) -> Self {
        Self { slot: Some(slot), lane, home: Some(home) }
    }

    /// Creates a segment of any size outside of every pool, which is freed on drop. For callers that must store bytes
    /// for which no pool has room. Only the caller bounds the number of such segments.
    pub fn unpooled(bytes: usize) -> Result<Self, MemoryError> {
        at_least("bytes", bytes, 1)?;
        let slot = Region::allocate(1, bytes)?.pop();
        Ok(Self { slot, lane: 0, home: None })
    }

    /// Returns the slot and its lane if this is a segment of `pool`. Other segments return to their own pool.
    pub(crate) fn into_slot_of(mut self, pool: &Arc<PoolCore>) -> Option<(Slot, usize)> {
        if self.home.as_ref().is_some_and(|home| Arc::ptr_eq(home, pool)) {
            self.slot.take().map(|slot| (slot, self.lane))
        } else {
            None
        }
    }

    /// Returns the whole segment, for writing.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        match &mut self.slot {
            Some(slot) => slot.as_mut_slice(),
            None => &mut [],
        }
    }

    /// Returns the length in bytes, which is never 0.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a segment is never empty")]
    pub fn len(&self) -> usize {
        self.slot().len()
    }

    #[inline]
    pub(crate) fn raw(&self) -> RawBytes {
        self.slot().raw()
    }

    #[inline]
    fn slot(&self) -> &Slot {
        self.slot.as_ref().expect("a segment has its slot until it is dropped or taken apart")
    }
}

impl Drop for MemorySegment {
    fn drop(&mut self) {
        if let (Some(slot), Some(home)) = (self.slot.take(), &self.home) {
            home.recycle(slot, self.lane);
        }
    }
}

impl fmt::Debug for MemorySegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemorySegment").field("len", &self.slot.as_ref().map(Slot::len)).finish_non_exhaustive()
    }
}
