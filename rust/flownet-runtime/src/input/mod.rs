//! The input of a task: takes elements out of its gate, and records out of elements.
//!
//! # Invariants
//! - I1: records, watermarks and ends of one channel are seen in the order in which they were sent.
//! - I2: a batch never waits. It consists of data that has arrived, one buffer after the other.
//! - I3: a checkpoint's snapshot is requested when all of its barriers have come, before any data after one of them is
//!   read. An unaligned checkpoint's snapshot is requested with the first barrier, or after its timeout, before any
//!   more data is read.
//! - I4: an input that ends in the middle of a record, or without an end of data, is an error.
//! - I5: in-flight data of the task's checkpoint is replayed before any data of its channels is read.

mod barriers;
mod counts;
#[cfg(test)]
mod tests;
mod valve;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use flownet_core::debloat::{InFlightBounds, Progress};
use flownet_core::gate::InputGate;
use flownet_core::record::reader::RecordReader;
use flownet_core::subpartition::Element;
use flownet_core::{
    Barrier, BarrierKind, ChannelIndex, CheckpointId, CustomEvent, Debloater, Event, ExchangeError, Round,
};

use self::barriers::Barriers;
pub(crate) use self::counts::ChannelCounts;
use self::valve::WatermarkValve;
use crate::error::{ExchangeFailure, TaskError};
use crate::iteration::rounds::RoundAligner;
use crate::mailbox::CancelToken;
use crate::metrics::TaskMetrics;
use crate::snapshot::{InFlightChannel, InFlightElement, Replay, ReplayedElement};
use crate::time::{END_OF_TIME_MS, TimeSignal};

/// Elements taken from the gate under one lock. Their segments are in use until they are read, so not too many.
const BATCH_ELEMENTS: usize = 32;

/// The records of one buffer, with access to the next buffer that has arrived.
pub(crate) struct InputBatch<'a> {
    input: &'a mut TaskInput,
    // Returns true if the task has other work before the next buffer.
    should_yield: &'a dyn Fn() -> bool,
    now_ms: i64,
}

impl InputBatch<'_> {
    /// Returns the next record and the index of its input in [`TaskSpec::inputs`](crate::spec::TaskSpec::inputs);
    /// `None` at the end of the buffer.
    ///
    /// Returns [`TaskError::Cancelled`] if the task is cancelled.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<(usize, &[u8])>, TaskError> {
        self.input.next_record()
    }

    /// Continues with the next buffer that has arrived; `false` at the end of the batch.
    ///
    /// A chain with a cost per batch calls this when [`next`](Self::next) returned `None`. A chain without such a cost
    /// is called again for the next buffer. The batch ends when no more data has arrived, at an event that the task has
    /// to handle, and when mail or an unavailable output needs the task. Records left unread come with the next batch.
    pub(crate) fn next_buffer(&mut self) -> Result<bool, TaskError> {
        if (self.should_yield)() { Ok(false) } else { self.input.load() }
    }

    /// The last watermark of the channel of the current buffer. Timestamps of its records refer to it.
    pub(crate) fn watermark_ms(&self) -> Option<i64> {
        let current = self.input.current?;
        self.input.channels[current.index()].watermark_ms
    }

    /// Wall-clock time of this batch, in milliseconds since the epoch. It is read once, and its records share it.
    pub(crate) fn now_ms(&self) -> i64 {
        self.now_ms
    }
}

/// All channels of a task.
#[derive(Debug)]
pub(crate) struct TaskInput {
    gate: Arc<InputGate>,
    channels: Vec<Channel>,
    arrived: VecDeque<(ChannelIndex, Element)>,
    /// The channel of the current buffer.
    current: Option<ChannelIndex>,
    /// Size of that buffer.
    current_bytes: u64,
    valve: WatermarkValve,
    signals: VecDeque<Signal>,
    drain: bool,
    scratch: Vec<(ChannelIndex, Element)>,
    cancel: CancelToken,
    metrics: Arc<TaskMetrics>,
    /// Sets the fill limit of producers' buffers, if in-flight data is limited.
    debloater: Option<Debloater>,
    /// `None` without checkpoints.
    barriers: Option<Barriers>,
    /// In-flight data to replay before the channels are read.
    replay: Option<Replay>,
    /// `None` if no channel is part of an iteration.
    rounds: Option<RoundAligner>,
}

/// A signal that the task has to handle before it reads on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Event time changed.
    Time(TimeSignal),
    /// An event from the upstream chain to this chain.
    Custom(CustomEvent),
    /// A latency marker, after all data before it has been read.
    Marker(Event),
    /// A round of an iteration, after all data before it has been read.
    Round(Round),
    /// The snapshot of a checkpoint is due, and then this barrier is forwarded. All data before its barriers has been
    /// read, or is overtaken by the first of them.
    Barrier(Barrier),
    /// All barriers of a checkpoint have come.
    Completed {
        /// The checkpoint.
        checkpoint_id: CheckpointId,
        /// Time since the first barrier.
        aligned: Duration,
        /// The data that it overtook, by channel.
        in_flight: Vec<(ChannelIndex, InFlightChannel)>,
    },
    /// A checkpoint was cancelled upstream.
    Cancelled(CheckpointId),
    /// Every channel has reported its end of data. Only with checkpoints.
    EndOfData {
        /// True if pending results are to be emitted.
        drain: bool,
    },
}

#[derive(Debug)]
struct Channel {
    reader: RecordReader,
    input: usize,
    is_local: bool,
    counts: Arc<ChannelCounts>,
    /// Set after its end of data: true if it reached its own end, false after a stop.
    ended: Option<bool>,
    /// The last watermark of this channel, independent of the others.
    watermark_ms: Option<i64>,
}

/// The place of a gate's channel in the task.
#[derive(Clone, Debug)]
pub(crate) struct ChannelPlace {
    pub(crate) input: usize,
    pub(crate) is_local: bool,
    /// True if it is part of an iteration.
    pub(crate) in_iteration: bool,
    /// Counters of its data.
    pub(crate) counts: Arc<ChannelCounts>,
}

/// The result of polling the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// A buffer is ready to be read.
    Buffer,
    /// Only events: signals may be waiting.
    Events,
    /// Every channel has ended. `drain` if the streams reached their own end, without a stop.
    End {
        /// True if pending results are to be emitted.
        drain: bool,
    },
}

impl TaskInput {
    pub(crate) fn new(
        gate: Arc<InputGate>,
        places: &[ChannelPlace],
        max_record_bytes: usize,
        cancel: CancelToken,
        metrics: Arc<TaskMetrics>,
    ) -> Self {
        let channel = |place: &ChannelPlace| Channel {
            reader: RecordReader::new(max_record_bytes),
            input: place.input,
            is_local: place.is_local,
            counts: Arc::clone(&place.counts),
            ended: None,
            watermark_ms: None,
        };
        let in_iteration = places.iter().any(|place| place.in_iteration);
        Self {
            gate,
            channels: places.iter().map(channel).collect(),
            arrived: VecDeque::with_capacity(BATCH_ELEMENTS),
            current: None,
            current_bytes: 0,
            valve: WatermarkValve::new(places.len()),
            signals: VecDeque::new(),
            drain: true,
            scratch: Vec::with_capacity(BATCH_ELEMENTS),
            cancel,
            metrics,
            debloater: None,
            barriers: None,
            replay: None,
            rounds: in_iteration.then(|| RoundAligner::new(places.iter().map(|place| place.in_iteration))),
        }
    }

    /// Limits the in-flight data of the input.
    pub(crate) fn with_in_flight_bounds(self, bounds: Option<InFlightBounds>) -> Self {
        Self { debloater: bounds.map(Debloater::new), ..self }
    }

    /// Sets the fill limit of the producers' buffers, if it is time. Call it between two buffers, after one is loaded.
    /// `now_ms` may be of any clock.
    pub(crate) fn debloat(&mut self, now_ms: i64) {
        let Some(debloater) = &mut self.debloater else { return };
        let (buffers, bytes) = self.metrics.read();
        // The loaded buffer is still to be read.
        let (buffers, bytes) = (buffers.saturating_sub(1), bytes.saturating_sub(self.current_bytes));
        if !debloater.is_due(now_ms, buffers) {
            return;
        }
        // Buffers from other processes that were taken are still counted by their channels.
        let arrived = self.arrived.iter().filter(|(_, element)| matches!(element, Element::Data(_)));
        let taken = arrived.map(|(index, _)| *index).chain(self.current);
        let of_here = taken.filter(|index| self.channels[index.index()].is_local).count();
        let in_use = self.gate.buffers_in_use() + of_here;
        let progress = Progress { now_ms, bytes, buffers, worked: self.metrics.worked() };
        if let Some(limit) = debloater.adjust(progress, in_use) {
            self.gate.set_fill_limit(limit);
        }
        if let Some(time) = debloater.in_flight() {
            self.metrics.set_in_flight(debloater.limit_bytes(), time);
        }
    }

    /// Finds the next buffer, in the arrived elements or in the gate.
    pub(crate) fn poll(&mut self, waker: &Waker) -> Poll<Result<Arrival, TaskError>> {
        if self.arrived.is_empty() && self.current.is_none() && !self.replay_next()? {
            match self.gate.poll_batch(BATCH_ELEMENTS, &mut self.scratch, waker) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(Arrival::End { drain: self.drain })),
                Poll::Ready(Ok(_)) => self.take_arrived()?,
            }
        }
        let found = self.load().map(|found| if found { Arrival::Buffer } else { Arrival::Events });
        Poll::Ready(found)
    }

    fn take_arrived(&mut self) -> Result<(), TaskError> {
        let (mut buffers, mut bytes) = (0, 0);
        let mut is_overtaken = self.barriers.as_ref().is_some_and(Barriers::is_capturing);
        for (_, element) in &self.scratch {
            match element {
                Element::Data(buffer) => {
                    buffers += 1;
                    bytes += buffer.len() as u64;
                }
                Element::Event(Event::Barrier(barrier)) => is_overtaken |= barrier.kind != BarrierKind::Aligned,
                Element::Event(_) => {}
            }
        }
        self.metrics.add_taken(buffers, bytes);
        if is_overtaken {
            return self.take_overtaken();
        }
        self.arrived.extend(self.scratch.drain(..));
        Ok(())
    }

    /// Replays the next element of in-flight data. Returns true if there was one.
    #[cold]
    fn replay_step(&mut self) -> Result<bool, TaskError> {
        let Some(replay) = &mut self.replay else { return Ok(false) };
        let Some((index, step)) = replay.next() else {
            self.replay = None;
            self.take_postponed()?;
            return Ok(false);
        };
        let channel = &mut self.channels[index.index()];
        match step {
            ReplayedElement::Begin { watermark_ms } => channel.watermark_ms = watermark_ms,
            ReplayedElement::Kept(InFlightElement::Records(records)) => {
                let buffer = replay.buffer(&records)?;
                self.metrics.add_taken(1, buffer.len() as u64);
                self.arrived.push_back((index, Element::Data(buffer)));
            }
            ReplayedElement::Kept(InFlightElement::Event(event)) => {
                self.arrived.push_back((index, Element::Event(event)))
            }
            ReplayedElement::End => {
                channel.reader.check_boundary().map_err(ExchangeError::from)?;
                channel.watermark_ms = None;
            }
        }
        Ok(true)
    }

    #[inline]
    fn replay_next(&mut self) -> Result<bool, TaskError> {
        if self.replay.is_none() { Ok(false) } else { self.replay_step() }
    }

    /// Replays the in-flight data of a checkpoint first.
    pub(crate) fn begin_with(&mut self, replay: Replay) {
        self.replay = Some(replay);
    }

    /// Returns the batch that begins with the loaded buffer.
    pub(crate) fn batch<'a>(&'a mut self, should_yield: &'a dyn Fn() -> bool, now_ms: i64) -> InputBatch<'a> {
        InputBatch { input: self, should_yield, now_ms }
    }

    /// Takes the next signal to handle before the task reads on.
    pub(crate) fn take_signal(&mut self) -> Option<Signal> {
        self.signals.pop_front()
    }

    #[inline]
    fn next_record(&mut self) -> Result<Option<(usize, &[u8])>, TaskError> {
        if self.cancel.is_raised() {
            // Urgent work does not wait for the end of the buffer. The buffer stays as it is.
            return self.cancel.check().map(|()| None);
        }
        let Some(current) = self.current else { return Ok(None) };
        let channel = &mut self.channels[current.index()];
        match channel.reader.next_record() {
            Ok(Some(record)) => {
                self.metrics.add_records_in(1);
                channel.counts.add_record();
                Ok(Some((channel.input, record)))
            }
            Ok(None) => {
                self.current = None;
                Ok(None)
            }
            Err(error) => Err(ExchangeError::from(error).into()),
        }
    }

    /// Loads the next buffer that has arrived, unless one is loaded or a signal comes first.
    fn load(&mut self) -> Result<bool, TaskError> {
        while self.current.is_none() && self.signals.is_empty() {
            let Some((index, element)) = self.arrived.pop_front() else { return Ok(false) };
            match element {
                Element::Data(buffer) => {
                    let channel = &mut self.channels[index.index()];
                    self.current_bytes = buffer.len() as u64;
                    self.metrics.add_bytes_in(self.current_bytes, channel.is_local);
                    channel.counts.add_bytes(self.current_bytes);
                    channel.reader.push(buffer);
                    self.current = Some(index);
                }
                Element::Event(event) => self.handle_event(index, &event)?,
            }
        }
        Ok(self.current.is_some())
    }

    /// Emits a signal of event time. The end of time counts only if all channels reached it, and none was stopped
    /// before.
    fn signal(&mut self, signal: Option<TimeSignal>) {
        let is_meant = |signal: &TimeSignal| self.drain || *signal != TimeSignal::Watermark(END_OF_TIME_MS);
        self.signals.extend(signal.filter(is_meant).map(Signal::Time));
    }

    fn handle_event(&mut self, index: ChannelIndex, event: &Event) -> Result<(), TaskError> {
        let channel = &mut self.channels[index.index()];
        channel.reader.check_boundary().map_err(ExchangeError::from)?;
        match event {
            Event::Watermark { timestamp_ms } => {
                channel.watermark_ms = Some(*timestamp_ms);
                let signal = self.valve.on_watermark(index, *timestamp_ms);
                self.signal(signal);
            }
            Event::WatermarkStatus { idle } => {
                let signal = self.valve.on_idle(index, *idle);
                self.signal(signal);
            }
            Event::EndOfData { drain } => {
                channel.ended = Some(*drain);
                self.drain &= *drain;
                if self.barriers.is_some() && self.channels.iter().all(|channel| channel.ended.is_some()) {
                    self.signals.push_back(Signal::EndOfData { drain: self.drain });
                }
            }
            Event::EndOfPartition if channel.ended.is_none() => {
                let message = format!("channel {index} ended before its data did");
                return Err(ExchangeFailure::other(message).into());
            }
            Event::EndOfPartition => {
                // A stopped channel has more data in the run that resumes, so event time waits for it.
                let has_come_to_its_end = channel.ended == Some(true);
                if has_come_to_its_end {
                    let signal = self.valve.on_end(index);
                    self.signal(signal);
                }
                if let Some(rounds) = &mut self.rounds {
                    let passing = rounds.on_end(index, has_come_to_its_end).map_err(ExchangeFailure::other)?;
                    self.signals.extend(passing.into_iter().map(Signal::Round));
                }
                self.on_end(index)?;
            }
            Event::Custom(event) => self.signals.push_back(Signal::Custom(event.clone())),
            Event::Barrier(barrier) => self.on_barrier(index, *barrier)?,
            Event::CancelBarrier { checkpoint_id } => self.on_cancel(*checkpoint_id)?,
            Event::Round(round) => self.on_round(index, *round)?,
            Event::LatencyMarker { .. } => self.signals.push_back(Signal::Marker(event.clone())),
        }
        Ok(())
    }

    #[cold]
    fn on_round(&mut self, index: ChannelIndex, round: Round) -> Result<(), TaskError> {
        let passing = match &mut self.rounds {
            Some(rounds) => rounds.on_round(index, round),
            None => Err(format!("channel {index} brought a round, and is of no iteration")),
        };
        self.signals.extend(passing.map_err(ExchangeFailure::other)?.map(Signal::Round));
        Ok(())
    }
}
