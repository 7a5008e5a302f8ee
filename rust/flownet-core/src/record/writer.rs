//! Writes records into a result partition.
//!
//! The writer never waits. It accepts a record even if there is no segment and stores the rest inside. The caller waits
//! with [`RecordWriter::poll_ready`], then continues with [`RecordWriter::resume`]. A caller therefore never has to
//! retain a record that it emitted. No event cuts a record, and no two records mix.
//!
//! # Invariants
//! - W1: at most one record is unfinished, and its rest is written before anything else.
//! - W2: a record beyond the limit is refused before a byte of it is written or copied.
//! - W3: a broadcast record is written once, whatever the number of subpartitions.

use std::task::{Poll, Waker};

use super::LENGTH_PREFIX_BYTES;
use crate::error::ExchangeError;
use crate::event::Event;
use crate::ids::{CheckpointId, SubpartitionIndex};
use crate::partition::{OpenBuffer, ResultPartition};
use crate::selector::{Selection, Selector, Target};
use crate::subpartition::OvertakenData;

/// When readers see a buffer that is not full. An event always shows the bytes before it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FlushPolicy {
    /// After each record (buffer timeout 0).
    EveryRecord,
    /// At each run of the process's flusher (buffer timeout above 0): register the partition with it.
    Timer,
    /// Never (no buffer timeout).
    WhenFull,
}

/// Outcome of an emitted record. The writer has accepted it in both cases.
#[must_use]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Emit {
    /// Written.
    Done,
    /// The rest of it waits for a segment. Call [`RecordWriter::poll_ready`], then [`RecordWriter::resume`], and only
    /// then emit the next record.
    Blocked,
}

/// Selects the subpartition of each record and writes the record there after its length. Owned by the task's thread.
#[derive(Debug)]
pub struct RecordWriter {
    partition: ResultPartition,
    subpartitions: u32,
    selector: Selector,
    flush: FlushPolicy,
    max_record_bytes: usize,
    state: State,
    /// Records shorter than this may be written now; 0 unless the state is open.
    welcome_below: usize,
    /// Unwritten rest of a blocked record. Reused for its allocation.
    rest: Vec<u8>,
    rest_at: usize,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Open,
    Blocked(Selection),
    Finished,
}

impl RecordWriter {
    /// Creates a writer to this partition. No record may be longer than `max_record_bytes`; the format's own limit is
    /// 2^32 - 1.
    #[must_use]
    pub fn new(partition: ResultPartition, selector: Selector, flush: FlushPolicy, max_record_bytes: usize) -> Self {
        let format_limit = usize::try_from(u32::MAX).unwrap_or(usize::MAX);
        let mut writer = Self {
            subpartitions: u32::try_from(partition.subpartitions().len()).unwrap_or(u32::MAX),
            partition,
            selector,
            flush,
            max_record_bytes: max_record_bytes.min(format_limit),
            state: State::Open,
            welcome_below: 0,
            rest: Vec::new(),
            rest_at: 0,
        };
        writer.enter(State::Open);
        writer
    }

    /// Writes one record. After an error none of it was written.
    #[inline(always)] // or a record of known length is copied by a call that does not know it
    pub fn try_emit(&mut self, target: Target, record: &[u8]) -> Result<Emit, ExchangeError> {
        if record.len() >= self.welcome_below {
            return Err(self.refusal(record.len()));
        }
        let selection = self.selector.select(target, self.subpartitions)?;
        if let Selection::One(subpartition) = selection
            && write_one(self.partition.runs().run(subpartition), record, self.flush)
        {
            return Ok(Emit::Done);
        }
        Ok(self.emit_over_buffers(selection, record))
    }

    /// Writes records until one blocks or there are no more. Equivalent to [`Self::try_emit`] for each, with less work
    /// between two records. An error belongs to the last record taken, and none of that record was written. Takes no
    /// record while one blocks.
    #[inline]
    pub fn try_emit_all<R: AsRef<[u8]>>(
        &mut self,
        records: &mut impl Iterator<Item = (Target, R)>,
    ) -> Result<Emit, ExchangeError> {
        self.check_open()?;
        loop {
            let left = match self.selector.only(self.subpartitions) {
                Some(only) => self.emit_run(only, records)?,
                None => self.emit_runs(records)?,
            };
            let Some((selection, record)) = left else { return Ok(Emit::Done) };
            let record = record.as_ref();
            // Check again: another call to `as_ref` may return other bytes.
            if record.len() >= self.welcome_below {
                return Err(self.refusal(record.len()));
            }
            if self.emit_over_buffers(selection, record) == Emit::Blocked {
                return Ok(Emit::Blocked);
            }
        }
    }

    /// Writes records to the open buffer of one subpartition. Returns the first one that must take the slow path.
    #[inline]
    fn emit_run<R: AsRef<[u8]>>(
        &mut self,
        only: SubpartitionIndex,
        records: &mut impl Iterator<Item = (Target, R)>,
    ) -> Result<Option<(Selection, R)>, ExchangeError> {
        let (welcome_below, flush) = (self.welcome_below, self.flush);
        let mut runs = self.partition.runs();
        let mut run = runs.run(only);
        let mut written = 0;
        let left = loop {
            let Some((_, record)) = records.next() else { break Ok(None) };
            let bytes = record.as_ref();
            if bytes.len() >= welcome_below {
                break Err(bytes.len());
            }
            if !write_whole(run.as_mut(), bytes, flush) {
                break Ok(Some((Selection::One(only), record)));
            }
            written += 1;
        };
        // Count once for all records: each increment would have to wait for the previous one.
        if let Some(run) = run {
            run.count(written);
        }
        left.map_err(|bytes| self.refusal(bytes))
    }

    /// Like [`Self::emit_run`], for the open buffers of all subpartitions.
    #[inline]
    fn emit_runs<R: AsRef<[u8]>>(
        &mut self,
        records: &mut impl Iterator<Item = (Target, R)>,
    ) -> Result<Option<(Selection, R)>, ExchangeError> {
        let (subpartitions, welcome_below, flush) = (self.subpartitions, self.welcome_below, self.flush);
        let mut runs = self.partition.runs();
        for (target, record) in records {
            let bytes = record.as_ref();
            if bytes.len() >= welcome_below {
                return Err(self.refusal(bytes.len()));
            }
            let selection = self.selector.select(target, subpartitions)?;
            let run = match selection {
                Selection::One(subpartition) => runs.run(subpartition),
                Selection::All => None,
            };
            if !write_one(run, bytes, flush) {
                return Ok(Some((selection, record)));
            }
        }
        Ok(None)
    }

    /// Continues with the blocked record. Does nothing if no record blocks.
    pub fn resume(&mut self) -> Result<Emit, ExchangeError> {
        let State::Blocked(selection) = self.state else {
            return Ok(Emit::Done);
        };
        let rest = std::mem::take(&mut self.rest);
        self.rest_at += self.write(selection, &rest[self.rest_at..]);
        self.rest = rest;
        if self.rest_at < self.rest.len() {
            return Ok(Emit::Blocked);
        }
        self.enter(State::Open);
        self.forget_rest();
        self.end_record(selection);
        Ok(Emit::Done)
    }

    /// Ready when [`Self::resume`] can write at least one segment, and at once if no record blocks. Returns an error if
    /// the pool is gone.
    pub fn poll_ready(&mut self, waker: &Waker) -> Poll<Result<(), ExchangeError>> {
        match self.state {
            State::Blocked(Selection::One(subpartition)) => self.partition.poll_segment(subpartition, waker),
            State::Blocked(Selection::All) => self.partition.poll_broadcast_segment(waker),
            State::Open | State::Finished => Poll::Ready(Ok(())),
        }
    }

    /// Sends an event to every subpartition, after all records, and shows both at once.
    ///
    /// # Errors
    /// Those of [`ResultPartition::broadcast_event`], and misuse after the end.
    pub fn broadcast_event(&mut self, event: &Event) -> Result<(), ExchangeError> {
        self.check_open()?;
        self.partition.broadcast_event(event)
    }

    /// Sends a priority event to every subpartition. Returns the in-flight data that it overtook in each of them. If
    /// none of it was read, that data begins and ends between two records.
    ///
    /// # Errors
    /// Those of [`ResultPartition::overtake`], and misuse after the end.
    pub fn overtake(&mut self, event: &Event) -> Result<Vec<OvertakenData>, ExchangeError> {
        self.check_open()?;
        self.partition.overtake(event)
    }

    /// Like [`ResultPartition::expire`].
    #[must_use]
    pub fn expire(&mut self, checkpoint_id: CheckpointId) -> Vec<OvertakenData> {
        self.partition.expire(checkpoint_id)
    }

    /// Sends an event to one subpartition, after its records.
    ///
    /// # Errors
    /// Those of [`ResultPartition::emit_event`], and misuse after the end.
    pub fn emit_event(&mut self, subpartition: SubpartitionIndex, event: &Event) -> Result<(), ExchangeError> {
        self.check_open()?;
        self.partition.emit_event(subpartition, event)
    }

    /// Shows all complete records to their readers.
    pub fn flush_all(&mut self) {
        self.partition.flush_all();
    }

    /// Sends the end of data to every reader: no record follows, but events may, until [`finish`](Self::finish).
    /// `drain`: the input has reached its own end.
    pub fn end_data(&mut self, drain: bool) -> Result<(), ExchangeError> {
        self.check_open()?;
        self.partition.end_data(drain);
        Ok(())
    }

    /// Ends every subpartition; no record follows. `drain`: the input has reached its own end.
    pub fn finish(&mut self, drain: bool) -> Result<(), ExchangeError> {
        self.check_open()?;
        self.partition.finish(drain);
        self.enter(State::Finished);
        Ok(())
    }

    /// Returns true while the rest of a record waits for a segment.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        matches!(self.state, State::Blocked(_))
    }

    /// Returns true if a record can be written now: none blocks, segments are available, and no subpartition is at its
    /// quota. The task asks before it takes its next input. Cheap.
    #[inline]
    #[must_use]
    pub fn is_available(&self) -> bool {
        !self.is_blocked() && self.partition.is_available()
    }

    /// Waits until the partition is available. For a blocked record, wait with [`Self::poll_ready`].
    pub fn poll_available(&mut self, waker: &Waker) -> Poll<Result<(), ExchangeError>> {
        self.partition.poll_available(waker)
    }

    /// Returns the partition of this writer.
    #[must_use]
    pub fn partition(&self) -> &ResultPartition {
        &self.partition
    }

    /// Writes a record that reaches the end of the open buffer, has no open buffer, or is broadcast.
    #[inline(never)]
    fn emit_over_buffers(&mut self, selection: Selection, record: &[u8]) -> Emit {
        let prefix = prefix_of(record);
        let mut written = self.write(selection, &prefix);
        if written == prefix.len() {
            written += self.write(selection, record);
        }
        if written == prefix.len() + record.len() {
            self.end_record(selection);
            Emit::Done
        } else {
            self.block(selection, &prefix, record, written)
        }
    }

    fn write(&mut self, selection: Selection, bytes: &[u8]) -> usize {
        match selection {
            Selection::One(subpartition) => self.partition.try_write(subpartition, bytes),
            Selection::All => self.partition.try_broadcast_write(bytes),
        }
    }

    #[inline]
    fn end_record(&mut self, selection: Selection) {
        match selection {
            Selection::One(subpartition) => {
                self.partition.end_record(subpartition);
                if self.flush == FlushPolicy::EveryRecord {
                    self.partition.flush(subpartition);
                }
            }
            Selection::All => {
                self.partition.end_broadcast_record();
                if self.flush == FlushPolicy::EveryRecord {
                    self.partition.flush_all();
                }
            }
        }
    }

    /// Stores the rest of a record whose first `written` bytes, including the length, were written.
    #[cold]
    #[inline(never)]
    fn block(&mut self, selection: Selection, prefix: &[u8], record: &[u8], written: usize) -> Emit {
        let prefix_written = written.min(prefix.len());
        self.rest.extend_from_slice(&prefix[prefix_written..]);
        self.rest.extend_from_slice(&record[written - prefix_written..]);
        self.enter(State::Blocked(selection));
        Emit::Blocked
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.welcome_below = if state == State::Open { self.max_record_bytes.saturating_add(1) } else { 0 };
    }

    fn forget_rest(&mut self) {
        self.rest_at = 0;
        if self.rest.capacity() > KEPT_BYTES {
            self.rest = Vec::new();
        } else {
            self.rest.clear();
        }
    }

    fn check_open(&self) -> Result<(), ExchangeError> {
        if self.state == State::Open { Ok(()) } else { Err(self.refusal(0)) }
    }

    #[cold]
    #[inline(never)]
    fn refusal(&self, bytes: usize) -> ExchangeError {
        match self.state {
            State::Blocked(_) => ExchangeError::Misuse("the last record blocks: wait and resume before going on"),
            State::Finished => ExchangeError::Misuse("the partition is finished"),
            State::Open => ExchangeError::RecordTooLarge { bytes, max_bytes: self.max_record_bytes },
        }
    }
}

/// Writes a record if the open buffer has room for it and more. Returns `false` if nothing was written.
#[inline(always)] // a call for each record would cost as much as the record
fn write_whole(run: Option<&mut OpenBuffer<'_>>, record: &[u8], flush: FlushPolicy) -> bool {
    let Some(run) = run else { return false };
    let is_written = run.try_write(&prefix_of(record), record);
    if is_written && flush == FlushPolicy::EveryRecord {
        run.flush();
    }
    is_written
}

/// Writes one record like `write_whole`, and counts it.
#[inline(always)] // as `write_whole`
fn write_one(mut run: Option<OpenBuffer<'_>>, record: &[u8], flush: FlushPolicy) -> bool {
    let is_written = write_whole(run.as_mut(), record, flush);
    if is_written && let Some(run) = run {
        run.count(1);
    }
    is_written
}

#[inline]
fn prefix_of(record: &[u8]) -> [u8; LENGTH_PREFIX_BYTES] {
    // At most `max_record_bytes`, which fits.
    (record.len() as u32).to_le_bytes()
}

/// Capacity above which the vector for the rest of a record is not reused.
const KEPT_BYTES: usize = 1 << 20;

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::task::Waker;

    use flownet_memory::SegmentPool;

    use super::*;
    use crate::ids::PartitionId;
    use crate::sizing::PoolSizing;

    #[test]
    fn of_a_record_that_blocked_no_more_memory_is_kept_than_the_next_may_want() {
        for (bytes, is_kept) in [(200_000, true), (2 * KEPT_BYTES, false)] {
            let segments = SegmentPool::new(2, 32 * 1024).unwrap();
            let pool = segments.create_buffer_pool(PoolSizing::default().partition(1)).unwrap();
            let partition = ResultPartition::new(PartitionId::new(1), pool, 1);
            let mut writer = RecordWriter::new(partition, Selector::Forward, FlushPolicy::WhenFull, usize::MAX);
            let cell = std::sync::Arc::clone(&writer.partition.subpartitions()[0]);
            cell.attach_reader(Waker::noop().clone()).unwrap();
            let mut emitted = writer.try_emit(Target::Any, &vec![7; bytes]).unwrap();
            assert_eq!(emitted, Emit::Blocked);
            while emitted == Emit::Blocked {
                while cell.poll().is_some() {}
                assert!(writer.poll_ready(Waker::noop()).is_ready());
                emitted = writer.resume().unwrap();
            }
            assert_eq!((writer.rest.len(), writer.rest.capacity() > 0), (0, is_kept), "{bytes} bytes");
        }
    }
}
