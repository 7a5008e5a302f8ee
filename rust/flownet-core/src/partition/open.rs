//! Open buffers of a partition: at most one per subpartition, in the order in which they were opened.
//!
//! If more subpartitions are busy than buffers may be open, a buffer would be closed with one or two records in it to
//! make room for the next. Segments are then split, and each part is a buffer.
//!
//! # Invariants
//! - I1: every open buffer has one entry in `order` with its stamp. Entries of buffers closed since are skipped. They
//!   are removed before they outnumber the open ones.
//! - I2: at most `booked` segments, or one, have an open buffer or a spare part: as many as the pool has booked as
//!   standing.
//! - I3: all spare parts belong to the newest segment, and together count as one open buffer of it.

use std::collections::VecDeque;

use flownet_memory::{BufferBuilder, BufferPool, MemorySegment, SegmentPart};

/// Builders by subpartition.
#[derive(Debug)]
pub(super) struct OpenBuffers {
    builders: Box<[Option<BufferBuilder>]>,
    places: Box<[BufferPlace]>,
    order: VecDeque<(u32, u32)>,
    open: usize,
    segments: OpenSegments,
    spare: Vec<SegmentPart>,
    counts_spare: bool,
    parts: Parts,
    booked: usize,
}

/// Segment and stamp of the buffer last opened in a subpartition.
#[derive(Clone, Copy, Debug, Default)]
struct BufferPlace {
    /// Stamp of the valid entry in `order`.
    stamp: u32,
    segment: u32,
}

impl OpenBuffers {
    pub(super) fn new(subpartitions: u32) -> Self {
        Self {
            builders: (0..subpartitions).map(|_| None).collect(),
            places: (0..subpartitions).map(|_| BufferPlace::default()).collect(),
            order: VecDeque::new(),
            open: 0,
            segments: OpenSegments::default(),
            spare: Vec::new(),
            counts_spare: false,
            parts: Parts::default(),
            booked: 0,
        }
    }

    /// Returns the open buffer of a subpartition, for writing.
    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut BufferBuilder> {
        self.builders[index].as_mut()
    }

    /// Returns all builders, by subpartition.
    #[inline]
    pub(super) fn builders(&mut self) -> &mut [Option<BufferBuilder>] {
        &mut self.builders
    }

    /// Returns the number of segments in use by open buffers and spare parts.
    pub(super) fn segments(&self) -> usize {
        self.segments.open()
    }

    /// Returns true if a segment has several open buffers, or spare parts.
    pub(super) fn is_split(&self) -> bool {
        self.open > self.segments() || self.counts_spare
    }

    pub(super) fn subpartitions(&self) -> usize {
        self.builders.len()
    }

    /// Returns how many segments may stay open. Booked segments stay booked unless the pool has become too small for
    /// them.
    pub(super) fn limit(&mut self, pool: &BufferPool) -> usize {
        if pool.claims_standing() && self.booked > 1 {
            self.booked -= 1;
            pool.end_standing(1);
        } else if self.segments() == self.booked && pool.try_stand() {
            self.booked += 1;
        }
        self.booked.max(1)
    }

    /// Takes a spare part of the newest segment.
    pub(super) fn take_spare(&mut self) -> Option<SegmentPart> {
        self.spare.pop()
    }

    /// Drops the spare parts.
    pub(super) fn drop_spare(&mut self) {
        self.spare.clear();
        self.end_spare();
    }

    /// Begins a segment. Returns the whole segment, or one part of it; the other parts become spare.
    pub(super) fn begin(&mut self, segment: MemorySegment) -> SegmentPart {
        debug_assert!(self.spare.is_empty(), "I3: what is left of the last segment is used first");
        self.segments.begin();
        let parts = self.parts.of(segment.len());
        if parts == 1 {
            return segment.into();
        }
        self.spare.extend(segment.split(parts));
        self.segments.enter();
        self.counts_spare = true;
        self.spare.pop().expect("a segment has at least one part")
    }

    pub(super) fn insert(&mut self, index: usize, builder: BufferBuilder) {
        debug_assert!(self.builders[index].is_none(), "the buffer before it is finished");
        self.builders[index] = Some(builder);
        self.open += 1;
        let segment = self.segments.enter();
        if self.spare.is_empty() {
            self.end_spare();
        }
        if self.order.len() > 2 * self.open + SPARE_ENTRIES {
            let (builders, places) = (&self.builders, &self.places);
            self.order.retain(|&(at, stamp)| is_current(builders, places, at, stamp));
        }
        let stamp = self.places[index].stamp.wrapping_add(1);
        self.places[index] = BufferPlace { stamp, segment };
        // A partition has at most 2^32 subpartitions.
        self.order.push_back((index as u32, stamp));
    }

    pub(super) fn take(&mut self, index: usize) -> Option<BufferBuilder> {
        let taken = self.builders[index].take()?;
        self.open -= 1;
        self.segments.leave(self.places[index].segment);
        if taken.is_filled() {
            self.parts.on_filled();
        }
        Some(taken)
    }

    /// Records that a buffer was closed to make room before its reader had drained it.
    pub(super) fn on_cut_short(&mut self) {
        self.parts.on_cut_short();
    }

    /// Returns the subpartitions with an open buffer, the one open longest first.
    pub(super) fn oldest_first(&self) -> impl Iterator<Item = usize> {
        let current =
            self.order.iter().filter(|&&(index, stamp)| is_current(&self.builders, &self.places, index, stamp));
        current.map(|&(index, _)| index as usize)
    }

    /// Returns the subpartition whose buffer has been open longest.
    pub(super) fn oldest(&mut self) -> Option<usize> {
        while let Some(&(index, stamp)) = self.order.front() {
            if is_current(&self.builders, &self.places, index, stamp) {
                return Some(index as usize);
            }
            self.order.pop_front();
        }
        None
    }

    fn end_spare(&mut self) {
        if std::mem::take(&mut self.counts_spare) {
            self.segments.leave(self.segments.newest);
        }
    }
}

fn is_current(builders: &[Option<BufferBuilder>], places: &[BufferPlace], index: u32, stamp: u32) -> bool {
    let index = index as usize;
    places[index].stamp == stamp && builders[index].is_some()
}

/// Number of open buffers in each segment that has any.
#[derive(Debug, Default)]
struct OpenSegments {
    buffers: Vec<u32>,
    /// Unused places in `buffers`.
    free: Vec<u32>,
    newest: u32,
}

impl OpenSegments {
    fn open(&self) -> usize {
        self.buffers.len() - self.free.len()
    }

    /// Adds a segment for a buffer that is about to be opened.
    fn begin(&mut self) {
        self.newest = self.free.pop().unwrap_or_else(|| {
            self.buffers.push(0);
            // At most one per subpartition, and a spare one.
            self.buffers.len() as u32 - 1
        });
    }

    /// Adds an open buffer of the newest segment. Returns the segment's place.
    fn enter(&mut self) -> u32 {
        self.buffers[self.newest as usize] += 1;
        self.newest
    }

    fn leave(&mut self, segment: u32) {
        let buffers = &mut self.buffers[segment as usize];
        *buffers -= 1;
        if *buffers == 0 {
            self.free.push(segment);
        }
    }
}

/// Number of buffers per segment. It grows when buffers are closed early to make room, and shrinks when buffers fill up
/// one after the other.
#[derive(Debug)]
struct Parts {
    now: usize,
    filled: u32,
}

impl Default for Parts {
    fn default() -> Self {
        Self { now: 1, filled: 0 }
    }
}

impl Parts {
    fn of(&self, segment_bytes: usize) -> usize {
        self.now.min(segment_bytes / SMALLEST_PART_BYTES).max(1)
    }

    fn on_cut_short(&mut self) {
        self.now = (self.now * 2).min(MOST_PARTS);
        self.filled = 0;
    }

    fn on_filled(&mut self) {
        self.filled += 1;
        if self.filled >= FILLED_BEFORE_FEWER {
            self.now = (self.now / 2).max(1);
            self.filled = 0;
        }
    }
}

/// Entries of closed buffers that are not worth removing.
const SPARE_ENTRIES: usize = 64;
const MOST_PARTS: usize = 16;
/// Below this size the overhead of a frame is noticeable.
const SMALLEST_PART_BYTES: usize = 1024;
/// If it is too early, trying fewer parts costs up to a segment's worth of short buffers.
const FILLED_BEFORE_FEWER: u32 = 1024;

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::sync::Arc;

    use flownet_memory::SegmentPool;

    use super::*;
    use crate::sizing::PoolSizing;

    const SEGMENT_BYTES: usize = 16 * 1024;

    fn pool(segments: usize) -> (Arc<SegmentPool>, Arc<BufferPool>) {
        let all = SegmentPool::new(segments, SEGMENT_BYTES).unwrap();
        let pool = all.create_buffer_pool(PoolSizing::default().partition(64)).unwrap();
        (all, pool)
    }

    /// Opens a buffer: a spare part of the newest segment, or a new segment.
    fn open(buffers: &mut OpenBuffers, pool: &BufferPool, index: usize) {
        let part = buffers.take_spare().unwrap_or_else(|| buffers.begin(pool.try_take(0).expect("there is one")));
        buffers.insert(index, BufferBuilder::new(part).0);
    }

    #[test]
    fn parts_are_doubled_as_buffers_are_cut_short_and_halved_as_they_fill_up() {
        let mut parts = Parts::default();
        let mut seen = Vec::new();
        for _ in 0..6 {
            parts.on_cut_short();
            seen.push(parts.of(SEGMENT_BYTES));
        }
        assert_eq!(seen, [2, 4, 8, 16, 16, 16]);
        assert_eq!((parts.of(4 * SMALLEST_PART_BYTES + 1), parts.of(1)), (4, 1), "of a small segment");
        seen.clear();
        for _ in 0..6 {
            (1..FILLED_BEFORE_FEWER).for_each(|_| parts.on_filled());
            let before = parts.of(SEGMENT_BYTES);
            parts.on_filled();
            assert!(parts.of(SEGMENT_BYTES) < before || before == 1);
            seen.push(parts.of(SEGMENT_BYTES));
        }
        assert_eq!(seen, [8, 4, 2, 1, 1, 1]);
    }

    #[test]
    fn one_that_is_cut_short_among_many_full_ones_keeps_the_segments_split() {
        let mut parts = Parts::default();
        parts.on_cut_short();
        for _ in 0..3 {
            (1..FILLED_BEFORE_FEWER).for_each(|_| parts.on_filled());
            parts.on_cut_short();
        }
        assert_eq!(parts.of(SEGMENT_BYTES), 16);
    }

    #[test]
    fn segments_are_split_as_long_as_several_buffers_or_a_spare_part_are_of_one() {
        let (all, pool) = pool(8);
        let mut buffers = OpenBuffers::new(64);
        open(&mut buffers, &pool, 0);
        assert_eq!((buffers.segments(), buffers.is_split()), (1, false), "a whole one");
        buffers.on_cut_short();
        open(&mut buffers, &pool, 1);
        assert_eq!((buffers.segments(), buffers.is_split()), (2, true), "the other half is to spare");
        open(&mut buffers, &pool, 2);
        assert_eq!((buffers.segments(), buffers.is_split()), (2, true), "both halves are open");
        drop(buffers.take(1));
        assert_eq!((buffers.segments(), buffers.is_split()), (2, false), "one is left of each");
        drop(buffers.take(2));
        assert_eq!((buffers.segments(), buffers.is_split()), (1, false));
        open(&mut buffers, &pool, 3);
        buffers.drop_spare();
        assert_eq!((buffers.segments(), buffers.is_split()), (2, false));
        drop((buffers.take(0), buffers.take(3)));
        assert_eq!((buffers.segments(), buffers.is_split(), pool.in_use()), (0, false, 0));
        drop((buffers, pool));
        assert_eq!(all.available(), all.total());
    }

    #[test]
    fn who_has_been_open_for_longest_comes_first() {
        let (all, pool) = pool(8);
        let mut buffers = OpenBuffers::new(4);
        [2, 0, 1].into_iter().for_each(|index| open(&mut buffers, &pool, index));
        assert!(buffers.oldest_first().eq([2, 0, 1]));
        drop(buffers.take(0));
        open(&mut buffers, &pool, 0);
        assert!(buffers.oldest_first().eq([2, 1, 0]), "another buffer of the same");
        drop(buffers.take(2));
        assert!(buffers.oldest_first().eq([1, 0]));
        drop((buffers, pool));
        assert_eq!(all.available(), all.total());
    }

    #[test]
    fn what_is_booked_is_given_back_one_by_one_while_the_pool_claims_it() {
        let (all, pool) = pool(16);
        let mut buffers = OpenBuffers::new(64);
        for index in 0..12 {
            assert_eq!(buffers.limit(&pool), index + 1);
            open(&mut buffers, &pool, index);
        }
        assert_eq!(buffers.limit(&pool), 12, "no more of sixteen may stand");
        // The other pool gets three segments. As many of the rest as before must not stand.
        let other = all.create_buffer_pool(PoolSizing::default().gate(1)).unwrap();
        let mut limits = Vec::new();
        while pool.claims_standing() {
            limits.push(buffers.limit(&pool));
            assert_eq!(pool.standing(), limits[limits.len() - 1]);
        }
        assert!(limits.iter().rev().copied().eq(limits[limits.len() - 1]..12), "{limits:?}");
        drop((buffers, pool, other));
        assert_eq!(all.available(), all.total());
    }

    #[test]
    fn entries_of_buffers_that_were_closed_do_not_pile_up_behind_one_that_stays_open() {
        let (all, pool) = pool(16);
        let mut buffers = OpenBuffers::new(2);
        open(&mut buffers, &pool, 0);
        for _ in 0..1000 {
            open(&mut buffers, &pool, 1);
            drop(buffers.take(1));
        }
        assert!(buffers.order.len() < 100, "{} entries for one buffer", buffers.order.len());
        assert!(buffers.oldest_first().eq([0]));
        drop((buffers, pool));
        assert_eq!(all.available(), all.total());
    }
}
