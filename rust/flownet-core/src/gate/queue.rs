//! The queue of one channel of a gate: elements in order, priority events ahead of them.

use std::collections::VecDeque;
use std::sync::Weak;

use super::source::Source;
use crate::channel::RemoteChannel;
use crate::credit::EventsRead;
use crate::event::Event;
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
    pub(super) is_ready: bool,
    /// Its end of partition arrived (remote) or was read (local).
    pub(super) has_end: bool,
}

impl ChannelQueue {
    /// True if the element is a priority event, and the first.
    pub(super) fn push(&mut self, element: Element) -> bool {
        let Element::Event(event) = &element else {
            self.queue.push_back(element);
            return false;
        };
        self.queued_events += 1;
        self.has_end = matches!(event, Event::EndOfPartition);
        if !event.is_priority() {
            self.queue.push_back(element);
            return false;
        }
        self.queue.insert(self.priority, element);
        self.priority += 1;
        self.priority == 1
    }

    pub(super) fn pop(&mut self) -> Option<Element> {
        let element = self.queue.pop_front()?;
        self.queued_events -= usize::from(matches!(element, Element::Event(_)));
        self.priority = self.priority.saturating_sub(1);
        Some(element)
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
