//! The queue of one channel of a gate: elements in order, priority events ahead of them.

use std::collections::VecDeque;
use std::sync::Weak;

use super::source::Source;
use crate::channel::RemoteChannel;
use crate::credit::EventsRead;
use crate::event::Event;
use crate::ids::CheckpointId;
use crate::subpartition::Element;

/// What arrived for one channel and was not read. A local channel queues nothing: its producer does.
#[derive(Debug, Default)]
pub(super) struct ChannelQueue {
    pub(super) source: Source,
    pub(super) queue: VecDeque<Element>,
    pub(super) queued_events: usize,
    /// Events that were read and the producer was not told of.
    events_read: EventsRead,
    /// Leading elements of the queue that are priority events.
    pub(super) priority: usize,
    /// Of each of them, how many elements it overtook. They stay until it is read.
    overtaken: VecDeque<usize>,
    pub(super) is_ready: bool,
    /// Its end of partition arrived (remote) or was read (local).
    pub(super) has_end: bool,
}

impl ChannelQueue {
    /// True if the element is a priority event, and the first. So are barriers of the checkpoint that is `late`.
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

    /// Puts the barrier of a checkpoint that has taken too long ahead of what is queued; true if it is the first there.
    pub(super) fn expire(&mut self, late: CheckpointId) -> bool {
        let is_late = |element: &Element| matches!(element, Element::Event(event) if event.is_late_barrier(late));
        // Behind those that are ahead already, its own among them.
        let mut rest = self.queue.iter().enumerate().skip(self.priority);
        let Some(place) = rest.find_map(|(place, element)| is_late(element).then_some(place)) else { return false };
        self.queue.remove(place).is_some_and(|element| self.put_ahead(element, place))
    }

    /// Puts a priority event ahead of what is queued; up to `place` it overtakes it.
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

    /// What the priority event overtook that comes next, if one does.
    pub(super) fn overtaken_by_next(&self) -> Option<Vec<Element>> {
        let overtaken = *self.overtaken.front()?;
        Some(self.queue.iter().skip(self.priority).take(overtaken).cloned().collect())
    }

    /// The task has read an event: whom to tell, and how many it was, once that is due.
    pub(super) fn note_event_read(&mut self) -> Option<(Weak<RemoteChannel>, EventsRead)> {
        match &self.source {
            Source::Remote(remote) if self.events_read.note_one() => {
                Some((Weak::clone(remote), self.events_read.take()))
            }
            _ => None,
        }
    }
}
