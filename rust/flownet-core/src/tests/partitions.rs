//! Writer side: broadcast, switches, flushes, counters, availability.

use std::task::{Poll, Waker};

use super::CountingWaker;
use super::pair::{PARTITION, Pair, SEGMENT_BYTES, Setup, barrier, watermark};
use crate::credit::Backlog;
use crate::debloat::FillLimit;
use crate::error::ExchangeError;
use crate::event::BarrierKind;
use crate::ids::{CheckpointId, SubpartitionIndex};
use crate::partition::{PartitionHandle, SubpartitionStats};
use crate::record::{Emit, FlushPolicy, RecordWriter};
use crate::selector::{Selector, Target};

fn broadcast(channels: u32) -> Setup {
    Setup { channels, is_broadcast: true, local: |channel| channel % 2 == 1, ..Setup::default() }
}

#[test]
fn a_broadcast_is_stored_once_and_read_by_each_at_its_own_pace() {
    let mut pair = Pair::new(Setup { partition_segments: Some(1), overdraft: 0, ..broadcast(3) });
    assert_eq!(pair.broadcast_bytes(5), 5);
    (0..3).for_each(|channel| pair.flush(channel));
    pair.run_until_idle();
    assert_eq!(pair.read(usize::MAX), 3, "one segment is enough for all");
    assert_eq!(pair.broadcast_bytes(SEGMENT_BYTES - 5), SEGMENT_BYTES - 5);
    pair.run_until_idle();
    assert_eq!(pair.hold(2), 2);
    assert_eq!(pair.broadcast_bytes(1), 0, "its segment is home only when the last reader is done");
    pair.read(1);
    assert_eq!(pair.broadcast_bytes(1), 1);
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn switching_between_one_and_all_loses_and_reorders_nothing() {
    let mut pair = Pair::new(Setup { partition_segments: Some(40), ..broadcast(2) });
    for round in 1..20 {
        pair.broadcast_bytes(round % 7);
        // The same bytes one by one: both channels stay equal.
        (0..2).for_each(|channel| {
            pair.emit_bytes(channel, round % 5);
        });
        pair.broadcast_bytes(SEGMENT_BYTES + round);
        if round % 4 == 0 {
            pair.broadcast_event(watermark(round as i64));
        }
        pair.run_until_idle();
        pair.read(usize::MAX);
    }
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn flush_dirty_shows_what_was_written_and_leaves_the_rest_alone() {
    let mut pair = Pair::new(Setup { channels: 3, local: |_| true, ..Setup::default() });
    assert!(!pair.handle.is_dirty());
    pair.emit_bytes(1, 4);
    assert!(pair.handle.is_dirty());
    assert_eq!(pair.read(usize::MAX), 0);
    pair.handle.flush_dirty();
    assert_eq!(pair.read(usize::MAX), 1);
    assert!(pair.handle.is_dirty(), "looked at once more, for a writer the first look did not see");
    pair.handle.flush_dirty();
    assert!(!pair.handle.is_dirty());
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn a_barrier_that_has_waited_too_long_is_put_ahead_where_it_still_waits() {
    let mut pair = Pair::new(Setup { channels: 2, local: |_| true, ..Setup::default() });
    for channel in 0..2 {
        pair.emit_buffers(channel, 2);
        pair.emit_event(channel, barrier(3, BarrierKind::AlignedWithTimeout));
    }
    let cells = pair.handle.subpartitions().to_vec();
    while cells[0].poll().is_some() {}
    let overtaken = pair.partition.as_mut().unwrap().expire(CheckpointId::new(3));
    assert_eq!(overtaken.iter().map(|one| one.elements.len()).collect::<Vec<_>>(), [0, 2]);
    assert_eq!([&cells[0], &cells[1]].map(|cell| cell.has_priority()), [false, true]);
}

#[test]
fn all_that_a_reader_has_credit_for_is_given_at_once() {
    let mut pair = Pair::new(Setup { channels: 1, local: |_| true, ..Setup::default() });
    pair.emit_buffers(0, 4);
    pair.emit_event(0, watermark(1));
    let cell = pair.handle.subpartitions()[0].clone();
    let mut taken = Vec::new();
    assert_eq!(cell.poll_each(3, 10, |polled| taken.push(polled)), 3, "the credit is used up");
    assert_eq!(cell.poll_each(9, 10, |polled| taken.push(polled)), 2, "a buffer, and what costs none");
    assert_eq!(cell.poll_each(9, 10, |polled| taken.push(polled)), 0);
}

#[test]
fn records_of_a_writer_with_a_timer_are_shown_by_flush_dirty() {
    let mut pair = Pair::new(Setup { channels: 2, local: |_| true, ..Setup::default() });
    let partition = pair.partition.take().unwrap();
    let mut writer = RecordWriter::new(partition, Selector::Forward, FlushPolicy::Timer, 100);
    for round in 0..3 {
        assert_eq!(writer.try_emit(Target::Any, b"x").unwrap(), Emit::Done);
        assert!(pair.handle.is_dirty());
        let mut read = Vec::new();
        assert!(pair.gate().poll_batch(9, &mut read, Waker::noop()).is_pending(), "round {round}");
        pair.handle.flush_dirty();
        assert!(matches!(pair.gate().poll_batch(9, &mut read, Waker::noop()), Poll::Ready(Ok(1))), "round {round}");
        pair.handle.flush_dirty();
        assert!(!pair.handle.is_dirty());
    }
    drop(writer);
    pair.assert_all_segments_home();
}

#[test]
fn a_failure_after_everything_was_read_concerns_nobody() {
    let mut pair = Pair::new(Setup { local: |_| true, ..Setup::default() });
    pair.emit_buffers(0, 1);
    pair.finish_producer();
    pair.read(usize::MAX);
    pair.handle.fail("too late");
    assert!(pair.handle.subpartitions()[0].failure().is_none());
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn a_full_buffer_goes_at_once_without_flush() {
    let mut pair = Pair::new(Setup::default());
    pair.emit_bytes(0, SEGMENT_BYTES);
    assert_eq!(pair.backlog(0), Backlog::new(1));
    pair.run_until_idle();
    assert_eq!(pair.read(usize::MAX), 1);
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn a_short_write_leaves_what_was_written_to_the_reader() {
    let mut pair = Pair::new(Setup { partition_segments: Some(2), overdraft: 0, local: |_| true, ..Setup::default() });
    assert_eq!(pair.emit_bytes(0, 3 * SEGMENT_BYTES), 2 * SEGMENT_BYTES);
    let partition = pair.partition.as_mut().unwrap();
    let (waker, wakes) = CountingWaker::new();
    assert!(partition.poll_segment(SubpartitionIndex::new(0), &waker).is_pending());
    assert_eq!(pair.read(1), 1);
    assert_eq!(wakes.count(), 1, "the segment that came home wakes the writer");
    let partition = pair.partition.as_mut().unwrap();
    assert!(matches!(partition.poll_segment(SubpartitionIndex::new(0), &waker), Poll::Ready(Ok(()))));
    assert!(matches!(partition.poll_segment(SubpartitionIndex::new(0), &waker), Poll::Ready(Ok(()))));
    assert_eq!(pair.emit_bytes(0, SEGMENT_BYTES), SEGMENT_BYTES, "into the segment it waited for");
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn a_record_once_begun_takes_overdraft_and_no_more_than_there_may_be() {
    let mut pair = Pair::new(Setup { partition_segments: Some(2), local: |_| true, ..Setup::default() });
    assert_eq!(pair.emit_bytes(0, 9 * SEGMENT_BYTES), 7 * SEGMENT_BYTES, "its two segments and five of overdraft");
    let sub = SubpartitionIndex::new(0);
    let partition = pair.partition.as_mut().unwrap();
    assert!(!partition.is_available() && partition.poll_segment(sub, Waker::noop()).is_pending());
    pair.read(5);
    assert!(!pair.partition.as_ref().unwrap().is_available(), "its own two are still in use");
    pair.read(1);
    assert!(pair.partition.as_ref().unwrap().is_available(), "the overdraft went home, then one of its own came back");
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn a_short_broadcast_waits_in_the_same_way() {
    let mut pair = Pair::new(Setup { partition_segments: Some(1), overdraft: 0, ..broadcast(2) });
    assert_eq!(pair.broadcast_bytes(2 * SEGMENT_BYTES), SEGMENT_BYTES);
    assert!(pair.partition.as_mut().unwrap().poll_broadcast_segment(Waker::noop()).is_pending());
    pair.run_until_idle();
    pair.read(usize::MAX);
    assert!(pair.partition.as_mut().unwrap().poll_broadcast_segment(Waker::noop()).is_ready());
    assert_eq!(pair.broadcast_bytes(SEGMENT_BYTES), SEGMENT_BYTES);
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn a_partition_is_unavailable_while_one_subpartition_is_at_its_quota() {
    let mut pair = Pair::new(Setup { channels: 2, partition_segments: Some(20), local: |_| true, ..Setup::default() });
    pair.emit_buffers(0, 9);
    assert!(pair.partition.as_ref().unwrap().is_available());
    assert_eq!(pair.emit_bytes(1, 1), 1);
    pair.emit_buffers(0, 1);
    let (waker, wakes) = CountingWaker::new();
    let partition = pair.partition.as_mut().unwrap();
    assert!(!partition.is_available() && partition.poll_available(&waker).is_pending());
    assert_eq!((partition.id(), pair.backlog(1)), (PARTITION, Backlog::ZERO), "what others have open stays open");
    pair.read(1);
    assert_eq!(wakes.count(), 1);
    assert!(pair.partition.as_ref().unwrap().is_available());
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn what_is_written_counts_at_once_and_a_broadcast_in_each_subpartition() {
    let mut pair = Pair::new(Setup { partition_segments: Some(8), ..broadcast(2) });
    let outgoing = |pair: &Pair| pair.handle.outgoing().collect::<Vec<_>>();
    pair.broadcast_bytes(5);
    let one = SubpartitionStats { records: 1, bytes: 5, queued_buffers: 1, queued_bytes: 5 };
    assert_eq!(outgoing(&pair), [one; 2], "the open buffer is counted");
    pair.emit_bytes(1, 3);
    let more = SubpartitionStats { records: 2, bytes: 8, queued_buffers: 2, queued_bytes: 8 };
    assert_eq!(outgoing(&pair), [one, more]);
    pair.finish_producer();
    pair.run_until_idle();
    while pair.read(1) > 0 {}
    let read = |one: SubpartitionStats| SubpartitionStats { queued_buffers: 0, queued_bytes: 0, ..one };
    assert_eq!(outgoing(&pair), [read(one), read(more)], "what was read stays counted");
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn what_a_reader_leaves_unread_was_written_for_it_and_what_follows_is_not() {
    let mut pair = Pair::new(Setup { partition_segments: Some(8), ..broadcast(2) });
    pair.emit_bytes(0, 5);
    pair.handle.subpartitions()[0].release();
    pair.emit_bytes(0, 3);
    let outgoing: Vec<_> = pair.handle.outgoing().collect();
    assert_eq!(outgoing[0], SubpartitionStats { records: 2, bytes: 5, ..SubpartitionStats::default() });
}

#[test]
fn what_is_queued_outlives_the_writing_task() {
    let mut pair = Pair::new(Setup { local: |_| true, ..Setup::default() });
    pair.emit_buffers(0, 3);
    pair.finish_producer();
    assert!(pair.partition.is_none() && !pair.handle.is_consumed());
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn a_flusher_that_dozes_is_woken_by_the_next_record() {
    let mut pair = Pair::new(Setup::default());
    let (flusher, wakes) = CountingWaker::new();
    PartitionHandle::doze(&[pair.handle.clone()], &flusher);
    assert!(pair.handle.is_dozing());
    pair.emit_bytes(0, 3);
    assert_eq!((wakes.count(), pair.handle.is_dozing()), (1, false));
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn a_partition_that_is_released_ends_its_readers_without_blame() {
    for release in [|pair: &Pair| pair.handle.release(), |pair: &Pair| pair.partition.as_ref().unwrap().release()] {
        let mut pair = Pair::new(Setup { local: |_| true, ..Setup::default() });
        pair.emit_buffers(0, 1);
        let is_consumed = |pair: &Pair| pair.partition.as_ref().unwrap().is_consumed();
        assert!(!is_consumed(&pair));
        release(&pair);
        assert!(is_consumed(&pair));
        assert!(matches!(pair.try_read(), Err(ExchangeError::Released)));
        pair.assert_all_segments_home();
    }
}

#[test]
fn a_partition_says_how_far_its_buffers_are_filled_until_a_reader_does() {
    let mut pair = Pair::new(Setup { channels: 2, local: |_| true, ..Setup::default() });
    pair.partition.as_ref().unwrap().set_fill_limit(FillLimit::new(8));
    pair.emit_bytes(1, 8);
    assert_eq!(
        pair.handle.subpartitions().iter().map(|cell| cell.fill_limit()).collect::<Vec<_>>(),
        [FillLimit::new(8); 2]
    );
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn who_waits_is_told_whether_for_segments_or_for_readers() {
    let small = Setup { overdraft: 0, local: |_| true, ..Setup::default() };
    let bounded = Setup { partition_segments: Some(2), ..small.clone() };
    for (setup, lacks_segments) in [(bounded, false), (Setup { memory: Some((2, 8)), ..small }, true)] {
        let mut pair = Pair::new(setup);
        while pair.emit_bytes(0, SEGMENT_BYTES) == SEGMENT_BYTES {}
        let partition = pair.partition.as_ref().unwrap();
        assert!(!partition.is_available());
        assert_eq!(partition.lacks_segments(), lacks_segments);
        pair.finish_and_assert_all_segments_home();
    }
}

#[test]
fn a_buffer_that_its_reader_has_drained_makes_room_for_the_next_record_of_another() {
    let one = Setup { channels: 2, local: |_| true, partition_segments: Some(1), overdraft: 0, ..Setup::default() };
    let mut pair = Pair::new(one);
    assert_eq!(pair.emit_bytes(0, 5), 5);
    pair.flush(0);
    assert_eq!(pair.read(usize::MAX), 1);
    assert_eq!(pair.emit_bytes(1, 4), 4, "the open buffer has nothing that anybody wants");
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn a_broadcast_record_goes_on_in_the_buffer_that_is_open() {
    let mut pair = Pair::new(Setup { partition_segments: Some(1), overdraft: 0, ..broadcast(2) });
    pair.broadcast_bytes(5);
    let partition = pair.partition.as_mut().unwrap();
    assert!(partition.poll_broadcast_segment(Waker::noop()).is_ready(), "it needs no other segment, and there is none");
    pair.finish_and_assert_all_segments_home();
}
