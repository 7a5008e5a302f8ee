//! Channels without credit: their limits, their losses, and that they return all segments.

use std::task::{Poll, Waker};

use super::CountingWaker;
use super::pair::{Pair, SEGMENT_BYTES, Setup, barrier};
use crate::channel::ChannelControl;
use crate::credit::Backlog;
use crate::error::ExchangeError;
use crate::event::BarrierKind;
use crate::gate::ReceiveQueueLimits;
use crate::subpartition::Element;
use crate::wire::frame::DATA_HEADER_BYTES;

const TCP: ChannelControl = ChannelControl::Tcp { exchange: 0 };

fn pair(control: ChannelControl, channels: u32, floating: u32) -> Pair {
    Pair::new(Setup { control, channels, exclusive: 0, floating, ..Setup::default() })
}

#[test]
fn under_tcp_a_channel_without_a_segment_stops_all_that_share_its_socket() {
    let mut pair = pair(TCP, 2, 2);
    pair.emit_buffers(0, 4);
    pair.emit_buffers(1, 1);
    pair.run_until_idle();
    assert_eq!(pair.consumer_queue(), 2, "as many as the gate's pool has, in the order of the wire");
    pair.hold(usize::MAX);
    pair.run_until_idle();
    assert_eq!(pair.consumer_queue(), 0, "the task holds the segments: nothing is read, for nobody");
    pair.drop_held();
    pair.run_until_idle();
    assert!(pair.consumer_queue() > 0, "a segment came back, and the socket is read on");
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn under_credit_the_same_traffic_stops_nobody_else() {
    let mut pair = Pair::new(Setup { channels: 2, exclusive: 1, floating: 1, ..Setup::default() });
    pair.emit_buffers(0, 4);
    pair.run_until_idle();
    pair.hold(usize::MAX);
    pair.emit_buffers(1, 1);
    pair.run_until_idle();
    assert_eq!(pair.unread_bytes(1), SEGMENT_BYTES as u64);
    assert_eq!(pair.consumer_queue(), 1, "the second channel has its own segment");
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn under_tcp_the_sender_stops_at_its_high_watermark_and_goes_on_below_the_low_one() {
    let mut pair = pair(TCP, 1, 8);
    pair.run_until_idle();
    pair.emit_buffers(0, 8);
    let frame_bytes = DATA_HEADER_BYTES + SEGMENT_BYTES;
    let fill = |pair: &mut Pair| {
        let mut ready = Vec::new();
        pair.producer_ready.drain(&mut ready);
        let producer = pair.producer.as_mut().unwrap();
        ready.into_iter().for_each(|channel| producer.on_ready(channel));
        producer.poll_transmit(&mut pair.outbox, 16);
        pair.outbox.queued_bytes() / frame_bytes
    };
    assert_eq!(fill(&mut pair), 2, "two segments are the high watermark");
    assert_eq!(fill(&mut pair), 2, "the socket takes nothing");
    pair.outbox.advance(frame_bytes);
    assert_eq!(fill(&mut pair), 1, "between the watermarks it stays stopped");
    pair.outbox.advance(frame_bytes);
    assert_eq!(fill(&mut pair), 2, "below the low one it goes on to the high one");
    pair.assert_all_segments_home();
}

#[test]
fn a_channel_that_closes_while_its_socket_waits_lets_the_others_go_on() {
    let mut pair = pair(TCP, 2, 1);
    pair.emit_buffers(0, 2);
    pair.emit_buffers(1, 1);
    pair.run_until_idle();
    pair.hold(1);
    pair.run_until_idle();
    pair.remote(0).release();
    pair.drop_held();
    pair.run_until_idle();
    let read = pair.read(usize::MAX);
    assert!(read > 0, "what the first channel waited with is skipped, the second is read");
    pair.assert_all_segments_home();
}

#[test]
fn without_bound_the_queue_grows_beyond_the_pool_and_keeps_its_order() {
    let mut pair = pair(ChannelControl::Unbounded, 2, 2);
    for _ in 0..6 {
        pair.emit_buffers(0, 3);
        pair.emit_buffers(1, 3);
        pair.run_until_idle();
    }
    assert_eq!(pair.consumer_queue(), 36);
    assert_eq!(pair.gate().receive_queue().queued_bytes, 36 * SEGMENT_BYTES as u64);
    assert_eq!(pair.read(36), 36);
    assert_eq!(pair.gate().receive_queue().queued_bytes, 0);
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn without_bound_the_limit_fails_the_gate_with_the_numbers_and_takes_no_more() {
    let mut pair = pair(ChannelControl::Unbounded, 1, 2);
    let limit_bytes = 4 * SEGMENT_BYTES;
    pair.gate().set_bounds(ReceiveQueueLimits { queue_bytes: usize::MAX, limit_bytes });
    for _ in 0..8 {
        pair.emit_buffers(0, 1);
        pair.run_until_idle();
    }
    let error = pair.try_read().unwrap_err();
    let expected = 5 * SEGMENT_BYTES;
    assert!(
        matches!(error, ExchangeError::ReceiveLimit { queued_bytes, limit_bytes: limit, .. }
            if (queued_bytes, limit) == (expected, limit_bytes)),
        "{error}"
    );
    assert_eq!(pair.consumer_queue(), 5, "what came after is gone");
    pair.assert_all_segments_home();
}

#[test]
fn any_schedule_without_credit_delivers_all_in_order() {
    for seed in 0..200 {
        for control in [TCP, ChannelControl::Unbounded] {
            let mut pair = Pair::new(Setup {
                control,
                channels: 3,
                exclusive: 0,
                floating: 2,
                seed: Some(seed),
                ..Setup::default()
            });
            for round in 0..20 {
                pair.emit_bytes(((seed + round) % 3) as u32, 7 + (seed * round % 90) as usize);
                pair.flush((round % 3) as u32);
                for _ in 0..seed % 5 {
                    pair.step();
                }
                pair.read((round % 4) as usize);
            }
            pair.finish_and_assert_all_segments_home();
        }
    }
}

#[test]
fn a_connection_knows_whether_a_channel_without_credit_was_opened() {
    for (control, is_uncontrolled) in [(TCP, true), (ChannelControl::Credit, false)] {
        let mut pair = pair(control, 1, 2);
        pair.run_until_idle();
        assert_eq!(pair.producer.as_ref().unwrap().is_uncontrolled(), is_uncontrolled);
        pair.finish_and_assert_all_segments_home();
    }
}

#[test]
fn without_credit_a_channel_goes_on_behind_a_blocking_event() {
    let mut pair = pair(TCP, 1, 2);
    pair.emit_event(0, barrier(1, BarrierKind::Aligned));
    pair.emit_buffers(0, 1);
    pair.run_until_idle();
    assert_eq!(pair.read(usize::MAX), 1);
    pair.resume_all();
    pair.run_until_idle();
    assert_eq!(pair.read(usize::MAX), 1);
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn what_arrives_for_a_channel_without_credit_that_closed_is_skipped_whatever_it_says() {
    for control in [TCP, ChannelControl::Drop, ChannelControl::Unbounded] {
        let pair = pair(control, 1, 2);
        pair.remote(0).release();
        let place = pair.remote(0).poll_place(7, SEGMENT_BYTES, Waker::noop());
        assert!(matches!(place, Poll::Ready(Ok(None))), "{place:?} under {control:?}");
        pair.assert_all_segments_home();
    }
}

#[test]
fn under_tcp_who_reads_the_socket_is_woken_when_the_channel_that_waits_closes() {
    let pair = pair(TCP, 2, 1);
    let (waker, wakes) = CountingWaker::new();
    let place = |channel: u32, sequence| pair.remote(channel).poll_place(sequence, SEGMENT_BYTES, &waker);
    let Poll::Ready(Ok(Some(only))) = place(0, 0) else { panic!("the pool has one") };
    assert!(place(0, 1).is_pending());
    pair.remote(0).release();
    assert_eq!(wakes.count(), 1, "what follows is for others");
    assert!(place(1, 0).is_pending());
    drop(only);
    assert_eq!(wakes.count(), 2);
    // The segment arrived for a channel that does not use it.
    pair.remote(1).release();
    pair.assert_all_segments_home();
}

#[test]
fn where_records_may_be_dropped_those_that_fit_come_whole_and_others_are_counted() {
    let pair = pair(ChannelControl::Drop, 1, 4);
    let gate = pair.gate();
    gate.set_bounds(ReceiveQueueLimits { queue_bytes: 16, limit_bytes: usize::MAX });
    let records: [&[u8]; 4] = [b"eight...", b"and some that are too long", b"4444", b"none"];
    let stream: Vec<u8> =
        records.iter().flat_map(|record| [&(record.len() as u32).to_le_bytes()[..], record].concat()).collect();
    // The first cut splits the prefix of an admitted record.
    let first = stream.len() - 8 - 8 + 2;
    let pieces = [&stream[..12], &stream[12..first], &stream[first..]];
    let mut read = Vec::new();
    for (sequence, piece) in (0..).zip(pieces) {
        let place = pair.remote(0).poll_place(sequence, piece.len(), Waker::noop());
        let Poll::Ready(Ok(Some(mut segment))) = place else { panic!("{place:?}") };
        segment.as_mut_slice()[..piece.len()].copy_from_slice(piece);
        pair.remote(0).deliver(segment, piece.len(), Backlog::ZERO).unwrap();
        while let Poll::Ready(Ok(Some((_, Element::Data(buffer))))) = gate.poll_next(Waker::noop()) {
            assert!(!buffer.is_empty(), "nothing is handed on where nothing is kept");
            read.extend_from_slice(&buffer);
        }
    }
    assert_eq!(
        read,
        [&8u32.to_le_bytes()[..], records[0], &4u32.to_le_bytes(), records[2], &4u32.to_le_bytes(), records[3]]
            .concat()
    );
    assert_eq!((gate.receive_queue().dropped_records, gate.receive_queue().dropped_bytes), (1, 30));
    pair.assert_all_segments_home();
}
