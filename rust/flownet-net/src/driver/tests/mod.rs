//! Tests both drivers over a pipe that splits the stream anywhere: no sockets, no threads, paused time.

mod environments;
mod model;
mod peers;
mod pipe;
mod receiver;
mod rig;
mod sender;
mod silence;
mod sockets;
mod streams;
mod tls_link;

use std::time::Duration;

use flownet_core::channel::ChannelControl;
use flownet_core::wire::{ControlFrame, DataHeader};
use flownet_core::{Backlog, ChannelId, Credit, Event, ExchangeError, PartitionId, PeerViolation, ProtocolError};
use flownet_core::{SubpartitionIndex, Target, WireError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::End;
use pipe::Kind;
use rig::{PARTITION, Rig, SEGMENT_BYTES, numbered};

#[tokio::test(start_paused = true)]
async fn records_arrive_once_and_in_order_however_the_stream_is_split() {
    for kind in [Kind::Plain, Kind::Buffering] {
        for pipe_bytes in [1, 2, 3, 5, 7, 19, 20, 21, 33, 64, 500, 4096, 1 << 20] {
            let rig = Rig::with_links(kind, pipe_bytes, SEGMENT_BYTES).await;
            let writer = rig.writer(1);
            let reader = rig.open(0);
            let records = numbered(200);
            let (received, ()) = rig.drive(async { tokio::join!(reader.read_all(), writer.emit_all(&records)) }).await;
            assert_eq!(received.unwrap(), records, "{kind:?}, pipe of {pipe_bytes} bytes");
            rig.finish_and_assert_all_segments_home().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_credit_records_arrive_once_and_in_order_too() {
    for control in [ChannelControl::Tcp { exchange: 0 }, ChannelControl::Unbounded] {
        for pipe_bytes in [1, 3, 20, 33, 500, 1 << 20] {
            let rig = Rig::new(pipe_bytes).await;
            let writer = rig.writer(1);
            let reader = rig.open_under(control, 0);
            let records = numbered(300);
            let (received, ()) = rig.drive(async { tokio::join!(reader.read_all(), writer.emit_all(&records)) }).await;
            assert_eq!(received.unwrap(), records, "{control:?}, pipe of {pipe_bytes} bytes");
            rig.finish_and_assert_all_segments_home().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_channel_that_is_not_read_does_not_hold_up_the_other() {
    let rig = Rig::new(100).await;
    let mut writer = rig.writer(2);
    let (stalled, running) = (rig.open(0), rig.open(1));
    let records = numbered(300);
    rig.drive(async {
        let write = async {
            for (index, record) in records.iter().enumerate() {
                // The stalled channel gets as many records as fit its buffers, the other one gets all.
                if index < 10 {
                    writer.emit(Target::Subpartition(0), record).await;
                }
                writer.emit(Target::Subpartition(1), record).await;
            }
            writer.finish();
        };
        let (received, ()) = tokio::join!(running.read_all(), write);
        assert_eq!(received.unwrap(), records);
        assert_eq!(stalled.read_all().await.unwrap(), records[..10]);
    })
    .await;
    drop(writer);
    rig.finish_and_assert_all_segments_home().await;
}

#[tokio::test(start_paused = true)]
async fn an_end_or_a_reset_that_comes_with_bytes_is_found_behind_them() {
    for kind in [Kind::Plain, Kind::Buffering] {
        for is_reset in [false, true] {
            let mut rig = Rig::new(64).await;
            let mut producer = rig.take_raw_producer_end_of(kind);
            let reader = rig.open(0);
            let mut bytes = Vec::new();
            let (sequence, backlog, priority) = (0, Backlog::ZERO, false);
            let event = Event::EndOfData { drain: true };
            ControlFrame::Event { channel: ChannelId::new(0), sequence, backlog, priority, event }.encode(&mut bytes);
            // Read the OPEN frame; then the driver has nothing to do.
            rig.drive(producer.read_exact(&mut [0; 28])).await.unwrap();
            producer.write_all(&bytes).await.unwrap();
            if is_reset {
                producer.reset();
            } else {
                drop(producer);
            }
            let error = rig.drive(reader.read_all()).await.unwrap_err().to_string();
            assert!(error.contains(if is_reset { "reset by the peer" } else { "closed by the peer" }), "{error}");
            rig.finish_and_assert_all_segments_home().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_vanishes_releases_the_producer() {
    let mut rig = Rig::new(64).await;
    let mut writer = rig.writer(1);
    let mut reader = rig.open(0);
    rig.drive(async {
        writer.emit(Target::Any, b"first").await;
        writer.flush();
        reader.next().await.unwrap();
    })
    .await;
    rig.drop_consumer();
    assert!(matches!(rig.drive(reader.read_all()).await, Err(ExchangeError::ConnectionLost { .. })));
    // Without a reader the records are lost, but the writer must not hang.
    rig.drive(writer.emit_all(&numbered(1000))).await;
    assert!(matches!(rig.producer_end(), Some(End::Closed)));
    rig.finish_and_assert_all_segments_home().await;
}

#[tokio::test(start_paused = true)]
async fn a_producer_that_leaves_says_so_to_its_channels() {
    let mut rig = Rig::new(4096).await;
    let mut writer = rig.writer(1);
    let mut reader = rig.open(0);
    rig.drive(async {
        writer.emit(Target::Any, b"only").await;
        writer.flush();
        reader.next().await.unwrap();
    })
    .await;
    rig.drop_producer();
    let error = rig.drive(reader.read_all()).await.unwrap_err();
    assert!(
        matches!(&error, ExchangeError::ConnectionLost { peer, reason }
        if **peer == *rig.peer() && reason.contains("shut down")),
        "{error}"
    );
    drop(writer);
    rig.finish_and_assert_all_segments_home().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_inside_a_frame_is_a_lost_connection_naming_the_peer() {
    let frame = DataHeader {
        channel: ChannelId::new(0),
        sequence: 0,
        backlog: Backlog::new(0),
        payload_bytes: 40,
        checksum: None,
    };
    let header = frame.encode();
    for sent in [1, 8, 20, 21, 59] {
        let mut rig = Rig::new(4096).await;
        let mut producer = rig.take_raw_producer_end();
        let reader = rig.open(0);
        let error = rig
            .drive(async {
                // Read the OPEN frame, so that the channel exists.
                producer.read_exact(&mut [0; 28]).await.unwrap();
                let bytes: Vec<u8> = header.iter().copied().chain([7; 40]).take(sent).collect();
                producer.write_all(&bytes).await.unwrap();
                drop(producer);
                reader.read_all().await.unwrap_err()
            })
            .await;
        let text = error.to_string();
        assert!(matches!(error, ExchangeError::ConnectionLost { .. }), "{text}");
        assert!(text.contains(rig.peer()) && text.contains("closed by the peer"), "{text}");
        rig.finish_and_assert_all_segments_home().await;
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_that_are_no_frame_end_the_connection_on_either_side() {
    let mut rig = Rig::new(4096).await;
    let mut consumer = rig.take_raw_consumer_end();
    rig.drive(consumer.write_all(&[0xff; 100])).await.unwrap();
    rig.drive_to_end().await;
    let end = rig.producer_end().unwrap();
    assert!(matches!(end, End::Violation(ProtocolError::Wire(WireError::UnknownKind(0xff)))), "{end:?}");
    rig.finish_and_assert_all_segments_home().await;

    let mut rig = Rig::new(4096).await;
    let mut producer = rig.take_raw_producer_end();
    let reader = rig.open(0);
    let error = rig
        .drive(async {
            producer.write_all(&[0xff; 100]).await.unwrap();
            reader.read_all().await.unwrap_err()
        })
        .await;
    assert!(error.to_string().contains("unknown frame kind"), "{error}");
    rig.finish_and_assert_all_segments_home().await;
}

#[tokio::test(start_paused = true)]
async fn a_giant_length_is_refused_before_anything_is_allocated_for_it() {
    let mut rig = Rig::new(4096).await;
    let mut consumer = rig.take_raw_consumer_end();
    // CREDIT with a body of almost 4 GiB.
    rig.drive(consumer.write_all(&[17, 0, 0, 0, 0xf8, 0xff, 0xff, 0xff])).await.unwrap();
    rig.drive_to_end().await;
    let end = rig.producer_end().unwrap();
    assert!(matches!(end, End::Violation(ProtocolError::Wire(WireError::TooLong { .. }))), "{end:?}");
    rig.finish_and_assert_all_segments_home().await;
}

#[tokio::test(start_paused = true)]
async fn data_sent_to_a_producer_is_a_violation() {
    let mut rig = Rig::new(4096).await;
    let mut consumer = rig.take_raw_consumer_end();
    let header = DataHeader {
        channel: ChannelId::new(3),
        sequence: 0,
        backlog: Backlog::new(0),
        payload_bytes: 1,
        checksum: None,
    };
    rig.drive(consumer.write_all(&header.encode())).await.unwrap();
    rig.drive_to_end().await;
    let end = rig.producer_end().unwrap();
    let expected = PeerViolation::WrongSide { kind: 1 };
    assert!(matches!(end, End::Violation(ProtocolError::Peer { violation, .. }) if *violation == expected), "{end:?}");
    rig.finish_and_assert_all_segments_home().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_its_partition_and_is_then_served() {
    let rig = Rig::new(4096).await;
    let reader = rig.open(0);
    let records = numbered(20);
    let received = rig
        .drive(async {
            let late = async {
                tokio::time::sleep(Duration::from_secs(3)).await;
                rig.writer(1).emit_all(&records).await;
            };
            tokio::join!(reader.read_all(), late).0
        })
        .await;
    assert_eq!(received.unwrap(), records);
    rig.finish_and_assert_all_segments_home().await;
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_never_comes_is_reported_as_not_found_in_time() {
    let rig = Rig::new(4096).await;
    let reader = rig.open(0);
    let before = tokio::time::Instant::now();
    let error = rig.drive(reader.read_all()).await.unwrap_err();
    assert!(
        matches!(error, ExchangeError::PartitionNotFound { partition } if partition == PartitionId::new(PARTITION)),
        "{error}"
    );
    assert!((10..13).contains(&before.elapsed().as_secs()), "{:?}", before.elapsed());
    rig.finish_and_assert_all_segments_home().await;
}

#[tokio::test(start_paused = true)]
async fn credits_of_many_channels_go_out_in_one_frame() {
    let mut rig = Rig::new(1 << 16).await;
    let mut producer = rig.take_raw_producer_end();
    let readers = [rig.open(0), rig.open(1)];
    rig.drive(async {
        // Both channels open with their two exclusive buffers.
        let mut opens = [0; 56];
        producer.read_exact(&mut opens).await.unwrap();
        let mut bytes = Vec::new();
        for sequence in 0..2 {
            for channel in [0, 1] {
                let header = DataHeader {
                    channel: ChannelId::new(channel),
                    sequence,
                    backlog: Backlog::new(0),
                    payload_bytes: 0,
                    checksum: None,
                };
                bytes.extend_from_slice(&header.encode());
            }
        }
        producer.write_all(&bytes).await.unwrap();
        // Empty buffers return their credit at once: one header, two pairs.
        let mut frame = [0; 24];
        producer.read_exact(&mut frame).await.unwrap();
        assert_eq!((frame[0], frame[4]), (17, 16));
        let mut end = Vec::new();
        for channel in [0, 1] {
            let frame = ControlFrame::Event {
                channel: ChannelId::new(channel),
                sequence: 2,
                backlog: Backlog::new(0),
                priority: false,
                event: Event::EndOfPartition,
            };
            frame.encode(&mut end);
        }
        producer.write_all(&end).await.unwrap();
        for reader in readers {
            assert_eq!(reader.read_all().await.unwrap(), Vec::<Vec<u8>>::new());
        }
    })
    .await;
    rig.finish_and_assert_all_segments_home().await;
}

#[tokio::test(start_paused = true)]
async fn control_frames_are_read_while_the_socket_takes_no_data() {
    let mut rig = Rig::new(256).await;
    let mut consumer = rig.take_raw_consumer_end();
    let writer = rig.writer(1);
    rig.drive(async {
        let mut open = Vec::new();
        let frame = ControlFrame::Open {
            channel: ChannelId::new(0),
            partition: PartitionId::new(PARTITION),
            subpartition: SubpartitionIndex::new(0),
            initial_credit: Credit::new(1000),
        };
        frame.encode(&mut open);
        consumer.write_all(&open).await.unwrap();
        // The producer's socket fills up, because no peer reads it. The cancel that is sent then must still get
        // through, or this writer would wait forever.
        let cancel = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let mut cancel = Vec::new();
            ControlFrame::Cancel { channel: ChannelId::new(0) }.encode(&mut cancel);
            consumer.write_all(&cancel).await.unwrap();
        };
        let records = numbered(2000);
        tokio::join!(writer.emit_all(&records), cancel);
    })
    .await;
    drop(consumer);
    rig.drive_to_end().await;
    rig.finish_and_assert_all_segments_home().await;
}
