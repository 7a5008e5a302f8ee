//! Where a chain's records leave the task.
//!
//! # Invariants
//! - I1: a record given to [`Outputs::try_emit`] is taken, whole, whatever it answers; `Blocked` only means that the
//!   rest of it waits for a buffer and that [`Outputs::wait`] must come before the next record of that output.
//! - I2: a wait ends when every blocked record went through, on cancel, or on a failure of the exchange.

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
    /// Where the connections are that take what the writers wait to be rid of.
    inlets: Arc<Inlets>,
    cancel: CancelToken,
    metrics: Arc<TaskMetrics>,
    /// Of a source; without limits elsewhere.
    pub(crate) pace: Pace,
    /// Sent so far: by it readers are drawn.
    markers: u64,
    /// Whoever reads what is written runs on the same thread: a wait for them would never end.
    pub(crate) is_alone: bool,
}

impl Outputs {
    /// Sends a record, as far as buffers allow.
    ///
    /// The record is taken in any case. After [`Emit::Blocked`], [`wait`](Self::wait) before the next record.
    #[inline]
    pub fn try_emit(&mut self, output: usize, target: Target, record: &[u8]) -> Result<Emit, TaskError> {
        self.metrics.add_records_out(1);
        Ok(self.writers[output].try_emit(target, record)?)
    }

    /// Sends a record and waits until all of it went into buffers.
    #[inline]
    pub fn emit(&mut self, output: usize, target: Target, record: &[u8]) -> Result<(), TaskError> {
        match self.try_emit(output, target, record)? {
            Emit::Done => Ok(()),
            Emit::Blocked => self.wait(),
        }
    }

    /// Sends an event of the chain's own to every reader of an output, behind the records so far. It reaches the chains
    /// there as [`Chain::on_custom`](crate::Chain::on_custom), costs no credit and is never dropped.
    pub fn send_custom(&mut self, output: usize, event: CustomEvent) -> Result<(), TaskError> {
        self.wait()?;
        Ok(self.writers[output].broadcast_event(&Event::Custom(event))?)
    }

    /// Tells every reader of an output of event time, behind the records so far.
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

    /// Sends a round to every reader of an output, behind the records so far.
    pub fn send_round(&mut self, output: usize, round: Round) -> Result<(), TaskError> {
        self.wait()?;
        Ok(self.writers[output].broadcast_event(&Event::Round(round))?)
    }

    /// Sends a marker of latency to one reader of each output, behind the records so far: to any of them, as none comes more
    /// often than others.
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

    /// Sends an event to every reader of every output, behind the records so far.
    pub(crate) fn send_to_all(&mut self, event: &Event) -> Result<(), TaskError> {
        self.wait()?;
        self.writers.iter_mut().try_for_each(|writer| Ok(writer.broadcast_event(event)?))
    }

    /// Sends a barrier to every reader of every output, ahead of what is queued; says for each output and subpartition what
    /// that was.
    pub(crate) fn overtake(&mut self, barrier: Barrier) -> Result<Vec<Vec<OvertakenData>>, TaskError> {
        self.wait()?;
        let event = Event::Barrier(barrier);
        self.writers.iter_mut().map(|writer| Ok(writer.overtake(&event)?)).collect()
    }

    /// Puts the barrier of a checkpoint that has taken too long ahead of what is queued, where it is queued; says for each
    /// output and subpartition what that was.
    pub(crate) fn expire(&mut self, checkpoint_id: CheckpointId) -> Vec<Vec<OvertakenData>> {
        self.writers.iter_mut().map(|writer| writer.expire(checkpoint_id)).collect()
    }

    /// Tells every reader that no record follows. Barriers may, until the end.
    pub(crate) fn end_data(&mut self, drain: bool) -> Result<(), TaskError> {
        self.wait()?;
        self.writers.iter_mut().try_for_each(|writer| Ok(writer.end_data(drain)?))
    }

    /// Waits until every blocked record went through; the time counts as back-pressured.
    ///
    /// Ends with [`TaskError::Cancelled`] when the task is told to stop. Returns at once if nothing is blocked.
    pub fn wait(&mut self) -> Result<(), TaskError> {
        if !self.is_blocked() {
            return Ok(());
        }
        self.metrics.switch(TimeState::HardBackPressured(self.lack()));
        let waited = self.wait_for_segments();
        self.metrics.switch(TimeState::Busy);
        waited
    }

    /// Sleeps, unless the task is told to stop meanwhile. The time counts as busy: it is a slow operator's own.
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

    /// Sleeps until something has come from outside of the exchange, or anything else wakes the task, at most for `limit`:
    /// look again behind it. The time counts as [`Awaiting`](TimeState::Awaiting).
    ///
    /// Ends with [`TaskError::Cancelled`] when the task is told to stop.
    pub fn await_arrival(&mut self, limit: Option<Duration>) -> Result<(), TaskError> {
        self.cancel.check()?;
        self.metrics.switch(TimeState::Awaiting);
        self.inlets.park(&self.parker, limit);
        self.metrics.switch(TimeState::Busy);
        self.cancel.check()
    }

    /// Ends the poll of the source behind the record that is being worked on.
    pub fn end_poll(&mut self) {
        self.pace.end_poll();
    }

    /// A source produced a record, of `bytes` bytes if they are [counted](Self::counts_bytes). False: its poll should end.
    #[inline]
    pub fn spend(&mut self, bytes: usize) -> bool {
        self.pace.spend(bytes)
    }

    /// Whether the source is limited by bytes: [`spend`](Self::spend) then has to be told how many a record has.
    #[inline]
    pub fn counts_bytes(&self) -> bool {
        self.pace.counts_bytes()
    }

    /// Runs `wait`, which waits for something outside the exchange, and counts its time as idle.
    pub fn idle_while<R>(&mut self, wait: impl FnOnce() -> R) -> R {
        self.metrics.switch(TimeState::Idle);
        let result = wait();
        self.metrics.switch(TimeState::Busy);
        result
    }

    /// Runs `pull`, which may wait for something outside, or work for it: the processor time that it takes counts as busy,
    /// and what it stands in line for a processor, the rest as idle. For what is rare: it reads two clocks and a file of the
    /// system twice.
    pub fn idle_unless_at_work<R>(&mut self, pull: impl FnOnce() -> R) -> R {
        let before = queued();
        let result = self.idle_unless_computing(pull);
        self.metrics.recount(TimeState::Idle, TimeState::Busy, queued().saturating_sub(before));
        result
    }

    /// The same, but that it also counts as idle what `pull` stands in line for a processor: who asks knows of that by
    /// [`time_spent`](Self::time_spent), of many at once.
    pub fn idle_unless_computing<R>(&mut self, pull: impl FnOnce() -> R) -> R {
        let before = cpu_time(ClockId::ThreadCPUTime);
        let result = self.idle_while(pull);
        let worked = cpu_time(ClockId::ThreadCPUTime).saturating_sub(before);
        self.metrics.recount(TimeState::Idle, TimeState::Busy, worked);
        result
    }

    /// Where time went so far. For what is rare: it reads three clocks and a file of the system.
    pub fn time_spent(&self) -> TimeSpent {
        let worked = cpu_time(ClockId::ThreadCPUTime);
        let TimeShares { busy, idle, .. } = self.metrics.time();
        TimeSpent { busy, idle, worked, queued: queued(), process: cpu_time(ClockId::ProcessCPUTime) }
    }

    /// Counts time that counted as `from` as `to`.
    pub fn recount(&mut self, from: TimeState, to: TimeState, time: Duration) {
        self.metrics.recount(from, to, time);
    }

    /// The task is about to wait for the interpreter; [`has_interpreter`](Self::has_interpreter) ends that.
    pub fn wants_interpreter(&self) {
        self.metrics.switch(TimeState::Interpreter);
    }

    /// The task runs its operators.
    pub fn has_interpreter(&self) {
        self.metrics.switch(TimeState::Busy);
    }

    /// Outputs of the task.
    pub fn len(&self) -> usize {
        self.writers.len()
    }

    /// Whether nothing leaves the task: it ends in sinks.
    pub fn is_empty(&self) -> bool {
        self.writers.is_empty()
    }

    /// Whether a record waits for a buffer: call [`wait`](Self::wait).
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.writers.iter().any(RecordWriter::is_blocked)
    }

    /// Whether every output can take records without overdraft.
    #[inline]
    pub fn is_available(&self) -> bool {
        self.writers.iter().all(RecordWriter::is_available)
    }

    /// What the output that holds the task up has too little of: the first one with a record that blocks, or that is not
    /// available.
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

    /// The read side of cancelling.
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

    /// Registers the task's waker with every output that is not available; `true` if all are.
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

    /// Ends every output behind the records so far.
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
                        // `is_blocked` says whether that was all of it.
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
