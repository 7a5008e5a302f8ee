//! Producers, peers and connections that fail.

use std::sync::Arc;

use super::pair::{PARTITION, PEER, Pair, SEGMENT_BYTES, Setup};
use crate::credit::{Backlog, Credit};
use crate::error::{ExchangeError, PeerViolation, ProtocolError};
use crate::exchange::consumer::{ConsumerConnection, PayloadSlot};
use crate::exchange::producer::{ProducerConnection, ProducerSettings};
use crate::exchange::ready::ReadyList;
use crate::ids::{ChannelId, PartitionId, SubpartitionIndex};
use crate::wire::{ControlFrame, DataHeader, ErrorCode, FrameKind, encode_credits};

fn violation_of(error: &ExchangeError) -> PeerViolation {
    match error {
        ExchangeError::ProtocolViolation { violation, .. } => *violation,
        other => panic!("{other:?} is no peer violation"),
    }
}

fn data(channel: ChannelId, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let header =
        DataHeader { channel, sequence, backlog: Backlog::ZERO, payload_bytes: payload.len() as u32, checksum: None };
    [&header.encode()[..], payload].concat()
}

/// Creates a pair whose consumer gets handmade frames, and whose second channel must not be affected.
fn with_forged(frames: impl FnOnce(ChannelId) -> Vec<u8>) -> (Pair, ExchangeError) {
    let mut pair = Pair::new(Setup { channels: 2, exclusive: 1, floating: 0, ..Setup::default() });
    pair.run_until_idle();
    let bytes = frames(pair.id(0));
    pair.consumer_takes(&bytes).expect("the connection survives");
    assert_eq!(pair.consumer.as_ref().unwrap().open_channels(), 1, "the other channel stays open");
    pair.run_until_idle();
    assert_eq!(pair.cancel_frames, [pair.id(0)], "the peer is told to stop");
    let error = loop {
        match pair.gate().poll_next(std::task::Waker::noop()) {
            std::task::Poll::Ready(Err(error)) => break error,
            std::task::Poll::Ready(Ok(Some(_))) => {}
            other => panic!("{other:?} instead of the failure"),
        }
    };
    (pair, error)
}

#[test]
fn a_wrong_sequence_number_fails_the_channel() {
    let (pair, error) = with_forged(|channel| data(channel, 5, b"x"));
    assert_eq!(violation_of(&error), PeerViolation::Reordered { expected: 0, got: 5 });
    pair.assert_all_segments_home();
}

#[test]
fn data_without_credit_fails_the_channel() {
    let (pair, error) = with_forged(|channel| [data(channel, 0, b"x"), data(channel, 1, b"x")].concat());
    assert_eq!(violation_of(&error), PeerViolation::CreditOverdrawn);
    assert_eq!(
        error.to_string(),
        "producer:1 broke the protocol on input channel 0 (subpartition 0 of partition 7): \
         data buffer sent with no credit left"
    );
    pair.assert_all_segments_home();
}

#[test]
fn a_payload_beyond_the_segment_fails_the_channel_and_is_skipped() {
    let mut pair = Pair::with_exclusive_buffers(1);
    pair.run_until_idle();
    let header = DataHeader {
        channel: pair.id(0),
        sequence: 0,
        backlog: Backlog::ZERO,
        payload_bytes: SEGMENT_BYTES as u32 + 1,
        checksum: None,
    };
    let slot = pair.consumer.as_mut().unwrap().handle_header(header, std::task::Waker::noop()).unwrap();
    assert!(matches!(slot, PayloadSlot::Skip(bytes) if bytes == SEGMENT_BYTES + 1));
    let error = pair.try_read().unwrap_err();
    let (len_bytes, max_bytes) = (SEGMENT_BYTES as u32 + 1, SEGMENT_BYTES as u32);
    assert_eq!(violation_of(&error), PeerViolation::PayloadTooLong { len_bytes, max_bytes });
    pair.assert_all_segments_home();
}

#[test]
fn an_element_behind_the_end_of_partition_is_ignored() {
    let mut pair = Pair::with_exclusive_buffers(1);
    pair.finish_producer();
    pair.run_until_idle();
    let late = data(pair.id(0), 2, b"late");
    pair.consumer_takes(&late).unwrap();
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn an_empty_data_frame_gives_its_credit_back() {
    let mut pair = Pair::new(Setup { channels: 1, exclusive: 1, floating: 0, ..Setup::default() });
    pair.run_until_idle();
    for sequence in 0..3 {
        let empty = data(pair.id(0), sequence, b"");
        pair.consumer_takes(&empty).unwrap();
        let mut out = Vec::new();
        let mut expected = Vec::new();
        encode_credits([(pair.id(0), Credit::new(1))], &mut expected);
        let (id, consumer) = (pair.id(0), pair.consumer.as_mut().unwrap());
        consumer.on_ready(id);
        consumer.poll_transmit(&mut out);
        assert_eq!(out, expected);
    }
    pair.assert_all_segments_home();
}

#[test]
fn a_corrupted_payload_is_noticed_by_its_checksum() {
    let mut pair = Pair::new(Setup { checksums: true, ..Setup::default() });
    pair.emit_buffers(0, 2);
    pair.run_until_idle();
    assert!(pair.data_headers.iter().all(|header| header.checksum.is_some()));
    let header = DataHeader { sequence: 2, payload_bytes: 1, ..pair.data_headers[0] };
    let mut bytes = header.with_checksum(b"a").encode().to_vec();
    bytes.push(b'b');
    pair.read(2);
    pair.consumer_takes(&bytes).unwrap();
    assert!(matches!(violation_of(&pair.try_read().unwrap_err()), PeerViolation::Checksum { .. }));
    pair.assert_all_segments_home();
}

#[test]
fn frames_for_a_channel_that_never_was_end_the_connection() {
    let mut pair = Pair::with_exclusive_buffers(1);
    pair.run_until_idle();
    // The next unused id, and one beyond it.
    for unknown in [1, 9].map(ChannelId::new) {
        let violation = PeerViolation::UnknownChannel;
        let error = pair.consumer_takes(&data(unknown, 0, b"x")).unwrap_err();
        assert_eq!(error, ProtocolError::Peer { channel: unknown, violation });
        let registry = super::pair::Registry::default();
        let producer = pair.producer.as_mut().unwrap();
        for frame in [ControlFrame::Resume { channel: unknown }, ControlFrame::Cancel { channel: unknown }] {
            let error = producer.handle_frame(frame, &registry);
            assert_eq!(error, Err(ProtocolError::Peer { channel: unknown, violation }));
        }
    }
    pair.assert_all_segments_home();
}

#[test]
fn frames_from_the_wrong_side_end_the_connection() {
    let mut pair = Pair::with_exclusive_buffers(1);
    let channel = pair.id(0);
    let consumer = pair.consumer.as_mut().unwrap();
    let violation = PeerViolation::WrongSide { kind: FrameKind::Cancel.code() };
    assert_eq!(
        consumer.handle_frame(ControlFrame::Cancel { channel }),
        Err(ProtocolError::Peer { channel, violation })
    );
    assert!(consumer.handle_frame(ControlFrame::Close).is_err());
    let event = crate::event::Event::EndOfPartition;
    let frame = ControlFrame::Event { channel, sequence: 0, backlog: Backlog::ZERO, priority: false, event };
    assert!(pair.producer.as_mut().unwrap().handle_frame(frame, &pair.registry).is_err());
    pair.assert_all_segments_home();
}

#[test]
fn an_id_opened_twice_or_a_credit_beyond_all_memory_ends_the_connection() {
    let mut producer = ProducerConnection::new(ReadyList::new(), ProducerSettings::default());
    let registry = super::pair::Registry::default();
    let channel = ChannelId::new(0);
    let open = || ControlFrame::Open {
        channel,
        partition: PARTITION,
        subpartition: SubpartitionIndex::new(0),
        initial_credit: Credit::new(u32::MAX),
    };
    producer.handle_frame(open(), &registry).unwrap();
    let reopened = producer.handle_frame(open(), &registry);
    assert_eq!(reopened, Err(ProtocolError::Peer { channel, violation: PeerViolation::ChannelReopened }));

    let mut bytes = Vec::new();
    encode_credits([(channel, Credit::new(1))], &mut bytes);
    let limits = crate::wire::WireLimits::for_segments(32);
    let Ok(crate::wire::DecodeResult::Control { frame, .. }) = crate::wire::decode(&bytes, &limits) else { panic!() };
    let overflow = producer.handle_frame(frame, &registry);
    assert_eq!(overflow, Err(ProtocolError::Peer { channel, violation: PeerViolation::CreditOverflow }));
}

#[test]
fn a_failed_producer_gives_its_cause_to_remote_and_local_readers() {
    for is_local in [false, true] {
        let local: fn(u32) -> bool = if is_local { |_| true } else { |_| false };
        let mut pair = Pair::new(Setup { channels: 2, local, ..Setup::default() });
        pair.emit_buffers(0, 3);
        pair.run_until_idle();
        assert!(!pair.try_read().unwrap() || is_local || pair.hold(usize::MAX) < 9);
        pair.partition.as_ref().unwrap().fail("division by zero");
        pair.run_until_idle();
        let error = loop {
            match pair.try_read() {
                Ok(true) => {}
                Ok(false) => panic!("the failure is lost"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.to_string(), "producer of partition 7 failed: division by zero");
        pair.assert_all_segments_home();
    }
}

#[test]
fn a_partition_dropped_unfinished_is_released_for_its_readers() {
    for is_local in [false, true] {
        let local: fn(u32) -> bool = if is_local { |_| true } else { |_| false };
        let mut pair = Pair::new(Setup { local, ..Setup::default() });
        pair.emit_bytes(0, 3);
        pair.partition = None;
        pair.run_until_idle();
        assert!(matches!(pair.try_read(), Err(ExchangeError::Released)));
        pair.assert_all_segments_home();
    }
}

#[test]
fn a_reader_without_credit_learns_of_the_failure_all_the_same() {
    let mut pair = Pair::with_exclusive_buffers(1);
    pair.emit_buffers(0, 3);
    pair.run_until_idle();
    pair.partition.as_ref().unwrap().fail("out of luck");
    pair.run_until_idle();
    assert!(matches!(pair.try_read(), Err(ExchangeError::ProducerFailed { .. })));
    pair.assert_all_segments_home();
}

#[test]
fn a_lost_connection_fails_open_channels_in_the_peers_name_and_spares_ended_ones() {
    let mut pair = Pair::new(Setup { channels: 2, ..Setup::default() });
    pair.emit_buffers(0, 1);
    pair.run_until_idle();
    let lost = ExchangeError::connection_lost(PEER, "reset by peer");
    pair.consumer.as_mut().unwrap().connection_lost(&lost);
    pair.producer.as_mut().unwrap().connection_lost();
    assert_eq!(pair.try_read().unwrap_err().to_string(), "connection to producer:1 lost: reset by peer");
    assert!(pair.handle.is_consumed(), "the producer let go of every subpartition");
    pair.assert_all_segments_home();

    let mut ended = Pair::new(Setup::default());
    ended.emit_buffers(0, 1);
    ended.finish_producer();
    ended.run_until_idle();
    ended.consumer.as_mut().unwrap().connection_lost(&lost);
    ended.finish_and_assert_all_segments_home();
}

#[test]
fn a_peer_that_leaves_fails_all_channels_with_its_reason() {
    let mut pair = Pair::new(Setup { channels: 2, ..Setup::default() });
    pair.run_until_idle();
    pair.producer.as_mut().unwrap().leave(ErrorCode::Leaving, "shutting down");
    pair.run_until_idle();
    assert_eq!(pair.consumer.as_ref().unwrap().open_channels(), 0);
    assert_eq!(pair.try_read().unwrap_err().to_string(), "connection to producer:1 lost: shutting down");
    pair.assert_all_segments_home();
}

#[test]
fn a_request_waits_for_its_partition_and_is_served_when_it_comes() {
    let mut pair = Pair::new(Setup { registered: false, ..Setup::default() });
    pair.emit_buffers(0, 2);
    pair.run_until_idle();
    let producer = pair.producer.as_mut().unwrap();
    producer.expire_parked(1_000);
    producer.expire_parked(10_999);
    producer.retry_parked(&pair.registry);
    assert_eq!(producer.parked_requests(), 1);
    pair.registry.register(pair.handle.clone());
    pair.producer.as_mut().unwrap().retry_parked(&pair.registry);
    pair.run_until_idle();
    assert_eq!(pair.read(usize::MAX), 2);
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn a_request_that_waits_too_long_is_answered_not_found() {
    let mut pair = Pair::new(Setup { registered: false, ..Setup::default() });
    pair.run_until_idle();
    pair.producer.as_mut().unwrap().expire_parked(1_000);
    pair.producer.as_mut().unwrap().expire_parked(11_000);
    pair.run_until_idle();
    let error = pair.try_read().unwrap_err();
    assert!(matches!(error, ExchangeError::PartitionNotFound { partition } if partition == PARTITION));
    assert_eq!(pair.producer.as_ref().unwrap().parked_requests(), 0);
    pair.assert_all_segments_home();
}

#[test]
fn a_second_reader_and_a_missing_subpartition_are_refused_on_their_channels_only() {
    let mut pair = Pair::new(Setup::default());
    pair.run_until_idle();
    for (subpartition, expected) in
        [(0, "subpartition 0 has a reader already"), (5, "partition 7 has no subpartition 5")]
    {
        let gate = crate::gate::InputGate::new(1);
        let pool = Arc::clone(&pair.gate_pool);
        let remote = crate::channel::RemoteChannel::new(Arc::clone(&gate), crate::ChannelIndex::new(0), pool, 0);
        let consumer = pair.consumer.as_mut().unwrap();
        consumer.open(remote, PARTITION, SubpartitionIndex::new(subpartition));
        pair.run_until_idle();
        let std::task::Poll::Ready(Err(error)) = gate.poll_next(std::task::Waker::noop()) else { panic!() };
        assert_eq!(error.to_string(), expected);
        // The pool belongs to the pair: only a gate that owns a pool destroys it.
        std::mem::forget(gate);
    }
    pair.emit_buffers(0, 1);
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn a_dropped_connection_fails_its_channels() {
    let mut pair = Pair::new(Setup::default());
    pair.consumer = None;
    assert!(matches!(pair.try_read(), Err(ExchangeError::ConnectionLost { .. })));
    pair.assert_all_segments_home();
}

#[test]
fn a_dropped_connection_releases_what_its_channels_read() {
    let mut pair = Pair::new(Setup::default());
    pair.emit_buffers(0, 2);
    pair.run_until_idle();
    assert!(!pair.handle.is_consumed());
    pair.producer = None;
    assert!(pair.handle.is_consumed(), "nobody will read on");
    pair.assert_all_segments_home();
}

#[test]
fn a_connection_is_closed_once_the_peer_says_so() {
    let mut pair = Pair::new(Setup::default());
    pair.run_until_idle();
    assert!(!pair.producer.as_ref().unwrap().is_closed());
    pair.consumer.as_mut().unwrap().close();
    pair.run_until_idle();
    assert!(pair.producer.as_ref().unwrap().is_closed());
    pair.assert_all_segments_home();
}

#[test]
fn a_payload_that_never_comes_whole_gives_its_segment_back() {
    let mut pair = Pair::with_exclusive_buffers(1);
    pair.run_until_idle();
    let header =
        DataHeader { channel: pair.id(0), sequence: 0, backlog: Backlog::ZERO, payload_bytes: 5, checksum: None };
    let slot = pair.consumer.as_mut().unwrap().handle_header(header, std::task::Waker::noop()).unwrap();
    assert!(matches!(slot, PayloadSlot::Segment(_)));
    assert_eq!(pair.remote(0).owned_segments(), 1);
    drop(slot);
    assert_eq!(pair.remote(0).owned_segments(), 0);
    pair.assert_all_segments_home();
}

#[test]
fn a_ping_is_answered_from_either_side() {
    let mut pair = Pair::new(Setup::default());
    pair.consumer.as_mut().unwrap().ping(1);
    pair.producer.as_mut().unwrap().ping(2);
    pair.run_until_idle();
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn an_unknown_partition_id_is_no_reason_to_forget_others() {
    let mut producer = ProducerConnection::new(ReadyList::new(), ProducerSettings::default());
    let registry = super::pair::Registry::default();
    for id in 0..3 {
        let partition = PartitionId::new(u64::from(id));
        let (channel, subpartition) = (ChannelId::new(id), SubpartitionIndex::new(0));
        let open = ControlFrame::Open { channel, partition, subpartition, initial_credit: Credit::ZERO };
        producer.handle_frame(open, &registry).unwrap();
    }
    producer.handle_frame(ControlFrame::Cancel { channel: ChannelId::new(1) }, &registry).unwrap();
    producer.handle_frame(ControlFrame::Cancel { channel: ChannelId::new(1) }, &registry).unwrap();
    assert_eq!(producer.parked_requests(), 2);
    let consumer = ConsumerConnection::new(PEER, ReadyList::new());
    assert_eq!(consumer.open_channels(), 0);
}
