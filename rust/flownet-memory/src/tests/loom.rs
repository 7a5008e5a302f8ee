//! Models of all interleavings of two or three threads, with at most two preemptions.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p flownet-memory --profile loom --lib loom`. Loom reports a lost
//! wake-up as a deadlock, and an unordered access to a segment's bytes as a race on that byte's shadow cell.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Wake, Waker};

use loom::sync::Notify;
use loom::thread;

use crate::{
    Buffer, BufferBuilder, BufferPool, BufferPoolSettings, MemoryError, MemorySegment, SegmentListener, SegmentPool,
};

fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(f);
}

/// Segments of 2 bytes: each byte costs a shadow cell.
fn segments(total: usize) -> Arc<SegmentPool> {
    SegmentPool::new(total, 2).unwrap()
}

fn sized(min: usize, max: usize) -> BufferPoolSettings {
    BufferPoolSettings { min, max: Some(max), lanes: 1, max_per_lane: usize::MAX, max_overdraft: 0 }
}

fn assert_all_home(segments: &SegmentPool) {
    assert_eq!((segments.available(), segments.guaranteed()), (segments.total(), 0));
}

struct NotifyWaker(Notify);

impl Wake for NotifyWaker {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

fn block_on<T>(mut poll: impl FnMut(&Waker) -> Poll<T>) -> T {
    let notify = Arc::new(NotifyWaker(Notify::new()));
    let waker = Waker::from(Arc::clone(&notify));
    loop {
        if let Poll::Ready(ready) = poll(&waker) {
            return ready;
        }
        notify.0.wait();
    }
}

fn wait_take(pool: &BufferPool) -> Result<MemorySegment, MemoryError> {
    block_on(|waker| pool.poll_take(0, waker))
}

#[test]
fn loom_committed_bytes_are_visible_and_others_are_not() {
    model(|| {
        let segments = SegmentPool::new(1, 3).unwrap();
        let pool = segments.create_buffer_pool(sized(1, 1)).unwrap();
        let (mut builder, mut consumer) = BufferBuilder::new(pool.try_take(0).unwrap());
        let writer = thread::spawn(move || {
            builder.append(&[1]);
            builder.commit();
            assert!(builder.records().try_append_both(&[2], &[]));
        });
        let mut read = Vec::new();
        read.extend(consumer.poll().into_iter().flat_map(|buffer| buffer.to_vec()));
        let drained = consumer.is_drained();
        read.extend(consumer.poll().into_iter().flat_map(|buffer| buffer.to_vec()));
        assert!([1, 2].starts_with(&read));
        assert!(!drained || read.len() == 2, "the end is never seen before the bytes");
        writer.join().unwrap();
        read.extend(consumer.poll().into_iter().flat_map(|buffer| buffer.to_vec()));
        assert_eq!(read, [1, 2]);
        assert!(consumer.is_drained());
        drop((consumer, pool));
        assert_all_home(&segments);
    });
}

#[test]
fn loom_last_drop_among_clones_sends_the_segment_home_once() {
    model(|| {
        let segments = segments(1);
        let pool = segments.create_buffer_pool(sized(1, 1)).unwrap();
        let mut segment = pool.try_take(0).unwrap();
        segment.as_mut_slice().fill(7);
        let buffer = Buffer::from_segment(segment, 2);
        let readers: Vec<_> = (0..2)
            .map(|at| {
                let buffer = buffer.slice(at..at + 1);
                thread::spawn(move || assert_eq!(*buffer.clone(), [7]))
            })
            .collect();
        drop(buffer);
        // The next owner writes as soon as it can: unordered with a read, this is a race.
        wait_take(&pool).unwrap().as_mut_slice().fill(9);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        drop(pool);
        assert_all_home(&segments);
    });
}

#[test]
fn loom_the_last_part_sends_its_segment_home_once() {
    model(|| {
        let segments = segments(1);
        let pool = segments.create_buffer_pool(sized(1, 1)).unwrap();
        let users: Vec<_> = pool
            .try_take(0)
            .unwrap()
            .split(2)
            .zip([1, 2])
            .map(|(part, byte)| {
                thread::spawn(move || {
                    let (mut builder, mut consumer) = BufferBuilder::new(part);
                    assert_eq!(builder.append(&[byte, byte]), 1);
                    drop(builder);
                    assert_eq!(*consumer.poll().unwrap(), [byte]);
                })
            })
            .collect();
        // The next owner writes as soon as it can: unordered with a use of either part, this is a race.
        wait_take(&pool).unwrap().as_mut_slice().fill(9);
        users.into_iter().for_each(|user| user.join().unwrap());
        drop(pool);
        assert_all_home(&segments);
    });
}

#[test]
fn loom_a_copied_consumer_and_its_builder_share_the_way_home() {
    model(|| {
        let segments = segments(1);
        let pool = segments.create_buffer_pool(sized(1, 1)).unwrap();
        let (mut builder, mut consumer) = BufferBuilder::new(pool.try_take(0).unwrap());
        let mut copy = consumer.copy();
        let reader = thread::spawn(move || {
            let buffer = copy.poll();
            drop(copy);
            assert!(buffer.is_none_or(|buffer| buffer[0] == 1));
        });
        builder.append(&[1]);
        builder.commit();
        drop(builder);
        assert_eq!(*consumer.poll().unwrap(), [1]);
        drop(consumer);
        wait_take(&pool).unwrap().as_mut_slice().fill(9);
        reader.join().unwrap();
        drop(pool);
        assert_all_home(&segments);
    });
}

#[test]
fn loom_no_wake_up_is_lost_between_poll_take_and_recycle() {
    model(|| {
        let segments = segments(1);
        let pool = segments.create_buffer_pool(sized(1, 1)).unwrap();
        let segment = pool.try_take(0).unwrap();
        let recycler = thread::spawn(move || drop(segment));
        let other = Arc::clone(&pool);
        let taker = thread::spawn(move || drop(wait_take(&other).unwrap()));
        drop(wait_take(&pool).unwrap());
        recycler.join().unwrap();
        taker.join().unwrap();
        assert!(pool.is_available());
        drop(pool);
        assert_all_home(&segments);
    });
}

#[test]
fn loom_no_wake_up_is_lost_between_poll_available_and_recycle() {
    model(|| {
        let segments = segments(2);
        let settings = BufferPoolSettings { max_per_lane: 1, ..sized(2, 2) };
        let pool = segments.create_buffer_pool(settings).unwrap();
        let segment = pool.try_take(0).unwrap();
        let recycler = thread::spawn(move || drop(segment));
        if !pool.is_available() {
            block_on(|waker| pool.poll_available(waker)).unwrap();
        }
        assert!(pool.is_available());
        assert!(pool.try_take(0).is_some());
        recycler.join().unwrap();
        drop(pool);
        assert_all_home(&segments);
    });
}

#[test]
fn loom_pools_blocked_on_the_segment_pool_all_make_progress() {
    model(|| {
        let segments = segments(2);
        let greedy = segments.create_buffer_pool(BufferPoolSettings { max_overdraft: 1, ..sized(0, 1) }).unwrap();
        let held = (greedy.try_take(0).unwrap(), greedy.try_take(0).unwrap());
        let blocked: Vec<_> = (0..2)
            .map(|_| {
                let pool = segments.create_buffer_pool(sized(0, 1)).unwrap();
                thread::spawn(move || drop(wait_take(&pool).unwrap()))
            })
            .collect();
        drop(held);
        blocked.into_iter().for_each(|pool| pool.join().unwrap());
        drop(greedy);
        assert_all_home(&segments);
    });
}

#[test]
fn loom_a_hard_wait_for_overdraft_is_woken_by_another_pools_segment() {
    model(|| {
        let segments = segments(2);
        let other = segments.create_buffer_pool(sized(1, 1)).unwrap();
        let pool = segments.create_buffer_pool(BufferPoolSettings { max_overdraft: 1, ..sized(1, 1) }).unwrap();
        let theirs = other.try_take(0).unwrap();
        let ours = pool.try_take(0).unwrap();
        let destroyer = thread::spawn(move || drop(other));
        let recycler = thread::spawn(move || drop(theirs));
        drop(wait_take(&pool).unwrap());
        destroyer.join().unwrap();
        recycler.join().unwrap();
        drop((ours, pool));
        assert_all_home(&segments);
    });
}

#[test]
fn loom_destroy_racing_recycle_leaks_nothing() {
    model(|| {
        let segments = segments(2);
        let pool = segments.create_buffer_pool(sized(2, 2)).unwrap();
        let (first, second) = (pool.try_take(0).unwrap(), pool.try_take(0).unwrap());
        let destroyer = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.destroy())
        };
        let recycler = thread::spawn(move || drop(first));
        drop(second);
        destroyer.join().unwrap();
        recycler.join().unwrap();
        assert_eq!(pool.held(), 0);
        drop(pool);
        assert_all_home(&segments);
    });
}

#[test]
fn loom_destroy_releases_a_blocked_taker() {
    model(|| {
        let segments = segments(1);
        let pool = segments.create_buffer_pool(sized(1, 1)).unwrap();
        let segment = pool.try_take(0).unwrap();
        let destroyer = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.destroy())
        };
        let recycler = thread::spawn(move || drop(segment));
        assert!(wait_take(&pool).map(drop).err().is_none_or(|error| error == MemoryError::Closed));
        destroyer.join().unwrap();
        recycler.join().unwrap();
        drop(pool);
        assert_all_home(&segments);
    });
}

#[test]
fn loom_shrinking_racing_recycle_serves_the_new_pool() {
    model(|| {
        let segments = segments(2);
        let wide = segments.create_buffer_pool(sized(1, 2)).unwrap();
        let (first, second) = (wide.try_take(0).unwrap(), wide.try_take(0).unwrap());
        let recyclers = [thread::spawn(move || drop(first)), thread::spawn(move || drop(second))];
        let narrow = segments.create_buffer_pool(sized(0, 1)).unwrap();
        drop(wait_take(&narrow).unwrap());
        recyclers.into_iter().for_each(|recycler| recycler.join().unwrap());
        assert!(wide.is_available() && narrow.is_available());
        assert_eq!((wide.held(), narrow.held()), (1, 1));
        drop((wide, narrow));
        assert_all_home(&segments);
    });
}

#[test]
fn loom_what_stands_and_what_a_new_pool_is_guaranteed_fit_together() {
    model(|| {
        let segments = segments(3);
        let wide = segments.create_buffer_pool(sized(1, 4)).unwrap();
        let stands = {
            let wide = Arc::clone(&wide);
            thread::spawn(move || (0..2).filter(|_| wide.try_stand()).count())
        };
        let narrow = segments.create_buffer_pool(sized(1, 1));
        let standing = stands.join().unwrap();
        assert_eq!(wide.standing(), standing);
        assert!(wide.size() > standing, "one is left to circulate");
        match &narrow {
            Ok(narrow) => assert_eq!((standing <= 1, narrow.size()), (true, 1)),
            Err(_) => assert_eq!(standing, 2, "refused only where what stands leaves too little"),
        }
        wide.end_standing(standing);
        drop((narrow, wide));
        assert_all_home(&segments);
    });
}

#[test]
fn loom_a_listener_is_served_or_refused_when_it_races_a_recycle() {
    struct SegmentStore(Mutex<Option<MemorySegment>>);
    impl SegmentListener for SegmentStore {
        fn on_segment(&self, segment: MemorySegment) -> Option<MemorySegment> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(segment)
        }
    }
    model(|| {
        let segments = segments(1);
        let pool = segments.create_buffer_pool(sized(1, 1)).unwrap();
        let segment = pool.try_take(0).unwrap();
        let recycler = thread::spawn(move || drop(segment));
        let listener = Arc::new(SegmentStore(Mutex::new(None)));
        let queued = pool.offer_to(listener.clone());
        recycler.join().unwrap();
        let kept = listener.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        assert_eq!((kept.is_some(), pool.is_available()), (queued, !queued));
        drop((kept, pool));
        assert_all_home(&segments);
    });
}
