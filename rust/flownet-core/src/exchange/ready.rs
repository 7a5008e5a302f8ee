//! Ready list of a connection: many threads push channels to it and one driver drains them.

use std::sync::{Arc, Weak};
use std::task::{Poll, Wake, Waker};

use crate::ids::ChannelId;
use crate::lock::Lock;
use crate::sync::{AtomicBool, Ordering};

/// Channels of one connection that need service, each at most once, and the driver's waker.
///
/// Two kinds of callers push channels. The wakers of [`Self::waker_for`] belong to a producer's subpartitions and
/// report data. The [`Listing`]s belong to a consumer's channels and report credit to announce, a cancel or a resume.
/// The number of channels bounds the list.
#[derive(Debug, Default)]
pub struct ReadyList {
    state: Lock<State>,
}

#[derive(Debug, Default)]
struct State {
    ready: Vec<Arc<Entry>>,
    driver: Option<Waker>,
}

/// Entry of a channel on the ready list of its connection.
#[derive(Clone, Debug)]
pub struct Listing(Arc<Entry>);

#[derive(Debug)]
struct Entry {
    list: Weak<ReadyList>,
    channel: ChannelId,
    /// The driver was woken for this channel, or was awake, and has not drained the channel since.
    is_told: AtomicBool,
    /// Changed and read only under the list's lock.
    is_listed: AtomicBool,
}

impl ReadyList {
    /// Creates an empty list.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Returns a waker that puts `channel` on the list and wakes the driver if it sleeps.
    #[must_use]
    pub fn waker_for(self: &Arc<Self>, channel: ChannelId) -> Waker {
        self.listing_for(channel).0.into()
    }

    /// Returns the list entry of `channel`.
    #[must_use]
    pub fn listing_for(self: &Arc<Self>, channel: ChannelId) -> Listing {
        Listing(Arc::new(Entry {
            list: Arc::downgrade(self),
            channel,
            is_told: AtomicBool::new(false),
            is_listed: AtomicBool::new(false),
        }))
    }

    /// Returns true if a channel is listed.
    #[must_use]
    pub fn has_any(&self) -> bool {
        !self.state.lock().ready.is_empty()
    }

    /// Returns true if the driver must drain the list: it was woken, or at least `many` channels are listed.
    #[must_use]
    pub fn is_pressing(&self, many: usize) -> bool {
        let state = self.state.lock();
        state.driver.is_none() || state.ready.len() >= many
    }

    /// Moves all channels to `out`. Ready if there was at least one. Otherwise the next channel that wakes the driver
    /// wakes `waker`, once.
    pub fn poll_drain(&self, out: &mut Vec<ChannelId>, waker: &Waker) -> Poll<()> {
        let mut state = self.state.lock();
        if state.ready.is_empty() {
            let previous = state.driver.replace(waker.clone());
            drop(state);
            drop(previous);
            return Poll::Pending;
        }
        state.drain(out);
        Poll::Ready(())
    }

    /// Moves all channels to `out`.
    pub fn drain(&self, out: &mut Vec<ChannelId>) {
        self.state.lock().drain(out);
    }
}

impl State {
    fn list(&mut self, entry: &Arc<Entry>) {
        if !entry.is_listed.swap(true, Ordering::Relaxed) {
            self.ready.push(Arc::clone(entry));
        }
    }

    fn drain(&mut self, out: &mut Vec<ChannelId>) {
        for entry in self.ready.drain(..) {
            entry.is_listed.store(false, Ordering::Relaxed);
            // Clear the flag before the driver serves the channel, so that later changes list it again.
            entry.is_told.store(false, Ordering::SeqCst);
            out.push(entry.channel);
        }
    }
}

impl Listing {
    /// Puts the channel on the list and wakes the driver if it sleeps.
    pub fn wake(&self) {
        self.0.wake_by_ref();
    }

    /// Puts the channel on the list without a wake-up. The driver finds it when it drains the list for another reason.
    pub fn list(&self) {
        if let Some(list) = self.0.list.upgrade() {
            list.state.lock().list(&self.0);
        }
    }
}

impl Wake for Entry {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(list) = self.list.upgrade() else { return };
        // Already reported and not drained since: the list's lock is not needed.
        if self.is_told.swap(true, Ordering::SeqCst) {
            return;
        }
        let mut state = list.state.lock();
        state.list(self);
        let driver = state.driver.take();
        drop(state);
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::tests::CountingWaker;

    #[test]
    fn a_channel_woken_twice_is_listed_once_and_wakes_the_driver_once() {
        let list = ReadyList::new();
        let (driver, wakes) = CountingWaker::new();
        let mut out = Vec::new();
        assert!(list.poll_drain(&mut out, &driver).is_pending());
        let one = list.waker_for(ChannelId::new(1));
        let two = list.waker_for(ChannelId::new(2));
        one.wake_by_ref();
        one.wake_by_ref();
        two.wake_by_ref();
        assert_eq!(wakes.count(), 1);
        assert!(list.poll_drain(&mut out, &driver).is_ready());
        assert_eq!(out, [ChannelId::new(1), ChannelId::new(2)]);
        one.wake_by_ref();
        out.clear();
        list.drain(&mut out);
        assert_eq!(out, [ChannelId::new(1)]);
    }

    #[test]
    fn a_channel_that_is_only_listed_is_found_but_wakes_nobody_before_there_is_news() {
        let list = ReadyList::new();
        let (driver, wakes) = CountingWaker::new();
        let mut out = Vec::new();
        assert!(list.poll_drain(&mut out, &driver).is_pending());
        let one = list.listing_for(ChannelId::new(1));
        one.list();
        one.list();
        assert_eq!((wakes.count(), list.has_any()), (0, true));
        assert_eq!((list.is_pressing(2), list.is_pressing(1)), (false, true));
        one.wake();
        assert_eq!((wakes.count(), list.is_pressing(2)), (1, true));
        assert!(list.poll_drain(&mut out, &driver).is_ready());
        assert!(list.poll_drain(&mut out, &driver).is_pending());
        assert_eq!(out, [ChannelId::new(1)]);
        one.list();
        list.waker_for(ChannelId::new(2)).wake();
        out.clear();
        assert!(list.poll_drain(&mut out, &driver).is_ready());
        assert_eq!((wakes.count(), out), (2, vec![ChannelId::new(1), ChannelId::new(2)]));
    }

    #[test]
    fn a_waker_that_outlives_its_list_does_nothing() {
        let waker = ReadyList::new().waker_for(ChannelId::new(1));
        waker.wake();
    }
}
