//! A leased segment and the two ways to be given one back.

use std::fmt;
use std::sync::Arc;

use crate::MemoryError;
use crate::buffer_pool::at_least;
use crate::pool_core::PoolCore;
use crate::region::{RawBytes, Region, Slot};

/// The only owner of one segment. Dropped, it goes home to its [`BufferPool`](crate::BufferPool),
/// which keeps it, hands it to a listener or returns it to the [`SegmentPool`](crate::SegmentPool).
///
/// The content is whatever an earlier owner left there.
pub struct MemorySegment {
    /// `None` only while being taken apart.
    slot: Option<Slot>,
    lane: usize,
    /// `None` for one that no pool has: it is freed.
    home: Option<Arc<PoolCore>>,
}

/// Waits in a [`BufferPool`](crate::BufferPool)'s queue for one segment.
pub trait SegmentListener: Send + Sync {
    /// Takes the segment waited for, once per registration. Returning it refuses
    /// it, and the next listener is asked.
    ///
    /// Called with no lock held, on the thread that gave the segment back. To wait
    /// for another one, register again; but a listener that refuses must not
    /// register within the same call, or it would be asked again for ever.
    fn on_segment(&self, segment: MemorySegment) -> Option<MemorySegment>;
}

/// Where the segment of a [`Buffer`](crate::Buffer) goes instead of straight home.
pub trait Recycler: Send + Sync {
    /// Takes a segment whose last [`Buffer`](crate::Buffer) was dropped. Called
    /// with no lock held, on the thread that dropped it.
    fn recycle(&self, segment: MemorySegment);
}

impl MemorySegment {
    pub(crate) fn new(slot: Slot, lane: usize, home: Arc<PoolCore>) -> Self {
        Self { slot: Some(slot), lane, home: Some(home) }
    }

    /// A segment outside of every pool, of a size of its own, freed when it is dropped. For who has to take bytes that
    /// no pool has room for: nothing bounds these but their caller.
    pub fn unpooled(bytes: usize) -> Result<Self, MemoryError> {
        at_least("bytes", bytes, 1)?;
        let slot = Region::allocate(1, bytes)?.pop();
        Ok(Self { slot, lane: 0, home: None })
    }

    /// The slot and its lane if this is a segment of `pool`; others go home.
    pub(crate) fn into_slot_of(mut self, pool: &Arc<PoolCore>) -> Option<(Slot, usize)> {
        if self.home.as_ref().is_some_and(|home| Arc::ptr_eq(home, pool)) {
            self.slot.take().map(|slot| (slot, self.lane))
        } else {
            None
        }
    }

    /// The whole segment, to be written.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        match &mut self.slot {
            Some(slot) => slot.as_mut_slice(),
            None => &mut [],
        }
    }

    /// Length in bytes, never 0.
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
