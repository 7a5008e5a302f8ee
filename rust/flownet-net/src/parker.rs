//! Parks a plain thread where the core expects a [`Waker`], alone or together with file descriptors.
//!
//! # Invariants
//! - I1: a wake between two parks is remembered: the next park returns at once.
//! - I2: a park returns only after a wake or its timeout, never spuriously.
//! - I3: a wake costs a system call only if the thread sleeps or is about to, and then only the call that ends that
//!   kind of sleep.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{read, write};

/// A thread's waker, and the means to sleep until it fires.
///
/// Only the thread that created it may park on it. Wakers may be sent to any thread.
///
/// ```
/// use flownet_net::ThreadParker;
///
/// let parker = ThreadParker::current();
/// let waker = parker.waker().clone();
/// let other = std::thread::spawn(move || waker.wake());
/// parker.park();
/// other.join().unwrap();
/// ```
#[derive(Debug)]
pub struct ThreadParker {
    signal: Arc<Signal>,
    waker: Waker,
}

impl ThreadParker {
    /// Creates a parker for the calling thread.
    pub fn current() -> Self {
        let signal = Signal { state: AtomicU8::new(AWAKE), thread: thread::current(), event: OnceLock::new() };
        let signal = Arc::new(signal);
        let waker = Waker::from(Arc::clone(&signal));
        Self { signal, waker }
    }

    /// Waker to register with a poll. Cloning it is a counter increment.
    pub fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Sleeps until the waker fires. Returns at once if it has fired since the last park.
    pub fn park(&self) {
        self.park_at_most(None);
    }

    /// Sleeps like [`park`](Self::park), for at most `timeout`. Returns `true` if woken, `false` on timeout.
    pub fn park_timeout(&self, timeout: Duration) -> bool {
        self.park_at_most(Some(timeout))
    }

    pub(crate) fn park_at_most(&self, limit: Option<Duration>) -> bool {
        self.assert_owner();
        let deadline = limit.map(|limit| Instant::now() + limit);
        loop {
            if self.signal.take() {
                return true;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            match left {
                Some(Duration::ZERO) => return false,
                _ if !self.signal.fall_asleep(PARKED) => {}
                Some(left) => thread::park_timeout(left),
                None => thread::park(),
            }
            self.signal.wake_up(PARKED);
        }
    }

    /// Returns a handle for sleeps on file descriptors. `None` if the system has no descriptor to spare for it.
    pub(crate) fn sleeper(&self) -> Option<Sleeper<'_>> {
        self.assert_owner();
        if self.signal.event.get().is_none() {
            let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
            self.signal.event.get_or_init(|| event);
        }
        self.signal.event.get().map(|event| Sleeper { signal: &self.signal, event: event.as_fd() })
    }

    fn assert_owner(&self) {
        debug_assert_eq!(
            self.signal.thread.id(),
            thread::current().id(),
            "a parker belongs to the thread that made it"
        );
    }
}

/// Calls `work` with the calling thread's parker.
pub(crate) fn with_parker<R>(work: impl FnOnce(&ThreadParker) -> R) -> R {
    PARKER.with(work)
}

thread_local! {
    static PARKER: ThreadParker = ThreadParker::current();
}

/// Parker whose thread sleeps on file descriptors.
#[derive(Debug)]
pub(crate) struct Sleeper<'a> {
    signal: &'a Signal,
    event: BorrowedFd<'a>,
}

impl Sleeper<'_> {
    /// Returns true if the waker has fired since the last call.
    pub(crate) fn take_signal(&self) -> bool {
        self.signal.take()
    }

    /// Sleeps until the waker fires, one of `descriptors` is ready, or `limit` expires. May return earlier.
    pub(crate) fn sleep(&self, descriptors: &[(BorrowedFd<'_>, PollFlags)], limit: Option<Duration>) {
        if !self.signal.fall_asleep(POLLING) {
            return;
        }
        let mut descriptors: Vec<_> = std::iter::once(&(self.event, PollFlags::IN))
            .chain(descriptors)
            .map(|(descriptor, flags)| PollFd::from_borrowed_fd(*descriptor, *flags))
            .collect();
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        // An error means an interruption: the caller checks again.
        let _ = poll(&mut descriptors, limit.as_ref());
        self.signal.wake_up(POLLING);
        if descriptors[0].revents().contains(PollFlags::IN) {
            // Clear the rest of a wake, possibly of one that arrived just after an earlier sleep ended.
            let _ = read(self.event, &mut [0; 8]);
        }
    }
}

#[derive(Debug)]
struct Signal {
    state: AtomicU8,
    thread: Thread,
    /// Wakes the thread while it sleeps on file descriptors. Created before the first such sleep.
    event: OnceLock<OwnedFd>,
}

/// The thread has work, or looks for some.
const AWAKE: u8 = 0;
/// The waker has fired, and the thread has not seen it yet.
const WOKEN: u8 = 1;
/// Asleep in `thread::park`, or about to be.
const PARKED: u8 = 2;
/// Asleep on file descriptors, or about to be.
const POLLING: u8 = 3;

impl Signal {
    fn take(&self) -> bool {
        self.state.compare_exchange(WOKEN, AWAKE, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Returns `false` if the waker has fired already.
    fn fall_asleep(&self, how: u8) -> bool {
        // Release: a waker that reads this state also sees `event`, which ends that sleep.
        self.state.compare_exchange(AWAKE, how, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Marks the thread as awake again. A pending wake remains to be taken.
    fn wake_up(&self, how: u8) {
        let _ = self.state.compare_exchange(how, AWAKE, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // No system call if the thread is awake, because it checks before it sleeps. Nor for a second wake before that
        // check.
        match self.state.swap(WOKEN, Ordering::AcqRel) {
            PARKED => self.thread.unpark(),
            POLLING => {
                if let Some(event) = self.event.get() {
                    // The counter holds far more wakes than there can be threads between this swap and this write.
                    let _ = write(event, &1_u64.to_ne_bytes());
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_before_the_park_is_not_lost() {
        let parker = ThreadParker::current();
        parker.waker().wake_by_ref();
        parker.waker().wake_by_ref();
        parker.park();
        assert!(!parker.park_timeout(Duration::ZERO), "two wakes before one park count once");
    }

    #[test]
    fn an_unpark_by_somebody_else_does_not_end_the_park() {
        let parker = ThreadParker::current();
        thread::current().unpark();
        assert!(!parker.park_timeout(Duration::from_millis(1)));
    }

    #[test]
    fn a_thread_is_woken_by_another_as_often_as_it_sleeps() {
        let parker = ThreadParker::current();
        let (ask, asked) = std::sync::mpsc::channel::<Waker>();
        let other = thread::spawn(move || asked.iter().for_each(Waker::wake));
        for _ in 0..1000 {
            ask.send(parker.waker().clone()).unwrap();
            parker.park();
        }
        drop(ask);
        other.join().unwrap();
    }
}
