//! Wakers for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::thread::Thread;

/// A waker that counts.
#[derive(Debug, Default)]
pub(crate) struct CountingWaker(AtomicUsize);

impl CountingWaker {
    pub(crate) fn new() -> (Waker, Arc<Self>) {
        let counter = Arc::new(Self::default());
        (Arc::clone(&counter).into(), counter)
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A waker that unparks the thread it was made on.
pub(crate) struct ThreadWaker(Thread);

impl ThreadWaker {
    pub(crate) fn current() -> Waker {
        Arc::new(Self(std::thread::current())).into()
    }
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
