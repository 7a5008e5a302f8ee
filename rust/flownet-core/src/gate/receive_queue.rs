//! What a gate holds for its remote channels, in bytes, and what it does about it where no credit bounds it: all that a
//! gate knows of ways without credit.
//!
//! # Invariants
//! - N1: `queued` is the sum of the data in the gate's queues of remote channels.
//! - N2: `queued + reserved <= bounds.queue_bytes` as far as only channels that drop fill the gate: a record is admitted
//!   with all its bytes or not at all.
//! - N3: between the two watermarks the gate stays as it was: congested if it came from above.

use std::task::Waker;

use flownet_memory::Buffer;

use super::InputGate;
use crate::error::PeerViolation;
use crate::ids::ChannelIndex;
use crate::subpartition::Element;

/// How much a gate may queue where no credit bounds it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReceiveQueueLimits {
    /// Bytes beyond which channels that drop take no further record, and that the watermarks refer to.
    pub queue_bytes: usize,
    /// Bytes beyond which channels without bound fail the gate.
    pub limit_bytes: usize,
}

/// Bytes in and out of a gate, as of one moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct IntakeCounters {
    /// Data of remote channels that arrived and was not read.
    pub queued_bytes: u64,
    /// Records thrown away.
    pub dropped_records: u64,
    /// Bytes of these records, length prefixes included.
    pub dropped_bytes: u64,
}

/// See the [module docs](self).
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    bounds: ReceiveQueueLimits,
    queued: usize,
    /// Bytes of admitted records that are still to come.
    reserved: usize,
    dropped_records: u64,
    dropped_bytes: u64,
    is_congested: bool,
    /// Woken whenever `is_congested` changes.
    monitor: Option<Waker>,
    has_flipped: bool,
}

impl InputGate {
    /// Bounds what channels without credit may queue. Before they open; without, nothing bounds them.
    pub fn set_bounds(&self, bounds: ReceiveQueueLimits) {
        self.state.lock().intake.set_bounds(bounds);
    }

    /// Wakes `monitor` whenever [`Self::is_congested`] changes.
    pub fn set_monitor(&self, monitor: Waker) {
        self.state.lock().intake.set_monitor(monitor);
    }

    /// The queue passed [`HIGH_WATERMARK`] of its bound and has not come down to [`LOW_WATERMARK`] since. Only told while
    /// there is a monitor.
    #[must_use]
    pub fn is_congested(&self) -> bool {
        self.state.lock().intake.is_congested()
    }

    /// Bytes of remote channels that are queued, and records that were dropped.
    #[must_use]
    pub fn intake(&self) -> IntakeCounters {
        self.state.lock().intake.counters()
    }

    /// Lets a channel decide which of the records that arrived come in. One lock a buffer.
    pub(crate) fn admit<R>(&self, decide: impl FnOnce(&mut ReceiveQueue) -> R) -> R {
        decide(&mut self.state.lock().intake)
    }

    /// Queues bytes of records that were admitted.
    pub(crate) fn on_admitted(&self, channel: ChannelIndex, buffer: Buffer) -> Result<(), PeerViolation> {
        let bytes = buffer.len();
        let mut element = Some(Element::Data(buffer));
        self.change(|state| {
            state.intake.redeem(bytes);
            state.push(channel, &mut element)
        })
    }
}

impl ReceiveQueue {
    pub(super) fn new() -> Self {
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

    pub(super) fn set_bounds(&mut self, bounds: ReceiveQueueLimits) {
        self.bounds = bounds;
    }

    pub(super) fn set_monitor(&mut self, monitor: Waker) {
        self.monitor = Some(monitor);
    }

    /// May a record of so many bytes come in? If so, there will be room for it.
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

    /// Part of an admitted record arrived.
    pub(super) fn redeem(&mut self, bytes: usize) {
        self.reserved = self.reserved.saturating_sub(bytes);
    }

    pub(super) fn arrive(&mut self, bytes: usize) {
        self.queued += bytes;
        self.look();
    }

    pub(super) fn leave(&mut self, bytes: usize) {
        self.queued = self.queued.saturating_sub(bytes);
        self.look();
    }

    /// The gate is closed: nothing is queued any more, and nobody is congested.
    pub(super) fn clear(&mut self) {
        (self.queued, self.reserved) = (0, 0);
        self.look();
    }

    /// Bytes queued and the limit, once there are more than that.
    pub(super) fn excess(&self) -> Option<(usize, usize)> {
        let limit = self.bounds.limit_bytes;
        (self.queued > limit).then_some((self.queued, limit))
    }

    pub(super) fn is_congested(&self) -> bool {
        self.is_congested
    }

    pub(super) fn counters(&self) -> IntakeCounters {
        let Self { queued, dropped_records, dropped_bytes, .. } = *self;
        IntakeCounters { queued_bytes: queued as u64, dropped_records, dropped_bytes }
    }

    /// Whom to tell of a change of `is_congested`, once, when no lock is held.
    pub(super) fn take_flip(&mut self) -> Option<Waker> {
        if std::mem::take(&mut self.has_flipped) { self.monitor.clone() } else { None }
    }

    /// N3.
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

/// Storm's `backpressure.disruptor.high.watermark`: a queue this full is congested.
pub const HIGH_WATERMARK: f64 = 0.9;

/// Storm's `backpressure.disruptor.low.watermark`: a congested queue is no longer, once it is this full.
pub const LOW_WATERMARK: f64 = 0.4;

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::tests::CountingWaker;

    fn intake(queue_bytes: usize) -> ReceiveQueue {
        let mut intake = ReceiveQueue::new();
        intake.set_bounds(ReceiveQueueLimits { queue_bytes, limit_bytes: 2 * queue_bytes });
        intake
    }

    #[test]
    fn a_record_is_admitted_with_all_its_bytes_or_counted_as_dropped() {
        let mut intake = intake(10);
        assert!(intake.admit(6));
        assert!(!intake.admit(5), "what is reserved is taken, though it has not arrived");
        assert!(intake.admit(4));
        intake.redeem(10);
        intake.arrive(10);
        assert!(!intake.admit(1));
        intake.leave(10);
        assert!(intake.admit(10));
        assert_eq!(intake.counters(), IntakeCounters { queued_bytes: 0, dropped_records: 2, dropped_bytes: 6 });
    }

    #[test]
    fn a_gate_is_congested_from_nine_tenths_on_until_four_tenths() {
        let (monitor, wakes) = CountingWaker::new();
        let mut intake = intake(100);
        intake.set_monitor(monitor);
        let mut seen = Vec::new();
        for bytes in [89, 90, 41, 40, 89, 100] {
            let queued = intake.counters().queued_bytes as usize;
            if bytes > queued {
                intake.arrive(bytes - queued)
            } else {
                intake.leave(queued - bytes)
            }
            if let Some(monitor) = intake.take_flip() {
                monitor.wake();
            }
            seen.push(intake.is_congested());
        }
        assert_eq!(seen, [false, true, true, false, false, true]);
        assert_eq!(wakes.count(), 3, "told of each change, once");
    }

    #[test]
    fn nobody_looks_where_nobody_is_told() {
        let mut intake = intake(100);
        intake.arrive(1000);
        assert!(!intake.is_congested());
        assert_eq!(intake.excess(), Some((1000, 200)));
    }
}
