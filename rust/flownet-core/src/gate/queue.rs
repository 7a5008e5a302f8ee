//! Queue of one channel of a gate: elements in order, priority events first.

use std::collections::VecDeque;
use std::sync::Weak;

use super::source::Source;
use crate::channel::RemoteChannel;
use crate::credit::EventsRead;
use crate::event::Event;
use crate::ids::CheckpointId;
use crate::subpartition::Element;

/// Elements that arrived for one channel and were not read. Empty for a local channel, whose producer queues them.
#[derive(Debug, Default)]
pub(super) struct ChannelQueue {
    pub(super) source: Source,
    pub(super) queue: VecDeque<Element>,
    pub(super) queued_events: usize,
    /// Events that the task has read and the gate has not reported to the producer.
    events_read: EventsRead,
    /// Number of priority events at the front of the queue.
    pub(super) priority: usize,
    /// For each priority event, how many elements it overtook. These elements stay queued until the event is read.
    overtaken: VecDeque<usize>,
    pub(super) is_ready: bool,
    /// Its end of partition arrived (remote) or was read (local).
    pub(super) has_end: bool,
}

impl ChannelQueue {
    /// Queues an element. Returns true if it is a priority event and the first one in the queue. Barriers of the `late`
    /// checkpoint count as priority events.
    pub(super) fn push(&mut self, element: Element, late: Option<CheckpointId>) -> bool {
        let Element::Event(event) = &element else {
            self.queue.push_back(element);
            return false;
        };
        self.queued_events += 1;
        self.has_end = matches!(event, Event::EndOfPartition);
        if !event.is_priority() && !late.is_some_and(|late| event.is_late_barrier(late)) {
            self.queue.push_back(element);
            return false;
        }
        self.put_ahead(element, self.queue.len())
    }

    /// Moves the barrier of a late checkpoint to the front. Returns true if it is the first priority event there.
    pub(super) fn expire(&mut self, late: CheckpointId) -> bool {
        let is_late = |element: &Element| matches!(element, Element::Event(event) if event.is_late_barrier(late));
        // Skip the priority events, which may include this barrier already.
        let mut rest = self.queue.iter().enumerate().skip(self.priority);
        let Some(place) = rest.find_map(|(place, element)| is_late(element).then_some(place)) else { return false };
        self.queue.remove(place).is_some_and(|element| self.put_ahead(element, place))
    }

    /// Inserts a priority event after the other priority events. It overtakes the elements before `place`.
    fn put_ahead(&mut self, element: Element, place: usize) -> bool {
        self.overtaken.push_back(place - self.priority);
        self.queue.insert(self.priority, element);
        self.priority += 1;
        self.priority == 1
    }

    pub(super) fn pop(&mut self) -> Option<Element> {
        let element = self.queue.pop_front()?;
        self.queued_events -= usize::from(matches!(element, Element::Event(_)));
        if self.priority > 0 {
            self.priority -= 1;
            self.overtaken.pop_front();
        }
        Some(element)
    }

    /// Returns copies of the elements that the next priority event overtook, if the next element is a priority event.
    pub(super) fn overtaken_by_next(&self) -> Option<Vec<Element>> {
        let overtaken = *self.overtaken.front()?;
        Some(self.queue.iter().skip(self.priority).take(overtaken).cloned().collect())
    }

    /// Counts an event that the task has read. Returns the channel to report to and the number of events, once a report
    /// is due.
    pub(super) fn note_event_read(&mut self) -> Option<(Weak<RemoteChannel>, EventsRead)> {
        match &self.source {
            Source::Remote(remote) if self.events_read.note_one() => {
                Some((Weak::clone(remote), self.events_read.take()))
            }
            _ => None,
        }
    }
}
