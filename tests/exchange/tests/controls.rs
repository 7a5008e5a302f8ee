//! Every way of controlling flow over real sockets: what arrives, what is counted as lost, and that all memory comes home.

use std::sync::Arc;

use flownet_core::channel::ChannelControl;
use flownet_core::{Selector, Target};
use flownet_exchange_tests::{Flush, Noise, Size, Worker, eventually, join, on_thread, read_all};
use flownet_net::{NetworkConfig, ReceiveBounds};

const TCP: ChannelControl = ChannelControl::Tcp { exchange: 0 };

/// Records of up to 300 bytes, each with its number in front.
fn numbered(seed: u64, count: usize) -> Vec<Vec<u8>> {
    let mut noise = Noise::new(seed);
    (0..count as u32).map(|number| [&number.to_le_bytes()[..], &noise.record(300)].concat()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_partitions_arrive_once_and_in_order_under_every_control_that_loses_nothing() {
    for control in [ChannelControl::Credit, TCP, ChannelControl::Unbounded] {
        let producer = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;
        let consumer = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;
        let sent = [numbered(1, 2000), numbered(2, 2000)];
        let mut writers = Vec::new();
        for (partition, records) in (0..).zip(sent.clone()) {
            let mut writer = producer.writer(partition, 1, Selector::Forward, Flush::EveryRecord);
            writers.push(on_thread(move || {
                records.iter().for_each(|record| writer.emit(Target::Any, record).unwrap());
                writer.finish(true).unwrap();
                writer
            }));
        }
        let reader = consumer.reader_under(control, &[producer.source(0, 0), producer.source(1, 0)]);
        let received = join(on_thread(move || read_all(reader, 2).unwrap())).await;
        assert_eq!(received, sent, "{control:?}");
        for writer in writers {
            drop(join(writer).await);
        }
        consumer.finish_and_assert_all_segments_home().await;
        producer.finish_and_assert_all_segments_home().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dropping_gate_drops_and_what_it_delivers_is_what_was_sent() {
    let receive_bounds = ReceiveBounds { queue_bytes: Some(1000), ..ReceiveBounds::default() };
    let producer = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;
    let consumer = Worker::start(Size::PRODUCT, NetworkConfig { receive_bounds, ..NetworkConfig::default() }).await;
    let sent = numbered(3, 3000);
    let mut writer = producer.writer(0, 1, Selector::Forward, Flush::EveryRecord);
    let reader = consumer.reader_under(ChannelControl::Drop, &[producer.source(0, 0)]);
    let gate = Arc::clone(reader.gate());
    let records = sent.clone();
    let writer = join(on_thread(move || {
        records.iter().for_each(|record| writer.emit(Target::Any, record).unwrap());
        writer.finish(true).unwrap();
        writer
    }))
    .await;
    // Nobody reads yet, so the producer ends only because nothing holds it back.
    eventually("records are dropped", || gate.receive_queue().dropped_records > 0).await;
    assert!(gate.receive_queue().queued_bytes <= 1000);
    let received = join(on_thread(move || read_all(reader, 1).unwrap())).await.remove(0);
    let dropped = gate.receive_queue();
    assert_eq!(received.len() as u64 + dropped.dropped_records, sent.len() as u64);
    let bytes = |records: &[Vec<u8>]| records.iter().map(|record| record.len() as u64 + 4).sum::<u64>();
    assert_eq!(bytes(&received) + dropped.dropped_bytes, bytes(&sent));
    let mut rest = sent.iter();
    assert!(received.iter().all(|record| rest.any(|other| other == record)), "whole records, in their order");
    drop((writer, gate));
    consumer.finish_and_assert_all_segments_home().await;
    producer.finish_and_assert_all_segments_home().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_leaves_with_its_socket_stopped_lets_its_neighbour_go_on() {
    let producer = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;
    let consumer = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;
    let stalled = consumer.reader_under(TCP, &[producer.source(0, 0)]);
    let neighbour = consumer.reader_under(TCP, &[producer.source(0, 1)]);
    let mut writer = producer.writer(0, 2, Selector::Custom, Flush::EveryRecord);
    let sent = numbered(4, 2000);
    let records = sent.clone();
    let writer = on_thread(move || {
        for record in &records {
            writer.emit(Target::Subpartition(0), record).unwrap();
            writer.emit(Target::Subpartition(1), record).unwrap();
        }
        writer.finish(true).unwrap();
        writer
    });
    let gate = Arc::clone(stalled.gate());
    let buffers = consumer.env.config().sizing().gate(1).max.unwrap();
    eventually("the stalled gate is full", || gate.queued_buffers() >= buffers).await;
    drop((stalled, gate));
    let received = join(on_thread(move || read_all(neighbour, 1).unwrap())).await;
    assert_eq!(received, [sent]);
    drop(join(writer).await);
    consumer.finish_and_assert_all_segments_home().await;
    producer.finish_and_assert_all_segments_home().await;
}
