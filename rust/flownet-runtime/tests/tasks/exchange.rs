//! Records arrive: all of them, once, in order, wherever the tasks run.

use std::collections::BTreeMap;

use flownet_core::Target;
use flownet_core::keygroup::{hash_key, key_group, subtask_of};
use flownet_runtime::spec::Partitioner;
use flownet_runtime::{Outputs, SourceStatus, TaskError};

use crate::chains::{Count, Numbers, PassOn, SeenRecords, Sink, WritingSource, number};
use crate::rig::Job;

const N: u64 = 20_000;

#[test]
fn records_pass_three_tasks_in_order_within_a_process_and_between_two() {
    for placement in [[0, 0, 0], [0, 1, 0], [1, 1, 0]] {
        let mut job = Job::new(2);
        let seen = SeenRecords::default();
        let source = job.vertex("source", &placement[..1]);
        let middle = job.vertex("middle", &placement[1..2]);
        let sink = job.vertex("sink", &placement[2..]);
        job.edge(source, middle, Partitioner::Forward);
        job.edge(middle, sink, Partitioner::Forward);
        job.run(source, |_| Numbers::up_to(N));
        job.run(middle, |_| PassOn { copies: 1 });
        job.run(sink, |_| Sink::new(&seen));

        let running = job.start();
        running.join();

        assert!(seen.numbers().into_iter().eq(0..N));
        let metrics = running.task("middle", 0).metrics();
        assert_eq!((metrics.records_in, metrics.records_out), (N, N));
        assert_eq!(metrics.bytes_in_local + metrics.bytes_in_remote, N * 12);
        assert_eq!(metrics.bytes_in_remote == 0, placement[0] == placement[1]);
        assert_eq!(metrics.bytes_out, N * 12);
        running.finish_and_assert_all_segments_home();
    }
}

#[test]
fn a_keyed_count_is_exact_with_a_few_tiny_segments() {
    // Eight partitions and gates share what little there is: everything waits for everything.
    let mut job = Job::with_segments(2, 60, 64);
    let seen = SeenRecords::default();
    let source = job.vertex("source", &[0, 1]);
    let count = job.vertex("count", &[0, 1]);
    let sink = job.vertex("sink", &[0]);
    job.edge(source, count, Partitioner::KeyGroup);
    job.edge(count, sink, Partitioner::Rebalance);
    let key = |n: u64| Target::KeyHash(hash_key(&(n % 100).to_le_bytes()));
    job.run(source, |_| Modulo(Numbers::keyed(5000, key)));
    job.run(count, |_| Count { counts: None });
    job.run(sink, |_| Sink::new(&seen));

    job.start().join_and_assert_all_segments_home();

    let counts: BTreeMap<u64, u64> =
        seen.records().iter().map(|(_, record)| (number(&record[8..]), number(record))).collect();
    assert_eq!(counts, (0..100).map(|key| (key, 100)).collect());
    assert_eq!(seen.len(), 100, "each key is counted in one place");
}

/// Emits the number's key instead of the number.
struct Modulo(Numbers);

impl WritingSource for Modulo {
    fn write(&mut self, out: &mut Outputs) -> Result<SourceStatus, TaskError> {
        let numbers = &mut self.0;
        for _ in 0..100 {
            if numbers.next == numbers.end {
                return Ok(SourceStatus::Finished);
            }
            out.emit(0, (numbers.target)(numbers.next), &(numbers.next % 100).to_le_bytes())?;
            numbers.next += 1;
        }
        Ok(SourceStatus::More)
    }
}

#[test]
fn a_union_reads_all_its_inputs_and_tells_them_apart() {
    let mut job = Job::new(2);
    let seen = SeenRecords::default();
    let left = job.vertex("left", &[0]);
    let right = job.vertex("right", &[1, 1]);
    let sink = job.vertex("sink", &[0]);
    job.edge(left, sink, Partitioner::Rebalance);
    job.edge(right, sink, Partitioner::Rebalance);
    job.run(left, |_| Numbers::up_to(1000));
    job.run(right, |_| Numbers::up_to(300));
    job.run(sink, |_| Sink::new(&seen));

    job.start().join_and_assert_all_segments_home();

    let of = |input| seen.records().iter().filter(|(from, _)| *from == input).count();
    assert_eq!((of(0), of(1)), (1000, 600));
}

#[test]
fn a_stream_used_twice_reaches_both_readers() {
    let mut job = Job::new(2);
    let (one, other) = (SeenRecords::default(), SeenRecords::default());
    let source = job.vertex("source", &[0]);
    let left = job.vertex("left", &[0]);
    let right = job.vertex("right", &[1]);
    job.edge(source, left, Partitioner::Forward);
    job.edge(source, right, Partitioner::Forward);
    job.run(source, |_| Numbers::up_to(1000));
    job.run(left, |_| Sink::new(&one));
    job.run(right, |_| Sink::new(&other));

    job.start().join_and_assert_all_segments_home();

    assert!(one.numbers().into_iter().eq(0..1000) && other.numbers().into_iter().eq(0..1000));
}

type Choose = fn(u64) -> Target;
type RouteCheck = fn(u64, u32) -> bool;

#[test]
fn each_partitioner_brings_a_record_where_it_belongs() {
    let key = |n: u64| Target::KeyHash(hash_key(&n.to_le_bytes()));
    let cases: [(Partitioner, Choose, RouteCheck); 3] = [
        (Partitioner::Broadcast, |_| Target::Any, |_, _| true),
        (Partitioner::Custom, |n| Target::Subpartition((n % 3) as u32), |n, subtask| n % 3 == u64::from(subtask)),
        (Partitioner::KeyGroup, key, |n, subtask| {
            subtask_of(key_group(hash_key(&n.to_le_bytes()), 128), 128, 3) == subtask
        }),
    ];
    for (partitioner, target, belongs) in cases {
        let mut job = Job::new(2);
        let seen: Vec<_> = (0..3).map(|_| SeenRecords::default()).collect();
        let source = job.vertex("source", &[0]);
        let sink = job.vertex("sink", &[0, 1, 1]);
        job.edge(source, sink, partitioner);
        job.run(source, |_| Numbers::keyed(999, target));
        job.run(sink, |subtask| Sink::new(&seen[subtask as usize]));

        job.start().join_and_assert_all_segments_home();

        for (subtask, seen) in (0..).zip(&seen) {
            let expected: Vec<_> = (0..999).filter(|n| belongs(*n, subtask)).collect();
            assert_eq!(seen.numbers(), expected, "{partitioner:?} {subtask}");
        }
    }
}

#[test]
fn rebalance_shares_evenly_and_begins_at_different_places() {
    for (records, share) in [(1, 2), (401, 802)] {
        let mut job = Job::new(1);
        let seen: Vec<_> = (0..4).map(|_| SeenRecords::default()).collect();
        let source = job.vertex("source", &[0; 8]);
        let sink = job.vertex("sink", &[0; 4]);
        job.edge(source, sink, Partitioner::Rebalance);
        job.run(source, move |_| Numbers::up_to(records));
        job.run(sink, |subtask| Sink::new(&seen[subtask as usize]));

        job.start().join_and_assert_all_segments_home();

        // What one source has left over after whole rounds, the next begins behind.
        let shares: Vec<_> = seen.iter().map(SeenRecords::len).collect();
        assert_eq!(shares, [share; 4], "{records} of each of eight sources");
    }
}

#[test]
fn a_record_larger_than_all_memory_passes_and_one_over_the_limit_does_not() {
    for (bytes, passes) in [(200_000, true), (crate::rig::MAX_RECORD_BYTES + 1, false)] {
        let mut job = Job::with_segments(2, 32, 1024);
        let seen = SeenRecords::default();
        let source = job.vertex("source", &[0]);
        let sink = job.vertex("sink", &[1]);
        job.edge(source, sink, Partitioner::Forward);
        job.run(source, |_| Large(bytes));
        job.run(sink, |_| Sink::new(&seen));

        let running = job.start();
        let result = running.task("source", 0).join();
        if passes {
            running.join();
            assert_eq!(seen.records()[0].1.len(), bytes);
        } else {
            let error = result.unwrap_err().to_string();
            assert_eq!(error, format!("record of {bytes} bytes, limit {}", crate::rig::MAX_RECORD_BYTES));
        }
        running.finish_and_assert_all_segments_home();
    }
}

struct Large(usize);

impl WritingSource for Large {
    fn write(&mut self, out: &mut Outputs) -> Result<SourceStatus, TaskError> {
        out.emit(0, Target::Any, &vec![7; self.0])?;
        Ok(SourceStatus::Finished)
    }
}
