//! Read-only, reference-counted slices of a segment, and the lease that all users of one segment share.

#![allow(unsafe_code, reason = "reads shared segment bytes")]

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::part::PartOwner;
use crate::region::RawBytes;
use crate::sync::{AtomicUsize, LeaseArc, Ordering};
use crate::{MemorySegment, Recycler, SegmentPart};

/// Bytes that were written once and are only read since. Clones and slices share them. When the last one is dropped,
/// the segment returns to its pool or goes to its [`Recycler`].
#[derive(Clone)]
pub struct Buffer {
    start: usize,
    len: usize,
    lease: LeaseArc<Lease>,
}

/// One use of a segment or of a part of it, from its first writer to its last reader.
pub(crate) struct Lease {
    /// Number of readable bytes, with the flag [`FINISHED`] once no more follow. One word, so that a reader cannot see
    /// the end without the bytes before it.
    committed: AtomicUsize,
    bytes: RawBytes,
    len: usize,
    /// Fill limit of the builder; the record that reaches it is the last one.
    fill_limit: usize,
    /// `None` only within `drop`.
    owner: Option<PartOwner>,
    recycler: Option<Arc<dyn Recycler>>,
}

/// Number of readable bytes of a lease at one moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct CommittedLength(usize);

impl Buffer {
    /// Creates a buffer of the first `len` bytes of `segment`. The segment returns to its pool with the last buffer.
    ///
    /// # Panics
    /// If `len` exceeds the segment.
    pub fn from_segment(segment: MemorySegment, len: usize) -> Self {
        Self::whole(Lease::finished(segment, len, None), len)
    }

    /// Creates a buffer of the first `len` bytes of `segment`. The segment goes to `recycler` with the last buffer.
    ///
    /// # Panics
    /// If `len` exceeds the segment.
    pub fn with_recycler(segment: MemorySegment, len: usize, recycler: Arc<dyn Recycler>) -> Self {
        Self::whole(Lease::finished(segment, len, Some(recycler)), len)
    }

    /// Returns a part of this buffer that shares its bytes.
    ///
    /// # Panics
    /// If `range` is not within `0..len`, as slicing does.
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} is not within 0..{}", self.len);
        Self { start: self.start + range.start, len: range.len(), lease: LeaseArc::clone(&self.lease) }
    }

    /// Returns the readable length of `lease` now, and the bytes from `start` on, if there are any.
    pub(crate) fn committed_from(lease: &LeaseArc<Lease>, start: usize) -> (CommittedLength, Option<Self>) {
        let committed = lease.committed();
        let len = committed.len().saturating_sub(start);
        let buffer = (len > 0).then(|| Self { start, len, lease: LeaseArc::clone(lease) });
        (committed, buffer)
    }

    fn whole(lease: Lease, len: usize) -> Self {
        Self { start: 0, len, lease: LeaseArc::new(lease) }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the lease holds the segment (S2). Every constructor takes a range
        // below what was committed (S4), and that is not written again (S3).
        unsafe { self.lease.bytes.slice(self.start, self.len) }
    }
}

impl AsRef<[u8]> for Buffer {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("start", &self.start).field("len", &self.len).finish_non_exhaustive()
    }
}

impl Lease {
    /// Creates a lease that its builder is about to fill.
    pub(crate) fn unwritten(part: SegmentPart) -> Self {
        Self::new(part, 0, None)
    }

    fn finished(segment: MemorySegment, len: usize, recycler: Option<Arc<dyn Recycler>>) -> Self {
        assert!(len <= segment.len(), "{len} bytes cannot lie in a segment of {}", segment.len());
        Self::new(segment.into(), len | FINISHED, recycler)
    }

    fn new(part: SegmentPart, committed: usize, recycler: Option<Arc<dyn Recycler>>) -> Self {
        let SegmentPart { bytes, len, fill_limit, owner } = part;
        Self { committed: AtomicUsize::new(committed), bytes, len, fill_limit, owner: Some(owner), recycler }
    }

    /// Makes the first `len` bytes readable.
    ///
    /// # Safety
    /// The caller is the lease's builder; it has written `len` bytes, no less than
    /// it published before, and will not write them again (S3).
    #[inline]
    pub(crate) unsafe fn publish(&self, len: usize, finished: bool) {
        let flag = if finished { FINISHED } else { 0 };
        // Release: a reader that sees the length sees the bytes.
        self.committed.store(len | flag, Ordering::Release);
    }

    /// Returns the committed length, for the builder itself: no other thread changes it.
    #[inline]
    pub(crate) fn committed_by_us(&self) -> CommittedLength {
        CommittedLength(self.committed.load(Ordering::Relaxed))
    }

    /// Returns the readable length now (S4).
    #[inline]
    pub(crate) fn committed(&self) -> CommittedLength {
        CommittedLength(self.committed.load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn raw(&self) -> RawBytes {
        self.bytes
    }

    /// Returns the number of bytes that can be written.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the fill limit; the record that reaches it is the last one.
    pub(crate) fn fill_limit(&self) -> usize {
        self.fill_limit
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The reference count was dropped to zero with Acquire and Release, so all
        // users' accesses are over before the next owner's begin (S5).
        match (self.owner.take(), self.recycler.take()) {
            (Some(PartOwner::Whole(segment)), Some(recycler)) => recycler.recycle(segment),
            (owner, _) => drop(owner),
        }
    }
}

impl CommittedLength {
    /// Returns the length; for a finished lease, a value far beyond any lease.
    #[inline]
    pub(crate) fn position(self) -> usize {
        self.0
    }

    #[inline]
    pub(crate) fn len(self) -> usize {
        self.0 & !FINISHED
    }

    #[inline]
    pub(crate) fn is_finished(self) -> bool {
        self.0 & FINISHED != 0
    }
}

/// Flag beside the length. A segment is shorter than `isize::MAX`, so the bit is free.
const FINISHED: usize = 1 << (usize::BITS - 1);
