//! The writer's side of a segment.

#![allow(unsafe_code, reason = "writes segment bytes beside their readers")]

use std::fmt;

use crate::buffer::Lease;
use crate::region::RawBytes;
use crate::sync::LeaseArc;
use crate::{BufferConsumer, SegmentPart};

/// The one writer of a segment, or of its part of one. What it appends becomes readable by [`commit`](Self::commit).
///
/// Dropping it finishes it: everything appended is committed.
pub struct BufferBuilder {
    bytes: RawBytes,
    written: usize,
    capacity: usize,
    finished: bool,
    lease: LeaseArc<Lease>,
}

impl BufferBuilder {
    /// A builder for a segment or a part of one, and the consumer that reads what it commits.
    pub fn new(part: impl Into<SegmentPart>) -> (Self, BufferConsumer) {
        let lease = LeaseArc::new(Lease::unwritten(part.into()));
        let capacity = lease.len();
        let consumer = BufferConsumer::new(LeaseArc::clone(&lease));
        (Self { bytes: lease.raw(), written: 0, capacity, finished: false, lease }, consumer)
    }

    /// Writes the prefix of `src` that fits and returns its length. Not yet readable.
    #[inline]
    pub fn append(&mut self, src: &[u8]) -> usize {
        // Copying `src` whole keeps its length a constant wherever it is one.
        if src.len() <= self.writable_bytes() {
            self.put(src);
            src.len()
        } else {
            self.append_prefix(src)
        }
    }

    /// Writes `first` and `second` behind it and commits them, if both fit with room to spare: the whole of a small
    /// record in one step. `false`: nothing was written.
    ///
    /// One step and not two appends: each would have to wait for the position the other has just stored.
    #[inline]
    pub fn try_append_both(&mut self, first: &[u8], second: &[u8]) -> bool {
        let both = first.len() + second.len();
        if both >= self.writable_bytes() {
            return false;
        }
        // SAFETY: both fit below `capacity`, in the segment, which the lease holds (S2). We are its only writer and
        // readers stop at `committed <= written` (S3, S4), so nobody else touches what lies behind `written`.
        unsafe {
            self.bytes.write(self.written, first);
            self.bytes.write(self.written + first.len(), second);
        }
        self.written += both;
        self.commit();
        true
    }

    /// The unwritten rest, to be written in place and then [`advance`](Self::advance)d over.
    #[inline]
    pub fn spare_mut(&mut self) -> &mut [u8] {
        // SAFETY: `written..capacity` lies in the segment, which the lease holds (S2).
        // It is at or after `committed`, so it is ours alone (S3); `&mut self` makes
        // this the only reference into it.
        unsafe { self.bytes.slice_mut(self.written, self.capacity - self.written) }
    }

    /// Counts `n` bytes of [`spare_mut`](Self::spare_mut) as appended.
    ///
    /// # Panics
    /// If fewer than `n` are writable.
    #[inline]
    pub fn advance(&mut self, n: usize) {
        assert!(n <= self.writable_bytes(), "advanced by {n} of {} writable bytes", self.writable_bytes());
        self.written += n;
    }

    /// Makes everything appended readable. One Release store.
    #[inline]
    pub fn commit(&mut self) {
        // SAFETY: we are the lease's builder, and `written` only grows (S3).
        unsafe { self.lease.publish(self.written, self.finished) };
    }

    /// Commits, marks the end, and returns how many bytes were written in all.
    /// Nothing fits any more. Idempotent.
    pub fn finish(&mut self) -> usize {
        self.capacity = self.written;
        self.finished = true;
        self.commit();
        self.written
    }

    /// Sets how many bytes the segment may hold in all, clamped to what is written
    /// already and to the segment's length. No effect once finished.
    pub fn trim(&mut self, capacity: usize) {
        if !self.finished {
            self.capacity = capacity.clamp(self.written, self.lease.len());
        }
    }

    /// Bytes that still fit.
    #[inline]
    pub fn writable_bytes(&self) -> usize {
        self.capacity - self.written
    }

    /// Bytes appended, committed or not.
    #[inline]
    pub fn written_bytes(&self) -> usize {
        self.written
    }

    /// Whether nothing more fits.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.written == self.capacity
    }

    /// Whether [`finish`](Self::finish) was called.
    #[inline]
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Writes `src`, which fits.
    #[inline]
    fn put(&mut self, src: &[u8]) {
        debug_assert!(src.len() <= self.writable_bytes(), "checked by the callers");
        // SAFETY: `src` fits below `capacity`, in the segment, which the lease holds
        // (S2). We are its only writer and readers stop at `committed <= written`
        // (S3, S4), so nobody else touches `written..written + src.len()`.
        unsafe { self.bytes.write(self.written, src) };
        self.written += src.len();
    }

    #[cold]
    #[inline(never)]
    fn append_prefix(&mut self, src: &[u8]) -> usize {
        let fits = src.len().min(self.writable_bytes());
        self.put(&src[..fits]);
        fits
    }
}

impl Drop for BufferBuilder {
    fn drop(&mut self) {
        self.finish();
    }
}

impl fmt::Debug for BufferBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferBuilder")
            .field("written", &self.written)
            .field("capacity", &self.capacity)
            .field("finished", &self.finished)
            .finish_non_exhaustive()
    }
}
