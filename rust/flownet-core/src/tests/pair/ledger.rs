//! Ledger of the written elements, which must be read again.

use std::collections::VecDeque;

use crate::event::Event;

/// Elements that the partition wrote to one channel and the gate has not returned yet.
#[derive(Default)]
pub(super) struct EmittedRecord {
    pub(super) written: u64,
    pub(super) read: u64,
    items: VecDeque<Item>,
    priority: VecDeque<Event>,
}

enum Item {
    Bytes(usize),
    Event(Event),
}

impl EmittedRecord {
    pub(super) fn is_settled(&self) -> bool {
        self.items.is_empty() && self.priority.is_empty()
    }

    pub(super) fn note(&mut self, bytes: usize) {
        self.written += bytes as u64;
        match self.items.back_mut() {
            Some(Item::Bytes(last)) => *last += bytes,
            _ if bytes > 0 => self.items.push_back(Item::Bytes(bytes)),
            _ => {}
        }
    }

    pub(super) fn note_event(&mut self, event: Event) {
        if event.is_priority() {
            self.priority.push_back(event);
        } else {
            self.items.push_back(Item::Event(event));
        }
    }

    pub(super) fn check_data(&mut self, channel: u32, data: &[u8]) {
        assert!(!data.is_empty(), "empty buffers are never sent");
        for (at, &byte) in data.iter().enumerate() {
            assert_eq!(byte, byte_of(channel, self.read + at as u64), "lost, doubled or reordered on {channel}");
        }
        self.read += data.len() as u64;
        match self.items.front_mut() {
            Some(Item::Bytes(left)) if *left > data.len() => *left -= data.len(),
            Some(Item::Bytes(left)) if *left == data.len() => drop(self.items.pop_front()),
            _ => panic!("data overtook an event on channel {channel}"),
        }
    }

    pub(super) fn check_event(&mut self, event: &Event) {
        if event.is_priority() {
            assert_eq!(self.priority.pop_front().as_ref(), Some(event), "priority events keep their order");
            return;
        }
        match self.items.pop_front() {
            Some(Item::Event(expected)) => assert_eq!(expected, *event, "events keep their order"),
            Some(Item::Bytes(left)) => panic!("{event:?} overtook {left} bytes"),
            None => panic!("{event:?} came twice"),
        }
    }
}

/// Returns the byte at this position of a channel's stream.
pub(super) fn byte_of(channel: u32, at: u64) -> u8 {
    (at.wrapping_mul(31) ^ (at >> 8) ^ (u64::from(channel) * 101)) as u8
}
