//! What a connection has to look at: a list of channels that many threads push to and one driver drains.

use std::sync::{Arc, Weak};
use std::task::{Poll, Wake, Waker};

use crate::ids::ChannelId;
use crate::lock::Lock;
use crate::sync::{AtomicBool, Ordering};

/// Channels of one connection that have something to say, each at most once, and the driver to wake for them.
///
/// Pushed to by the wakers of [`Self::waker_for`]: those of a producer's subpartitions (data is there), those of a
/// consumer's channels (credit to announce, cancelled, resumed). Bounded by the number of channels.
#[derive(Debug, Default)]
pub struct ReadyList {
    state: Lock<State>,
}

#[derive(Debug, Default)]
struct State {
    ready: Vec<Arc<Entry>>,
    driver: Option<Waker>,
}

#[derive(Debug)]
struct Entry {
    list: Weak<ReadyList>,
    channel: ChannelId,
    is_queued: AtomicBool,
}

impl ReadyList {
    /// An empty list.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// A waker that puts `channel` on the list and wakes the driver if it sleeps.
    #[must_use]
    pub fn waker_for(self: &Arc<Self>, channel: ChannelId) -> Waker {
        Arc::new(Entry { list: Arc::downgrade(self), channel, is_queued: AtomicBool::new(false) }).into()
    }

    /// Moves all channels to `out`; ready when there was one. Otherwise `waker` is woken once by the next.
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
    fn drain(&mut self, out: &mut Vec<ChannelId>) {
        for entry in self.ready.drain(..) {
            // Before the driver looks at the channel: what happens from now on queues it again.
            entry.is_queued.store(false, Ordering::SeqCst);
            out.push(entry.channel);
        }
    }
}

impl Wake for Entry {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(list) = self.list.upgrade() else { return };
        if self.is_queued.swap(true, Ordering::SeqCst) {
            return;
        }
        let mut state = list.state.lock();
        state.ready.push(Arc::clone(self));
        let driver = state.driver.take();
        drop(state);
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}

#[cfg(test)]
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
    fn a_waker_that_outlives_its_list_does_nothing() {
        let waker = ReadyList::new().waker_for(ChannelId::new(1));
        waker.wake();
    }
}
