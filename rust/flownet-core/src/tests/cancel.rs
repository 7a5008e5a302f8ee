//! Consumers that cancel, at any step.

use std::task::Waker;

use super::pair::{Pair, SEGMENT_BYTES, Setup};
use crate::error::{ExchangeError, PeerViolation, ProtocolError};
use crate::ids::{ChannelId, ChannelIndex};
use crate::wire::ControlFrame;

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
    // Its credit is in transit while the end of the partition is sent.
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
fn a_cancel_ends_queued_and_idle_readers_and_twice_is_harmless() {
    let mut pair = Pair::new(Setup { channels: 3, ..Setup::default() });
    pair.run_until_idle();
    pair.is_unwritable = true;
    [0, 2].into_iter().for_each(|channel| pair.emit_buffers(channel, 2));
    // Channels 0 and 2 are queued for their turn; channel 1 has no data.
    pair.run_until_idle();
    for (channel, left) in [(0, 2), (0, 2), (1, 1), (1, 1)] {
        let frame = ControlFrame::Cancel { channel: pair.id(channel) };
        pair.producer.as_mut().unwrap().handle_frame(frame, &pair.registry).unwrap();
        assert_eq!(pair.producer.as_ref().unwrap().open_channels(), left);
        let cell = &pair.handle.subpartitions()[channel as usize];
        assert!(cell.is_consumed() && cell.queued_buffers() == 0, "{channel} was released");
    }
    pair.is_unwritable = false;
    pair.run_until_idle();
    let served: Vec<ChannelId> = pair.data_headers.iter().map(|header| header.channel).collect();
    assert_eq!(served, [pair.id(2); 2], "the turn of a reader that is gone finds nobody, and the next has its own");

    let never = ControlFrame::Cancel { channel: ChannelId::new(99) };
    let refused = pair.producer.as_mut().unwrap().handle_frame(never, &pair.registry);
    let expected = PeerViolation::UnknownChannel;
    assert!(matches!(refused, Err(ProtocolError::Peer { violation, .. }) if violation == expected), "{refused:?}");
    pair.assert_all_segments_home();
}

/// Every order of a consumer's cancel, its report and the registration, with every state of the wires in between.
#[test]
fn a_partition_that_comes_while_its_channel_leaves_is_released() {
    for (before_release, before_registration) in (0..8).flat_map(|first| (0..8).map(move |second| (first, second))) {
        let mut pair = Pair::new(Setup { channels: 2, registered: false, latency_ms: 2, ..Setup::default() });
        pair.emit_buffers(0, 2);
        pair.emit_buffers(1, 2);
        for now_ms in 0..=before_release.max(before_registration) {
            pair.now_ms = now_ms;
            pair.step();
            if now_ms == before_release {
                pair.remote(0).release();
            }
            if now_ms == before_registration {
                pair.registry.register(pair.handle.clone());
                pair.producer.as_mut().unwrap().retry_parked(&pair.registry);
            }
        }
        pair.run_until_idle();
        let producer = pair.producer.as_ref().unwrap();
        assert_eq!(
            (producer.parked_requests(), producer.open_channels()),
            (0, 1),
            "{before_release} {before_registration}"
        );
        // A request that ended with its channel never had a reader; one that came in time was released.
        let cell = &pair.handle.subpartitions()[0];
        let never_read = cell.attach_reader(Waker::noop().clone()).is_ok();
        assert!(never_read || (cell.is_consumed() && cell.queued_buffers() == 0));
        while pair.read(1) == 1 {
            pair.run_until_idle();
        }
        assert_eq!(pair.unread_bytes(1), 0, "the other channel is served");
        pair.assert_all_segments_home();
    }
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
    // The task may continue to write: there is no reader, so no segment is held.
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
