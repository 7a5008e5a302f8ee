//! Shared state under real threads: no lost wake-up, no leak, no deadlock.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use flownet_memory::{Buffer, BufferPool, BufferPoolSettings, SegmentPool};

use super::pair::SEGMENT_BYTES;
use super::wakers::ThreadWaker;
use crate::channel::RemoteChannel;
use crate::credit::Backlog;
use crate::event::Event;
use crate::gate::InputGate;
use crate::ids::{ChannelIndex, PartitionId, SubpartitionIndex};
use crate::partition::ResultPartition;
use crate::sizing::PoolSizing;
use crate::subpartition::Element;

const PRODUCERS: u32 = 2;
const RECORDS: u32 = if cfg!(debug_assertions) { 20_000 } else { 200_000 };

fn pool(segments: &Arc<SegmentPool>, min: usize) -> Arc<BufferPool> {
    let settings = BufferPoolSettings { min, max: Some(min), ..PoolSizing::default().partition(1) };
    segments.create_buffer_pool(settings).unwrap()
}

/// Writes the numbers 0.. as records of four bytes, and waits for segments as a task does.
fn produce(mut partition: ResultPartition, flush: impl Fn(&mut ResultPartition, u32)) {
    let (sub, waker) = (SubpartitionIndex::new(0), ThreadWaker::current());
    for number in 0..RECORDS {
        let record = number.to_le_bytes();
        let mut written = 0;
        loop {
            written += partition.try_write(sub, &record[written..]);
            if written == record.len() {
                break;
            }
            while partition.poll_segment(sub, &waker).is_pending() {
                thread::park();
            }
        }
        partition.end_record(sub);
        flush(&mut partition, number);
    }
    partition.finish(true);
}

/// Reads all channels to their end and checks that each returns all numbers in order.
fn consume(gate: &InputGate) {
    let waker = ThreadWaker::current();
    let mut expected = [0u32; PRODUCERS as usize];
    let mut cut: [Vec<u8>; PRODUCERS as usize] = Default::default();
    let mut batch = Vec::new();
    loop {
        match gate.poll_batch(8, &mut batch, &waker) {
            Poll::Pending => thread::park(),
            Poll::Ready(Ok(0)) => break,
            Poll::Ready(read) => assert!(read.unwrap() <= 8),
        }
        for (channel, element) in batch.drain(..) {
            let Element::Data(data) = element else { continue };
            let bytes = &mut cut[channel.index()];
            bytes.extend_from_slice(&data);
            let (whole, rest) = bytes.as_chunks::<4>();
            for record in whole {
                assert_eq!(u32::from_le_bytes(*record), expected[channel.index()]);
                expected[channel.index()] += 1;
            }
            *bytes = rest.to_vec();
        }
    }
    assert_eq!(expected, [RECORDS; PRODUCERS as usize]);
}

fn run_local(flush: impl Fn(&mut ResultPartition, u32) + Send + Copy + 'static, uses_flusher: bool) {
    let segments = SegmentPool::new(8, SEGMENT_BYTES).unwrap();
    let gate = InputGate::new(PRODUCERS);
    let partitions: Vec<_> =
        (0..PRODUCERS).map(|id| ResultPartition::new(PartitionId::new(u64::from(id)), pool(&segments, 4), 1)).collect();
    let handles: Vec<_> = partitions.iter().map(ResultPartition::handle).collect();
    for (channel, handle) in (0..).zip(&handles) {
        gate.set_local(ChannelIndex::new(channel), Arc::clone(&handle.subpartitions()[0]));
    }
    let is_done = Arc::new(AtomicBool::new(false));
    let flusher = uses_flusher.then(|| {
        let (handles, is_done) = (handles.clone(), Arc::clone(&is_done));
        thread::spawn(move || {
            while !is_done.load(Ordering::Relaxed) {
                handles.iter().for_each(|handle| handle.flush_dirty());
                thread::yield_now();
            }
        })
    });
    let tasks: Vec<_> =
        partitions.into_iter().map(|partition| thread::spawn(move || produce(partition, flush))).collect();
    consume(&gate);
    tasks.into_iter().for_each(|task| task.join().unwrap());
    is_done.store(true, Ordering::Relaxed);
    flusher.into_iter().for_each(|flusher| flusher.join().unwrap());
    assert!(handles.iter().all(|handle| handle.is_consumed()));
    drop((gate, handles));
    assert_eq!(segments.available(), segments.total());
}

#[test]
fn a_local_exchange_flushed_after_every_record_loses_no_wake_up() {
    run_local(|partition, _| partition.flush(SubpartitionIndex::new(0)), false);
}

#[test]
fn a_local_exchange_flushed_by_a_timer_loses_no_wake_up() {
    run_local(|_, _| {}, true);
}

#[test]
fn a_flush_that_finds_another_pending_hides_nothing() {
    let segments = SegmentPool::new(2, 1 << 20).unwrap();
    let mut partition = ResultPartition::new(PartitionId::new(0), pool(&segments, 2), 1);
    let cell = Arc::clone(&partition.subpartitions()[0]);
    let read = Arc::new(AtomicUsize::new(0));
    let reader = thread::spawn({
        let read = Arc::clone(&read);
        move || {
            cell.attach_reader(ThreadWaker::current()).unwrap();
            loop {
                match cell.poll().map(|polled| polled.element) {
                    Some(Element::Data(data)) => drop(read.fetch_add(data.len(), Ordering::Release)),
                    Some(Element::Event(Event::EndOfPartition)) => return,
                    Some(Element::Event(_)) => {}
                    None => thread::park(),
                }
            }
        }
    });
    let sub = SubpartitionIndex::new(0);
    for round in 1..=RECORDS as usize {
        // The second flush mostly finds the first one pending, just when the reader wakes up for it.
        for _ in 0..2 {
            assert_eq!(partition.try_write(sub, &[1]), 1);
            partition.end_record(sub);
            partition.flush(sub);
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        while read.load(Ordering::Acquire) < 2 * round {
            assert!(Instant::now() < deadline, "a flushed byte is hidden from the reader");
            std::hint::spin_loop();
        }
    }
    partition.finish(true);
    reader.join().unwrap();
    drop(partition);
    assert_eq!(segments.available(), segments.total());
}

/// Races two operations of a channel many times and counts segments after each.
fn race(first: impl Fn(&Arc<RemoteChannel>) + Sync, second: impl Fn(&Arc<RemoteChannel>) + Sync) {
    let segments = SegmentPool::new(8, SEGMENT_BYTES).unwrap();
    for _ in 0..500 {
        let (gate, pool) = (InputGate::new(2), pool(&segments, 6));
        let channels =
            [0, 1].map(|index| RemoteChannel::new(Arc::clone(&gate), ChannelIndex::new(index), Arc::clone(&pool), 2));
        channels.iter().for_each(|channel| assert_eq!(channel.initial_credit().get(), 2));
        let both = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                both.wait();
                first(&channels[0]);
            });
            both.wait();
            second(&channels[0]);
        });
        gate.close();
        drop((channels, gate));
        assert_eq!(pool.in_use(), 0);
        drop(pool);
        assert_eq!(segments.available(), segments.total());
    }
}

fn receive(channel: &Arc<RemoteChannel>) {
    for sequence in 0..2 {
        if let Ok(Some(segment)) = channel.take_for_receive(sequence) {
            let _ = channel.on_buffer(segment, 1, Backlog::new(3));
        }
    }
}

#[test]
fn release_races_with_receiving() {
    race(receive, |channel| channel.release());
}

#[test]
fn release_races_with_a_backlog() {
    race(|channel| channel.on_backlog(Backlog::new(9)), |channel| channel.release());
}

#[test]
fn release_races_with_the_credit_of_a_connection() {
    race(
        |channel| {
            channel.take_announcement();
        },
        |channel| channel.release(),
    );
}

#[test]
fn release_races_with_segments_that_come_back() {
    race(
        |channel| {
            let kept: Vec<Buffer> = (0..2)
                .filter_map(|sequence| {
                    let segment = channel.take_for_receive(sequence).ok()??;
                    Some(Buffer::with_recycler(segment, 1, Arc::clone(channel) as Arc<dyn flownet_memory::Recycler>))
                })
                .collect();
            drop(kept);
        },
        |channel| channel.release(),
    );
}

#[test]
fn failing_races_with_listening_for_floating_segments() {
    race(|channel| channel.on_backlog(Backlog::new(20)), |channel| channel.fail(crate::ExchangeError::Cancelled));
}

#[test]
fn receiving_races_with_a_task_that_reads_and_drops() {
    race(receive, |channel| {
        let _ = channel.on_event(Event::EndOfPartition, 9, Backlog::ZERO);
        channel.on_backlog(Backlog::new(2));
        channel.take_announcement();
    });
}
