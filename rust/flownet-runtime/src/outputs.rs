//! Writes the records and events that leave a task.
//!
//! # Invariants
//! - I1: [`Outputs::try_emit`] always takes the whole record, whatever it returns. `Blocked` only means that the rest
//!   of the record waits for a buffer. Call [`Outputs::wait`] before the next record of that output.
//! - I2: a wait ends when every blocked record has been written, on cancel, or on a failure of the exchange.

use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use flownet_core::keygroup::hash_key;
use flownet_core::record::writer::{Emit, RecordWriter};
use flownet_core::subpartition::OvertakenData;
use flownet_core::{Barrier, CheckpointId, CustomEvent, Event, Round, SubpartitionIndex, Target};
use flownet_net::{Inlets, ThreadParker};
use rustix::time::ClockId;

use crate::error::TaskError;
use crate::mailbox::CancelToken;
use crate::metrics::TaskMetrics;
use crate::processor::{TimeSpent, cpu_time, queued};
use crate::source::Pace;
use crate::time::TimeSignal;
use crate::time_accounting::{BackpressureCause, TimeShares, TimeState};

/// The outputs of one task, one for each edge that leaves it, in the order of
/// [`TaskSpec::outputs`](crate::spec::TaskSpec::outputs).
#[derive(Debug)]
pub struct Outputs {
    writers: Vec<RecordWriter>,
    parker: Arc<ThreadParker>,
    /// The connections that drain the writers' buffers.
    inlets: Arc<Inlets>,
    cancel: CancelToken,
    metrics: Arc<TaskMetrics>,
    /// Limits of a source; unlimited for other tasks.
    pub(crate) pace: Pace,
    /// Number of markers sent so far, from which the readers are drawn.
    markers: u64,
    /// The reader of the output runs on the same thread, so a wait for it would never end.
    pub(crate) is_alone: bool,
}

impl Outputs {
    /// Sends a record, as far as buffers allow.
    ///
    /// The record is taken in any case. After [`Emit::Blocked`], call [`wait`](Self::wait) before the next record.
    #[inline]
    pub fn try_emit(&mut self, output: usize, target: Target, record: &[u8]) -> Result<Emit, TaskError> {
        self.metrics.add_records_out(1);
        Ok(self.writers[output].try_emit(target, record)?)
    }

    /// Sends a record and waits until all of it is in buffers.
    #[inline]
    pub fn emit(&mut self, output: usize, target: Target, record: &[u8]) -> Result<(), TaskError> {
        match self.try_emit(output, target, record)? {
            Emit::Done => Ok(()),
            Emit::Blocked => self.wait(),
        }
    }

    /// Sends a custom event to every reader of an output, after the records so far. It reaches them as
    /// [`RecordFormat::on_custom`](crate::operator::RecordFormat::on_custom), costs no credit and is never dropped.
    pub fn send_custom(&mut self, output: usize, event: CustomEvent) -> Result<(), TaskError> {
        self.wait()?;
        Ok(self.writers[output].broadcast_event(&Event::Custom(event))?)
    }

    /// Sends a signal of event time to every reader of an output, after the records so far.
    pub fn tell_time(&mut self, output: usize, signal: TimeSignal) -> Result<(), TaskError> {
        self.wait()?;
        let event = match signal {
            TimeSignal::Watermark(timestamp_ms) => Event::Watermark { timestamp_ms },
            TimeSignal::Idle(idle) => Event::WatermarkStatus { idle },
        };
        Ok(self.writers[output].broadcast_event(&event)?)
    }

    /// The same for every output.
    pub fn tell_time_to_all(&mut self, signal: TimeSignal) -> Result<(), TaskError> {
        (0..self.writers.len()).try_for_each(|output| self.tell_time(output, signal))
    }

    /// Sends a round to every reader of an output, after the records so far.
    pub fn send_round(&mut self, output: usize, round: Round) -> Result<(), TaskError> {
        self.wait()?;
        Ok(self.writers[output].broadcast_event(&Event::Round(round))?)
    }

    /// Sends a latency marker to one reader of each output, after the records so far. The reader is drawn by a hash, so
    /// that each one gets about as many markers.
    pub(crate) fn send_marker(&mut self, marker: &Event) -> Result<(), TaskError> {
        self.wait()?;
        self.markers = self.markers.wrapping_add(1);
        for (output, writer) in (0_u64..).zip(&mut self.writers) {
            let readers = writer.partition().subpartitions().len().max(1);
            let draw = hash_key(&[self.markers, output].map(u64::to_le_bytes).concat());
            let chosen = SubpartitionIndex::new((draw as usize % readers) as u32);
            writer.emit_event(chosen, marker)?;
        }
        Ok(())
    }

    /// Sends an event to every reader of every output, after the records so far.
    pub(crate) fn send_to_all(&mut self, event: &Event) -> Result<(), TaskError> {
        self.wait()?;
        self.writers.iter_mut().try_for_each(|writer| Ok(writer.broadcast_event(event)?))
    }

    /// Sends an unaligned barrier to every reader of every output, ahead of queued buffers. Returns the overtaken data
    /// of each output and subpartition.
    pub(crate) fn overtake(&mut self, barrier: Barrier) -> Result<Vec<Vec<OvertakenData>>, TaskError> {
        self.wait()?;
        let event = Event::Barrier(barrier);
        self.writers.iter_mut().map(|writer| Ok(writer.overtake(&event)?)).collect()
    }

    /// Makes the queued barrier of a checkpoint unaligned after its timeout: moves it ahead of queued buffers. Returns
    /// the overtaken data of each output and subpartition.
    pub(crate) fn expire(&mut self, checkpoint_id: CheckpointId) -> Vec<Vec<OvertakenData>> {
        self.writers.iter_mut().map(|writer| writer.expire(checkpoint_id)).collect()
    }

    /// Reports the end of records to every reader. Barriers may follow, until the end.
    pub(crate) fn end_data(&mut self, drain: bool) -> Result<(), TaskError> {
        self.wait()?;
        self.writers.iter_mut().try_for_each(|writer| Ok(writer.end_data(drain)?))
    }

    /// Waits until every blocked record has been written; the time counts as back-pressured.
    ///
    /// Returns [`TaskError::Cancelled`] if the task is cancelled. Returns at once if nothing is blocked.
    pub fn wait(&mut self) -> Result<(), TaskError> {
        if !self.is_blocked() {
            return Ok(());
        }
        self.metrics.switch(TimeState::HardBackPressured(self.lack()));
        let waited = self.wait_for_segments();
        self.metrics.switch(TimeState::Busy);
        waited
    }

    /// Sleeps for `duration`, unless the task is cancelled. The time counts as busy, because a slow operator spends it.
    pub fn pause(&mut self, duration: Duration) -> Result<(), TaskError> {
        let end = Instant::now() + duration;
        loop {
            self.cancel.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.parker.park_timeout(left);
        }
    }

    /// Sleeps until a record has arrived from outside the exchange, or something else wakes the task, at most for
    /// `limit`. Check again after the call. The time counts as [`Awaiting`](TimeState::Awaiting).
    ///
    /// Returns [`TaskError::Cancelled`] if the task is cancelled.
    pub fn await_arrival(&mut self, limit: Option<Duration>) -> Result<(), TaskError> {
        self.cancel.check()?;
        self.metrics.switch(TimeState::Awaiting);
        self.inlets.park(&self.parker, limit);
        self.metrics.switch(TimeState::Busy);
        self.cancel.check()
    }

    /// Ends the poll of the source after the current record.
    pub fn end_poll(&mut self) {
        self.pace.end_poll();
    }

    /// Reports a record of a source, with its `bytes` if they are [counted](Self::counts_bytes). Returns false if the
    /// poll should end.
    #[inline]
    pub fn spend(&mut self, bytes: usize) -> bool {
        self.pace.spend(bytes)
    }

    /// Returns true if the source is limited by bytes: [`spend`](Self::spend) then needs the size of each record.
    #[inline]
    pub fn counts_bytes(&self) -> bool {
        self.pace.counts_bytes()
    }

    /// Runs `wait`, which waits for something outside the exchange. Its time counts as idle.
    pub fn idle_while<R>(&mut self, wait: impl FnOnce() -> R) -> R {
        self.metrics.switch(TimeState::Idle);
        let result = wait();
        self.metrics.switch(TimeState::Busy);
        result
    }

    /// Runs `pull`, which may block. CPU time and run-queue delay count as busy, the rest as idle. Expensive (it reads
    /// two clocks, and a system file, twice): use it only on slow paths.
    pub fn idle_unless_at_work<R>(&mut self, pull: impl FnOnce() -> R) -> R {
        let before = queued();
        let result = self.idle_unless_computing(pull);
        self.metrics.recount(TimeState::Idle, TimeState::Busy, queued().saturating_sub(before));
        result
    }

    /// The same, but run-queue delay counts as idle too. The caller accounts for it by
    /// [`time_spent`](Self::time_spent), for many calls at once.
    pub fn idle_unless_computing<R>(&mut self, pull: impl FnOnce() -> R) -> R {
        let before = cpu_time(ClockId::ThreadCPUTime);
        let result = self.idle_while(pull);
        let worked = cpu_time(ClockId::ThreadCPUTime).saturating_sub(before);
        self.metrics.recount(TimeState::Idle, TimeState::Busy, worked);
        result
    }

    /// The time that the task has spent so far. Expensive: it reads three clocks and a system file.
    pub fn time_spent(&self) -> TimeSpent {
        let worked = cpu_time(ClockId::ThreadCPUTime);
        let TimeShares { busy, idle, .. } = self.metrics.time();
        TimeSpent { busy, idle, worked, queued: queued(), process: cpu_time(ClockId::ProcessCPUTime) }
    }

    /// Moves recorded time from one state to another.
    pub fn recount(&mut self, from: TimeState, to: TimeState, time: Duration) {
        self.metrics.recount(from, to, time);
    }

    /// The task starts to wait for the interpreter. [`has_interpreter`](Self::has_interpreter) ends the wait.
    pub fn wants_interpreter(&self) {
        self.metrics.switch(TimeState::Interpreter);
    }

    /// The task runs its operators again.
    pub fn has_interpreter(&self) {
        self.metrics.switch(TimeState::Busy);
    }

    /// The number of outputs of the task.
    pub fn len(&self) -> usize {
        self.writers.len()
    }

    /// Returns true if the task has no outputs: it ends in sinks.
    pub fn is_empty(&self) -> bool {
        self.writers.is_empty()
    }

    /// Returns true if a record waits for a buffer. Call [`wait`](Self::wait) then.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.writers.iter().any(RecordWriter::is_blocked)
    }

    /// Returns true if every output can take records without overdraft.
    #[inline]
    pub fn is_available(&self) -> bool {
        self.writers.iter().all(RecordWriter::is_available)
    }

    /// The resource that the output delaying the task lacks. That output is the first one with a blocked record, else
    /// the first unavailable one.
    pub(crate) fn lack(&self) -> BackpressureCause {
        let blocked = self.writers.iter().find(|writer| writer.is_blocked());
        let waiting = blocked.or_else(|| self.writers.iter().find(|writer| !writer.is_available()));
        let lacks_segments = waiting.is_some_and(|writer| writer.partition().lacks_segments());
        if lacks_segments { BackpressureCause::Pool } else { BackpressureCause::Credit }
    }

    /// Counters of the task.
    pub fn metrics(&self) -> &TaskMetrics {
        &self.metrics
    }

    /// The read side of the cancel flag.
    pub fn cancel_token(&self) -> &CancelToken {
        &self.cancel
    }

    pub(crate) fn new(
        writers: Vec<RecordWriter>,
        parker: Arc<ThreadParker>,
        inlets: Arc<Inlets>,
        cancel: CancelToken,
        metrics: Arc<TaskMetrics>,
    ) -> Self {
        Self { writers, parker, inlets, cancel, metrics, pace: Pace::default(), markers: 0, is_alone: false }
    }

    /// Registers the task's waker with every output that is not available. Returns true if all are.
    pub(crate) fn poll_available(&mut self) -> Result<bool, TaskError> {
        let mut available = true;
        for writer in &mut self.writers {
            match writer.poll_available(self.parker.waker()) {
                Poll::Ready(ready) => ready?,
                Poll::Pending => available = false,
            }
        }
        Ok(available)
    }

    /// Ends every output after the records so far.
    pub(crate) fn finish(&mut self, drain: bool) -> Result<(), TaskError> {
        self.wait()?;
        for writer in &mut self.writers {
            writer.finish(drain)?;
        }
        Ok(())
    }

    /// Sleeps until the task's waker fires, at most for `limit`.
    pub(crate) fn park(&self, limit: Option<Duration>) {
        self.inlets.park(&self.parker, limit);
    }

    #[cold]
    fn refuse_to_wait(&self) -> TaskError {
        let records = self.metrics.snapshot().records_out;
        TaskError::Config(format!(
            "more was emitted in one go than a harness holds before anybody reads it, after {records} records: feed it less"
        ))
    }

    fn wait_for_segments(&mut self) -> Result<(), TaskError> {
        for writer in &mut self.writers {
            while writer.is_blocked() {
                self.cancel.check()?;
                match writer.poll_ready(self.parker.waker()) {
                    Poll::Ready(ready) => {
                        ready?;
                        // `is_blocked` shows whether that was all of it.
                        let _ = writer.resume()?;
                    }
                    Poll::Pending if self.is_alone => return Err(self.refuse_to_wait()),
                    Poll::Pending => {
                        self.inlets.park(&self.parker, None);
                    }
                }
            }
        }
        Ok(())
    }
}
