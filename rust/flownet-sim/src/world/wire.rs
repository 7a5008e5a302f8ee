//! Bytes under way: one direction of one connection.

use std::collections::VecDeque;
use std::fmt;

use crate::plan::LinkPlan;

pub(super) struct Wire {
    plan: LinkPlan,
    in_flight: VecDeque<(u64, Vec<u8>)>,
    arrived: Vec<u8>,
    under_way: usize,
    /// When the last byte sent is on its way, and when it arrives.
    sent_us: u64,
    arrives_us: u64,
    sends: u64,
    /// The sending socket was full.
    pub(super) is_full: bool,
}

impl Wire {
    pub(super) fn new(plan: LinkPlan) -> Self {
        Self {
            plan,
            in_flight: VecDeque::new(),
            arrived: Vec::new(),
            under_way: 0,
            sent_us: 0,
            arrives_us: 0,
            sends: 0,
            is_full: false,
        }
    }

    /// Bytes the sending socket takes now.
    pub(super) fn room(&self) -> usize {
        self.plan.capacity_bytes.saturating_sub(self.under_way)
    }

    /// Takes no more bytes than there is room for, and says when they arrive.
    pub(super) fn send(&mut self, now_us: u64, bytes: Vec<u8>) -> u64 {
        let transfer_us = (bytes.len() as u64 * 1_000).checked_div(self.plan.bytes_per_ms).unwrap_or(0);
        self.sent_us = self.sent_us.max(now_us) + transfer_us;
        let jitter_us = scatter(self.sends) % (self.plan.jitter_us + 1);
        self.sends += 1;
        self.arrives_us = self.arrives_us.max(self.sent_us + self.plan.latency_us + jitter_us);
        self.under_way += bytes.len();
        self.in_flight.push_back((self.arrives_us, bytes));
        self.arrives_us
    }

    /// Moves what has come to where it is read from. True if there is anything.
    pub(super) fn arrive(&mut self, now_us: u64) -> bool {
        while self.in_flight.front().is_some_and(|(arrives_us, _)| *arrives_us <= now_us)
            && let Some((_, bytes)) = self.in_flight.pop_front()
        {
            self.arrived.extend(bytes);
        }
        !self.arrived.is_empty()
    }

    /// What can be read now.
    pub(super) fn arrived(&self) -> &[u8] {
        &self.arrived
    }

    /// Reads up to so many bytes.
    pub(super) fn receive(&mut self, bytes: usize) -> Vec<u8> {
        let taken: Vec<u8> = self.arrived.drain(..bytes.min(self.arrived.len())).collect();
        self.under_way -= taken.len();
        taken
    }

    pub(super) fn clear(&mut self) {
        self.in_flight.clear();
        self.arrived.clear();
        self.under_way = 0;
    }
}

impl fmt::Debug for Wire {
    /// What is on it, not when it got there.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_flight = self.in_flight.iter().map(|(_, bytes)| bytes);
        f.debug_list().entry(&self.arrived).entries(in_flight).entry(&self.is_full).finish()
    }
}

/// SplitMix64's finalizer: jitter that does not depend on what else is decided.
pub(super) fn scatter(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
