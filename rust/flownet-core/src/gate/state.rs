//! State that the gate's lock guards: the queues, the ready list and the waiting task. Calls no other component.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::Waker;

use flownet_memory::BufferPool;

use super::queue::ChannelQueue;
use super::source::Source;
use crate::alternatives::receive_queue::ReceiveQueue;
use crate::channel::RemoteChannel;
use crate::credit::{EVENT_WINDOW, EventsRead};
use crate::error::{ExchangeError, PeerViolation};
use crate::event::Event;
use crate::ids::{ChannelIndex, CheckpointId};
use crate::partition::SubpartitionCell;
use crate::subpartition::Element;

#[derive(Debug)]
pub(super) struct State {
    pub(super) channels: Box<[ChannelQueue]>,
    pub(super) ready: VecDeque<ChannelIndex>,
    /// Waker of the task that found no element.
    pub(super) sleeper: Option<Waker>,
    pub(super) failure: Option<ExchangeError>,
    pub(super) unfinished: usize,
    pub(super) is_closed: bool,
    /// Pool that gives the remote channels their segments.
    pub(super) pool: Option<Arc<BufferPool>>,
    pub(super) receive_queue: ReceiveQueue,
    /// Whether to store the in-flight data that priority events overtook.
    pub(super) keeps_overtaken: bool,
    /// In-flight data of the priority events that the task has read.
    pub(super) overtaken: Vec<(ChannelIndex, Vec<Element>)>,
    /// The last late checkpoint: its barriers overtake the elements queued here.
    late: Option<CheckpointId>,
    /// A priority event arrived and the task was not woken for it yet.
    pub(super) is_urgent: bool,
    /// Channels that must report read events to their producers after the unlock.
    pub(super) events_read: Vec<(Weak<RemoteChannel>, EventsRead)>,
}

/// Next step of the task after a look at the queues.
pub(super) enum Step {
    /// Poll this producer for up to this many elements.
    Local(ChannelIndex, Arc<SubpartitionCell>, usize),
    /// No more elements now.
    Idle,
    /// Every channel has ended.
    Ended,
    Failed(ExchangeError),
}

impl State {
    pub(super) fn new(channels: u32) -> Self {
        Self {
            channels: (0..channels).map(|_| ChannelQueue::default()).collect(),
            ready: VecDeque::new(),
            sleeper: None,
            failure: None,
            unfinished: channels as usize,
            is_closed: false,
            pool: None,
            receive_queue: ReceiveQueue::new(),
            keeps_overtaken: false,
            overtaken: Vec::new(),
            late: None,
            is_urgent: false,
            events_read: Vec::new(),
        }
    }

    pub(super) fn set_source(&mut self, index: ChannelIndex, source: Source) -> bool {
        if self.is_closed {
            return false;
        }
        match self.channels.get_mut(index.index()) {
            Some(channel) if matches!(channel.source, Source::Unset) => {
                channel.source = source;
                true
            }
            Some(_) => {
                self.fail(ExchangeError::Misuse("connected a channel twice"));
                false
            }
            None => {
                self.fail(ExchangeError::Misuse("connected a channel that the gate does not have"));
                false
            }
        }
    }

    pub(super) fn push(&mut self, index: ChannelIndex, slot: &mut Option<Element>) -> Result<(), PeerViolation> {
        let Some(channel) = self.channels.get_mut(index.index()) else { return Ok(()) };
        if self.is_closed {
            return Ok(());
        }
        if channel.has_end {
            return Err(PeerViolation::AfterEnd);
        }
        if matches!(slot, Some(Element::Event(_))) && channel.queued_events >= EVENT_WINDOW as usize {
            return Err(PeerViolation::TooManyEvents { limit: EVENT_WINDOW });
        }
        if let Some(Element::Data(buffer)) = slot {
            if self.receive_queue.excess().is_some() {
                // The gate has already failed for its limit: queue no more bytes.
                return Ok(());
            }
            self.receive_queue.arrive(buffer.len());
        }
        if let Some(element) = slot.take()
            && channel.push(element, self.late)
        {
            // A priority event goes ahead of the channels that only have data.
            self.enqueue_first(index);
            self.is_urgent = true;
        } else {
            self.enqueue(index);
        }
        if let Some((queued_bytes, limit_bytes)) = self.receive_queue.excess() {
            self.fail(ExchangeError::ReceiveLimit { channel: index, queued_bytes, limit_bytes });
        }
        Ok(())
    }

    pub(super) fn enqueue(&mut self, index: ChannelIndex) {
        if let Some(channel) = self.channels.get_mut(index.index())
            && !self.is_closed
            && (!channel.has_end || !channel.queue.is_empty())
            && !std::mem::replace(&mut channel.is_ready, true)
        {
            self.ready.push_back(index);
        }
    }

    pub(super) fn enqueue_first(&mut self, index: ChannelIndex) {
        let Some(channel) = self.channels.get_mut(index.index()) else { return };
        if self.is_closed || (channel.has_end && channel.queue.is_empty()) {
            return;
        }
        if std::mem::replace(&mut channel.is_ready, true) {
            self.ready.retain(|&ready| ready != index);
        }
        self.ready.push_front(index);
    }

    pub(super) fn expire(&mut self, late: CheckpointId) {
        self.late = Some(late);
        for index in (0..self.channels.len() as u32).map(ChannelIndex::new) {
            if self.channels[index.index()].expire(late) {
                self.enqueue_first(index);
            }
        }
    }

    /// Takes the priority events of remote channels. Returns the local producers, which the caller polls.
    pub(super) fn take_priority(
        &mut self,
        sink: &mut impl FnMut(ChannelIndex, Event),
    ) -> Vec<(ChannelIndex, Arc<SubpartitionCell>)> {
        let mut local = Vec::new();
        if self.is_closed || self.failure.is_some() {
            return local;
        }
        for (index, channel) in (0..).map(ChannelIndex::new).zip(&mut self.channels) {
            if let Source::Local(cell) = &channel.source {
                local.push((index, Arc::clone(cell)));
            }
            while let Some(overtaken) = channel.overtaken_by_next()
                && let Some(Element::Event(event)) = channel.pop()
            {
                self.overtaken.push((index, overtaken));
                self.events_read.extend(channel.note_event_read());
                sink(index, event);
            }
        }
        local
    }

    pub(super) fn take_ready(
        &mut self,
        max: usize,
        taken: &mut usize,
        waker: &Waker,
        sink: &mut impl FnMut(ChannelIndex, Element),
    ) -> Step {
        if self.is_closed {
            return Step::Failed(ExchangeError::Closed);
        }
        if let Some(failure) = &self.failure {
            return Step::Failed(failure.clone());
        }
        while *taken < max {
            let Some(index) = self.ready.pop_front() else { break };
            let channel = &mut self.channels[index.index()];
            channel.is_ready = false;
            if let Source::Local(cell) = &channel.source {
                // One buffer per turn if other channels are ready; otherwise as many as the caller asked for.
                let share = if self.ready.is_empty() { max - *taken } else { 1 };
                return Step::Local(index, Arc::clone(cell), share);
            }
            if self.keeps_overtaken
                && let Some(overtaken) = channel.overtaken_by_next()
            {
                self.overtaken.push((index, overtaken));
            }
            if let Some(element) = channel.pop() {
                match &element {
                    Element::Data(buffer) => self.receive_queue.leave(buffer.len()),
                    Element::Event(_) => self.events_read.extend(channel.note_event_read()),
                }
                self.unfinished -= usize::from(matches!(element, Element::Event(Event::EndOfPartition)));
                *taken += 1;
                sink(index, element);
            }
            self.requeue(index);
        }
        if self.unfinished == 0 {
            return Step::Ended;
        }
        if *taken == 0 {
            self.sleeper = Some(waker.clone());
        }
        Step::Idle
    }

    fn requeue(&mut self, index: ChannelIndex) {
        let channel = &self.channels[index.index()];
        match (channel.queue.is_empty(), channel.priority) {
            (true, _) => {}
            (false, 0) => self.enqueue(index),
            (false, _) => self.enqueue_first(index),
        }
    }

    pub(super) fn end_local(&mut self, index: ChannelIndex) {
        if let Some(channel) = self.channels.get_mut(index.index())
            && !self.is_closed
        {
            channel.has_end = true;
            self.unfinished -= 1;
        }
    }

    pub(super) fn fail(&mut self, error: ExchangeError) {
        if !self.is_closed {
            self.failure.get_or_insert(error);
        }
    }

    pub(super) fn assert_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let ready = self.channels.iter().filter(|channel| channel.is_ready).count();
        assert_eq!(ready, self.ready.len(), "I1: a channel is in the ready list once, and only if it says so");
        assert!(
            self.channels.iter().all(|channel| channel.is_ready || channel.queue.is_empty()),
            "I1: a channel with elements is in the ready list"
        );
        assert!(
            self.channels.iter().all(|channel| channel.queued_events <= EVENT_WINDOW as usize),
            "I4: a channel's queued events are bounded"
        );
    }
}
