//! Tests the frames that a peer receives, and the counters and state of a connection, over real sockets.

use std::task::{Poll, Waker};
use std::time::Duration;

use flownet_core::channel::ChannelControl;
use flownet_core::gate::InputGate;
use flownet_core::subpartition::Element;
use flownet_core::wire::{ControlFrame, DataHeader, FrameKind};
use flownet_core::{Backlog, ChannelId, ChannelIndex};

use super::sockets::{INTERVAL, LeavingSide, Peer, Rig, TIMEOUT, error_in};
use crate::driver::End;
use crate::parker::ThreadParker;
use crate::{Inlets, NetworkConfig};

impl Peer {
    /// Sends a data frame of a producer, whose part the test plays.
    fn send_data(&mut self, channel: u32, sequence: u32, payload_bytes: u32, sent: usize) {
        use std::io::Write as _;
        self.socket.write_all(&data(channel, sequence, payload_bytes)[..sent]).unwrap();
    }

    async fn expect(&mut self, kind: FrameKind) {
        assert_eq!(self.frame().await, kind.code());
    }
}

fn data(channel: u32, sequence: u32, payload_bytes: u32) -> Vec<u8> {
    let (channel, backlog) = (ChannelId::new(channel), Backlog::ZERO);
    let header = DataHeader { channel, sequence, backlog, payload_bytes, checksum: None };
    header.encode().iter().copied().chain((0..payload_bytes).map(|_| 7)).collect()
}

/// Returns a rig in which no side asks for a sign of life.
async fn unasked() -> Rig {
    let (heartbeat_interval, heartbeat_timeout) = (Duration::from_secs(3600), Duration::from_secs(7200));
    Rig::with_config(128, 1024, NetworkConfig { heartbeat_interval, heartbeat_timeout, ..NetworkConfig::default() })
        .await
}

#[tokio::test]
async fn what_comes_and_goes_is_counted_and_a_frame_costs_the_task_one_turn() {
    const FRAMES: u64 = 50;
    let rig = unasked().await;
    let (mut peer, driver) = rig.producer();
    let mut bytes = Vec::new();
    for token in 0..FRAMES {
        let frame = ControlFrame::Ping { token };
        frame.encode(&mut bytes);
        peer.send(&frame);
        peer.expect(FrameKind::Pong).await;
    }
    peer.send(&ControlFrame::Ping { token: 0 });
    peer.expect(FrameKind::Pong).await;
    let frame_bytes = bytes.len() as u64 / FRAMES;
    drop(peer);
    driver.await.unwrap();
    let counted = rig.env.counters();
    assert_eq!((counted.frames_in, counted.bytes_in), (FRAMES + 1, (FRAMES + 1) * frame_bytes));
    assert_eq!((counted.writes, counted.bytes_out), (FRAMES + 1, (FRAMES + 1) * frame_bytes), "a PONG is as long");
    assert_eq!(counted.reads, FRAMES + 1, "none finds nothing but the one that finds the end");
    assert!((FRAMES..FRAMES * 3 / 2).contains(&counted.turns), "{counted:?}");
    rig.finish_and_assert_all_segments_home().await;
}

#[tokio::test]
async fn a_connection_is_lost_within_a_frame_and_closed_between_two() {
    let is_lost = |end: &End| match end {
        End::Lost(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => true,
        End::Closed => false,
        other => panic!("{other:?}"),
    };
    // Send nothing, a part of the header, a part of the payload, and all: of a wanted frame, and of a skipped one.
    for (sequence, sent) in [(0, 0), (0, 7), (0, 30), (0, 60), (5, 30), (5, 60)] {
        let rig = unasked().await;
        let (mut peer, driver, gate) = rig.consumer();
        peer.expect(FrameKind::Open).await;
        peer.send_data(0, sequence, 40, sent);
        peer.leave(LeavingSide::WithFin);
        let end = driver.await.unwrap();
        assert_eq!(is_lost(&end), ![0, 60].contains(&sent), "{sent} bytes: {end:?}");
        drop(gate);
        rig.finish_and_assert_all_segments_home().await;
    }
    for sent in [0, 7, 16] {
        use std::io::Write as _;
        let rig = unasked().await;
        let (mut peer, driver) = rig.producer();
        let mut frame = Vec::new();
        ControlFrame::Ping { token: 5 }.encode(&mut frame);
        assert_eq!(frame.len(), 16);
        peer.socket.write_all(&frame[..sent]).unwrap();
        if sent == 16 {
            peer.expect(FrameKind::Pong).await;
        }
        peer.leave(LeavingSide::WithFin);
        let end = driver.await.unwrap();
        assert_eq!(is_lost(&end), sent == 7, "{sent} bytes: {end:?}");
        rig.finish_and_assert_all_segments_home().await;
    }
}

#[tokio::test]
async fn a_consumer_that_says_it_leaves_is_not_waited_for_though_its_socket_stays_open() {
    let rig = unasked().await;
    let (mut peer, driver) = rig.producer();
    peer.send(&ControlFrame::Close);
    assert!(matches!(driver.await.unwrap(), End::Closed));
    drop(peer);
    rig.finish_and_assert_all_segments_home().await;
}

#[tokio::test]
async fn a_consumer_that_shuts_down_says_so_to_its_producer_and_to_its_channels() {
    let rig = unasked().await;
    let (mut peer, driver, gate) = rig.consumer_of(1, ChannelControl::Credit, &Inlets::new());
    peer.expect(FrameKind::Open).await;
    driver.abort();
    peer.expect(FrameKind::Close).await;
    let error = error_in(&gate).to_string();
    assert!(error.contains("192.0.2.1:7") && error.contains("the network of this process was shut down"), "{error}");
    drop(gate);
    rig.finish_and_assert_all_segments_home().await;
}

#[tokio::test]
async fn a_connection_that_ended_within_a_payload_holds_no_segment_whoever_holds_it() {
    let rig = unasked().await;
    let (mut peer, driver, gate) = rig.consumer_of(1, ChannelControl::Credit, &Inlets::new());
    peer.expect(FrameKind::Open).await;
    peer.send_data(0, 0, 40, 30);
    peer.leave(LeavingSide::WithFin);
    let (_, held) = driver.await.unwrap();
    drop(gate);
    assert_eq!(rig.segments.available(), rig.segments.total());
    drop(held);
    rig.finish_and_assert_all_segments_home().await;
}

#[tokio::test]
async fn a_consumer_whose_task_has_no_room_reads_no_further_and_tells_its_producer_that_it_lives() {
    let rig = Rig::impatient().await;
    let (mut peer, driver, gate) = rig.consumer_of(1, ChannelControl::Tcp { exchange: 0 }, &Inlets::new());
    peer.expect(FrameKind::Open).await;
    // Send more than the gate has segments for.
    for sequence in 0..12 {
        peer.send_data(0, sequence, 1000, 1020);
    }
    // Until it has read that far, it may still send a PING.
    while peer.frame().await != FrameKind::Pong.code() {}
    for _ in 0..3 * TIMEOUT.as_millis() / INTERVAL.as_millis() {
        peer.expect(FrameKind::Pong).await;
    }
    assert!(!driver.is_finished(), "nobody is given up of whom nothing is read");
    assert_eq!(take_buffers(&gate, 12).await, [1000; 12], "and nothing is lost");
    drop((peer, gate));
    let _ = driver.await.unwrap();
    rig.finish_and_assert_all_segments_home().await;
}

/// Returns the lengths of `count` buffers, whose segments return to the pool.
async fn take_buffers(gate: &InputGate, count: usize) -> Vec<usize> {
    let mut lengths = Vec::new();
    while lengths.len() < count {
        let next = std::future::poll_fn(|cx| gate.poll_next(cx.waker())).await.unwrap();
        if let Some((_, Element::Data(buffer))) = next {
            lengths.push(buffer.len());
        }
    }
    lengths
}

#[tokio::test]
async fn a_thread_about_to_sleep_brings_credit_of_many_channels_and_keeps_that_of_few() {
    const CHANNELS: u32 = 32;
    // A quarter of the channels counts as many.
    const MANY: u32 = CHANNELS / 4;
    let rig = unasked().await;
    let inlets = Inlets::new();
    let (mut peer, driver, gate) = rig.consumer_of(CHANNELS, ChannelControl::Credit, &inlets);
    for _ in 0..CHANNELS {
        peer.expect(FrameKind::Open).await;
    }
    // The first buffers are replaced, after which the pool has lent its maximum. Waiting channels then get segments as
    // others are read.
    for sequence in 0..2 {
        for channel in 0..MANY {
            peer.send_data(channel, sequence, 10, 30);
        }
        peer.send(&ControlFrame::Ping { token: 5 });
        while peer.frame().await != FrameKind::Pong.code() {}
    }
    let mut buffers = Vec::new();
    assert!(matches!(gate.poll_batch(MANY as usize, &mut buffers, Waker::noop()), Poll::Ready(Ok(_))));
    assert_eq!(buffers.len(), MANY as usize);
    // The connection's task does not run from here on, so this thread does all writes.
    let parker = ThreadParker::current();
    let about_to_sleep = || {
        parker.waker().wake_by_ref();
        assert!(inlets.park(&parker, None));
    };
    let last: (ChannelIndex, Element) = buffers.pop().unwrap();
    drop(buffers);
    about_to_sleep();
    assert_eq!(peer.try_frame(), None, "they can wait for others'");
    drop(last);
    about_to_sleep();
    assert_eq!(peer.frame_from_a_thread(), FrameKind::Credit.code());
    drop((peer, gate));
    let _ = driver.await.unwrap();
    drop(inlets);
    rig.finish_and_assert_all_segments_home().await;
}
