//! One warning for each bad connection, none for a good one. Alone in its process: the log is global.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flownet_core::{Selector, Target};
use flownet_exchange_tests::{Flush, Size, Worker, eventually, job_secret, join, on_thread, read_all};
use flownet_net::handshake::{self, Features, Hello, Role};
use flownet_net::{NetworkConfig, Secret};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Counts warnings and worse.
struct CountWarnings(Arc<AtomicUsize>);

impl Subscriber for CountWarnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_bad_connection_costs_one_line_and_a_good_one_none() {
    let warnings = Arc::new(AtomicUsize::new(0));
    tracing::subscriber::set_global_default(CountWarnings(Arc::clone(&warnings))).unwrap();
    let size = Size::PRODUCT;
    let config = NetworkConfig { handshake_timeout: Duration::from_millis(100), ..NetworkConfig::default() };
    let producer = Worker::start(size, config.clone()).await;
    let consumer = Worker::start(size, config).await;
    let addr = producer.env.local_addr();

    let mut writer = producer.writer(1, 1, Selector::Forward, Flush::EveryRecord);
    let reader = consumer.reader(&[producer.source(1, 0)]);
    writer.emit(Target::Any, b"good").unwrap();
    writer.finish(true).unwrap();
    assert_eq!(join(on_thread(move || read_all(reader, 1).unwrap())).await, [[b"good".to_vec()]]);
    drop(writer);
    assert_eq!(warnings.load(Ordering::SeqCst), 0);

    let hello = Hello { role: Role::Data, features: Features::NONE };
    let mut expected = 0;
    for bytes in [&b"noise"[..], b"FLOWNET\0", b"FLOWNET\0\x09\0", b""] {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut rest = Vec::new();
        // Closed with an answer, without one, or by a reset because it sent too much: closed.
        let _closed = stream.read_to_end(&mut rest).await;
        expected += 1;
        eventually("one warning", || warnings.load(Ordering::SeqCst) == expected).await;
    }
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let wrong = Secret::from_bytes([1; 32]);
    assert!(handshake::initiate(&mut stream, &wrong, hello, Duration::from_secs(5)).await.is_err());
    expected += 1;
    eventually("one warning", || warnings.load(Ordering::SeqCst) == expected).await;

    let mut stream = TcpStream::connect(addr).await.unwrap();
    handshake::initiate(&mut stream, &job_secret(), hello, Duration::from_secs(5)).await.unwrap();
    stream.write_all(&[0xff; 8]).await.unwrap();
    expected += 1;
    eventually("one warning", || warnings.load(Ordering::SeqCst) == expected).await;

    consumer.finish_and_assert_all_segments_home().await;
    producer.finish_and_assert_all_segments_home().await;
    assert_eq!(warnings.load(Ordering::SeqCst), expected, "and no second line for any of them");
}
