//! Bytes in transit, and the places where they are cut.

use std::collections::VecDeque;

/// Bytes in transit.
#[derive(Default)]
pub(crate) struct Wire {
    pub(super) in_flight: VecDeque<(u64, Vec<u8>)>,
    pub(super) unread: Vec<u8>,
}

/// SplitMix64: enough to cut byte streams at unforeseen places.
pub(super) struct Random(pub(super) u64);

impl Wire {
    pub(crate) fn send(&mut self, arrival_ms: u64, bytes: Vec<u8>) {
        self.in_flight.push_back((arrival_ms, bytes));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.in_flight.is_empty() && self.unread.is_empty()
    }

    /// Moves all bytes that have arrived, or a random part of them, to `unread`. Returns false if there were none.
    pub(super) fn receive(&mut self, now_ms: u64, cut: Option<&mut Random>) -> bool {
        let mut limit = cut.map_or(usize::MAX, |random| random.up_to(MAX_CUT_BYTES));
        let mut moved = false;
        while limit > 0
            && let Some((arrival_ms, bytes)) = self.in_flight.front_mut()
            && *arrival_ms <= now_ms
        {
            let taken = limit.min(bytes.len());
            self.unread.extend(bytes.drain(..taken));
            limit -= taken;
            moved = true;
            if bytes.is_empty() {
                self.in_flight.pop_front();
            }
        }
        moved
    }
}

impl Random {
    /// Returns a number from 1 to `max`.
    pub(super) fn up_to(&mut self, max: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        1 + ((z ^ (z >> 31)) % max.max(1) as u64) as usize
    }
}

/// Short enough to cut every header somewhere, long enough to join a few small frames.
const MAX_CUT_BYTES: usize = 96;
