//! Cost limits of an authenticated peer that does not read, requests too much, or sends unrequested messages.

use std::task::{Poll, Waker};

use super::pair::{PARTITION, PEER, Pair, Registry, Setup, barrier, watermark};
use crate::credit::{Backlog, Credit, EVENT_WINDOW, EventsRead};
use crate::error::{ExchangeError, PeerViolation, ProtocolError};
use crate::event::{BarrierKind, Event};
use crate::exchange::consumer::ConsumerConnection;
use crate::exchange::outbox::Outbox;
use crate::exchange::producer::{MAX_UNANSWERED_REQUESTS, ProducerConnection, ProducerSettings};
use crate::exchange::ready::ReadyList;
use crate::ids::{ChannelId, PartitionId, SubpartitionIndex};
use crate::wire::codec::{DecodeResult, decode};
use crate::wire::frame::{HEADER_BYTES, MAX_ERROR_MESSAGE_BYTES};
use crate::wire::{ControlFrame, WireLimits, encode_events_read};

const FLOOD: u64 = 100_000;
const PONG_BYTES: usize = HEADER_BYTES + 8;

fn producer() -> ProducerConnection {
    ProducerConnection::new(ReadyList::new(), ProducerSettings::default())
}

fn open(channel: u32, partition: PartitionId) -> ControlFrame<'static> {
    let (channel, subpartition) = (ChannelId::new(channel), SubpartitionIndex::new(0));
    ControlFrame::Open { channel, partition, subpartition, initial_credit: Credit::ZERO }
}

fn violation(result: Result<(), ProtocolError>) -> PeerViolation {
    match result.unwrap_err() {
        ProtocolError::Peer { violation, .. } => violation,
        other => panic!("{other} is no violation"),
    }
}

/// Takes all bytes, as a socket does, and counts their frames.
fn take(outbox: &mut Outbox, count: &mut impl FnMut(&ControlFrame<'_>)) {
    let mut bytes = Vec::new();
    while !outbox.is_empty() {
        let mut slices = [std::io::IoSlice::new(&[]); 64];
        let filled = outbox.io_slices(&mut slices);
        let before = bytes.len();
        slices[..filled].iter().for_each(|slice| bytes.extend_from_slice(slice));
        outbox.advance(bytes.len() - before);
    }
    let mut rest = &bytes[..];
    while let DecodeResult::Control { frame, consumed } = decode(rest, &WireLimits::for_segments(32)).unwrap() {
        count(&frame);
        rest = &rest[consumed..];
    }
    assert!(rest.is_empty());
}

#[test]
fn signs_of_life_and_questions_for_them_go_out_with_the_next_transmit() {
    let (mut producer, mut outbox) = (producer(), Outbox::new());
    let mut consumer = ConsumerConnection::new(PEER, ReadyList::new());
    producer.ping(1);
    producer.pong(2);
    producer.poll_transmit(&mut outbox, 16);
    let mut seen = Vec::new();
    let mut note = |frame: &ControlFrame<'_>| match *frame {
        ControlFrame::Ping { token } => seen.push(("ping", token)),
        ControlFrame::Pong { token } => seen.push(("pong", token)),
        _ => panic!("{frame:?}"),
    };
    take(&mut outbox, &mut note);
    consumer.ping(3);
    consumer.pong(4);
    outbox.push_control(|out| assert!(consumer.poll_transmit(out)));
    take(&mut outbox, &mut note);
    assert_eq!(seen, [("ping", 1), ("pong", 2), ("ping", 3), ("pong", 4)]);
}

#[test]
fn a_flood_of_pings_is_answered_once_by_either_end() {
    let (mut producer, mut outbox) = (producer(), Outbox::new());
    let mut consumer = ConsumerConnection::new(PEER, ReadyList::new());
    for token in 0..FLOOD {
        producer.handle_frame(ControlFrame::Ping { token }, &Registry::default()).unwrap();
        consumer.handle_frame(ControlFrame::Ping { token }).unwrap();
    }
    producer.poll_transmit(&mut outbox, 16);
    let mut answer = Vec::new();
    consumer.poll_transmit(&mut answer);
    assert_eq!((outbox.queued_bytes(), answer.len()), (PONG_BYTES, PONG_BYTES));
    take(&mut outbox, &mut |frame| assert_eq!(*frame, ControlFrame::Pong { token: FLOOD - 1 }, "of the newest"));
}

#[test]
fn a_backlog_without_credit_is_announced_once() {
    let mut pair = Pair::new(Setup { exclusive: 0, floating: 1, ..Setup::default() });
    pair.emit_buffers(0, 1);
    pair.run_until_idle();
    assert_eq!((pair.hold(1), pair.backlog_frames.len()), (1, 1));
    for _ in 0..5 {
        pair.emit_buffers(0, 1);
        // A spurious entry: a reader may be served although it has no new data.
        let id = pair.id(0);
        pair.producer.as_mut().unwrap().on_ready(id);
        pair.run_until_idle();
        assert_eq!(pair.backlog_frames.len(), 2, "the task holds the only segment: once for all that waits");
    }
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn the_text_of_refusals_waits_as_one_until_the_socket_has_room() {
    let pair = Pair::new(Setup::default());
    let cause = "x".repeat(2 * MAX_ERROR_MESSAGE_BYTES);
    pair.partition.as_ref().unwrap().fail(cause);
    let (mut producer, mut outbox) = (producer(), Outbox::new());
    const REQUESTS: u32 = 10_000;
    for channel in 0..REQUESTS {
        producer.handle_frame(open(channel, PARTITION), &pair.registry).unwrap();
    }
    let mut told = 0;
    loop {
        let has_more = producer.poll_transmit(&mut outbox, 16);
        let queued_bytes = outbox.queued_bytes();
        assert!(queued_bytes <= 128 * 1024, "{queued_bytes} bytes at once");
        take(&mut outbox, &mut |frame| told += u32::from(matches!(frame, ControlFrame::Error { .. })));
        if !has_more {
            break;
        }
    }
    assert_eq!(told, REQUESTS, "each is told in the end");
    pair.assert_all_segments_home();
}

#[test]
fn more_requests_than_any_correct_peer_has_waiting_end_the_connection() {
    let (mut producer, registry) = (producer(), Registry::default());
    let last = u32::try_from(MAX_UNANSWERED_REQUESTS).unwrap();
    for channel in 0..last {
        producer.handle_frame(open(channel, PARTITION), &registry).unwrap();
    }
    // Each request is found by its id, without a search of the others.
    for channel in 0..last {
        let mut bytes = Vec::new();
        crate::wire::encode_credits([(ChannelId::new(channel), Credit::new(1))], &mut bytes);
        let Ok(DecodeResult::Control { frame, .. }) = decode(&bytes, &WireLimits::for_segments(32)) else { panic!() };
        producer.handle_frame(frame, &registry).unwrap();
        producer.expire_parked(u64::from(channel) % 1000);
    }
    let refused = violation(producer.handle_frame(open(last, PARTITION), &registry));
    assert_eq!(refused, PeerViolation::TooManyRequests { limit: last });
}

#[test]
fn the_highest_id_is_opened_once() {
    let mut pair = Pair::new(Setup::default());
    let producer = pair.producer.as_mut().unwrap();
    producer.handle_frame(open(u32::MAX, PARTITION), &pair.registry).unwrap();
    let reopened = violation(producer.handle_frame(open(u32::MAX, PARTITION), &pair.registry));
    assert_eq!(reopened, PeerViolation::ChannelReopened);
    pair.assert_all_segments_home();
}

#[test]
fn what_follows_a_blocking_event_unasked_is_the_peers_fault() {
    for has_resumed in [false, true] {
        for behind in [watermark(1), barrier(2, BarrierKind::Aligned), barrier(2, BarrierKind::Unaligned)] {
            let mut pair = Pair::new(Setup { channels: 2, ..Setup::default() });
            pair.run_until_idle();
            let channel = pair.id(0);
            let send = |pair: &mut Pair, sequence, event: Event| {
                let priority = event.is_priority();
                let frame = ControlFrame::Event { channel, sequence, backlog: Backlog::ZERO, priority, event };
                let mut bytes = Vec::new();
                frame.encode(&mut bytes);
                pair.consumer_takes(&bytes).unwrap();
            };
            send(&mut pair, 0, barrier(1, BarrierKind::Aligned));
            if has_resumed {
                assert!(matches!(pair.gate().poll_next(Waker::noop()), Poll::Ready(Ok(Some(_)))));
                pair.gate().resume(crate::ChannelIndex::new(0)).unwrap();
            }
            send(&mut pair, 1, behind);
            let error = loop {
                match pair.gate().poll_next(Waker::noop()) {
                    Poll::Ready(Ok(Some(_))) => {}
                    Poll::Ready(Err(error)) => break error,
                    other => panic!("{other:?}"),
                }
            };
            assert!(
                matches!(error, ExchangeError::ProtocolViolation { violation: PeerViolation::Blocked, .. }),
                "{error}"
            );
            pair.assert_all_segments_home();
        }
    }
}

#[test]
fn more_events_than_the_window_are_the_peers_fault() {
    let mut pair = Pair::new(Setup { channels: 2, ..Setup::default() });
    pair.run_until_idle();
    let mut bytes = Vec::new();
    for sequence in 0..=EVENT_WINDOW {
        let (channel, backlog, event) = (pair.id(0), Backlog::ZERO, watermark(i64::from(sequence)));
        ControlFrame::Event { channel, sequence, backlog, priority: false, event }.encode(&mut bytes);
    }
    pair.consumer_takes(&bytes).unwrap();
    let error = pair.gate().poll_next(Waker::noop());
    let violation = PeerViolation::TooManyEvents { limit: EVENT_WINDOW };
    assert!(
        matches!(&error, Poll::Ready(Err(ExchangeError::ProtocolViolation { violation: found, .. })) if *found == violation),
        "{error:?}"
    );
    pair.assert_all_segments_home();
}

#[test]
fn events_read_that_were_never_sent_end_the_connection() {
    let mut pair = Pair::new(Setup::default());
    pair.emit_event(0, watermark(1));
    pair.run_until_idle();
    let say = |pair: &mut Pair, read| {
        let mut bytes = Vec::new();
        encode_events_read([(pair.id(0), EventsRead::new(read))], &mut bytes);
        let Ok(DecodeResult::Control { frame, .. }) = decode(&bytes, &WireLimits::for_segments(32)) else { panic!() };
        pair.producer.as_mut().unwrap().handle_frame(frame, &pair.registry)
    };
    assert_eq!(violation(say(&mut pair, 2)), PeerViolation::EventsNotSent);
    say(&mut pair, 1).unwrap();
    assert_eq!(violation(say(&mut pair, u32::MAX)), PeerViolation::EventsNotSent);
    pair.assert_all_segments_home();
}
