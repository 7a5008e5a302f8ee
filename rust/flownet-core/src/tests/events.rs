//! Events among data, over the wire and locally.

use super::pair::{Pair, Setup, barrier, watermark};
use crate::credit::Backlog;
use crate::error::ExchangeError;
use crate::event::BarrierKind;
use crate::gate::MAX_QUEUED_EVENTS;
use crate::ids::ChannelIndex;

fn remote_and_local() -> [Pair; 2] {
    [false, true].map(|is_local| {
        let local: fn(u32) -> bool = if is_local { |_| true } else { |_| false };
        Pair::new(Setup { channels: 2, partition_segments: Some(12), local, ..Setup::default() })
    })
}

#[test]
fn an_event_closes_the_open_buffer_and_keeps_its_place() {
    for mut pair in remote_and_local() {
        pair.emit_bytes(0, 3);
        pair.emit_event(0, watermark(1));
        pair.emit_bytes(0, 5);
        pair.run_until_idle();
        assert_eq!(pair.read(usize::MAX), 2, "the event shows what is in front of it and not what is behind");
        pair.flush(0);
        pair.run_until_idle();
        assert_eq!(pair.read(usize::MAX), 1);
        pair.finish_and_assert_all_segments_home();
    }
}

#[test]
fn an_unaligned_barrier_overtakes_data_that_is_queued() {
    for mut pair in remote_and_local() {
        pair.emit_buffers(0, 5);
        pair.emit_event(0, barrier(1, BarrierKind::Unaligned));
        pair.run_until_idle();
        assert_eq!((pair.hold(1), pair.read_order.len()), (1, 0), "the barrier came first, before any of the five");
        assert_eq!((pair.read(usize::MAX), pair.unread_bytes(0)), (5, 0), "and what it overtook follows");
        pair.finish_and_assert_all_segments_home();
    }
}

#[test]
fn what_an_unaligned_barrier_overtakes_needs_no_flush_to_follow() {
    for mut pair in remote_and_local() {
        pair.emit_bytes(0, 3);
        pair.emit_event(0, barrier(1, BarrierKind::Unaligned));
        pair.run_until_idle();
        assert_eq!(pair.read(usize::MAX), 2, "the buffer was finished for the barrier, so it is on its way too");
        pair.finish_and_assert_all_segments_home();
    }
}

#[test]
fn an_unaligned_barrier_passes_a_channel_without_credit() {
    let mut pair = Pair::with_exclusive_buffers(1);
    pair.emit_buffers(0, 4);
    pair.run_until_idle();
    pair.emit_event(0, barrier(1, BarrierKind::Unaligned));
    pair.run_until_idle();
    // In the gate it overtakes the one buffer that arrived before.
    pair.hold(1);
    assert_eq!(pair.read_order, [], "the barrier came first");
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn a_priority_event_moves_its_channel_to_the_front_of_the_gate() {
    let mut pair = Pair::new(Setup { channels: 3, partition_segments: Some(12), ..Setup::default() });
    (0..3).for_each(|channel| pair.emit_buffers(channel, 2));
    pair.run_until_idle();
    pair.emit_event(2, barrier(1, BarrierKind::Unaligned));
    pair.run_until_idle();
    pair.hold(1);
    assert_eq!(pair.read_order, [], "the barrier is read before any data");
    pair.hold(1);
    assert_eq!(pair.read_order, [ChannelIndex::new(0)], "the others keep their turn");
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn an_aligned_barrier_silences_its_channel_until_it_is_resumed() {
    for mut pair in remote_and_local() {
        pair.emit_event(0, barrier(1, BarrierKind::Aligned));
        pair.emit_buffers(0, 2);
        pair.emit_event(0, watermark(1));
        pair.emit_buffers(1, 1);
        pair.run_until_idle();
        assert_eq!(pair.read(usize::MAX), 2, "the barrier, and what the other channel has");
        assert_eq!(pair.backlog(0), Backlog::ZERO);
        pair.run_until_idle();
        assert_eq!(pair.read(usize::MAX), 0);
        pair.resume_all();
        pair.run_until_idle();
        assert_eq!(pair.read(usize::MAX), 3);
        pair.finish_and_assert_all_segments_home();
    }
}

#[test]
fn resuming_a_channel_that_is_not_blocked_is_a_misuse() {
    for pair in remote_and_local() {
        let resumed = pair.gate().resume(ChannelIndex::new(0));
        assert!(matches!(resumed, Err(ExchangeError::Misuse(_))));
        pair.finish_and_assert_all_segments_home();
    }
}

#[test]
fn events_behind_a_stuck_task_are_bounded_and_watermarks_merge() {
    let mut pair = Pair::with_exclusive_buffers(1);
    for time in 0..MAX_QUEUED_EVENTS as i64 + 100 {
        pair.emit_event(0, watermark(time));
        if time % 1000 == 0 {
            pair.run_until_idle();
        }
    }
    pair.run_until_idle();
    let mut read = 0;
    let waker = std::task::Waker::noop();
    while let std::task::Poll::Ready(Ok(Some(_))) = pair.gate().poll_next(waker) {
        read += 1;
    }
    assert_eq!(read, MAX_QUEUED_EVENTS);
    pair.assert_all_segments_home();
}

#[test]
fn other_events_beyond_the_bound_are_the_peers_fault() {
    let mut pair = Pair::with_exclusive_buffers(1);
    for checkpoint in 0..=MAX_QUEUED_EVENTS as u64 {
        pair.emit_event(0, crate::event::Event::CancelBarrier { checkpoint_id: crate::CheckpointId::new(checkpoint) });
    }
    pair.run_until_idle();
    assert!(matches!(pair.try_read(), Err(ExchangeError::PeerBreach { .. })));
    pair.assert_all_segments_home();
}
