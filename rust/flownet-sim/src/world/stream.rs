//! What was written to a channel and must come out of it: everything, once, in order.

use std::collections::VecDeque;

use flownet_core::Event;

use super::wire::scatter;

/// What a partition wrote to one channel and its gate has not given yet.
#[derive(Debug, Default)]
pub(super) struct Stream {
    items: VecDeque<Item>,
    priority: VecDeque<Event>,
}

/// A record as it was written: its bytes follow from its seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) seed: u64,
    pub(super) bytes: usize,
}

#[derive(Debug)]
enum Item {
    /// Bytes `from..to` of the record with this seed.
    Bytes {
        seed: u64,
        from: usize,
        to: usize,
    },
    Event(Event),
}

impl Record {
    pub(super) fn content(self) -> Vec<u8> {
        (0..self.bytes).map(|at| byte_of(self.seed, at)).collect()
    }
}

impl Stream {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty() && self.priority.is_empty()
    }

    /// Bytes `from..to` of a record found room.
    pub(super) fn note(&mut self, record: Record, from: usize, to: usize) {
        if from < to {
            self.items.push_back(Item::Bytes { seed: record.seed, from, to });
        }
    }

    pub(super) fn note_event(&mut self, event: Event) {
        if event.is_priority() {
            self.priority.push_back(event);
        } else {
            self.items.push_back(Item::Event(event));
        }
    }

    pub(super) fn check_data(&mut self, data: &[u8]) {
        assert!(!data.is_empty(), "an empty buffer was sent");
        let mut rest = data;
        while !rest.is_empty() {
            let Some(Item::Bytes { seed, from, to }) = self.items.front_mut() else {
                panic!("data overtook an event, or came twice: {:?} is due", self.items.front());
            };
            let len = rest.len().min(*to - *from);
            for (at, &byte) in rest[..len].iter().enumerate() {
                assert_eq!(byte, byte_of(*seed, *from + at), "data was lost, doubled, reordered or changed");
            }
            rest = &rest[len..];
            *from += len;
            if from == to {
                self.items.pop_front();
            }
        }
    }

    pub(super) fn check_event(&mut self, event: &Event) {
        if event.is_priority() {
            assert_eq!(self.priority.pop_front().as_ref(), Some(event), "a priority event lost its place");
            return;
        }
        match self.items.pop_front() {
            Some(Item::Event(expected)) => assert_eq!(expected, *event, "an event lost its place"),
            due => panic!("{event:?} came where {due:?} is due"),
        }
    }
}

fn byte_of(seed: u64, at: usize) -> u8 {
    (scatter(seed) >> 8) as u8 ^ (at as u8).wrapping_mul(31) ^ (at >> 8) as u8
}
