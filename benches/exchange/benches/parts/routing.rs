//! Subpartitions and selectors.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use flownet_benches::{attach_all, new_partition, poll_buffers};
use flownet_core::keygroup::{default_max_parallelism, hash_key};
use flownet_core::{Selection, Selector, SubpartitionIndex, Target};

/// All of emitting and polling but the copying: one byte stands for a full buffer.
pub(crate) fn subpartition(c: &mut Criterion) {
    let mut group = c.benchmark_group("subpartition");
    let first = SubpartitionIndex::new(0);

    let mut partition = new_partition(1, 16);
    let cells = attach_all(&partition);
    group.throughput(Throughput::Elements(1));
    group.bench_function("emit_flush_poll/buffers=1", |b| {
        b.iter(|| {
            partition.try_write(first, black_box(&[7]));
            partition.end_record(first);
            partition.flush(first);
            poll_buffers(&cells, |buffer| drop(black_box(buffer)));
        });
    });

    let mut partition = new_partition(1, 16);
    let cells = attach_all(&partition);
    let full = vec![7; flownet_benches::SEGMENT_BYTES];
    group.throughput(Throughput::Elements(8));
    group.bench_function("emit_poll/full_buffers=8", |b| {
        b.iter(|| {
            for _ in 0..8 {
                partition.try_write(first, black_box(&full));
                partition.end_record(first);
            }
            poll_buffers(&cells, |buffer| drop(black_box(buffer)));
        });
    });

    let mut partition = new_partition(1, 16);
    let _cells = attach_all(&partition);
    partition.try_write(first, &[7]);
    partition.end_record(first);
    partition.flush(first);
    group.throughput(Throughput::Elements(1));
    group.bench_function("flush_again/reader=behind", |b| b.iter(|| partition.flush(black_box(first))));
    group.finish();
}

/// Choosing where a record goes, the hash of its key included where there is one.
pub(crate) fn selector(c: &mut Criterion) {
    let mut group = c.benchmark_group("selector");
    group.throughput(Throughput::Elements(RECORDS));
    for subpartitions in [1, 2, 100, 1000] {
        let mut in_turn = Selector::rebalance(0);
        group.bench_function(format!("rr/subpartitions={subpartitions}"), |b| {
            b.iter(|| {
                (0..RECORDS).map(|_| select(&mut in_turn, Target::Any, subpartitions)).fold(0, u32::wrapping_add)
            });
        });
    }
    for subpartitions in [2, 100, 1000] {
        let mut by_key = Selector::key_group(default_max_parallelism(subpartitions));
        group.bench_function(format!("key_group_hash/subpartitions={subpartitions}"), |b| {
            b.iter(|| {
                let target = |value: u64| Target::KeyHash(hash_key(&black_box(value).to_le_bytes()));
                let chosen = (0..RECORDS).map(|value| select(&mut by_key, target(value), subpartitions));
                chosen.fold(0, u32::wrapping_add)
            });
        });
    }
    group.finish();
}

#[inline]
fn select(selector: &mut Selector, target: Target, subpartitions: u32) -> u32 {
    match selector.select(target, black_box(subpartitions)) {
        Ok(Selection::One(index)) => index.get(),
        Ok(Selection::All) | Err(_) => 0,
    }
}

const RECORDS: u64 = 1000;
