//! Memory that a builder fills: a whole segment, or one of several equal parts of it.

use std::fmt;

use crate::MemorySegment;
use crate::region::RawBytes;
use crate::sync::LeaseArc;

/// The only owner of a whole segment, or of one part of it. Parts of a segment are used and returned separately. The
/// segment returns to its pool with the last of them.
pub struct SegmentPart {
    pub(crate) bytes: RawBytes,
    pub(crate) len: usize,
    /// At most `len`, and at least one byte.
    pub(crate) fill_limit: usize,
    pub(crate) owner: PartOwner,
}

/// Owner of a part's bytes.
pub(crate) enum PartOwner {
    Whole(MemorySegment),
    Shared(#[expect(dead_code, reason = "dropped with the part")] LeaseArc<MemorySegment>),
}

impl From<MemorySegment> for SegmentPart {
    fn from(segment: MemorySegment) -> Self {
        let len = segment.len();
        Self { bytes: segment.raw(), len, fill_limit: len, owner: PartOwner::Whole(segment) }
    }
}

impl MemorySegment {
    /// Cuts the segment into `parts` of equal length; a remainder is not used.
    ///
    /// # Panics
    /// If there are more parts than bytes.
    pub fn split(self, parts: usize) -> impl Iterator<Item = SegmentPart> {
        assert!((1..=self.len()).contains(&parts), "a segment of {} bytes has no {parts} parts", self.len());
        let (bytes, len) = (self.raw(), self.len() / parts);
        let segment = LeaseArc::new(self);
        (0..parts).map(move |part| SegmentPart {
            bytes: bytes.offset(part * len),
            len,
            fill_limit: len,
            owner: PartOwner::Shared(LeaseArc::clone(&segment)),
        })
    }
}

impl SegmentPart {
    /// Limits how far the part is filled: the record that reaches `bytes` is the last one, see
    /// [`BufferBuilder::is_filled`](crate::BufferBuilder::is_filled). That record may fill the whole part.
    #[must_use]
    pub fn with_fill_limit(self, bytes: usize) -> Self {
        Self { fill_limit: bytes.clamp(1, self.len), ..self }
    }
}

impl fmt::Debug for SegmentPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentPart").field("len", &self.len).finish_non_exhaustive()
    }
}
