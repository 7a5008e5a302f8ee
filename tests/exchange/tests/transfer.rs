//! Records over real sockets: all of them, once, in order, whatever the sizes, and without one channel holding up
//! another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flownet_core::{Event, Selector, Target};
use flownet_exchange_tests::{Flush, Noise, Size, Worker, eventually, join, on_thread, read_all};
use flownet_net::{Input, NetworkConfig};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_records_over_many_channels_arrive_once_and_in_order() {
    const PARTITIONS: usize = 3;
    const READERS: usize = 4;
    let flushes = [Flush::WhenFull, Flush::EveryRecord, Flush::Within(Duration::from_millis(1))];
    let sizes = [(Size::PRODUCT, 300, 100_000), (Size::CRAMPED, 2000, 300)];
    let worlds = flushes.into_iter().flat_map(|flush| sizes.map(|size| (flush, size)));
    for (seed, (flush, (size, records, max_bytes))) in (1..).zip(worlds) {
        let producer = Worker::start(size, NetworkConfig::default()).await;
        let consumer = Worker::start(size, NetworkConfig::default()).await;
        let mut tasks = Vec::new();
        let mut sent = vec![vec![Vec::new(); PARTITIONS]; READERS];
        for partition in 0..PARTITIONS {
            let mut noise = Noise::new(seed * 100 + partition as u64);
            let records: Vec<(usize, Vec<u8>)> =
                (0..records).map(|_| (noise.below(READERS), noise.record(max_bytes))).collect();
            for (reader, record) in &records {
                let channels: &mut Vec<Vec<Vec<u8>>> = &mut sent[*reader];
                channels[partition].push(record.clone());
            }
            let mut writer = producer.writer(partition as u64, READERS as u32, Selector::Custom, flush);
            tasks.push(on_thread(move || {
                for (reader, record) in records {
                    writer.emit(Target::Subpartition(reader as u32), &record).unwrap();
                }
                writer.finish(true).unwrap();
                writer
            }));
        }
        let readers: Vec<_> = (0..READERS)
            .map(|reader| {
                let sources: Vec<_> =
                    (0..PARTITIONS).map(|partition| producer.source(partition as u64, reader as u32)).collect();
                let reader = consumer.reader(&sources);
                on_thread(move || read_all(reader, PARTITIONS).unwrap())
            })
            .collect();
        for (reader, sent) in readers.into_iter().zip(&sent) {
            assert_eq!(&join(reader).await, sent, "seed {seed}");
        }
        for task in tasks {
            drop(join(task).await);
        }
        consumer.finish_and_assert_all_segments_home().await;
        producer.finish_and_assert_all_segments_home().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn channels_without_exclusive_buffers_live_on_floating_ones() {
    let config = NetworkConfig { exclusive_buffers: 0, floating_buffers: 2, ..NetworkConfig::default() };
    let producer = Worker::start(Size::PRODUCT, config.clone()).await;
    let consumer = Worker::start(Size::PRODUCT, config).await;
    let mut writer = producer.writer(1, 8, Selector::rebalance(0), Flush::WhenFull);
    let sources: Vec<_> = (0..8).map(|subpartition| producer.source(1, subpartition)).collect();
    let reader = consumer.reader(&sources);
    let writing = on_thread(move || {
        for number in 0..8000_u64 {
            writer.emit(Target::Any, &padded(number)).unwrap();
        }
        writer.finish(true).unwrap();
    });
    let received = join(on_thread(move || read_all(reader, 8).unwrap())).await;
    join(writing).await;
    for (channel, records) in received.iter().enumerate() {
        let expected: Vec<_> = (0..1000_u64).map(|round| padded(round * 8 + channel as u64)).collect();
        assert!(records == &expected, "channel {channel}");
    }
    consumer.finish_and_assert_all_segments_home().await;
    producer.finish_and_assert_all_segments_home().await;
}

/// A number in a record so long that a few of them fill a segment.
fn padded(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(500)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broadcast_reaches_every_reader_and_a_checksum_changes_nothing() {
    let config = NetworkConfig { checksums: true, ..NetworkConfig::default() };
    let producer = Worker::start(Size::PRODUCT, config.clone()).await;
    let consumer = Worker::start(Size::PRODUCT, config).await;
    let mut writer = producer.writer(1, 3, Selector::Broadcast, Flush::WhenFull);
    let readers: Vec<_> = (0..3)
        .map(|subpartition| {
            let reader = consumer.reader(&[producer.source(1, subpartition)]);
            on_thread(move || read_all(reader, 1).unwrap())
        })
        .collect();
    let mut noise = Noise::new(5);
    let records: Vec<_> = (0..1000).map(|_| noise.record(20_000)).collect();
    let sent = records.clone();
    let writing = on_thread(move || {
        for record in records {
            writer.emit(Target::Any, &record).unwrap();
        }
        writer.finish(true).unwrap();
    });
    for reader in readers {
        assert!(join(reader).await[0] == sent);
    }
    join(writing).await;
    consumer.finish_and_assert_all_segments_home().await;
    producer.finish_and_assert_all_segments_home().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_channel_does_not_slow_the_one_beside_it() {
    const RECORDS: usize = 5_000;
    const RECORD_BYTES: usize = 4_000;
    let producer = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;
    let consumer = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;
    let mut stalled_writer = producer.writer(1, 1, Selector::Forward, Flush::WhenFull);
    let mut fast_writer = producer.writer(2, 1, Selector::Forward, Flush::WhenFull);
    let stalled = consumer.reader(&[producer.source(1, 0)]);
    let fast = consumer.reader(&[producer.source(2, 0)]);

    let emitted = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&emitted);
    let stalled_writing = on_thread(move || {
        for _ in 0..RECORDS {
            stalled_writer.emit(Target::Any, &[1; RECORD_BYTES]).unwrap();
            counter.fetch_add(1, Ordering::Relaxed);
        }
        stalled_writer.finish(true).unwrap();
    });
    let fast_writing = on_thread(move || {
        for _ in 0..RECORDS {
            fast_writer.emit(Target::Any, &[2; RECORD_BYTES]).unwrap();
        }
        fast_writer.finish(true).unwrap();
    });
    // All of it, while nothing at all is read from the other channel of the same connection.
    assert_eq!(join(on_thread(move || read_all(fast, 1).unwrap())).await[0].len(), RECORDS);
    join(fast_writing).await;
    assert!(stalled.gate().queued_buffers() > 0);
    let sizing = producer.env.config().sizing();
    let (output, input) = (sizing.partition(1), sizing.gate(1));
    let buffers = output.max.unwrap() + output.max_overdraft + input.max.unwrap();
    let room = buffers * Size::PRODUCT.segment_bytes / RECORD_BYTES;
    assert!(emitted.load(Ordering::Relaxed) <= room, "what is not read waits in the buffers of its two pools");

    assert_eq!(join(on_thread(move || read_all(stalled, 1).unwrap())).await[0].len(), RECORDS);
    join(stalled_writing).await;
    consumer.finish_and_assert_all_segments_home().await;
    producer.finish_and_assert_all_segments_home().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_record_is_shown_by_the_flusher_and_an_event_shows_what_is_before_it() {
    let producer = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;
    let consumer = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;
    let mut timed = producer.writer(1, 1, Selector::Forward, Flush::Within(Duration::from_millis(5)));
    let mut lazy = producer.writer(2, 1, Selector::Forward, Flush::WhenFull);
    let mut timed_reader = consumer.reader(&[producer.source(1, 0)]);
    let mut lazy_reader = consumer.reader(&[producer.source(2, 0)]);

    timed.emit(Target::Any, b"timed").unwrap();
    let mut seen = Vec::new();
    let timed_reader = join(on_thread(move || {
        assert_eq!(timed_reader.next(|_, record| seen.push(record.to_vec())).unwrap(), Input::Records);
        assert_eq!(seen, [b"timed"]);
        timed_reader
    }))
    .await;

    lazy.emit(Target::Any, b"lazy").unwrap();
    let watermark = Event::Watermark { timestamp_ms: 42 };
    lazy.broadcast_event(&watermark).unwrap();
    let lazy_reader = join(on_thread(move || {
        let mut seen = Vec::new();
        assert_eq!(lazy_reader.next(|_, record| seen.push(record.to_vec())).unwrap(), Input::Records);
        assert_eq!(seen, [b"lazy"]);
        let Input::Event(_, event) = lazy_reader.next(|_, _| ()).unwrap() else { panic!("no event") };
        assert_eq!(event, watermark);
        lazy_reader
    }))
    .await;
    drop((timed, lazy, timed_reader, lazy_reader));
    eventually("the producer hears of the cancelled channels", || producer.pool.available() == Size::PRODUCT.segments)
        .await;
    consumer.finish_and_assert_all_segments_home().await;
    producer.finish_and_assert_all_segments_home().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_counters_tell_what_went_over_the_sockets() {
    let producer = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;
    let consumer = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;
    let mut writer = producer.writer(1, 1, Selector::Forward, Flush::WhenFull);
    let reader = consumer.reader(&[producer.source(1, 0)]);
    let writing = on_thread(move || {
        for number in 0..1000_u32 {
            writer.emit(Target::Any, &number.to_le_bytes()).unwrap();
        }
        writer.finish(true).unwrap();
    });
    join(on_thread(move || read_all(reader, 1).unwrap())).await;
    join(writing).await;
    // A driver adds to the sums at the end of its turn.
    eventually("all that was sent is counted as received", || {
        let (sent, received) = (producer.env.counters(), consumer.env.counters());
        sent.bytes_out > 8000 && sent.bytes_out == received.bytes_in
    })
    .await;
    // 8 bytes a record, and some headers.
    let sent = producer.env.counters();
    assert!(sent.bytes_out < 20_000 && sent.writes > 0 && sent.turns > 0, "{sent:?}");
    assert!(consumer.env.counters().frames_in > 0);
    consumer.finish_and_assert_all_segments_home().await;
    producer.finish_and_assert_all_segments_home().await;
}
