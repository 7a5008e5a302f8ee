//! The single allocation of a segment pool, and the tokens that own its parts.
//!
//! A [`Slot`] is the exclusive right to one segment's bytes. Pools only move slots, so safe code cannot give out a
//! segment twice: at worst it could lose one. [`RawBytes`] is a slot's address for the builder and buffers that share a
//! lease. Its use is unsafe and follows S3 and S4 of the crate docs.
//!
//! In loom's models every byte has a shadow cell. Loom thus reports any read or write that is not ordered with another
//! access to that byte.

#![allow(unsafe_code, reason = "allocates the segments and is the only place that makes references into them")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::num::NonZero;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::MemoryError;

/// All segments of a pool in one zeroed allocation, freed with the last [`Slot`].
pub(crate) struct Region {
    base: NonNull<u8>,
    layout: Layout,
    #[cfg(loom)]
    shadow: Box<[loom::cell::UnsafeCell<()>]>,
}

/// The only owner of one segment's bytes (S1).
pub(crate) struct Slot {
    bytes: RawBytes,
    len: usize,
    /// Keeps the bytes allocated (S2).
    _region: Arc<Region>,
}

/// Address of a segment's bytes. A copy carries no right to access them.
#[derive(Clone, Copy)]
pub(crate) struct RawBytes {
    start: NonNull<u8>,
    #[cfg(loom)]
    shadow: NonNull<loom::cell::UnsafeCell<()>>,
}

impl Region {
    /// Allocates `segments` slots of `segment_bytes` each, both at least 1.
    ///
    /// Does not touch the pages: a segment uses no memory until it is first written.
    pub(crate) fn allocate(segments: usize, segment_bytes: usize) -> Result<Vec<Slot>, MemoryError> {
        let stride = stride_of(segment_bytes);
        let bytes = segments.saturating_mul(stride);
        let layout = Layout::from_size_align(bytes, ALIGN_BYTES).ok().filter(|layout| layout.size() > 0);
        let layout = layout.ok_or(MemoryError::InvalidSize {
            what: "segments * segment_bytes",
            value: segments.saturating_mul(segment_bytes),
            min: 1,
            max: MAX_REGION_BYTES,
        })?;
        let mut slots = Vec::new();
        slots
            .try_reserve_exact(segments)
            .map_err(|_| MemoryError::AllocationFailed { bytes: segments.saturating_mul(size_of::<Slot>()) })?;
        // SAFETY: the layout was checked to have a size above zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(MemoryError::AllocationFailed { bytes })?;
        let region = Arc::new(Self {
            base,
            layout,
            #[cfg(loom)]
            shadow: (0..bytes).map(|_| loom::cell::UnsafeCell::new(())).collect(),
        });
        slots.extend((0..segments).map(|index| Slot {
            bytes: region.raw_at(index * stride),
            len: segment_bytes,
            _region: Arc::clone(&region),
        }));
        Ok(slots)
    }

    fn raw_at(&self, offset: usize) -> RawBytes {
        assert!(offset < self.layout.size(), "a segment starts within its region");
        RawBytes {
            // SAFETY: the offset is within the allocation, as just checked.
            start: unsafe { self.base.add(offset) },
            #[cfg(loom)]
            shadow: NonNull::from(&self.shadow[offset]),
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: allocated in `allocate` with this layout. No slot is left (each
        // holds an `Arc` of this region), hence no user of the bytes either (S2).
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

// SAFETY: the region only owns the allocation; its bytes are reached through slots
// (S1), whose rules hold across threads. The loom shadow is used under them too.
unsafe impl Send for Region {}
// SAFETY: as above; `&Region` gives addresses, no access.
unsafe impl Sync for Region {}

impl Slot {
    /// Returns the whole segment, for writing.
    #[inline]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: `&mut self` is exclusive access to the slot and so to its bytes
        // (S1); they are allocated (S2), initialised (S6) and `len` long.
        unsafe { self.bytes.slice_mut(0, self.len) }
    }

    /// Returns the address of the bytes.
    #[inline]
    pub(crate) fn raw(&self) -> RawBytes {
        self.bytes
    }

    /// Returns the length of the segment in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl RawBytes {
    /// Returns the address `offset` bytes further on. Only its use is unsafe.
    #[inline]
    pub(crate) fn offset(self, offset: usize) -> Self {
        let further = |bytes: usize| move |at: NonZero<usize>| at.checked_add(bytes).expect("within one allocation");
        Self {
            start: self.start.map_addr(further(offset)),
            #[cfg(loom)]
            shadow: self.shadow.map_addr(further(offset * size_of::<loom::cell::UnsafeCell<()>>())),
        }
    }

    /// Copies `src` to `at..at + src.len()`.
    ///
    /// # Safety
    /// The range lies within the segment, whose slot is alive, and nobody else
    /// reads or writes it meanwhile.
    #[inline]
    pub(crate) unsafe fn write(self, at: usize, src: &[u8]) {
        self.shadow_write(at, src.len());
        // SAFETY: the caller vouches for the range; `src` cannot overlap it, since
        // that would be another reader of it. Both words lie within `src` and within
        // the range, since neither is shorter than a word.
        unsafe {
            let (from, to) = (src.as_ptr(), self.start.as_ptr().add(at));
            if (WORD..=2 * WORD).contains(&src.len()) {
                // Two words that may overlap: saves a call for small records.
                let last = src.len() - WORD;
                let words = [from.cast::<u64>().read_unaligned(), from.add(last).cast::<u64>().read_unaligned()];
                to.cast::<u64>().write_unaligned(words[0]);
                to.add(last).cast::<u64>().write_unaligned(words[1]);
            } else {
                std::ptr::copy_nonoverlapping(from, to, src.len());
            }
        }
    }

    /// Makes the processor fetch the cache line at `at`, which will soon be written. Only a hint: any address is
    /// allowed.
    #[inline]
    pub(crate) fn prefetch(self, at: usize) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch neither faults nor changes anything.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_ET0>(self.start.as_ptr().wrapping_add(at).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    /// The bytes `at..at + len`.
    ///
    /// # Safety
    /// The range lies within the segment, whose slot stays alive for `'a`, and
    /// nobody writes it during `'a`.
    #[inline]
    pub(crate) unsafe fn slice<'a>(self, at: usize, len: usize) -> &'a [u8] {
        self.shadow_read(at, len);
        // SAFETY: valid and unwritten as the caller vouches, initialised by S6.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(at), len) }
    }

    /// The bytes `at..at + len`, writable.
    ///
    /// # Safety
    /// The range lies within the segment, whose slot stays alive for `'a`, and
    /// nobody else reads or writes it during `'a`.
    #[inline]
    pub(crate) unsafe fn slice_mut<'a>(self, at: usize, len: usize) -> &'a mut [u8] {
        self.shadow_write(at, len);
        // SAFETY: valid and exclusive as the caller vouches, initialised by S6.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(at), len) }
    }

    #[cfg(not(loom))]
    #[inline]
    fn shadow_read(self, _at: usize, _len: usize) {}

    #[cfg(not(loom))]
    #[inline]
    fn shadow_write(self, _at: usize, _len: usize) {}

    #[cfg(loom)]
    fn shadow_read(self, at: usize, len: usize) {
        self.shadow_cells(at, len).iter().for_each(|cell| cell.with(|_| ()));
    }

    #[cfg(loom)]
    fn shadow_write(self, at: usize, len: usize) {
        self.shadow_cells(at, len).iter().for_each(|cell| cell.with_mut(|_| ()));
    }

    #[cfg(loom)]
    fn shadow_cells<'a>(self, at: usize, len: usize) -> &'a [loom::cell::UnsafeCell<()>] {
        // SAFETY: one cell a byte, allocated and freed with the region, and the
        // range is valid for the bytes as the callers' own callers vouch.
        unsafe { std::slice::from_raw_parts(self.shadow.as_ptr().add(at), len) }
    }
}

// SAFETY: an address; each use of it is an unsafe call with rules of its own.
unsafe impl Send for RawBytes {}
// SAFETY: as above.
unsafe impl Sync for RawBytes {}

/// Returns the distance between the starts of two segments. For segments of whole pages it is the segment and five
/// cache lines. A writer of many channels is at about the same position in all their segments. Positions a multiple of
/// a page apart compete for the few lines of one cache set. An odd number of lines spreads them over all sets. Steps of
/// 1, 5 and 13 lines measured alike; a step of 8 was slower.
fn stride_of(segment_bytes: usize) -> usize {
    if segment_bytes.is_multiple_of(PAGE_BYTES) { segment_bytes.saturating_add(STEP_BYTES) } else { segment_bytes }
}

const PAGE_BYTES: usize = 4096;
const STEP_BYTES: usize = 5 * 64;

/// Alignment of the region. Not more than the allocator's natural alignment: beyond it, `alloc_zeroed` writes the zeros
/// itself and so touches every page.
const ALIGN_BYTES: usize = 16;

/// Largest size that [`Layout`] accepts with our alignment.
const MAX_REGION_BYTES: usize = isize::MAX as usize - (ALIGN_BYTES - 1);

/// Bytes of a `u64`.
const WORD: usize = size_of::<u64>();
