//! Tests live peers that read nothing, and frames that are sent without further cause. Uses virtual time, which
//! advances only when no task can run.

use std::sync::Arc;
use std::time::Duration;

use flownet_core::channel::ChannelControl;
use flownet_core::record::writer::Emit;
use flownet_core::wire::ControlFrame;
use flownet_core::wire::frame::DATA_HEADER_BYTES;
use flownet_core::{ChannelId, Credit, ExchangeError, PartitionId, SubpartitionIndex, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep};

use super::pipe::{Kind, MOST_WRITTEN, PipeEnd, pipe};
use super::rig::{PARTITION, Rig, numbered};
use super::sockets;
use super::streams::{read_to_end_of_partition, stream_of};
use crate::driver::End;
use crate::driver::producer::ProducerDriver;
use crate::{Inlets, NetworkConfig};

/// Sends signs of life for many times the timeout, unless the connection ends before. Returns true if it ends.
async fn is_ended_though_alive(peer: &mut PipeEnd) -> bool {
    let mut pong = Vec::new();
    ControlFrame::Pong { token: 0 }.encode(&mut pong);
    for _ in 0..200 {
        sleep(Duration::from_millis(500)).await;
        if peer.write_all(&pong).await.is_err() {
            return true;
        }
    }
    false
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_lives_owes_room_for_what_it_gave_credit_for_and_none_without_credit() {
    for (initial_credit, is_given_up) in [(Credit::new(1000), true), (Credit::UNLIMITED, false)] {
        let mut rig = Rig::new(256).await;
        let mut consumer = rig.take_raw_consumer_end();
        let writer = rig.writer(1);
        let records = numbered(2000);
        let ended = rig.drive(async {
            consumer.write_all(&open(PARTITION, initial_credit)).await.unwrap();
            tokio::select! {
                ended = is_ended_though_alive(&mut consumer) => ended,
                () = async { writer.emit_all(&records).await; std::future::pending().await } => unreachable!(),
            }
        });
        assert_eq!(ended.await, is_given_up, "{initial_credit:?}");
        drop(consumer);
        rig.drive_to_end().await;
        assert_eq!(matches!(rig.producer_end(), Some(End::Silent(_))), is_given_up);
        rig.finish_and_assert_all_segments_home().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_producer_that_lives_owes_room_for_whatever_it_is_told() {
    let mut rig = Rig::new(64).await;
    // An OPEN frame does not fit.
    let mut producer = rig.take_raw_producer_end_through(20);
    let reader = rig.open(0);
    rig.drive(async {
        assert!(is_ended_though_alive(&mut producer).await);
        let error = reader.read_all().await.unwrap_err();
        assert!(
            matches!(&error, ExchangeError::ConnectionLost { reason, .. } if reason.contains("silent for")),
            "{error}"
        );
    })
    .await;
    rig.finish_and_assert_all_segments_home().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_link_takes_piece_by_piece_goes_out_without_a_further_cause() {
    // Use separate tasks, which are polled only when they are woken.
    let rig = sockets::Rig::with_config(16, 1 << 15, NetworkConfig::default()).await;
    let (link, mut peer) = pipe(Kind::Buffering, 1 << 20);
    let (driver, gate) = rig.consumer_over(link, 20, ChannelControl::Credit, &Inlets::new());
    let began = Instant::now();
    peer.read_exact(&mut [0; 20 * 28]).await.unwrap();
    assert!(began.elapsed().is_zero());
    drop((peer, gate));
    let _ = driver.await.unwrap();

    let (link, mut peer) = pipe(Kind::Buffering, 1 << 20);
    let mut writer = rig.partition(1, &Inlets::new());
    let records = vec![vec![7; 30_000]; 4];
    for record in &records {
        assert_ne!(writer.try_emit(Target::Any, record).unwrap(), Emit::Blocked, "there is room for all");
    }
    writer.finish(true).unwrap();
    let mut driver = ProducerDriver::new(link, Arc::clone(rig.env.shared()));
    let driver = tokio::spawn(async move { driver.run().await });
    let began = Instant::now();
    peer.write_all(&open(1, Credit::new(10))).await.unwrap();
    assert!(read_to_end_of_partition(&mut peer).await == stream_of(&records));
    assert!(began.elapsed().is_zero());
    drop((peer, writer));
    driver.await.unwrap();
    rig.finish_and_assert_all_segments_home().await;
}

#[tokio::test(start_paused = true)]
async fn a_link_that_takes_little_at_a_time_is_offered_all_it_takes_as_long_as_there_is_more() {
    const PARTITIONS: u32 = 4;
    const BUFFERS: usize = 9;
    const RECORD: [u8; 1096] = [7; 1096];
    let rig = sockets::Rig::with_config(64, 4 + RECORD.len(), NetworkConfig::default()).await;
    let (link, mut peer) = pipe(Kind::Plain, 1 << 20);
    let mut writers = Vec::new();
    for id in 0..PARTITIONS {
        let mut writer = rig.partition(u64::from(id), &Inlets::new());
        for _ in 0..BUFFERS {
            assert_ne!(writer.try_emit(Target::Any, &RECORD).unwrap(), Emit::Blocked, "there is room for all");
        }
        writers.push(writer);
        peer.write_all(&open_as(id, u64::from(id), Credit::new(10))).await.unwrap();
    }
    let mut driver = ProducerDriver::new(link, Arc::clone(rig.env.shared()));
    let driver = tokio::spawn(async move { driver.run().await });
    let frame_bytes = DATA_HEADER_BYTES + 4 + RECORD.len();
    let mut received = vec![0; BUFFERS * frame_bytes * PARTITIONS as usize];
    peer.read_exact(&mut received).await.unwrap();
    let counted = rig.env.counters();
    assert_eq!(counted.writes, counted.bytes_out.div_ceil(MOST_WRITTEN as u64), "{counted:?}");
    drop((peer, writers));
    driver.await.unwrap();
    rig.finish_and_assert_all_segments_home().await;
}

fn open(partition: u64, initial_credit: Credit) -> Vec<u8> {
    open_as(0, partition, initial_credit)
}

fn open_as(channel: u32, partition: u64, initial_credit: Credit) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (channel, partition) = (ChannelId::new(channel), PartitionId::new(partition));
    let subpartition = SubpartitionIndex::new(0);
    ControlFrame::Open { channel, partition, subpartition, initial_credit }.encode(&mut bytes);
    bytes
}
