//! Counts the bytes that a gate queues for its remote channels, and limits them if no credit does.
//!
//! # Invariants
//! - N1: `queued` is the sum of the data in the gate's queues of remote channels.
//! - N2: `queued + reserved <= bounds.queue_bytes` if only channels that drop fill the gate. A record is admitted with
//!   all its bytes or not at all.
//! - N3: between the two watermarks the congestion state does not change: the gate stays congested if it came from
//!   above.

use std::task::Waker;

use flownet_memory::Buffer;

use crate::error::PeerViolation;
use crate::gate::InputGate;
use crate::ids::ChannelIndex;
use crate::subpartition::Element;

/// Limits on the data that a gate queues if no credit bounds it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReceiveQueueLimits {
    /// Bytes beyond which channels that drop admit no further record. The watermarks are fractions of it.
    pub queue_bytes: usize,
    /// Bytes beyond which unbounded channels fail the gate.
    pub limit_bytes: usize,
}

/// Byte and drop counters of a gate at one moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ReceiveQueueCounters {
    /// Bytes of remote channels that arrived and were not read.
    pub queued_bytes: u64,
    /// Records that were dropped.
    pub dropped_records: u64,
    /// Bytes of dropped records, including length prefixes.
    pub dropped_bytes: u64,
}

/// See the [module docs](self).
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    bounds: ReceiveQueueLimits,
    queued: usize,
    /// Bytes of admitted records that have not arrived yet.
    reserved: usize,
    dropped_records: u64,
    dropped_bytes: u64,
    is_congested: bool,
    /// Woken whenever `is_congested` changes.
    monitor: Option<Waker>,
    has_flipped: bool,
}

impl InputGate {
    /// Limits the data that channels without credit may queue. Call it before they open; without it there is no limit.
    pub fn set_bounds(&self, bounds: ReceiveQueueLimits) {
        self.with_receive_queue(|queue| queue.set_bounds(bounds));
    }

    /// Wakes `monitor` whenever [`Self::is_congested`] changes.
    pub fn set_monitor(&self, monitor: Waker) {
        self.with_receive_queue(|queue| queue.set_monitor(monitor));
    }

    /// Returns true if the queue has passed [`HIGH_WATERMARK`] of its limit and has not fallen to [`LOW_WATERMARK`]
    /// since. Only maintained if there is a monitor.
    #[must_use]
    pub fn is_congested(&self) -> bool {
        self.with_receive_queue(|queue| queue.is_congested())
    }

    /// Returns the queued bytes of remote channels and the dropped records.
    #[must_use]
    pub fn receive_queue(&self) -> ReceiveQueueCounters {
        self.with_receive_queue(|queue| queue.counters())
    }

    /// Queues bytes of admitted records.
    pub(crate) fn on_admitted(&self, channel: ChannelIndex, buffer: Buffer) -> Result<(), PeerViolation> {
        let bytes = buffer.len();
        self.queue_element(channel, Element::Data(buffer), |queue| queue.redeem(bytes))
    }
}

impl ReceiveQueue {
    pub(crate) fn new() -> Self {
        Self {
            bounds: ReceiveQueueLimits { queue_bytes: usize::MAX, limit_bytes: usize::MAX },
            queued: 0,
            reserved: 0,
            dropped_records: 0,
            dropped_bytes: 0,
            is_congested: false,
            monitor: None,
            has_flipped: false,
        }
    }

    pub(crate) fn set_bounds(&mut self, bounds: ReceiveQueueLimits) {
        self.bounds = bounds;
    }

    pub(crate) fn set_monitor(&mut self, monitor: Waker) {
        self.monitor = Some(monitor);
    }

    /// Returns true if a record of `bytes` bytes may enter, and reserves room for it. Otherwise counts it as dropped.
    pub(crate) fn admit(&mut self, bytes: usize) -> bool {
        let is_admitted = self.queued.saturating_add(self.reserved).saturating_add(bytes) <= self.bounds.queue_bytes;
        if is_admitted {
            self.reserved += bytes;
        } else {
            self.dropped_records += 1;
            self.dropped_bytes += bytes as u64;
        }
        is_admitted
    }

    /// Releases the reservation of the bytes of an admitted record that arrived.
    pub(crate) fn redeem(&mut self, bytes: usize) {
        self.reserved = self.reserved.saturating_sub(bytes);
    }

    pub(crate) fn arrive(&mut self, bytes: usize) {
        self.queued += bytes;
        self.look();
    }

    pub(crate) fn leave(&mut self, bytes: usize) {
        self.queued = self.queued.saturating_sub(bytes);
        self.look();
    }

    /// Empties the queue of a closed gate, which ends any congestion.
    pub(crate) fn clear(&mut self) {
        (self.queued, self.reserved) = (0, 0);
        self.look();
    }

    /// Returns the queued bytes and the limit if the limit is exceeded.
    pub(crate) fn excess(&self) -> Option<(usize, usize)> {
        let limit = self.bounds.limit_bytes;
        (self.queued > limit).then_some((self.queued, limit))
    }

    pub(crate) fn is_congested(&self) -> bool {
        self.is_congested
    }

    pub(crate) fn counters(&self) -> ReceiveQueueCounters {
        let Self { queued, dropped_records, dropped_bytes, .. } = *self;
        ReceiveQueueCounters { queued_bytes: queued as u64, dropped_records, dropped_bytes }
    }

    /// Returns the monitor to wake after `is_congested` changed. Returns it once per change; the caller wakes it
    /// without a lock.
    pub(crate) fn take_flip(&mut self) -> Option<Waker> {
        if std::mem::take(&mut self.has_flipped) { self.monitor.clone() } else { None }
    }

    /// Updates `is_congested` (N3).
    fn look(&mut self) {
        if self.monitor.is_none() {
            return;
        }
        let part = |watermark: f64| (self.bounds.queue_bytes as f64 * watermark) as usize;
        let flips =
            if self.is_congested { self.queued <= part(LOW_WATERMARK) } else { self.queued >= part(HIGH_WATERMARK) };
        if flips {
            self.is_congested = !self.is_congested;
            self.has_flipped = true;
        }
    }
}

/// Fill level at which a queue becomes congested: Storm's `backpressure.disruptor.high.watermark`.
pub const HIGH_WATERMARK: f64 = 0.9;

/// Fill level at which a congested queue recovers: Storm's `backpressure.disruptor.low.watermark`.
pub const LOW_WATERMARK: f64 = 0.4;

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::tests::CountingWaker;

    fn queue(queue_bytes: usize) -> ReceiveQueue {
        let mut queue = ReceiveQueue::new();
        queue.set_bounds(ReceiveQueueLimits { queue_bytes, limit_bytes: 2 * queue_bytes });
        queue
    }

    #[test]
    fn a_record_is_admitted_with_all_its_bytes_or_counted_as_dropped() {
        let mut queue = queue(10);
        assert!(queue.admit(6));
        assert!(!queue.admit(5), "what is reserved is taken, though it has not arrived");
        assert!(queue.admit(4));
        queue.redeem(10);
        queue.arrive(10);
        assert!(!queue.admit(1));
        queue.leave(10);
        assert!(queue.admit(10));
        assert_eq!(queue.counters(), ReceiveQueueCounters { queued_bytes: 0, dropped_records: 2, dropped_bytes: 6 });
    }

    #[test]
    fn a_gate_is_congested_from_nine_tenths_on_until_four_tenths() {
        let (monitor, wakes) = CountingWaker::new();
        let mut queue = queue(100);
        queue.set_monitor(monitor);
        let mut seen = Vec::new();
        for bytes in [89, 90, 41, 40, 89, 100] {
            let queued = queue.counters().queued_bytes as usize;
            if bytes > queued {
                queue.arrive(bytes - queued)
            } else {
                queue.leave(queued - bytes)
            }
            if let Some(monitor) = queue.take_flip() {
                monitor.wake();
            }
            seen.push(queue.is_congested());
        }
        assert_eq!(seen, [false, true, true, false, false, true]);
        assert_eq!(wakes.count(), 3, "told of each change, once");
    }

    #[test]
    fn nobody_looks_where_nobody_is_told() {
        let mut queue = queue(100);
        queue.arrive(1000);
        assert!(!queue.is_congested());
        assert_eq!(queue.excess(), Some((1000, 200)));
    }
}
