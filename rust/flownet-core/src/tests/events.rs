//! Events among data, over the wire and locally.

use super::pair::{Pair, Setup, barrier, watermark};
use crate::credit::{Backlog, EVENT_WINDOW};
use crate::error::ExchangeError;
use crate::event::{BarrierKind, Event};
use crate::ids::{ChannelIndex, CheckpointId, SubpartitionIndex};
use crate::subpartition::Element;

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

fn cancel_barrier(checkpoint: u64) -> Event {
    Event::CancelBarrier { checkpoint_id: CheckpointId::new(checkpoint) }
}

#[test]
fn events_behind_a_stuck_task_wait_at_the_producer_and_watermarks_merge() {
    const LAST: i64 = 4 * EVENT_WINDOW as i64;
    for mut pair in remote_and_local() {
        for time in 0..=LAST {
            pair.partition.as_mut().unwrap().emit_event(SubpartitionIndex::new(0), &watermark(time)).unwrap();
            if time % 1000 == 0 {
                pair.run_until_idle();
            }
        }
        pair.run_until_idle();
        let mut read = Vec::new();
        let waker = std::task::Waker::noop();
        while let std::task::Poll::Ready(Ok(Some((_, element)))) = pair.gate().poll_next(waker) {
            read.push(element);
            pair.run_until_idle();
        }
        assert!(read.len() as i64 <= LAST / 2, "{} events", read.len());
        assert!(
            matches!(read.last(), Some(Element::Event(Event::Watermark { timestamp_ms: LAST }))),
            "the last says all"
        );
        pair.assert_all_segments_home();
    }
}

#[test]
fn other_events_beyond_the_bound_are_refused_at_the_sender_and_none_is_lost() {
    for mut pair in remote_and_local() {
        let (mut sent, mut refused) = (0, 0);
        while refused < 3 {
            match pair.try_emit_event(0, cancel_barrier(sent)) {
                Ok(()) => sent += 1,
                Err(error) => {
                    assert!(matches!(error, ExchangeError::TooManyEvents { limit: EVENT_WINDOW, .. }), "{error}");
                    // Events in transit make room first. After that, only the task makes room by reading.
                    pair.run_until_idle();
                    refused += 1;
                }
            }
        }
        assert!((u64::from(EVENT_WINDOW)..=2 * u64::from(EVENT_WINDOW)).contains(&sent), "{sent} events");
        pair.read(usize::MAX);
        pair.run_until_idle();
        for checkpoint in sent..10 * u64::from(EVENT_WINDOW) {
            pair.emit_event(0, cancel_barrier(checkpoint));
            pair.run_until_idle();
            pair.read(1);
        }
        pair.finish_and_assert_all_segments_home();
    }
}

#[test]
fn markers_behind_a_stuck_task_are_left_out_and_take_no_room_of_other_events() {
    let marker = |timestamp_ns| Event::LatencyMarker { timestamp_ns, task: 0, subtask: 0 };
    let emit =
        |pair: &mut Pair, event: &Event| pair.partition.as_mut().unwrap().emit_event(SubpartitionIndex::new(0), event);
    for mut pair in remote_and_local() {
        for sent in 0..4 * u64::from(EVENT_WINDOW) {
            emit(&mut pair, &marker(sent)).unwrap();
            if sent % 10 == 0 {
                pair.run_until_idle();
            }
        }
        let mut sent = 0;
        while emit(&mut pair, &cancel_barrier(sent)).is_ok() {
            sent += 1;
        }
        assert_eq!(sent, u64::from(EVENT_WINDOW), "as many as without markers");
        let waker = std::task::Waker::noop();
        let (mut markers, mut others) = (0, 0);
        while let std::task::Poll::Ready(Ok(Some((_, Element::Event(event))))) = pair.gate().poll_next(waker) {
            *(if event.is_marker() { &mut markers } else { &mut others }) += 1;
            pair.run_until_idle();
        }
        assert_eq!(others, sent);
        assert!((1..u64::from(EVENT_WINDOW)).contains(&markers), "{markers} markers");

        emit(&mut pair, &marker(0)).unwrap();
        pair.run_until_idle();
        let again = pair.gate().poll_next(waker);
        let is_marker = |element: &Element| matches!(element, Element::Event(event) if event.is_marker());
        assert!(
            matches!(again, std::task::Poll::Ready(Ok(Some((_, element)))) if is_marker(&element)),
            "there is room"
        );
        pair.assert_all_segments_home();
    }
}

#[test]
fn the_end_finds_room_behind_as_many_events_as_there_may_be() {
    for mut pair in remote_and_local() {
        while pair.try_emit_event(0, cancel_barrier(0)).is_ok() {}
        pair.finish_and_assert_all_segments_home();
    }
}
