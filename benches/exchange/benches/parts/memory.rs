//! Segments and builders.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use flownet_benches::{LENGTH_BYTES, new_pool};
use flownet_memory::{BufferBuilder, BufferPool};

/// Taking a segment and giving it back: by one thread, by two at once, and from thread to thread as an exchange does.
pub(crate) fn segment_pool(c: &mut Criterion) {
    let pool = new_pool(64, 1);
    let mut group = c.benchmark_group("segment_pool");
    group.throughput(Throughput::Elements(1));
    group.bench_function("take_recycle/threads=1", |b| b.iter(|| drop(black_box(pool.try_take(0)))));
    group.throughput(Throughput::Elements(2));
    group.bench_function("take_recycle/threads=2", |b| b.iter_custom(|iters| take_on_two_threads(&pool, iters)));
    group.throughput(Throughput::Elements(1));
    group.bench_function("take_here_recycle_there/threads=2", |b| b.iter_custom(|iters| hand_over(&pool, iters)));
    group.finish();
}

fn take_on_two_threads(pool: &BufferPool, iters: u64) -> Duration {
    let barrier = Barrier::new(2);
    let work = || {
        barrier.wait();
        let start = Instant::now();
        for _ in 0..iters {
            drop(black_box(pool.try_take(0)));
        }
        start.elapsed()
    };
    thread::scope(|scope| {
        let other = scope.spawn(work);
        work().max(other.join().unwrap_or_default())
    })
}

fn hand_over(pool: &BufferPool, iters: u64) -> Duration {
    let (sender, receiver) = std::sync::mpsc::sync_channel(32);
    thread::scope(|scope| {
        let taker = scope.spawn(move || receiver.into_iter().for_each(drop));
        let start = Instant::now();
        for _ in 0..iters {
            let segment = loop {
                // The pool is larger than the channel, so the other thread always has one to give back.
                match pool.try_take(0) {
                    Some(segment) => break segment,
                    None => thread::yield_now(),
                }
            };
            if sender.send(segment).is_err() {
                break;
            }
        }
        drop(sender);
        let _ = taker.join();
        start.elapsed()
    })
}

/// One segment filled with records, committed one by one, and read.
pub(crate) fn buffer_builder(c: &mut Criterion) {
    let pool = new_pool(16, 1);
    let mut group = c.benchmark_group("buffer_builder");
    for record_bytes in [8, 64, 1024] {
        let record = vec![7; record_bytes + LENGTH_BYTES];
        let records = pool.segment_bytes() / record.len();
        group.throughput(Throughput::Elements(records as u64));
        group.bench_function(format!("append_commit/record_bytes={record_bytes}"), |b| {
            b.iter(|| {
                let segment = pool.try_take(0).expect("the last one came home");
                let (mut builder, mut consumer) = BufferBuilder::new(segment);
                let record = black_box(record.as_slice());
                while builder.writable_bytes() >= record.len() {
                    builder.append(record);
                    builder.commit();
                }
                builder.finish();
                consumer.poll()
            });
        });
    }
    group.finish();
}
