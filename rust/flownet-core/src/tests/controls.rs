//! Channels without credit: what holds them back, what they lose, and that they give back what they take.

use super::pair::{Pair, SEGMENT_BYTES, Setup};
use crate::channel::ChannelControl;
use crate::error::ExchangeError;
use crate::gate::IntakeBounds;
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
    assert_eq!(pair.gate().intake().queued_bytes, 36 * SEGMENT_BYTES as u64);
    assert_eq!(pair.read(36), 36);
    assert_eq!(pair.gate().intake().queued_bytes, 0);
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn without_bound_the_limit_fails_the_gate_with_the_numbers_and_takes_no_more() {
    let mut pair = pair(ChannelControl::Unbounded, 1, 2);
    let limit_bytes = 4 * SEGMENT_BYTES;
    pair.gate().set_bounds(IntakeBounds { queue_bytes: usize::MAX, limit_bytes });
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
