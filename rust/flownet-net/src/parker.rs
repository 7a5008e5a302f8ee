//! Lets a plain thread wait where the core expects a [`Waker`].
//!
//! # Invariants
//! - I1: a wake between two parks is remembered: the next park returns at once.
//! - I2: a park returns only after a wake (or its timeout), never spuriously.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::task::{Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// A thread's own waker and the place where it sleeps until woken.
///
/// Only the thread that made it may park on it; wakers go anywhere.
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
    /// A parker for the calling thread.
    pub fn current() -> Self {
        let signal = Arc::new(Signal { woken: AtomicBool::new(false), thread: thread::current() });
        let waker = Waker::from(Arc::clone(&signal));
        Self { signal, waker }
    }

    /// The waker to register with a poll. Cloning it is a counter increment.
    pub fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Sleeps until the waker fires; returns at once if it fired since the last park.
    pub fn park(&self) {
        self.assert_owner();
        while !self.take_signal() {
            thread::park();
        }
    }

    /// Like [`park`](Self::park), at most for `timeout`. `true` if woken, `false` if the time ran out.
    pub fn park_timeout(&self, timeout: Duration) -> bool {
        self.assert_owner();
        let start = Instant::now();
        loop {
            if self.take_signal() {
                return true;
            }
            let Some(left) = timeout.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) else {
                return false;
            };
            thread::park_timeout(left);
        }
    }

    fn take_signal(&self) -> bool {
        self.signal.woken.swap(false, Ordering::Acquire)
    }

    fn assert_owner(&self) {
        debug_assert_eq!(
            self.signal.thread.id(),
            thread::current().id(),
            "a parker belongs to the thread that made it"
        );
    }
}

/// Calls `poll` on this thread until it is ready, asleep in between until the waker it was given fires.
///
/// The thread's parker is kept from one wait to the next; a wake left over from an earlier wait costs one more poll.
pub fn wait_until<T>(mut poll: impl FnMut(&Waker) -> Poll<T>) -> T {
    PARKER.with(|parker| {
        loop {
            if let Poll::Ready(value) = poll(parker.waker()) {
                return value;
            }
            parker.park();
        }
    })
}

thread_local! {
    static PARKER: ThreadParker = ThreadParker::current();
}

#[derive(Debug)]
struct Signal {
    woken: AtomicBool,
    thread: Thread,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // A second wake before the thread has looked adds nothing: skip the system call.
        if !self.woken.swap(true, Ordering::Release) {
            self.thread.unpark();
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
