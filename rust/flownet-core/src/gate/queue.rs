//! The queue of one channel of a gate: elements in order, priority events ahead of them.

use std::collections::VecDeque;

use super::MAX_QUEUED_EVENTS;
use super::source::Source;
use crate::error::PeerViolation;
use crate::event::Event;
use crate::subpartition::Element;

/// What arrived for one channel and was not read. A local channel queues nothing: its producer does.
#[derive(Debug, Default)]
pub(super) struct ChannelQueue {
    pub(super) source: Source,
    pub(super) queue: VecDeque<Element>,
    pub(super) queued_events: usize,
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

    /// A watermark directly behind a watermark says all that the first one said.
    pub(super) fn merge_watermark(&mut self, event: &Event) -> Result<(), PeerViolation> {
        match (self.queue.back_mut(), event) {
            (Some(Element::Event(last @ Event::Watermark { .. })), Event::Watermark { .. }) => {
                *last = event.clone();
                Ok(())
            }
            _ => Err(PeerViolation::TooManyEvents { limit: MAX_QUEUED_EVENTS as u32 }),
        }
    }
}
