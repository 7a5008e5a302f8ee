//! Handles checkpoint barriers of the input: blocks channels for alignment, and records the data that barriers
//! overtake.

use std::task::Waker;
use std::time::Instant;

use flownet_core::align::{Aligner, Capture, Step};
use flownet_core::subpartition::Element;
use flownet_core::{Barrier, BarrierKind, ChannelIndex, CheckpointId, Event};

use super::{Channel, Signal, TaskInput};
use crate::error::{ExchangeFailure, TaskError};
use crate::snapshot::{CheckpointMode, InFlightChannel, InFlightElement, kept};

/// The pending checkpoint.
#[derive(Debug)]
pub(super) struct Barriers {
    capture: Capture<InFlightElement>,
    /// True if barriers may overtake.
    overtakes: bool,
    /// Time of its first barrier.
    began: Instant,
    /// The last watermark of each channel at the snapshot, if the barrier overtook any of them.
    watermarks_ms: Vec<Option<i64>>,
    /// The checkpoint that has just become unaligned: its queued barriers have to be handled now too.
    late: Option<CheckpointId>,
    /// The barrier to handle once all in-flight data is replayed.
    postponed: Option<Barrier>,
}

impl Barriers {
    #[inline]
    pub(super) fn is_capturing(&self) -> bool {
        self.capture.aligner().is_capturing()
    }

    /// Returns true if this barrier, which arrived in order, need not wait in order.
    fn comes_ahead(&self, index: ChannelIndex, barrier: Barrier) -> bool {
        let (aligner, id) = (self.capture.aligner(), barrier.checkpoint_id);
        let is_awaited = aligner.is_captured(index) && aligner.under_way() == Some(id);
        barrier.kind == BarrierKind::AlignedWithTimeout && (is_awaited || aligner.is_done(id))
    }
}

/// The data of a channel that arrived and is not read yet.
fn unread<'a>(
    channel: &'a Channel,
    arrived: impl Iterator<Item = &'a (ChannelIndex, Element)>,
    index: ChannelIndex,
) -> Vec<InFlightElement> {
    let begun = channel.reader.unread().map(|bytes| InFlightElement::Records(bytes.to_vec()));
    let of_channel = arrived.filter(|(of, _)| *of == index);
    begun.chain(of_channel.filter_map(|(_, element)| kept(element))).collect()
}

impl TaskInput {
    /// Adds checkpoints to the input. `attention` is woken by priority barriers; `None` if barriers may not overtake.
    pub(crate) fn with_checkpoints(self, mode: CheckpointMode, attention: Option<Waker>) -> Self {
        let channels = self.channels.len();
        let aligner = match mode {
            CheckpointMode::ExactlyOnce => Aligner::exactly_once(channels),
            CheckpointMode::AtLeastOnce => Aligner::at_least_once(channels),
        };
        let (capture, overtakes) = (Capture::new(aligner), attention.is_some());
        if let Some(attention) = attention {
            self.gate.set_urgent(attention);
        }
        let (began, watermarks_ms) = (Instant::now(), Vec::new());
        let barriers = Barriers { capture, overtakes, began, watermarks_ms, late: None, postponed: None };
        Self { barriers: Some(barriers), ..self }
    }

    /// Returns true if channels wait for the barriers of others.
    pub(crate) fn waits_for_barriers(&self) -> bool {
        self.barriers.as_ref().is_some_and(|barriers| barriers.capture.aligner().holds_any())
    }

    /// The coordinator aborted a checkpoint: no channel waits for its barriers any more.
    pub(crate) fn abort(&mut self, checkpoint_id: CheckpointId) -> Result<(), TaskError> {
        let Some(barriers) = &mut self.barriers else { return Ok(()) };
        let step = barriers.capture.on_cancel(checkpoint_id);
        // The coordinator informs the other tasks too, so no event is sent to them.
        self.follow(Step { aborted: None, ..step })
    }

    /// The coordinator triggers a checkpoint. Its barriers come by the channels, unless they have all ended.
    pub(crate) fn trigger(&mut self, barrier: Barrier) -> Result<(), TaskError> {
        let Some(barriers) = &mut self.barriers else { return Ok(()) };
        let step = barriers.capture.on_trigger(barrier);
        self.follow(step)
    }

    /// The coordinator has waited for this checkpoint for too long: the snapshot is due, ahead of data that has
    /// arrived.
    #[cold]
    pub(crate) fn overtake(&mut self, barrier: Barrier) -> Result<(), TaskError> {
        let Some(barriers) = &mut self.barriers else { return Ok(()) };
        if self.replay.is_some() {
            // In-flight data is replayed first.
            barriers.postponed = Some(barrier);
            return Ok(());
        }
        let (channels, arrived) = (&self.channels, &self.arrived);
        let unread = |index: ChannelIndex| unread(&channels[index.index()], arrived.iter(), index);
        let step = barriers.capture.on_timeout(barrier, unread);
        self.follow(step)?;
        self.bring_late()
    }

    /// All in-flight data has been replayed.
    #[cold]
    pub(super) fn take_postponed(&mut self) -> Result<(), TaskError> {
        let postponed = self.barriers.as_mut().and_then(|barriers| barriers.postponed.take());
        postponed.map_or(Ok(()), |barrier| self.overtake(barrier))
    }

    /// Handles the queued barriers of a checkpoint that just became unaligned. All other arrived data stays in place.
    fn bring_late(&mut self) -> Result<(), TaskError> {
        let Some(id) = self.barriers.as_mut().and_then(|barriers| barriers.late.take()) else { return Ok(()) };
        let mut found = Vec::new();
        self.arrived.retain(|(index, element)| match element {
            Element::Event(Event::Barrier(barrier)) if barrier.checkpoint_id == id => {
                found.push((*index, *barrier));
                false
            }
            _ => true,
        });
        found.into_iter().try_for_each(|(index, barrier)| self.take_barrier(index, barrier, &[]))?;
        self.gate.expire(id);
        self.take_urgent()
    }

    /// Handles priority barriers, which overtake all arrived data.
    pub(crate) fn take_urgent(&mut self) -> Result<(), TaskError> {
        if self.replay.is_some() {
            // In-flight data is replayed first, and the barriers are found after it.
            return Ok(());
        }
        let mut found = Vec::new();
        self.gate.take_priority(|index, event| found.push((index, event)));
        found.into_iter().try_for_each(|(index, event)| self.on_urgent(index, &event))?;
        self.bring_late()
    }

    /// Takes data from the gate in order, if there is a barrier among it or a checkpoint is pending.
    #[cold]
    pub(super) fn take_overtaken(&mut self) -> Result<(), TaskError> {
        for (index, element) in std::mem::take(&mut self.scratch) {
            if let Element::Event(event @ Event::Barrier(barrier)) = &element
                && (event.is_priority()
                    || self.barriers.as_ref().is_some_and(|known| known.comes_ahead(index, *barrier)))
            {
                self.on_urgent(index, event)?;
                continue;
            }
            if let Some(barriers) = &mut self.barriers {
                barriers.capture.on_element(index, || kept(&element));
            }
            self.arrived.push_back((index, element));
        }
        self.bring_late()
    }

    #[cold]
    fn on_urgent(&mut self, index: ChannelIndex, event: &Event) -> Result<(), TaskError> {
        let Event::Barrier(barrier) = event else { return Ok(()) };
        // Data that was queued before the barrier becomes part of the checkpoint.
        let overtaken = self.gate.take_overtaken(index);
        self.take_barrier(index, *barrier, &overtaken)
    }

    #[cold]
    pub(super) fn on_barrier(&mut self, index: ChannelIndex, barrier: Barrier) -> Result<(), TaskError> {
        self.take_barrier(index, barrier, &[])
    }

    fn take_barrier(&mut self, index: ChannelIndex, barrier: Barrier, overtaken: &[Element]) -> Result<(), TaskError> {
        let overtakes = barrier.kind == BarrierKind::Unaligned;
        let Some(barriers) = &mut self.barriers else {
            // This task takes no checkpoints, so there is nothing to align: the channel resumes at once.
            return if overtakes { Ok(()) } else { Ok(self.gate.resume(index)?) };
        };
        if overtakes && !barriers.overtakes {
            let message = format!("channel {index} brought a barrier that overtakes, which nobody asked for");
            return Err(ExchangeFailure::other(message).into());
        }
        let (channels, arrived) = (&self.channels, &self.arrived);
        let overtaken = overtaken.iter().filter_map(kept);
        let unread = |index: ChannelIndex| unread(&channels[index.index()], arrived.iter(), index);
        let step = barriers.capture.on_barrier(index, barrier, overtaken, unread);
        self.follow(step)
    }

    pub(super) fn on_end(&mut self, index: ChannelIndex) -> Result<(), TaskError> {
        let Some(barriers) = &mut self.barriers else { return Ok(()) };
        let step = barriers.capture.on_end(index);
        self.follow(step)
    }

    pub(super) fn on_cancel(&mut self, checkpoint_id: CheckpointId) -> Result<(), TaskError> {
        let Some(barriers) = &mut self.barriers else { return Ok(()) };
        let step = barriers.capture.on_cancel(checkpoint_id);
        self.follow(step)
    }

    /// Channels resume before the snapshot is taken. Their data waits until the task reads on.
    #[cold]
    fn follow(&mut self, step: Step) -> Result<(), TaskError> {
        let Some(barriers) = &mut self.barriers else { return Ok(()) };
        self.signals.extend(step.aborted.map(Signal::Cancelled));
        if step.began.is_some() {
            barriers.began = Instant::now();
        }
        if let Some(barrier) = step.taken {
            barriers.late = (barrier.kind == BarrierKind::Unaligned).then_some(barrier.checkpoint_id);
            barriers.watermarks_ms = self.channels.iter().map(|channel| channel.watermark_ms).collect();
            self.signals.push_back(Signal::Barrier(barrier));
        }
        if let Some(checkpoint_id) = step.completed {
            let captured = barriers.capture.take().into_iter();
            let recorded = |(index, kept): (ChannelIndex, Vec<InFlightElement>)| {
                (index, InFlightChannel { watermark_ms: barriers.watermarks_ms[index.index()], kept })
            };
            let in_flight = captured.map(recorded).collect();
            self.signals.push_back(Signal::Completed { checkpoint_id, aligned: barriers.began.elapsed(), in_flight });
        }
        step.resumed.into_iter().try_for_each(|channel| Ok(self.gate.resume(channel)?))
    }
}
