//! Writes the records and events that leave a task.
//!
//! # Invariants
//! - I1: [`Outputs::try_emit`] always takes the whole record, whatever it returns. `Blocked` only means that the rest
//!   of the record waits for a buffer. Call [`Outputs::wait`] before the next record of that output.
//! - I2: a wait ends when every blocked record has been written, on cancel, or on a failure of the exchange.

use std::sync::Arc;
use std::task::Poll;

use flownet_core::keygroup::hash_key;
use flownet_core::record::writer::{Emit, RecordWriter};
use flownet_core::subpartition::OvertakenData;
use flownet_core::{Barrier, CheckpointId, CustomEvent, Event, Round, SubpartitionIndex, Target};
use flownet_net::{Inlets, ThreadParker};

use crate::control::TaskControl;
use crate::error::TaskError;
use crate::mailbox::CancelToken;
use crate::metrics::TaskMetrics;
use crate::time::TimeSignal;
use crate::time_accounting::{BackpressureCause, TimeState};

/// The outputs of one task, one for each edge that leaves it, in the order of
/// [`TaskSpec::outputs`](crate::spec::TaskSpec::outputs).
#[derive(Debug)]
pub struct Outputs {
    writers: Vec<RecordWriter>,
    /// Pace, waits and time accounting of the task.
    pub control: TaskControl,
    metrics: Arc<TaskMetrics>,
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

    pub(crate) fn new(
        writers: Vec<RecordWriter>,
        parker: Arc<ThreadParker>,
        inlets: Arc<Inlets>,
        cancel: CancelToken,
        metrics: Arc<TaskMetrics>,
    ) -> Self {
        let control = TaskControl::new(parker, inlets, cancel, Arc::clone(&metrics));
        Self { writers, control, metrics, markers: 0, is_alone: false }
    }

    /// Registers the task's waker with every output that is not available. Returns true if all are.
    pub(crate) fn poll_available(&mut self) -> Result<bool, TaskError> {
        let mut available = true;
        for writer in &mut self.writers {
            match writer.poll_available(self.control.waker()) {
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
                self.control.cancel().check()?;
                match writer.poll_ready(self.control.waker()) {
                    Poll::Ready(ready) => {
                        ready?;
                        // `is_blocked` shows whether that was all of it.
                        let _ = writer.resume()?;
                    }
                    Poll::Pending if self.is_alone => return Err(self.refuse_to_wait()),
                    Poll::Pending => self.control.park(None),
                }
            }
        }
        Ok(())
    }
}
