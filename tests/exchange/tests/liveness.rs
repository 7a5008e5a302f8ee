//! Peers that are silent, and peers that only have no room: the first are lost, the others never.
#![allow(clippy::unwrap_used, reason = "in a test's helpers, too, a panic is the report")]

use std::time::{Duration, Instant};

use flownet_core::channel::ChannelControl;
use flownet_core::{ExchangeError, Selector, Target};
use flownet_exchange_tests::{Flush, Size, Worker, eventually, job_secret, join, on_thread, read_all};
use flownet_net::NetworkConfig;
use flownet_net::handshake::{self, Features, Hello, Role};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(1);

fn impatient() -> NetworkConfig {
    let heartbeat_interval = HEARTBEAT_TIMEOUT / 20;
    NetworkConfig { heartbeat_interval, heartbeat_timeout: HEARTBEAT_TIMEOUT, ..NetworkConfig::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_that_stops_in_a_frame_is_lost_to_a_reader_asleep_on_its_socket() {
    let consumer = Worker::start(Size::PRODUCT, impatient()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let source = consumer.source(1, 0);
    let source = flownet_exchange_tests::Source { worker: listener.local_addr().unwrap(), ..source };
    let reader = consumer.reader(&[source]);
    let (mut stream, _) = listener.accept().await.unwrap();
    let data = Hello { role: Role::Data, features: Features::NONE };
    handshake::accept(&mut stream, &job_secret(), data, Duration::from_secs(10)).await.unwrap();
    stream.read_exact(&mut [0; 28]).await.unwrap();
    stream.write_all(&[1, 0, 0, 0, 20, 0]).await.unwrap();
    let error = join(on_thread(move || read_all(reader, 1).unwrap_err())).await;
    let named = source.worker.to_string();
    assert!(
        matches!(&error, ExchangeError::ConnectionLost { peer, reason } if **peer == *named && reason.contains("silent for")),
        "{error}"
    );
    consumer.finish_and_assert_all_segments_home().await;
}

/// Under credit its end of the socket is read though its task does not read, under TCP it is not read either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_is_busy_for_longer_than_the_timeout_loses_nothing() {
    for control in [ChannelControl::Credit, ChannelControl::Tcp { exchange: 0 }, ChannelControl::Unbounded] {
        let producer = Worker::start(Size::PRODUCT, impatient()).await;
        let consumer = Worker::start(Size::PRODUCT, impatient()).await;
        let mut writer = producer.writer(1, 1, Selector::Forward, Flush::EveryRecord);
        let reader = consumer.reader_under(control, &[producer.source(1, 0)]);
        // So much that a socket which is not read is full.
        let records = 100_000;
        let writing = on_thread(move || {
            (0..records).for_each(|_| writer.emit(Target::Any, &[7; 100]).unwrap());
            writer.finish(true).unwrap();
        });
        eventually("bytes come", || consumer.env.counters().bytes_in > 0).await;
        let began = Instant::now();
        eventually("it is busy for longer", || began.elapsed() > 3 * HEARTBEAT_TIMEOUT).await;
        assert_eq!(join(on_thread(move || read_all(reader, 1).unwrap())).await[0].len(), records);
        join(writing).await;
        consumer.finish_and_assert_all_segments_home().await;
        producer.finish_and_assert_all_segments_home().await;
    }
}
