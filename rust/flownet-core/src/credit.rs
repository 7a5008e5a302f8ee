//! Counts of the credit protocol. All their arithmetic is here and checked.

use std::fmt;

use crate::error::PeerViolation;

/// Buffers that the consumer has promised to hold. One credit pays for one data buffer; events are free.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Credit(u32);

impl Credit {
    /// No buffer promised.
    pub const ZERO: Self = Self(0);

    /// No promise and no bound: the channel's consumer does not control it by credit.
    pub const UNLIMITED: Self = Self(u32::MAX);

    /// Creates a promise of `buffers` buffers.
    #[must_use]
    pub const fn new(buffers: u32) -> Self {
        Self(buffers)
    }

    /// Adds credit that the peer announced. A sum that exceeds any memory is a violation by the peer.
    pub fn grant(&mut self, more: Self) -> Result<(), PeerViolation> {
        let sum = self.0.checked_add(more.0).filter(|sum| *sum < Self::UNLIMITED.0);
        self.0 = sum.ok_or(PeerViolation::CreditOverflow)?;
        Ok(())
    }

    /// Pays for one data buffer.
    pub fn spend_one(&mut self) -> Result<(), PeerViolation> {
        if !self.is_unlimited() {
            self.0 = self.0.checked_sub(1).ok_or(PeerViolation::CreditOverdrawn)?;
        }
        Ok(())
    }

    /// Adds one free buffer of our own that can be promised.
    pub fn earn_one(&mut self) {
        self.0 = self.0.checked_add(1).expect("a channel owns fewer than 2^32 segments");
    }

    /// Takes all credit and leaves none, for an announcement.
    #[must_use]
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Returns the number of promised buffers.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns true for [`Self::UNLIMITED`].
    #[must_use]
    pub const fn is_unlimited(self) -> bool {
        self.0 == Self::UNLIMITED.0
    }

    /// Returns true if no data buffer may be sent.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Credit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Most events of one channel that may be in transit or wait for the consumer's task. Events cost no credit, so this is
/// their bound. Further events wait at the producer until the task has read some. The window holds watermarks of
/// minutes. It takes 4 MiB if each event has the maximum length.
pub const EVENT_WINDOW: u32 = 1024;

/// Events that the consumer's task has read since the last report: as many may follow. Reported when the count reaches
/// half of the [`EVENT_WINDOW`], so a channel with few events never reports it.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct EventsRead(u32);

impl EventsRead {
    /// Creates a count of `events` read events.
    #[must_use]
    pub const fn new(events: u32) -> Self {
        Self(events)
    }

    /// Counts one read event. Returns true once the count must be reported.
    pub fn note_one(&mut self) -> bool {
        self.0 = self.0.saturating_add(1);
        self.0 >= EVENT_WINDOW / 2
    }

    /// Adds another count.
    pub fn add(&mut self, more: Self) {
        self.0 = self.0.saturating_add(more.0);
    }

    /// Takes the whole count and leaves none, for an announcement.
    #[must_use]
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Returns the number of read events.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Unused part of the [`EVENT_WINDOW`] of one channel, at the producer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EventWindow(u32);

impl EventWindow {
    /// Returns the number of events that may be sent.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns true if so little is left that it is reserved for events other than markers.
    #[must_use]
    pub const fn is_short(self) -> bool {
        self.0 < EVENT_WINDOW / 4
    }

    /// Counts one sent event.
    pub fn spend_one(&mut self) {
        self.0 = self.0.saturating_sub(1);
    }

    /// Adds events that were read. More events than were sent are a violation by the peer.
    pub fn reopen(&mut self, read: EventsRead) -> Result<(), PeerViolation> {
        let left = self.0.checked_add(read.0).filter(|left| *left <= EVENT_WINDOW);
        self.0 = left.ok_or(PeerViolation::EventsNotSent)?;
        Ok(())
    }
}

impl Default for EventWindow {
    fn default() -> Self {
        Self(EVENT_WINDOW)
    }
}

/// Data buffers that are queued at the producer and ready to send. Events do not count: they need no credit.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Backlog(u32);

impl Backlog {
    /// No buffer waits.
    pub const ZERO: Self = Self(0);

    /// Creates a backlog of `buffers` data buffers.
    #[must_use]
    pub const fn new(buffers: u32) -> Self {
        Self(buffers)
    }

    /// Counts a data buffer that was queued.
    pub fn grow(&mut self) {
        self.0 = self.0.checked_add(1).expect("a subpartition queues fewer than 2^32 buffers");
    }

    /// Counts a data buffer that left the queue.
    pub fn shrink(&mut self) {
        self.0 = self.0.checked_sub(1).expect("a buffer that leaves the queue was counted when it entered");
    }

    /// Returns the backlog without its last buffer, which is still being filled.
    #[must_use]
    pub const fn without_open_tail(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// Returns the number of queued data buffers.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns true if no data buffer waits.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Backlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn credit_never_goes_below_zero() {
        let mut credit = Credit::new(1);
        assert_eq!(credit.spend_one(), Ok(()));
        assert_eq!(credit.spend_one(), Err(PeerViolation::CreditOverdrawn));
        assert!(credit.is_zero());
    }

    #[test]
    fn credit_beyond_u32_is_the_peers_fault_and_changes_nothing() {
        let mut credit = Credit::new(u32::MAX - 1);
        assert_eq!(credit.grant(Credit::new(2)), Err(PeerViolation::CreditOverflow));
        assert_eq!(credit, Credit::new(u32::MAX - 1));
        assert_eq!(credit.grant(Credit::new(1)), Err(PeerViolation::CreditOverflow), "nobody may make it unlimited");
        let mut most = Credit::new(u32::MAX - 2);
        assert_eq!((most.grant(Credit::new(1)), most), (Ok(()), Credit::new(u32::MAX - 1)));
    }

    #[test]
    fn events_read_are_told_of_once_they_are_half_of_the_window() {
        let mut read = EventsRead::default();
        let told_of = (1..=EVENT_WINDOW).find(|_| read.note_one());
        assert_eq!((told_of, read.take()), (Some(EVENT_WINDOW / 2), EventsRead::new(EVENT_WINDOW / 2)));
        assert!(!read.note_one(), "it counts anew");
    }

    #[test]
    fn the_last_quarter_of_the_window_is_for_events_that_matter() {
        let mut window = EventWindow::default();
        let sent = (1..=EVENT_WINDOW).find(|_| {
            window.spend_one();
            window.is_short()
        });
        assert_eq!(sent, Some(EVENT_WINDOW - EVENT_WINDOW / 4 + 1));
    }

    #[test]
    fn an_announcement_takes_all_credit_at_once() {
        let mut unannounced = Credit::ZERO;
        unannounced.earn_one();
        unannounced.earn_one();
        assert_eq!(unannounced.take(), Credit::new(2));
        assert_eq!(unannounced, Credit::ZERO);
    }

    #[test]
    fn backlog_counts_up_and_down() {
        let mut backlog = Backlog::ZERO;
        assert_eq!(backlog.without_open_tail(), Backlog::ZERO);
        backlog.grow();
        backlog.grow();
        assert_eq!(backlog.without_open_tail(), Backlog::new(1));
        backlog.shrink();
        backlog.shrink();
        assert!(backlog.is_zero());
    }
}
