//! Test helpers shared by the scenarios.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::{BufferPool, BufferPoolSettings, MemoryError, MemorySegment, SegmentListener, SegmentPool};

/// Bytes per segment if the size does not matter.
pub(super) const SEGMENT_BYTES: usize = 16;

pub(super) fn segments(total: usize) -> Arc<SegmentPool> {
    SegmentPool::new(total, SEGMENT_BYTES).unwrap()
}

/// Settings of a gate's pool: one lane, no quota, no overdraft.
pub(super) fn sized(min: usize, max: impl Into<Option<usize>>) -> BufferPoolSettings {
    BufferPoolSettings { min, max: max.into(), lanes: 1, max_per_lane: usize::MAX, max_overdraft: 0 }
}

pub(super) fn take(pool: &BufferPool, count: usize) -> Vec<MemorySegment> {
    (0..count).map(|_| pool.try_take(0).expect("the pool has a segment")).collect()
}

/// Checks that all segments were returned. Call it after dropping every buffer pool and segment.
pub(super) fn assert_all_home(segments: &Arc<SegmentPool>) {
    assert_eq!(segments.available(), segments.total(), "every segment is home");
    assert_eq!(segments.guaranteed(), 0, "no guarantee is left");
    assert_eq!(Arc::strong_count(segments), 1, "nothing keeps the segment pool");
}

/// Counts its wake-ups.
#[derive(Default)]
pub(super) struct CountingWaker(AtomicUsize);

impl CountingWaker {
    pub(super) fn pair() -> (Arc<Self>, Waker) {
        let counter = Arc::new(Self::default());
        (Arc::clone(&counter), Waker::from(counter))
    }

    pub(super) fn wakes(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Accepts or refuses offered segments, and counts the calls.
pub(super) struct Listener {
    accepts: bool,
    calls: AtomicUsize,
    kept: Mutex<Vec<MemorySegment>>,
}

impl Listener {
    pub(super) fn accepting() -> Arc<Self> {
        Self::new(true)
    }

    pub(super) fn refusing() -> Arc<Self> {
        Self::new(false)
    }

    pub(super) fn new(accepts: bool) -> Arc<Self> {
        Arc::new(Self { accepts, calls: AtomicUsize::new(0), kept: Mutex::default() })
    }

    pub(super) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    pub(super) fn kept(&self) -> usize {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Takes the accepted segments.
    pub(super) fn empty(&self) -> Vec<MemorySegment> {
        std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl SegmentListener for Listener {
    fn on_segment(&self, segment: MemorySegment) -> Option<MemorySegment> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if !self.accepts {
            return Some(segment);
        }
        self.kept.lock().unwrap().push(segment);
        None
    }
}

/// Wakes a thread that waits in [`block_on`].
struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Parks the thread until `poll` is ready. A missing wake-up fails the test.
pub(super) fn block_on<T>(mut poll: impl FnMut(&Waker) -> Poll<T>) -> T {
    let waker = Waker::from(Arc::new(ThreadWaker(thread::current())));
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Poll::Ready(ready) = poll(&waker) {
            return ready;
        }
        thread::park_timeout(Duration::from_secs(30));
        assert!(Instant::now() < deadline, "a wake-up was lost");
    }
}

pub(super) fn wait_take(pool: &BufferPool, lane: usize) -> Result<MemorySegment, MemoryError> {
    block_on(|waker| pool.poll_take(lane, waker))
}
