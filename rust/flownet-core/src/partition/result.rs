//! Writer side of a partition.

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

/// Output of one task for one edge. Owned by the task's thread.
///
/// Bytes go into the open buffer of a subpartition. They become visible to its reader when the buffer is full, at a
/// flush, or before an event. An index beyond [`Self::subpartitions`] is a bug of the caller and panics.
///
/// If it is dropped before [`Self::finish`], the partition ends for its readers with [`ExchangeError::Released`]. The
/// drop also destroys its pool: segments still queued or in transit return to the process as they are read.
#[derive(Debug)]
pub struct ResultPartition {
    shared: Arc<PartitionShared>,
    pool: Arc<BufferPool>,
    open: OpenBuffers,
    /// Copy of the marks in `shared`, for direct access.
    dirty: DirtyMarks,
    /// Copy of the counters in `shared`, for direct access.
    records: RecordCounts,
    broadcast: Option<BufferBuilder>,
    data_ended: bool,
    is_finished: bool,
}

impl ResultPartition {
    /// Creates a partition that takes its segments from `pool`. The pool must have one lane per subpartition and a
    /// maximum above their number. With a lower maximum, open buffers that are never flushed could hold the whole pool.
    /// [`Self::poll_available`] would then wait for ever.
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

    /// Appends bytes to one subpartition and takes new segments as needed. Returns the number of bytes taken: all of
    /// them, or fewer if no segment is available now. The bytes are visible after [`Self::end_record`] and a flush, or
    /// when their buffer is full.
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

    /// Returns the open buffers, to write whole records to them: the hot path.
    #[inline]
    pub(crate) fn runs(&mut self) -> Runs<'_> {
        let (builders, marks, records) = (self.open.builders(), self.dirty.each(), self.records.each());
        // Slices of equal length: the compiler should know that they are.
        let (marks, records) = (&marks[..builders.len()], &records[..builders.len()]);
        Runs { builders, marks, records, flusher: self.dirty.flusher(), cells: &self.shared.cells }
    }

    /// Appends bytes once for all subpartitions, which share the buffer. Otherwise like [`Self::try_write`].
    #[inline]
    pub fn try_broadcast_write(&mut self, bytes: &[u8]) -> usize {
        let taken = self.broadcast.as_mut().map_or(0, |builder| builder.append(bytes));
        if taken == bytes.len() { taken } else { taken + self.broadcast_rest(&bytes[taken..]) }
    }

    /// Ends a record: its bytes may be flushed from now on. A buffer that the record filled, to its end or to the limit
    /// of its reader, is finished at once.
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

    /// Ends a broadcast record, like [`Self::end_record`].
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

    /// Sends an event to one subpartition, after all records written to it. A priority event goes before the queued
    /// data. Visible at once.
    ///
    /// # Errors
    /// [`ExchangeError::TooManyEvents`] if [`EVENT_WINDOW`](crate::credit::EVENT_WINDOW) events already wait, except
    /// for a watermark after another watermark.
    pub fn emit_event(&mut self, subpartition: SubpartitionIndex, event: &Event) -> Result<(), ExchangeError> {
        self.close_broadcast();
        self.finish_buffer(subpartition.index());
        self.add_event(subpartition.index(), event)
    }

    /// Sends an event to every subpartition, like [`Self::emit_event`].
    ///
    /// # Errors
    /// Returns the first error of a subpartition. All subpartitions without an error have the event.
    pub fn broadcast_event(&mut self, event: &Event) -> Result<(), ExchangeError> {
        self.finish_broadcast_buffer();
        let mut sent = Ok(());
        for index in 0..self.open.subpartitions() {
            self.finish_buffer(index);
            sent = sent.and(self.add_event(index, event));
        }
        sent
    }

    /// Sends a priority event to every subpartition. Returns the in-flight data that it overtook in each of them.
    ///
    /// # Errors
    /// Those of [`Self::emit_event`]. The subpartitions before the failed one have the event.
    pub fn overtake(&mut self, event: &Event) -> Result<Vec<OvertakenData>, ExchangeError> {
        self.finish_broadcast_buffer();
        for index in 0..self.open.subpartitions() {
            self.finish_buffer(index);
        }
        self.shared.cells.iter().map(|cell| cell.overtake(event.clone())).collect()
    }

    /// Moves the barrier of a late checkpoint ahead of the queued data in every subpartition where it is queued.
    /// Returns the in-flight data that it overtook in each subpartition.
    #[must_use]
    pub fn expire(&mut self, checkpoint_id: CheckpointId) -> Vec<OvertakenData> {
        self.shared.cells.iter().map(|cell| cell.expire(checkpoint_id).unwrap_or_default()).collect()
    }

    /// Shows all complete records to the reader of one subpartition. Cheap even after every record. The open buffer
    /// stays open.
    #[inline]
    pub fn flush(&mut self, subpartition: SubpartitionIndex) {
        self.shared.cells[subpartition.index()].flush_record();
    }

    /// Shows all complete records to all readers, like [`Self::flush`].
    pub fn flush_all(&mut self) {
        for cell in &self.shared.cells {
            cell.flush_record();
        }
    }

    /// Waits for room, and takes a segment if needed. Ready when `subpartition` has an open buffer with room in it. For
    /// a record that a short [`Self::try_write`] cut.
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

    /// Waits for room for a broadcast record, like [`Self::poll_segment`].
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

    /// Sends the end of data to every reader: no record follows, but events may, until [`Self::finish`]. `drain`: the
    /// input has reached its own end.
    pub fn end_data(&mut self, drain: bool) {
        if !std::mem::replace(&mut self.data_ended, true) {
            self.send_end(&Event::EndOfData { drain });
        }
    }

    /// Ends every subpartition: end of data, then end of partition. No write may follow. `drain`: the input has reached
    /// its own end.
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

    /// Sets how far buffers are filled until their reader sets its own limit. Without a limit, buffers are filled
    /// completely.
    pub fn set_fill_limit(&self, limit: FillLimit) {
        self.shared.cells.iter().for_each(|cell| cell.set_fill_limit(limit));
    }

    /// Fails the partition with a cause that every reader receives.
    pub fn fail(&self, cause: impl Into<Arc<str>>) {
        self.handle().fail(cause);
    }

    /// Ends the partition without a failure.
    pub fn release(&self) {
        self.handle().release();
    }

    /// Returns true if a segment is available without overdraft and no subpartition is at its quota. One atomic read.
    #[inline]
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.pool.is_available()
    }

    /// Returns whether a writer that waits lacks segments of its pool, rather than waiting for its readers.
    #[must_use]
    pub fn lacks_segments(&self) -> bool {
        self.pool.lacks_segments()
    }

    /// Waits until [`Self::is_available`]. Returns an error if the pool is gone.
    pub fn poll_available(&mut self, waker: &Waker) -> Poll<Result<(), ExchangeError>> {
        // Segments of drained buffers may make it available; if not, the waker is already registered.
        if self.pool.poll_available(waker).is_pending() {
            self.close_drained_buffers();
            // A lane may be at its quota because other lanes have open parts of its segments. Only this returns those
            // segments.
            if self.open.is_split() && self.pool.poll_available(waker).is_pending() {
                self.close_unicast();
            }
        }
        self.pool.poll_available(waker).map_err(ExchangeError::from)
    }

    /// Returns a shared view for the network, the flusher and the metrics.
    #[must_use]
    pub fn handle(&self) -> PartitionHandle {
        PartitionHandle(Arc::clone(&self.shared))
    }

    /// Returns the id of the partition.
    #[must_use]
    pub fn id(&self) -> PartitionId {
        self.shared.id
    }

    /// Returns all subpartitions.
    #[must_use]
    pub fn subpartitions(&self) -> &[Arc<SubpartitionCell>] {
        &self.shared.cells
    }

    /// Returns true if every subpartition was read to its end or released.
    #[must_use]
    pub fn is_consumed(&self) -> bool {
        self.handle().is_consumed()
    }

    fn add_event(&self, index: usize, event: &Event) -> Result<(), ExchangeError> {
        let cell = &self.shared.cells[index];
        let added = cell.add_event(event.clone());
        if event.is_priority() {
            // The event overtook the buffer that was finished for it. If not shown, that buffer would be neither open
            // nor on its way (P5).
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
                    // P2: the reader must see the full buffer, or it never returns a segment.
                    self.shared.cells[index].finish_buffer();
                    self.close_idle_buffers();
                    break;
                }
            }
        }
        taken
    }

    /// Closes all open buffers if they hold all segments, full or not (P4).
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

    /// Closes the oldest buffers before a segment more than the limit is open (P5).
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

    /// Closes open buffers that were read to their end when segments are short (P5). Returns true if there was one.
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
        // The smallest limit of all readers applies, because they read the same buffer.
        let limit = self.shared.cells.iter().map(|cell| cell.fill_limit().get()).min();
        let limit = limit.map_or(FillLimit::NONE, FillLimit::new);
        let (builder, consumer) = BufferBuilder::new(limited(segment.into(), limit));
        if let Some((last, others)) = self.shared.cells.split_last() {
            others.iter().for_each(|cell| cell.add_buffer(consumer.copy()));
            last.add_buffer(consumer);
        }
        self.broadcast = Some(builder);
    }

    /// Finishes the open buffer of a subpartition. The caller informs the cell: with the next element, or with
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

    /// Closes the shared buffer before a subpartition gets its own (P1).
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
    // No target has segments longer than a usize can count.
    part.with_fill_limit(usize::try_from(limit.get()).unwrap_or(usize::MAX))
}

/// A shared buffer counts against the quota of one lane: its segment returns when the slowest reader is done.
const BROADCAST_LANE: usize = 0;
/// Open buffers checked when segments are short: the oldest ones, because any idle ones are among them.
const DRAINED_AT_ONCE: usize = 8;
