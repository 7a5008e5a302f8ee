//! The writer's end of a partition.

use std::sync::Arc;
use std::task::{Poll, Waker, ready};

use flownet_memory::{BufferBuilder, BufferPool, MemorySegment, SegmentPart};

use super::cell::SubpartitionCell;
use super::counts::RecordCounts;
use super::dirty::DirtyMarks;
use super::handle::{PartitionHandle, PartitionShared};
use super::open::OpenBuffers;
use super::open_buffers::Runs;
use crate::debloat::FillLimit;
use crate::error::ExchangeError;
use crate::event::Event;
use crate::ids::{CheckpointId, PartitionId, SubpartitionIndex};
use crate::subpartition::OvertakenData;

/// All that one task writes for one edge. Owned by the task's thread.
///
/// Bytes go into the open buffer of a subpartition and become visible to its reader when the buffer is full, at a
/// flush, or in front of an event. Indices beyond [`Self::subpartitions`] are the caller's bug and panic.
///
/// Dropping it before [`Self::finish`] ends the partition for its readers with [`ExchangeError::Released`]. Dropping
/// it also destroys its pool: segments still queued or on their way go home to the process as they are read.
#[derive(Debug)]
pub struct ResultPartition {
    shared: Arc<PartitionShared>,
    pool: Arc<BufferPool>,
    open: OpenBuffers,
    /// Those of `shared`, at hand.
    dirty: DirtyMarks,
    /// Likewise.
    records: RecordCounts,
    broadcast: Option<BufferBuilder>,
    data_ended: bool,
    is_finished: bool,
}

impl ResultPartition {
    /// A partition that takes its segments from `pool`, which has one lane for each subpartition and a maximum above
    /// their number. With a lower one, open buffers that nobody flushes could hold all of it, and
    /// [`Self::poll_available`] would wait for ever.
    #[must_use]
    pub fn new(id: PartitionId, pool: Arc<BufferPool>, subpartitions: u32) -> Self {
        let dirty = DirtyMarks::new(subpartitions as usize);
        let records = RecordCounts::new(subpartitions as usize);
        let shared = Arc::new(PartitionShared::new(id, subpartitions, dirty.clone(), records.clone()));
        Self {
            shared,
            pool,
            open: OpenBuffers::new(subpartitions),
            dirty,
            records,
            broadcast: None,
            data_ended: false,
            is_finished: false,
        }
    }

    /// Appends to one subpartition and takes new segments as they are needed. Returns how many bytes were taken: all
    /// of them, or fewer when no segment is to be had now. Not visible before [`Self::end_record`] and a flush,
    /// except for buffers that became full.
    #[inline]
    pub fn try_write(&mut self, subpartition: SubpartitionIndex, bytes: &[u8]) -> usize {
        let mut taken = 0;
        if self.broadcast.is_none()
            && let Some(builder) = self.open.get_mut(subpartition.index())
        {
            taken = builder.append(bytes);
        }
        if taken == bytes.len() { taken } else { taken + self.write_rest(subpartition, &bytes[taken..]) }
    }

    /// The open buffers, to write whole records to: the case to be fast in.
    #[inline]
    pub(crate) fn runs(&mut self) -> Runs<'_> {
        let (builders, marks, records) = (self.open.builders(), self.dirty.each(), self.records.each());
        // As many, which the compiler should know.
        let (marks, records) = (&marks[..builders.len()], &records[..builders.len()]);
        Runs { builders, marks, records, flusher: self.dirty.flusher(), cells: &self.shared.cells }
    }

    /// Appends once for all subpartitions: they share the buffer. Otherwise as [`Self::try_write`].
    #[inline]
    pub fn try_broadcast_write(&mut self, bytes: &[u8]) -> usize {
        let taken = self.broadcast.as_mut().map_or(0, |builder| builder.append(bytes));
        if taken == bytes.len() { taken } else { taken + self.broadcast_rest(&bytes[taken..]) }
    }

    /// A record ends here: its bytes may be flushed from now on. A buffer that is filled with it, to its end or to the
    /// limit of its reader, is finished at once.
    #[inline]
    pub fn end_record(&mut self, subpartition: SubpartitionIndex) {
        let index = subpartition.index();
        if let Some(builder) = self.open.get_mut(index) {
            builder.commit();
            if builder.is_filled() {
                self.finish_buffer(index);
                self.shared.cells[index].finish_buffer();
            }
        }
        self.records.each()[index].add(1);
        self.dirty.mark(index);
    }

    /// As [`Self::end_record`], for a record that was broadcast.
    #[inline]
    pub fn end_broadcast_record(&mut self) {
        if let Some(builder) = &mut self.broadcast {
            builder.commit();
            if builder.is_filled() {
                self.close_broadcast();
            }
        }
        self.records.all().add(1);
        self.dirty.mark_all();
    }

    /// Sends an event to one subpartition, behind all records written to it (a priority event: before what is still
    /// queued). Visible at once.
    ///
    /// # Errors
    /// [`ExchangeError::TooManyEvents`] where [`EVENT_WINDOW`](crate::credit::EVENT_WINDOW) of them wait already, but for
    /// a watermark behind another one.
    pub fn emit_event(&mut self, subpartition: SubpartitionIndex, event: &Event) -> Result<(), ExchangeError> {
        self.close_broadcast();
        self.finish_buffer(subpartition.index());
        self.add_event(subpartition.index(), event)
    }

    /// Sends an event to every subpartition, as [`Self::emit_event`] does.
    ///
    /// # Errors
    /// The first of those of the subpartitions; the others have the event.
    pub fn broadcast_event(&mut self, event: &Event) -> Result<(), ExchangeError> {
        self.finish_broadcast_buffer();
        let mut sent = Ok(());
        for index in 0..self.open.subpartitions() {
            self.finish_buffer(index);
            sent = sent.and(self.add_event(index, event));
        }
        sent
    }

    /// Sends a priority event to every subpartition; says of each what it overtook there.
    ///
    /// # Errors
    /// Those of [`Self::emit_event`]: those before it have the event.
    pub fn overtake(&mut self, event: &Event) -> Result<Vec<OvertakenData>, ExchangeError> {
        self.finish_broadcast_buffer();
        for index in 0..self.open.subpartitions() {
            self.finish_buffer(index);
        }
        self.shared.cells.iter().map(|cell| cell.overtake(event.clone())).collect()
    }

    /// Puts the barrier of a checkpoint that has taken too long ahead of what is queued, wherever it is queued; says of each
    /// subpartition what it overtook there.
    #[must_use]
    pub fn expire(&mut self, checkpoint_id: CheckpointId) -> Vec<OvertakenData> {
        self.shared.cells.iter().map(|cell| cell.expire(checkpoint_id).unwrap_or_default()).collect()
    }

    /// Shows the reader of one subpartition all complete records, and is cheap where that is done after every record.
    /// The open buffer stays open.
    #[inline]
    pub fn flush(&mut self, subpartition: SubpartitionIndex) {
        self.shared.cells[subpartition.index()].flush_record();
    }

    /// Shows all readers all complete records, likewise.
    pub fn flush_all(&mut self) {
        for cell in &self.shared.cells {
            cell.flush_record();
        }
    }

    /// Waits for room: ready when `subpartition` has an open buffer with room in it, which takes one segment if need
    /// be. For a record that was cut by a short [`Self::try_write`].
    pub fn poll_segment(&mut self, subpartition: SubpartitionIndex, waker: &Waker) -> Poll<Result<(), ExchangeError>> {
        let index = subpartition.index();
        self.close_broadcast();
        if self.open.get_mut(index).is_some_and(|builder| !builder.is_full()) {
            return Poll::Ready(Ok(()));
        }
        let part = match self.open.take_spare() {
            Some(part) => part,
            None => {
                let segment = ready!(self.pool.poll_take(index, waker))?;
                self.begin(segment)
            }
        };
        self.finish_buffer(index);
        self.open_buffer(index, part);
        Poll::Ready(Ok(()))
    }

    /// As [`Self::poll_segment`], for a broadcast record.
    pub fn poll_broadcast_segment(&mut self, waker: &Waker) -> Poll<Result<(), ExchangeError>> {
        if self.broadcast.as_ref().is_some_and(|builder| !builder.is_full()) {
            return Poll::Ready(Ok(()));
        }
        let segment = ready!(self.pool.poll_take(BROADCAST_LANE, waker))?;
        self.close_unicast();
        self.finish_broadcast_buffer();
        self.open_broadcast(segment);
        Poll::Ready(Ok(()))
    }

    /// Tells every reader that no record follows; events may, until the [end](Self::finish). `drain`: the input came to its
    /// own end.
    pub fn end_data(&mut self, drain: bool) {
        if !std::mem::replace(&mut self.data_ended, true) {
            self.send_end(&Event::EndOfData { drain });
        }
    }

    /// Ends every subpartition: end of data, then end of partition. Nothing may be written afterwards. `drain`: the
    /// input came to its own end.
    pub fn finish(&mut self, drain: bool) {
        if self.is_finished {
            return;
        }
        self.end_data(drain);
        self.send_end(&Event::EndOfPartition);
        self.open.drop_spare();
        self.is_finished = true;
    }

    fn send_end(&mut self, end: &Event) {
        let sent = self.broadcast_event(end);
        debug_assert!(sent.is_ok(), "the end is always taken");
    }

    /// How far buffers are filled until the reader of each says otherwise. Without, to their end.
    pub fn set_fill_limit(&self, limit: FillLimit) {
        self.shared.cells.iter().for_each(|cell| cell.set_fill_limit(limit));
    }

    /// Ends the partition with a cause that every reader gets to see.
    pub fn fail(&self, cause: impl Into<Arc<str>>) {
        self.handle().fail(cause);
    }

    /// Ends the partition without blame.
    pub fn release(&self) {
        self.handle().release();
    }

    /// True when a segment is to be had without overdraft and no subpartition is at its quota. One atomic read.
    #[inline]
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.pool.is_available()
    }

    /// Whether who waits for it waits for segments that its pool has not got, and not for its readers.
    #[must_use]
    pub fn lacks_segments(&self) -> bool {
        self.pool.lacks_segments()
    }

    /// Waits until [`Self::is_available`]. An error when the pool is gone.
    pub fn poll_available(&mut self, waker: &Waker) -> Poll<Result<(), ExchangeError>> {
        // What a drained buffer gives back may make it available; if not, the waker is registered already.
        if self.pool.poll_available(waker).is_pending() {
            self.close_drained_buffers();
            // A lane may be at its quota by segments of which others have parts open: nobody gives those back otherwise.
            if self.open.is_split() && self.pool.poll_available(waker).is_pending() {
                self.close_unicast();
            }
        }
        self.pool.poll_available(waker).map_err(ExchangeError::from)
    }

    /// A shared view for the network, the flusher and the metrics.
    #[must_use]
    pub fn handle(&self) -> PartitionHandle {
        PartitionHandle(Arc::clone(&self.shared))
    }

    /// The partition's name.
    #[must_use]
    pub fn id(&self) -> PartitionId {
        self.shared.id
    }

    /// All subpartitions.
    #[must_use]
    pub fn subpartitions(&self) -> &[Arc<SubpartitionCell>] {
        &self.shared.cells
    }

    /// Every subpartition was read to its end or released.
    #[must_use]
    pub fn is_consumed(&self) -> bool {
        self.handle().is_consumed()
    }

    fn add_event(&self, index: usize, event: &Event) -> Result<(), ExchangeError> {
        let cell = &self.shared.cells[index];
        let added = cell.add_event(event.clone());
        if event.is_priority() {
            // It overtook the buffer that was finished for it. Unseen, that would be neither open nor on its way (P5).
            cell.finish_buffer();
        }
        added
    }

    fn write_rest(&mut self, subpartition: SubpartitionIndex, bytes: &[u8]) -> usize {
        let index = subpartition.index();
        self.close_broadcast();
        let mut taken = 0;
        while taken < bytes.len() {
            if let Some(builder) = self.open.get_mut(index) {
                taken += builder.append(&bytes[taken..]);
            }
            if taken == bytes.len() {
                break;
            }
            self.finish_buffer(index);
            match self.try_take_part(index) {
                Some(part) => self.open_buffer(index, part),
                None if self.close_drained_buffers() => {}
                None => {
                    // P2: the reader must see the full buffer, or it never gives a segment back.
                    self.shared.cells[index].finish_buffer();
                    self.close_idle_buffers();
                    break;
                }
            }
        }
        taken
    }

    /// P4: where the open buffers hold all segments, they must go, full or not.
    fn close_idle_buffers(&mut self) {
        if self.pool.in_use() <= self.open.segments() {
            self.close_unicast();
        }
    }

    fn broadcast_rest(&mut self, bytes: &[u8]) -> usize {
        self.close_unicast();
        let mut taken = 0;
        while taken < bytes.len() {
            if let Some(builder) = &mut self.broadcast {
                taken += builder.append(&bytes[taken..]);
            }
            if taken == bytes.len() {
                break;
            }
            self.finish_broadcast_buffer();
            let Some(segment) = self.pool.try_take(BROADCAST_LANE) else {
                self.shared.cells.iter().for_each(|cell| cell.finish_buffer());
                break;
            };
            self.open_broadcast(segment);
        }
        taken
    }

    fn try_take_part(&mut self, index: usize) -> Option<SegmentPart> {
        let spare = self.open.take_spare();
        spare.or_else(|| self.pool.try_take(index).map(|segment| self.begin(segment)))
    }

    fn begin(&mut self, segment: MemorySegment) -> SegmentPart {
        self.make_room();
        self.open.begin(segment)
    }

    fn open_buffer(&mut self, index: usize, part: SegmentPart) {
        let cell = &self.shared.cells[index];
        let (builder, consumer) = BufferBuilder::new(limited(part, cell.fill_limit()));
        cell.add_buffer(consumer);
        self.open.insert(index, builder);
    }

    /// P5: before one segment more is open than may be, the oldest one goes.
    fn make_room(&mut self) {
        let limit = self.open.limit(&self.pool);
        let mut is_cut_short = false;
        while self.open.segments() >= limit
            && let Some(oldest) = self.open.oldest()
        {
            is_cut_short |= !self.shared.cells[oldest].is_open_and_drained();
            self.close_buffer(oldest);
        }
        if is_cut_short {
            self.open.on_cut_short();
        }
    }

    /// P5: where segments are short, open buffers that were read to the end give theirs back at once. True if one did.
    fn close_drained_buffers(&mut self) -> bool {
        let (cells, mut drained) = (&self.shared.cells, [None; DRAINED_AT_ONCE]);
        for (place, index) in drained.iter_mut().zip(self.open.oldest_first()) {
            *place = Some(index).filter(|&index| cells[index].is_open_and_drained());
        }
        let found = drained.iter().any(Option::is_some);
        drained.into_iter().flatten().for_each(|index| self.close_buffer(index));
        found
    }

    fn open_broadcast(&mut self, segment: MemorySegment) {
        // The reader who wants least says how much: all read the same buffer.
        let limit = self.shared.cells.iter().map(|cell| cell.fill_limit().get()).min();
        let limit = limit.map_or(FillLimit::NONE, FillLimit::new);
        let (builder, consumer) = BufferBuilder::new(limited(segment.into(), limit));
        if let Some((last, others)) = self.shared.cells.split_last() {
            others.iter().for_each(|cell| cell.add_buffer(consumer.copy()));
            last.add_buffer(consumer);
        }
        self.broadcast = Some(builder);
    }

    /// Finishes the open buffer of a subpartition. The caller tells the cell, by what it adds next or by
    /// `finish_buffer`.
    fn finish_buffer(&mut self, index: usize) {
        if let Some(mut builder) = self.open.take(index) {
            builder.finish();
        }
    }

    fn finish_broadcast_buffer(&mut self) {
        if let Some(mut builder) = self.broadcast.take() {
            builder.finish();
        }
    }

    /// P1: before a subpartition gets a buffer of its own, the shared one ends.
    fn close_broadcast(&mut self) {
        if self.broadcast.is_some() {
            self.finish_broadcast_buffer();
            self.shared.cells.iter().for_each(|cell| cell.finish_buffer());
        }
    }

    fn close_unicast(&mut self) {
        self.open.drop_spare();
        while let Some(oldest) = self.open.oldest() {
            self.close_buffer(oldest);
        }
    }

    fn close_buffer(&mut self, index: usize) {
        if self.open.get_mut(index).is_some() {
            self.finish_buffer(index);
            self.shared.cells[index].finish_buffer();
        }
    }
}

impl Drop for ResultPartition {
    fn drop(&mut self) {
        if !self.is_finished {
            self.shared.fail_all(&ExchangeError::Released);
        }
        while let Some(oldest) = self.open.oldest() {
            drop(self.open.take(oldest));
        }
        self.broadcast = None;
        self.pool.destroy();
    }
}

fn limited(part: SegmentPart, limit: FillLimit) -> SegmentPart {
    // No target has segments beyond what its usize counts.
    part.with_fill_limit(usize::try_from(limit.get()).unwrap_or(usize::MAX))
}

/// A shared buffer counts against the quota of one lane: it is home only when its slowest reader is done.
const BROADCAST_LANE: usize = 0;
/// Open buffers looked at where segments are short: the oldest ones, as those are the idle ones if any are.
const DRAINED_AT_ONCE: usize = 8;
