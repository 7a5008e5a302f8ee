//! State of a channel: segments it owns, credit it promised, and its phase. Plain values without a lock. The invariants
//! are those of [`RemoteChannel`](super::RemoteChannel).

use flownet_memory::MemorySegment;

use super::CREDIT_BATCH;
use crate::credit::{Credit, EventsRead};
use crate::debloat::FillLimit;
use crate::error::PeerViolation;
use crate::exchange::ready::Listing;

#[derive(Debug)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) free: Vec<MemorySegment>,
    pub(super) owned: u32,
    /// Segments booked as standing.
    pub(super) standing: u32,
    /// Segments that the producer's backlog requires beyond the standing ones.
    pub(super) wanted: u32,
    pub(super) announced: Credit,
    pub(super) unannounced: Credit,
    pub(super) expected_sequence: u32,
    pub(super) is_waiting: bool,
    /// A blocking event arrived and was not resumed.
    pub(super) is_blocked: bool,
    pub(super) wants_resume: bool,
    /// Limit that was last announced to the producer.
    pub(super) told_fill_limit: Option<FillLimit>,
    /// Events that the task has read and the channel has not reported to the producer.
    pub(super) events_read: EventsRead,
    pub(super) connection: Option<Listing>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Phase {
    New,
    Open,
    /// Closed by the consumer; the producer must be informed.
    Cancelled,
    /// Closed by its end, or by an error that the producer knows.
    Ended,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::New,
            free: Vec::new(),
            owned: 0,
            standing: 0,
            wanted: 0,
            announced: Credit::ZERO,
            unannounced: Credit::ZERO,
            expected_sequence: 0,
            is_waiting: false,
            is_blocked: false,
            wants_resume: false,
            told_fill_limit: None,
            events_read: EventsRead::default(),
            connection: None,
        }
    }

    pub(super) fn wants_segment(&self) -> bool {
        self.phase == Phase::Open && self.free.len() < self.wanted as usize + self.standing as usize
    }

    pub(super) fn is_credit_due(&self) -> bool {
        let may_announce = self.phase == Phase::Open && !self.is_blocked;
        may_announce && !self.unannounced.is_zero() && self.unannounced >= self.announced.min(Credit::new(CREDIT_BATCH))
    }

    pub(super) fn is_credit_urgent(&self) -> bool {
        self.is_credit_due() && (self.announced.is_zero() || self.unannounced.get() >= CREDIT_BATCH / 2)
    }

    pub(super) fn expect_sequence(&mut self, got: u32) -> Result<(), PeerViolation> {
        if self.is_blocked || self.wants_resume {
            // I6: the peer cannot know of a resume that was not announced.
            return Err(PeerViolation::Blocked);
        }
        let expected = self.expected_sequence;
        if got != expected {
            return Err(PeerViolation::Reordered { expected, got });
        }
        self.expected_sequence = expected.wrapping_add(1);
        Ok(())
    }

    /// Retains a segment that the task has read.
    pub(super) fn keep(&mut self, segment: MemorySegment) {
        self.free.push(segment);
        self.unannounced.earn_one();
    }

    /// Voids all credit (I6) and returns the segments beyond the standing ones.
    pub(super) fn block(&mut self) -> Vec<MemorySegment> {
        self.is_blocked = true;
        self.wanted = 0;
        let kept = self.free.len().min(self.standing as usize);
        let surplus = self.free.split_off(kept);
        // Both fit: a channel owns fewer than 2^32 segments.
        self.owned -= surplus.len() as u32;
        self.announced = Credit::ZERO;
        self.unannounced = Credit::new(kept as u32);
        self.assert_invariants();
        surplus
    }

    pub(super) fn announce(&mut self) -> Credit {
        if self.is_blocked {
            return Credit::ZERO;
        }
        let credit = self.unannounced.take();
        self.announced = Credit::new(self.announced.get() + credit.get());
        self.assert_invariants();
        credit
    }

    pub(super) fn drain_free(&mut self) -> Vec<MemorySegment> {
        let free = std::mem::take(&mut self.free);
        self.owned -= free.len() as u32;
        self.wanted = 0;
        self.announced = Credit::ZERO;
        self.unannounced = Credit::ZERO;
        self.assert_invariants();
        free
    }

    pub(super) fn assert_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let promised = self.announced.get() as usize + self.unannounced.get() as usize;
        assert_eq!(promised, self.free.len(), "I1: a channel promises exactly the segments it holds");
        assert!(self.free.len() <= self.owned as usize, "I2: a free segment is an owned one");
        let is_open = matches!(self.phase, Phase::Open);
        assert!(is_open || self.free.is_empty(), "I2: only an open channel holds segments");
        assert!(is_open || self.standing == 0, "I5: only in an open channel a segment stands");
        assert!(!self.is_blocked || !is_open || self.announced.is_zero(), "I6: a blocked channel has promised nothing");
    }
}
