//! Peers that vanish, cancel, lie or say nothing, and what the others notice of it: nothing.
#![allow(clippy::unwrap_used, reason = "in a test's helpers, too, a panic is the report")]

use std::net::SocketAddr;
use std::task::Poll;
use std::time::Duration;

use flownet_core::wire::{ControlFrame, DecodeResult, ErrorCode, ErrorScope, WireLimits, decode};
use flownet_core::{
    Backlog, ChannelId, Credit, Event, ExchangeError, PartitionId, Selector, SubpartitionIndex, Target,
};
use flownet_exchange_tests::{Flush, Size, Worker, eventually, job_secret, join, on_thread, read_all};
use flownet_memory::KIB;
use flownet_net::handshake::{self, Features, Hello, Role};
use flownet_net::{GateReader, NetworkConfig, PartitionWriter, Secret};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A few of them are more than the exchange holds.
const RECORD_BYTES: usize = 8 * KIB;
const DATA: Hello = Hello { role: Role::Data, features: Features::NONE };
const TIMEOUT: Duration = Duration::from_secs(10);

fn emit(writer: &mut PartitionWriter, records: usize) {
    for _ in 0..records {
        writer.emit(Target::Any, &[7; RECORD_BYTES]).unwrap();
    }
}

fn first_buffer(mut reader: GateReader) -> GateReader {
    reader.next(|_, _| ()).unwrap();
    reader
}

async fn read_to_error(reader: GateReader) -> ExchangeError {
    join(on_thread(move || read_all(reader, 1).unwrap_err())).await
}

/// Reads what the peer still says until it hangs up.
async fn until_closed(stream: &mut TcpStream) -> usize {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest).await {
        Ok(read) => read,
        // It hung up on bytes it did not want to read.
        Err(_) => rest.len(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_cancels_in_the_middle_frees_its_writer() {
    let producer = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;
    let consumer = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;
    let mut writer = producer.writer(1, 1, Selector::Forward, Flush::WhenFull);
    let reader = consumer.reader(&[producer.source(1, 0)]);
    let writing = on_thread(move || {
        emit(&mut writer, 10_000);
        writer.finish(true).unwrap();
    });
    drop(join(on_thread(move || first_buffer(reader))).await);
    join(writing).await;
    consumer.finish_and_assert_all_segments_home().await;
    producer.finish_and_assert_all_segments_home().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_that_dies_is_named_to_all_its_readers() {
    let producer = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;
    let consumer = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;
    let peer = producer.env.local_addr().to_string();
    let mut writer = producer.writer(1, 2, Selector::rebalance(0), Flush::EveryRecord);
    let readers = [consumer.reader(&[producer.source(1, 0)]), consumer.reader(&[producer.source(1, 1)])];
    emit(&mut writer, 2);
    let mut waiting = Vec::new();
    for reader in readers {
        waiting.push(join(on_thread(move || first_buffer(reader))).await);
    }
    producer.env.shutdown().await;
    for reader in waiting {
        let error = read_to_error(reader).await;
        assert!(matches!(&error, ExchangeError::ConnectionLost { peer: named, .. } if **named == *peer), "{error}");
    }
    drop(writer);
    consumer.finish_and_assert_all_segments_home().await;
    producer.finish_and_assert_all_segments_home().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_that_ends_or_is_reset_in_the_middle_of_a_frame_is_a_lost_connection() {
    for (is_reset, what) in [(false, "closed by the peer"), (true, "reset by the peer")] {
        let consumer = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;
        let (reader, mut stream, addr) = reader_of_a_scripted_producer(&consumer).await;
        // OPEN, then the first half of a DATA header, then an end without a good-bye.
        stream.read_exact(&mut [0; 28]).await.unwrap();
        stream.write_all(&[1, 0, 0, 0, 20, 0]).await.unwrap();
        if is_reset {
            stream.set_zero_linger().unwrap();
        }
        drop(stream);
        let error = read_to_error(reader).await;
        assert!(matches!(&error, ExchangeError::ConnectionLost { peer, .. } if **peer == *addr.to_string()), "{error}");
        assert!(error.to_string().contains(what), "{error}");
        consumer.finish_and_assert_all_segments_home().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_is_reset_frees_its_writer() {
    let producer = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;
    let mut writer = producer.writer(1, 1, Selector::Forward, Flush::EveryRecord);
    let mut stream = TcpStream::connect(producer.env.local_addr()).await.unwrap();
    handshake::initiate(&mut stream, &job_secret(), DATA, TIMEOUT).await.unwrap();
    let mut open = Vec::new();
    let frame = ControlFrame::Open {
        channel: ChannelId::new(0),
        partition: PartitionId::new(1),
        subpartition: SubpartitionIndex::new(0),
        initial_credit: Credit::new(1),
    };
    frame.encode(&mut open);
    stream.write_all(&open).await.unwrap();
    emit(&mut writer, 1);
    stream.read_exact(&mut [0; 20]).await.unwrap();
    // Far more than memory holds: it waits for credit that does not come.
    let writing = on_thread(move || {
        emit(&mut writer, 10_000);
        writer.finish(true).unwrap();
    });
    stream.set_zero_linger().unwrap();
    drop(stream);
    join(writing).await;
    producer.finish_and_assert_all_segments_home().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_listening_is_an_error_in_the_gate_and_not_remembered() {
    let consumer = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;
    let producer = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;
    let source = producer.source(1, 0);
    producer.finish_and_assert_all_segments_home().await;
    let error = read_to_error(consumer.reader(&[source])).await;
    assert!(matches!(error, ExchangeError::ConnectionLost { .. }), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");

    // The same address, now with somebody there.
    let listener = TcpListener::bind(source.worker).await.unwrap();
    let reader = consumer.reader(&[source]);
    let (mut stream, _) = listener.accept().await.unwrap();
    handshake::accept(&mut stream, &job_secret(), DATA, TIMEOUT).await.unwrap();
    let mut open = [0; 28];
    stream.read_exact(&mut open).await.unwrap();
    assert_eq!(open[0], 16);
    drop(stream);
    read_to_error(reader).await;
    consumer.finish_and_assert_all_segments_home().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_broke_is_replaced_by_the_next_request() {
    let consumer = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for _ in 0..3 {
        let reader = reader_of(&consumer, listener.local_addr().unwrap());
        let (mut stream, _) = listener.accept().await.unwrap();
        handshake::accept(&mut stream, &job_secret(), DATA, TIMEOUT).await.unwrap();
        stream.read_exact(&mut [0; 28]).await.unwrap();
        drop(stream);
        assert!(matches!(read_to_error(reader).await, ExchangeError::ConnectionLost { .. }));
    }
    consumer.finish_and_assert_all_segments_home().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_is_used_again_and_one_its_peer_closed_is_replaced() {
    let consumer = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    for _ in 0..3 {
        let mut reader = reader_of(&consumer, addr);
        let (mut stream, _) = listener.accept().await.unwrap();
        handshake::accept(&mut stream, &job_secret(), DATA, TIMEOUT).await.unwrap();
        for channel in [0, 1] {
            stream.read_exact(&mut [0; 28]).await.unwrap();
            let mut end = Vec::new();
            let (channel, backlog, event) = (ChannelId::new(channel), Backlog::ZERO, Event::EndOfPartition);
            ControlFrame::Event { channel, sequence: 0, backlog, priority: false, event }.encode(&mut end);
            stream.write_all(&end).await.unwrap();
            // Its only channel has ended: the connection is idle. The second request finds it.
            join(on_thread(move || read_all(reader, 1).unwrap())).await;
            if channel == ChannelId::new(1) {
                break;
            }
            reader = reader_of(&consumer, addr);
        }
        // The idle connection ends; the other side has let go of it once it closes its own half. Nobody is told.
        stream.shutdown().await.unwrap();
        until_closed(&mut stream).await;
    }
    consumer.finish_and_assert_all_segments_home().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_concurrent_openers_share_one_connection() {
    let consumer = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let openers: Vec<_> = (0..16)
        .map(|_| {
            let env = (consumer.env.clone(), consumer.pool.clone());
            on_thread(move || reader_of(&Worker { env: env.0, pool: env.1 }, addr))
        })
        .collect();
    let (mut stream, _) = listener.accept().await.unwrap();
    handshake::accept(&mut stream, &job_secret(), DATA, TIMEOUT).await.unwrap();
    let mut readers = Vec::new();
    for opener in openers {
        readers.push(join(opener).await);
    }
    // All sixteen OPENs come over the first connection ...
    stream.read_exact(&mut [0; 28 * 16]).await.unwrap();
    // ... so every opener is done, and none of them dialed again.
    let second = std::future::poll_fn(|cx| Poll::Ready(listener.poll_accept(cx))).await;
    assert!(second.is_pending(), "a second connection was dialed");
    drop((stream, readers));
    consumer.finish_and_assert_all_segments_home().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_on_the_data_port_are_turned_away_while_the_exchange_goes_on() {
    let config = NetworkConfig { handshake_timeout: Duration::from_millis(200), ..NetworkConfig::default() };
    let producer = Worker::start(Size::PRODUCT, config.clone()).await;
    let consumer = Worker::start(Size::PRODUCT, config.clone()).await;
    let addr = producer.env.local_addr();
    let mut writer = producer.writer(1, 1, Selector::Forward, Flush::EveryRecord);
    let reader = join(on_thread({
        emit(&mut writer, 1);
        let reader = consumer.reader(&[producer.source(1, 0)]);
        move || first_buffer(reader)
    }))
    .await;

    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 64], b"FLOWNET\0\x63\0and much more of another version"] {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        // Another version is told ours; noise is told nothing.
        assert!(until_closed(&mut stream).await <= 48);
    }
    for half in [&b""[..], b"FLOWNET\0", b"FLOWNET\0\x01\0\x01"] {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(half).await.unwrap();
        assert_eq!(until_closed(&mut stream).await, 0, "silence ends at the deadline");
    }
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let wrong = Secret::from_bytes([13; 32]);
    let refused = handshake::initiate(&mut stream, &wrong, DATA, TIMEOUT).await.unwrap_err();
    assert_eq!(refused.to_string(), "the peer refused our proof of the job's secret");
    // Somebody who knows the secret and then sends a giant length, or noise.
    for garbage in [[17, 0, 0, 0, 0xff, 0xff, 0xff, 0xff], [0xee; 8]] {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        handshake::initiate(&mut stream, &job_secret(), DATA, TIMEOUT).await.unwrap();
        stream.write_all(&garbage).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let Ok(DecodeResult::Control { frame, .. }) = decode(&answer, &WireLimits::for_segments(0)) else {
            panic!("{answer:?}")
        };
        let is_why =
            matches!(frame, ControlFrame::Error { scope: ErrorScope::Connection, code: ErrorCode::Protocol, .. });
        assert!(is_why, "{frame:?}");
    }
    let stranger = Worker::start_with(Size::PRODUCT, config, wrong).await;
    let error = read_to_error(stranger.reader(&[producer.source(1, 0)])).await;
    assert!(error.to_string().contains("refused our proof"), "{error}");
    stranger.finish_and_assert_all_segments_home().await;

    let writing = on_thread(move || {
        emit(&mut writer, 5000);
        writer.finish(true).unwrap();
    });
    assert_eq!(join(on_thread(move || read_all(reader, 1).unwrap())).await[0].len(), 5000);
    join(writing).await;
    consumer.finish_and_assert_all_segments_home().await;
    producer.finish_and_assert_all_segments_home().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_beyond_the_limit_take_each_others_places_and_a_peer_gets_in_at_once() {
    // Nobody is shut out for being slow.
    let config = NetworkConfig { handshake_timeout: Duration::from_secs(3600), ..NetworkConfig::default() };
    let producer = Worker::start(Size::PRODUCT, config.clone()).await;
    let consumer = Worker::start(Size::PRODUCT, config.clone()).await;
    let addr = producer.env.local_addr();
    let mut writer = producer.writer(1, 1, Selector::Forward, Flush::EveryRecord);
    emit(&mut writer, 1);
    writer.finish(true).unwrap();
    let mut strangers = Vec::new();
    for said in [&b""[..], b"FLOWNET\0"] {
        for _ in 0..300 {
            let mut stranger = TcpStream::connect(addr).await.unwrap();
            stranger.write_all(said).await.unwrap();
            strangers.push(stranger);
        }
        let mut peer = TcpStream::connect(addr).await.unwrap();
        handshake::initiate(&mut peer, &job_secret(), DATA, config.handshake_timeout).await.unwrap();
    }
    let reader = consumer.reader(&[producer.source(1, 0)]);
    assert_eq!(join(on_thread(move || read_all(reader, 1).unwrap())).await[0].len(), 1);
    assert_eq!(until_closed(&mut strangers[0]).await, 0, "the oldest of the silent ones gave way");
    drop((strangers, writer));
    consumer.finish_and_assert_all_segments_home().await;
    producer.finish_and_assert_all_segments_home().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_failure_of_one_partition_reaches_its_readers_only() {
    let producer = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;
    let consumer = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;
    let (mut failing, handle) = producer.writer_and_handle(1, 1, Selector::Forward, Flush::EveryRecord);
    let mut healthy = producer.writer(2, 1, Selector::Forward, Flush::EveryRecord);
    let (failing_reader, healthy_reader) =
        (consumer.reader(&[producer.source(1, 0)]), consumer.reader(&[producer.source(2, 0)]));
    emit(&mut failing, 1);
    let failing_reader = join(on_thread(move || first_buffer(failing_reader))).await;
    handle.fail("ValueError: no such word");
    let error = read_to_error(failing_reader).await;
    assert!(
        matches!(&error, ExchangeError::ProducerFailed { cause, .. } if **cause == *"ValueError: no such word"),
        "{error}"
    );
    let absent = read_to_error(consumer.reader(&[producer.source(2, 9)])).await;
    assert!(matches!(absent, ExchangeError::SubpartitionNotFound { .. }), "{absent}");

    emit(&mut healthy, 10);
    healthy.finish(true).unwrap();
    assert_eq!(join(on_thread(move || read_all(healthy_reader, 1).unwrap())).await[0].len(), 10);
    drop((failing, healthy));
    consumer.finish_and_assert_all_segments_home().await;
    producer.finish_and_assert_all_segments_home().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_leaves_no_open_port_and_no_open_channel() {
    let producer = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;
    let consumer = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;
    let addr = producer.env.local_addr();
    let mut writer = producer.writer(1, 1, Selector::Forward, Flush::EveryRecord);
    let reader = consumer.reader(&[producer.source(1, 0)]);
    emit(&mut writer, 1);
    let reader = join(on_thread(move || first_buffer(reader))).await;

    consumer.env.shutdown().await;
    let error = read_to_error(reader).await;
    assert!(error.to_string().contains("this process was shut down"), "{error}");
    let late = read_to_error(consumer.reader(&[producer.source(1, 0)])).await;
    assert!(late.to_string().contains("this process was shut down"), "{late}");

    // Its reader gone, the writer is never held up.
    join(on_thread(move || emit(&mut writer, 10_000))).await;
    producer.env.shutdown().await;
    assert!(TcpStream::connect(addr).await.is_err(), "the port is closed");
    consumer.finish_and_assert_all_segments_home().await;
    producer.finish_and_assert_all_segments_home().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_the_last_handle_closes_everything_too() {
    let producer = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;
    let Worker { env, pool } = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;
    let addr = env.local_addr();
    drop(env);
    let mut probe = TcpStream::connect(addr).await;
    while probe.is_ok() {
        tokio::task::yield_now().await;
        probe = TcpStream::connect(addr).await;
    }
    eventually("the tasks of the environment are gone", || std::sync::Arc::strong_count(&pool) == 1).await;
    producer.finish_and_assert_all_segments_home().await;
}

/// A reader whose producer is the test itself, behind the handshake.
async fn reader_of_a_scripted_producer(consumer: &Worker) -> (GateReader, TcpStream, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let reader = reader_of(consumer, addr);
    let (mut stream, _) = listener.accept().await.unwrap();
    handshake::accept(&mut stream, &job_secret(), DATA, TIMEOUT).await.unwrap();
    (reader, stream, addr)
}

fn reader_of(consumer: &Worker, addr: SocketAddr) -> GateReader {
    consumer.reader(&[flownet_exchange_tests::Source {
        worker: addr,
        partition: PartitionId::new(1),
        subpartition: SubpartitionIndex::new(0),
    }])
}
