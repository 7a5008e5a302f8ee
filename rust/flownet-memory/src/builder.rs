//! Writer side of a segment.

#![allow(unsafe_code, reason = "writes segment bytes beside their readers")]

use std::fmt;

use crate::buffer::Lease;
use crate::region::RawBytes;
use crate::sync::LeaseArc;
use crate::{BufferConsumer, SegmentPart};

/// The only writer of a segment, or of one part of it. Appended bytes become readable by [`commit`](Self::commit).
///
/// Dropping it finishes it: all appended bytes are committed.
pub struct BufferBuilder {
    lease: LeaseArc<Lease>,
    /// Limit for the end of a record that is written and committed in one step. 0 if there are uncommitted bytes or the
    /// builder is finished.
    record_limit: usize,
    /// Bytes written after the committed ones. The lease stores the number of committed bytes. Writing a record thus
    /// changes only the lease and the record's bytes, and only reads this struct.
    uncommitted: usize,
}

impl BufferBuilder {
    /// Creates a builder for a segment or a part of one, and the consumer of its committed bytes.
    pub fn new(part: impl Into<SegmentPart>) -> (Self, BufferConsumer) {
        let lease = LeaseArc::new(Lease::unwritten(part.into()));
        let consumer = BufferConsumer::new(LeaseArc::clone(&lease));
        (Self { record_limit: lease.fill_limit(), lease, uncommitted: 0 }, consumer)
    }

    /// Writes the prefix of `src` that fits and returns its length. The bytes are not readable yet.
    #[inline]
    pub fn append(&mut self, src: &[u8]) -> usize {
        // Copying the whole `src` preserves a constant length for the compiler.
        if src.len() <= self.writable_bytes() {
            self.put(src);
            src.len()
        } else {
            self.append_prefix(src)
        }
    }

    /// Returns an appender for small records: each is written and committed in one step, while there is room to spare.
    ///
    /// There is no room while appended bytes are uncommitted.
    #[inline]
    pub fn records(&mut self) -> RecordAppender<'_> {
        // For a finished builder, this position is beyond every limit, so nothing is written there.
        let at = self.lease.committed_by_us().position();
        RecordAppender { bytes: self.lease.raw(), at, limit: self.record_limit, lease: &self.lease }
    }

    /// Makes all appended bytes readable. One Release store.
    #[inline]
    pub fn commit(&mut self) {
        if !self.is_finished() {
            // SAFETY: we are the lease's builder, and the position only grows (S3).
            unsafe { self.lease.publish(self.written_bytes(), false) };
            self.uncommitted = 0;
            self.record_limit = self.lease.fill_limit();
        }
    }

    /// Commits, marks the end, and returns the total number of bytes written. No further bytes fit. Idempotent.
    pub fn finish(&mut self) -> usize {
        let written = self.written_bytes();
        // SAFETY: as in `commit`; nothing is written once finished (S3).
        unsafe { self.lease.publish(written, true) };
        self.uncommitted = 0;
        self.record_limit = 0;
        written
    }

    /// Returns the number of bytes that still fit.
    #[inline]
    pub fn writable_bytes(&self) -> usize {
        if self.is_finished() { 0 } else { self.lease.len() - self.written_bytes() }
    }

    /// Returns the number of appended bytes, committed or not.
    #[inline]
    pub fn written_bytes(&self) -> usize {
        self.lease.committed_by_us().len() + self.uncommitted
    }

    /// Returns whether no more bytes fit.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.writable_bytes() == 0
    }

    /// Returns whether no further record may begin: no more bytes fit, or the part's [fill
    /// limit](SegmentPart::with_fill_limit) is reached.
    #[inline]
    pub fn is_filled(&self) -> bool {
        self.is_finished() || self.written_bytes() >= self.lease.fill_limit()
    }

    /// Returns whether [`finish`](Self::finish) was called.
    #[inline]
    pub fn is_finished(&self) -> bool {
        self.lease.committed_by_us().is_finished()
    }

    /// Writes `src`, which fits.
    #[inline]
    fn put(&mut self, src: &[u8]) {
        debug_assert!(src.len() <= self.writable_bytes(), "checked by the callers");
        // SAFETY: `src` fits behind what is written, in the segment, which the lease
        // holds (S2). We are its only writer and readers stop at what is committed
        // (S3, S4), so nobody else touches this range.
        unsafe { self.lease.raw().write(self.written_bytes(), src) };
        self.uncommitted += src.len();
        self.record_limit = 0;
    }

    #[cold]
    #[inline(never)]
    fn append_prefix(&mut self, src: &[u8]) -> usize {
        let fits = src.len().min(self.writable_bytes());
        self.put(&src[..fits]);
        fits
    }
}

/// Appends to a [`BufferBuilder`] and commits with each append. Made once for many records, as a local variable of the
/// loop that writes them. It saves the lookup of the write position for each record.
pub struct RecordAppender<'a> {
    bytes: RawBytes,
    /// All bytes before this position are committed, and none after it is written.
    at: usize,
    limit: usize,
    lease: &'a Lease,
}

impl RecordAppender<'_> {
    /// Writes `first`, then `second`, and commits them, if both fit below the fill limit with room to spare. Returns
    /// `false` if nothing was written.
    ///
    /// One step and not two appends: each would have to wait for the position that the other has just stored.
    #[inline(always)] // a call for each record would cost as much as the record
    pub fn try_append_both(&mut self, first: &[u8], second: &[u8]) -> bool {
        let end = self.at.checked_add(first.len() + second.len());
        let Some(end) = end.filter(|&end| end < self.limit) else {
            return false;
        };
        // SAFETY: both fit in the segment, which the lease holds (S2). Its builder is borrowed by us alone, so we are
        // its only writer, and readers stop at what is committed (S3, S4): nobody else touches this range.
        unsafe {
            self.bytes.write(self.at, first);
            self.bytes.write(self.at + first.len(), second);
        }
        // A writer of many buffers returns to this one long after its next cache line was evicted.
        self.bytes.prefetch(end + LINE_BYTES);
        // SAFETY: we act for the lease's builder, which is not finished, and have written up to `end` (S3).
        unsafe { self.lease.publish(end, false) };
        self.at = end;
        true
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
            .field("written", &self.written_bytes())
            .field("capacity", &self.lease.len())
            .field("finished", &self.is_finished())
            .finish_non_exhaustive()
    }
}

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;
