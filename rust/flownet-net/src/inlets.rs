//! Lets a thread wait for data from sockets by reading them itself.
//!
//! A thread may wait for its gate, or for segments that readers of its partition still hold. It would then sleep until
//! the network's thread has read a socket and wakes it. Instead, it reads that socket itself and sleeps on it, so that
//! arriving bytes directly wake the thread that needs them. The thread's waker still ends the wait: mail, timers of
//! other threads, a local producer or another connection wake it as usual.
//!
//! # Invariants
//! - W1: the wait ends when the waker has fired or the time is up, not because something was read.
//! - W2: a thread that leaves leaves every connection attended to, by the network's thread or by a tick of it.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use crate::driver::ReaderId;
use crate::parker::{Sleeper, ThreadParker, with_parker};

/// Connections whose bytes one thread waits for: those of its gate's channels, or those that serve its partition.
///
/// Pass it to [`open_channel`](crate::NetworkEnvironment::open_channel) with each channel of a gate, or to
/// [`register_partition`](crate::NetworkEnvironment::register_partition). The thread then waits with
/// [`Self::wait_until`] or [`Self::park`]. One thread at a time may wait. Without registered connections, both wait
/// without sockets.
#[derive(Debug)]
pub struct Inlets {
    id: ReaderId,
    connected: Arc<ConnectedInlets>,
    /// Index at which the next pass begins, so that no connection always goes first.
    next: AtomicUsize,
}

/// List of connections, shared separately from [`Inlets`]. Dropping an [`Inlets`] calls its connections. A thread that
/// adds a connection, and perhaps holds that connection's lock, must not be the one to drop it.
#[derive(Debug, Default)]
pub(crate) struct ConnectedInlets(Mutex<Vec<Weak<dyn Inlet>>>);

/// Connection that a thread can read.
pub(crate) trait Inlet: Send + Sync {
    /// Sends pending output to the peer, if it justifies a write. Called before the thread sleeps.
    fn flush(&self);

    /// Reads once, and writes bytes that wait for room, unless another thread does.
    fn attend(&self, reader: ReaderId) -> AttendOutcome;

    /// Registers that the thread goes to work.
    fn leave(&self, reader: ReaderId);

    /// Registers that the thread does not return.
    fn resign(&self, reader: ReaderId);

    /// Descriptor to sleep on.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// Outcome of [`Inlet::attend`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AttendOutcome {
    /// Bytes moved. There may be more.
    Moved,
    /// Nothing to do before bytes arrive, or room if `wants_room` is set. Sleep on the descriptor.
    Nothing { wants_room: bool },
    /// Another reader attends to the connection, or it has ended.
    Refused,
}

impl Inlets {
    /// Creates a set without connections.
    pub fn new() -> Arc<Self> {
        let id = ReaderId(NEXT_ID.fetch_add(1, Ordering::Relaxed));
        Arc::new(Self { id, connected: Arc::default(), next: AtomicUsize::new(0) })
    }

    /// Calls `poll` on this thread until it is ready. In between, reads the sockets and sleeps on them until the waker
    /// passed to `poll` fires.
    ///
    /// The thread reuses its parker for each wait. A wake left over from an earlier wait costs one more poll.
    pub fn wait_until<T>(&self, mut poll: impl FnMut(&Waker) -> Poll<T>) -> T {
        with_parker(|parker| {
            loop {
                if let Poll::Ready(value) = poll(parker.waker()) {
                    return value;
                }
                self.park(parker, None);
            }
        })
    }

    /// Parks like [`ThreadParker::park`], or with a limit like [`ThreadParker::park_timeout`], and reads the sockets
    /// meanwhile.
    pub fn park(&self, parker: &ThreadParker, limit: Option<Duration>) -> bool {
        let mut inlets = self.alive();
        inlets.iter().for_each(|inlet| inlet.flush());
        if inlets.len() > MAX_ATTENDED {
            inlets.clear();
        }
        let Some(sleeper) = parker.sleeper().filter(|_| !inlets.is_empty()) else {
            return parker.park_at_most(limit);
        };
        let is_woken = self.read_until_woken(&inlets, &sleeper, limit);
        inlets.iter().for_each(|inlet| inlet.leave(self.id));
        is_woken
    }

    /// Returns the list to which connections with data for this thread are added.
    pub(crate) fn connected(&self) -> Weak<ConnectedInlets> {
        Arc::downgrade(&self.connected)
    }

    /// Returns all live connections and drops the others from the list.
    fn alive(&self) -> Vec<Arc<dyn Inlet>> {
        let mut connected = self.connected.lock();
        let mut alive = Vec::with_capacity(connected.len());
        connected.retain(|inlet| inlet.upgrade().map(|inlet| alive.push(inlet)).is_some());
        alive
    }

    fn read_until_woken(&self, inlets: &[Arc<dyn Inlet>], sleeper: &Sleeper<'_>, limit: Option<Duration>) -> bool {
        let deadline = limit.map(|limit| Instant::now() + limit);
        let mut watched = Vec::with_capacity(inlets.len());
        loop {
            if sleeper.take_signal() {
                return true;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            if !self.attend(inlets, &mut watched) {
                sleeper.sleep(&watched, left);
            }
        }
    }

    /// Attends to one connection after the other until something moves. Otherwise lists the descriptors to sleep on and
    /// returns `false`.
    fn attend<'a>(&self, inlets: &'a [Arc<dyn Inlet>], watched: &mut Vec<(BorrowedFd<'a>, PollFlags)>) -> bool {
        watched.clear();
        let first = self.next.load(Ordering::Relaxed);
        for index in (first..).take(inlets.len()) {
            let inlet = &inlets[index % inlets.len()];
            match inlet.attend(self.id) {
                AttendOutcome::Moved => {
                    self.next.store((index + 1) % inlets.len(), Ordering::Relaxed);
                    return true;
                }
                AttendOutcome::Nothing { wants_room } => {
                    let flags = if wants_room { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
                    watched.extend(inlet.descriptor().map(|descriptor| (descriptor, flags)));
                }
                AttendOutcome::Refused => {}
            }
        }
        false
    }
}

impl ConnectedInlets {
    /// Adds a connection that brings bytes for this thread.
    pub(crate) fn add(&self, inlet: Weak<dyn Inlet>) {
        let mut connected = self.lock();
        // Compare addresses: one connection brings the bytes of many channels, so it may be added repeatedly.
        let is_known = connected.iter().any(|known| Weak::as_ptr(known).cast::<()>() == inlet.as_ptr().cast());
        if !is_known {
            connected.push(inlet);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<dyn Inlet>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inlets {
    fn drop(&mut self) {
        let connected = std::mem::take(&mut *self.connected.lock());
        connected.iter().filter_map(Weak::upgrade).for_each(|inlet| inlet.resign(self.id));
    }
}

impl std::fmt::Debug for dyn Inlet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Inlet").field(&self.descriptor()).finish()
    }
}

static NEXT_ID: AtomicU64 = AtomicU64::new(0);
/// Most sockets that a thread checks each time before it sleeps. If there are more, the network's thread reads them
/// all.
const MAX_ATTENDED: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct ResignCount(AtomicUsize);

    impl Inlet for ResignCount {
        fn flush(&self) {}

        fn attend(&self, _reader: ReaderId) -> AttendOutcome {
            AttendOutcome::Refused
        }

        fn leave(&self, _reader: ReaderId) {}

        fn resign(&self, _reader: ReaderId) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            None
        }
    }

    #[test]
    fn who_adds_a_connection_while_the_inlets_end_does_not_end_them() {
        let inlet = Arc::new(ResignCount::default());
        let weak: Weak<dyn Inlet> = Arc::downgrade(&(Arc::clone(&inlet) as Arc<dyn Inlet>));
        let inlets = Inlets::new();
        let adding = inlets.connected().upgrade().unwrap();
        adding.add(Weak::clone(&weak));
        drop(inlets);
        assert_eq!(inlet.0.load(Ordering::Relaxed), 1);
        adding.add(weak);
        drop(adding);
        assert_eq!(inlet.0.load(Ordering::Relaxed), 1, "it may be called by who holds the connection's lock");
    }
}
