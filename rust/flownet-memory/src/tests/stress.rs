//! Real threads: no segment is lost or shared twice, and no waiter is left asleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::support::{Listener, assert_all_home, block_on, segments, sized, wait_take};
use crate::{BufferBuilder, BufferPool, BufferPoolSettings, MemoryError, MemorySegment, SegmentPool};

const ROUNDS: usize = 20_000;

/// Marks a segment and checks that no other thread marks it meanwhile.
fn use_alone(segment: &mut MemorySegment, mark: u8) {
    segment.as_mut_slice().fill(mark);
    std::hint::spin_loop();
    assert!(segment.as_mut_slice().iter().all(|byte| *byte == mark), "a segment has one owner");
}

fn take_and_give_back(pool: &BufferPool, mark: u8) {
    for round in 0..ROUNDS {
        if round % 3 == 0 {
            block_on(|waker| pool.poll_available(waker)).unwrap();
        }
        let mut segment = wait_take(pool, usize::from(mark) % 2).unwrap();
        use_alone(&mut segment, mark);
        if let Some(mut second) = pool.try_take(0) {
            use_alone(&mut second, mark);
        }
    }
}

#[test]
fn threads_that_take_and_give_back_keep_counts_and_wake_ups_consistent() {
    let segments = segments(5);
    let settings = |max| BufferPoolSettings { min: 1, max, lanes: 2, max_per_lane: 3, max_overdraft: 1 };
    let one = segments.create_buffer_pool(settings(Some(2))).unwrap();
    let other = segments.create_buffer_pool(settings(None)).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let coming_and_going = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // Refused while the other pools use more than they were promised.
                let Ok(third) = segments.create_buffer_pool(sized(2, 3)) else { continue };
                drop(wait_take(&third, 0).unwrap());
                let late = third.try_take(0);
                drop(third);
                drop(late);
            }
        });
        let takers: Vec<_> = [(&one, 1), (&one, 2), (&other, 3), (&other, 4)]
            .into_iter()
            .map(|(pool, mark)| scope.spawn(move || take_and_give_back(pool, mark)))
            .collect();
        takers.into_iter().for_each(|taker| taker.join().unwrap());
        stop.store(true, Ordering::Relaxed);
        coming_and_going.join().unwrap();
    });
    assert!(one.is_available() && other.is_available());
    assert_eq!((one.in_use(), other.in_use()), (0, 0));
    assert!(one.held() <= one.size() && other.held() <= other.size());
    drop((one, other));
    assert_all_home(&segments);
}

#[test]
fn destroying_a_pool_releases_every_blocked_thread() {
    for _ in 0..500 {
        let segments = segments(2);
        let pool = segments.create_buffer_pool(sized(1, 1)).unwrap();
        let held = pool.try_take(0);
        thread::scope(|scope| {
            let blocked: Vec<_> = (0..2).map(|_| scope.spawn(|| wait_take(&pool, 0).map(drop))).collect();
            scope.spawn(|| drop(held));
            pool.destroy();
            for result in blocked.into_iter().map(|thread| thread.join().unwrap()) {
                assert!(matches!(result, Ok(()) | Err(MemoryError::Closed)));
            }
        });
        drop(pool);
        assert_all_home(&segments);
    }
}

#[test]
fn every_listener_is_served_or_refused() {
    let segments = segments(2);
    let pool = segments.create_buffer_pool(sized(2, 2)).unwrap();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    drop(pool.try_take(0));
                    let listener = Listener::refusing();
                    if pool.offer_to(listener.clone()) {
                        // The holders of the segments return them without further help.
                        while listener.calls() == 0 {
                            thread::yield_now();
                        }
                    }
                }
            });
        }
    });
    assert!(pool.is_available());
    drop(pool);
    assert_all_home(&segments);
}

#[test]
fn a_reader_beside_its_writer_sees_every_byte_once_in_order() {
    const BYTES: usize = 1 << 20;
    let segments = SegmentPool::new(3, 1000).unwrap();
    let pool = segments.create_buffer_pool(sized(3, 3)).unwrap();
    let (send, receive) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut at, send) = (0, send);
            while at < BYTES {
                let (mut builder, consumer) = BufferBuilder::new(wait_take(&pool, 0).unwrap());
                send.send(consumer).unwrap();
                while !builder.is_full() {
                    at += builder.append(&[pattern(at), pattern(at + 1), pattern(at + 2)]);
                    builder.commit();
                }
            }
        });
        let mut at = 0;
        for mut consumer in receive {
            while !consumer.is_drained() {
                let Some(buffer) = consumer.poll() else {
                    thread::yield_now();
                    continue;
                };
                for byte in buffer.iter() {
                    assert_eq!(*byte, pattern(at));
                    at += 1;
                }
            }
        }
        assert!(at >= BYTES);
    });
    drop(pool);
    assert_all_home(&segments);
}

#[test]
fn clones_dropped_on_many_threads_send_the_segment_home_once() {
    let segments = segments(1);
    let pool: Arc<BufferPool> = segments.create_buffer_pool(sized(1, 1)).unwrap();
    for round in 0..1000 {
        let mut segment = wait_take(&pool, 0).unwrap();
        segment.as_mut_slice().fill(round as u8);
        let buffer = crate::Buffer::from_segment(segment, 8);
        thread::scope(|scope| {
            for _ in 0..2 {
                let buffer = buffer.clone();
                scope.spawn(move || assert!(buffer.iter().all(|byte| *byte == round as u8)));
            }
            drop(buffer);
        });
        assert!(pool.is_available());
    }
    drop(pool);
    assert_all_home(&segments);
}

fn pattern(at: usize) -> u8 {
    (at % 251) as u8
}
