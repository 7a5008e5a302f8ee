//! Consumers that leave, at any step.

use super::pair::{Pair, SEGMENT_BYTES, Setup};
use crate::error::ExchangeError;
use crate::ids::ChannelIndex;

#[test]
fn a_released_channel_is_cancelled_once_and_the_others_go_on() {
    let mut pair = Pair::new(Setup { channels: 2, ..Setup::default() });
    pair.emit_buffers(0, 4);
    pair.emit_buffers(1, 4);
    pair.step();
    pair.remote(0).release();
    pair.remote(0).release();
    pair.run_until_idle();
    assert_eq!(pair.cancel_frames, [pair.id(0)]);
    while pair.read(1) == 1 {
        pair.run_until_idle();
    }
    assert_eq!(pair.unread_bytes(1), 0);
    let cell = &pair.handle.subpartitions()[0];
    assert!(cell.is_consumed() && cell.queued_buffers() == 0, "the producer dropped what was queued");
    pair.assert_all_segments_home();
}

#[test]
fn payloads_on_their_way_to_a_released_channel_are_skipped() {
    for cut in 0..60 {
        let mut pair = Pair::new(Setup { channels: 2, exclusive: 2, seed: Some(cut), ..Setup::default() });
        pair.emit_buffers(0, 2);
        pair.emit_buffers(1, 2);
        (0..cut % 20).for_each(|_| {
            pair.step();
            pair.now_ms += 1;
        });
        pair.remote(0).release();
        pair.run_until_idle();
        while pair.read(1) == 1 {
            pair.run_until_idle();
        }
        assert_eq!(pair.unread_bytes(1), 0, "frames behind the skipped payload are understood");
        pair.assert_all_segments_home();
    }
}

#[test]
fn a_credit_that_crosses_the_end_of_partition_is_ignored() {
    let mut pair = Pair::new(Setup { exclusive: 1, floating: 0, latency_ms: 5, ..Setup::default() });
    pair.emit_buffers(0, 1);
    pair.run_until_idle();
    // Its credit is under way while the end of the partition is sent.
    pair.read(1);
    pair.finish_producer();
    pair.step();
    assert!(!pair.to_producer.is_empty());
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn a_channel_released_before_its_partition_is_registered_takes_its_request_along() {
    let mut pair = Pair::new(Setup { registered: false, ..Setup::default() });
    pair.run_until_idle();
    assert_eq!(pair.producer.as_ref().unwrap().parked_requests(), 1);
    pair.remote(0).release();
    pair.run_until_idle();
    assert_eq!(pair.producer.as_ref().unwrap().parked_requests(), 0);
    pair.assert_all_segments_home();
}

#[test]
fn a_closed_gate_releases_remote_and_local_channels_and_says_so() {
    let mut pair = Pair::new(Setup { channels: 2, local: |channel| channel == 1, ..Setup::default() });
    pair.emit_buffers(0, 3);
    pair.emit_buffers(1, 3);
    pair.run_until_idle();
    pair.hold(2);
    pair.gate().close();
    assert!(matches!(pair.try_read(), Err(ExchangeError::Closed)));
    pair.run_until_idle();
    assert_eq!(pair.cancel_frames, [pair.id(0)]);
    assert!(pair.handle.is_consumed(), "both subpartitions were released");
    // The task may go on writing: nobody reads it, nothing is held.
    pair.drop_held();
    assert_eq!(pair.emit_bytes(0, 50 * SEGMENT_BYTES), 50 * SEGMENT_BYTES);
    pair.gate().close();
    pair.gate().fail_channel(ChannelIndex::new(0), ExchangeError::Cancelled);
    pair.assert_all_segments_home();
}

#[test]
fn closing_the_consumer_connection_releases_every_subpartition() {
    let mut pair = Pair::new(Setup { channels: 3, ..Setup::default() });
    (0..3).for_each(|channel| pair.emit_buffers(channel, 1));
    pair.run_until_idle();
    pair.consumer.as_mut().unwrap().close();
    pair.run_until_idle();
    let producer = pair.producer.as_ref().unwrap();
    assert!(producer.is_closed() && producer.open_channels() == 0);
    assert!(pair.handle.is_consumed());
    pair.assert_all_segments_home();
}

#[test]
fn calls_on_a_released_channel_change_nothing() {
    let pair = Pair::with_exclusive_buffers(2);
    let remote = std::sync::Arc::clone(pair.remote(0));
    remote.release();
    remote.on_backlog(crate::Backlog::new(9));
    remote.on_empty_buffer(77, crate::Backlog::ZERO).unwrap();
    assert!(remote.take_for_receive(99).unwrap().is_none());
    assert!(remote.take_announcement().cancel);
    remote.fail(ExchangeError::Cancelled);
    assert!(remote.resume());
    assert_eq!((remote.owned_segments(), remote.initial_credit().get()), (0, 0));
    drop(remote);
    pair.assert_all_segments_home();
}
