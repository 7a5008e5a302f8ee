//! Tests of one channel alone: its credit, its segments, its sequence.

use std::sync::Arc;
use std::task::Waker;

use flownet_memory::{BufferPoolSettings, SegmentPool};

use super::*;
use crate::event::BarrierKind;
use crate::exchange::ready::ReadyList;
use crate::ids::ChannelId;
use crate::sizing::PoolSizing;
use crate::tests::{CountingWaker, barrier};

/// Creates a channel of a gate with `segments` segments.
fn channel_of(segments: usize, exclusive: u32) -> (Arc<SegmentPool>, Arc<InputGate>, Arc<RemoteChannel>) {
    let all = SegmentPool::new(segments, 8).unwrap();
    let settings = BufferPoolSettings { max: Some(segments), ..PoolSizing::default().gate(1) };
    let (gate, pool) = (InputGate::new(1), all.create_buffer_pool(settings).unwrap());
    let channel = RemoteChannel::new(Arc::clone(&gate), ChannelIndex::new(0), pool, exclusive);
    (all, gate, channel)
}

/// Connects the channel to a sleeping driver.
fn connect(channel: &RemoteChannel) -> (Arc<ReadyList>, Arc<CountingWaker>) {
    let (ready, (driver, wakes)) = (ReadyList::new(), CountingWaker::new());
    assert!(ready.poll_drain(&mut Vec::new(), &driver).is_pending());
    channel.connect(ready.listing_for(ChannelId::new(0)));
    (ready, wakes)
}

#[test]
fn sequence_numbers_wrap_around() {
    let (segments, gate, channel) = channel_of(2, 2);
    assert_eq!(channel.initial_credit(), Credit::new(2));
    channel.state.lock().expected_sequence = u32::MAX;
    assert!(channel.take_for_receive(0).is_err());
    let last = channel.take_for_receive(u32::MAX).unwrap().unwrap();
    channel.on_buffer(last, 1, Backlog::ZERO).unwrap();
    channel.on_event(Event::EndOfPartition, 0, Backlog::ZERO).unwrap();
    assert_eq!((gate.queued_buffers(), channel.free_segments()), (1, 0), "its end gives the segments back");
    drop((channel, gate));
    assert_eq!(segments.available(), segments.total());
}

#[test]
fn a_channel_with_much_credit_hands_it_back_in_batches_that_keep_a_long_link_busy() {
    let (segments, gate, channel) = channel_of(40, 40);
    assert_eq!(channel.initial_credit(), Credit::new(40));
    let (_ready, wakes) = connect(&channel);
    for sequence in 0..CREDIT_BATCH {
        assert_eq!(wakes.count(), 0, "{sequence} are not a batch");
        let segment = channel.take_for_receive(sequence).unwrap().unwrap();
        channel.on_buffer(segment, 1, Backlog::ZERO).unwrap();
        assert!(gate.poll_next(Waker::noop()).is_ready(), "read and dropped");
    }
    assert_eq!((wakes.count(), channel.take_announcement().credit), (1, Credit::new(CREDIT_BATCH)));
    drop((channel, gate));
    assert_eq!(segments.available(), segments.total());
}

#[test]
fn nobody_is_woken_for_a_little_credit_while_the_producer_has_some() {
    let (segments, gate, channel) = channel_of(4, 2);
    assert_eq!(channel.initial_credit(), Credit::new(2));
    let (ready, wakes) = connect(&channel);

    let receive = |sequence| {
        let segment = channel.take_for_receive(sequence).unwrap().unwrap();
        channel.on_buffer(segment, 1, Backlog::ZERO).unwrap();
    };
    receive(0);
    assert!(gate.poll_next(Waker::noop()).is_ready(), "read and dropped");
    assert_eq!((wakes.count(), ready.has_any()), (0, true), "it has one more, so that this one may wait for company");
    receive(1);
    assert_eq!(wakes.count(), 1, "it has none: what waits is announced before the task has read");
    assert!(!channel.take_announcement().credit.is_zero());
    drop((channel, gate));
    assert_eq!(segments.available(), segments.total());
}

#[test]
fn an_announcement_between_header_and_payload_promises_nothing_twice() {
    let (segments, gate, channel) = channel_of(3, 1);
    let _ = channel.initial_credit();
    channel.on_backlog(Backlog::new(1));
    assert_eq!(channel.take_announcement().credit, Credit::new(1));
    let segment = channel.take_for_receive(0).unwrap().unwrap();
    channel.request_segments();
    assert_eq!((channel.owned_segments(), channel.take_announcement().credit), (2, Credit::ZERO));
    channel.forfeit(segment);
    drop((channel, gate));
    assert_eq!(segments.available(), segments.total());
}

#[test]
fn a_blocked_channel_tells_nobody_of_the_credit_that_it_keeps_for_its_resume() {
    let (segments, gate, channel) = channel_of(2, 2);
    assert_eq!(channel.initial_credit(), Credit::new(2));
    let (ready, wakes) = connect(&channel);
    let segment = channel.take_for_receive(0).unwrap().unwrap();
    channel.on_buffer(segment, 1, Backlog::ZERO).unwrap();
    channel.on_event(barrier(1, BarrierKind::Aligned), 1, Backlog::ZERO).unwrap();
    assert!(gate.poll_next(Waker::noop()).is_ready(), "read and dropped");
    assert_eq!((wakes.count(), ready.has_any()), (0, false));
    assert!(channel.resume());
    let announced = channel.take_announcement();
    assert_eq!((wakes.count(), announced.resume, announced.credit), (1, true, Credit::new(2)));
    drop((channel, gate));
    assert_eq!(segments.available(), segments.total());
}

#[test]
fn a_channel_that_is_dropped_ends_what_it_had_booked() {
    let all = SegmentPool::new(4, 8).unwrap();
    let settings = BufferPoolSettings { max: Some(8), ..PoolSizing::default().gate(1) };
    let (gate, pool) = (InputGate::new(2), all.create_buffer_pool(settings).unwrap());
    for index in 0..2 {
        let channel = RemoteChannel::new(Arc::clone(&gate), ChannelIndex::new(index), Arc::clone(&pool), 8);
        assert_eq!(channel.initial_credit(), Credit::new(3), "all that may stand of a short pool of four");
    }
}

#[test]
fn a_channel_says_what_controls_it() {
    for control in [ChannelControl::Credit, ChannelControl::Unbounded] {
        let (_segments, _gate, other) = channel_of(2, 1);
        let pool = Arc::clone(&other.pool);
        let channel = RemoteChannel::with_control(InputGate::new(1), ChannelIndex::new(0), pool, 1, control);
        assert_eq!((channel.control(), other.control()), (control, ChannelControl::Credit));
    }
}

#[test]
fn a_channel_gives_up_a_segment_that_stands_and_its_booking_where_another_waits_for_one() {
    let all = SegmentPool::new(4, 8).unwrap();
    let settings = BufferPoolSettings { max: Some(8), ..PoolSizing::default().gate(1) };
    let (gate, pool) = (InputGate::new(2), all.create_buffer_pool(settings).unwrap());
    let [rich, poor] = [(0, 8), (1, 0)].map(|(index, exclusive)| {
        RemoteChannel::new(Arc::clone(&gate), ChannelIndex::new(index), Arc::clone(&pool), exclusive)
    });
    assert_eq!([rich.initial_credit(), poor.initial_credit()], [3, 0].map(Credit::new));
    let last = pool.try_take(0).unwrap();
    poor.on_backlog(Backlog::new(1));
    let segment = rich.take_for_receive(0).unwrap().unwrap();
    rich.on_buffer(segment, 1, Backlog::ZERO).unwrap();
    assert_eq!((pool.standing(), poor.free_segments()), (3, 0));
    assert!(gate.poll_next(Waker::noop()).is_ready(), "read and dropped");
    assert_eq!((pool.standing(), rich.owned_segments(), poor.free_segments()), (2, 2, 1));
    drop((last, rich, poor, gate));
    assert_eq!((pool.standing(), pool.in_use()), (0, 0));
}
