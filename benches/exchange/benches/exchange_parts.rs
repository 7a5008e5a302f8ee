//! What each part of an exchange costs by itself, in one thread: the sum of these is the floor of a record's way.
//!
//! ```text
//! cargo bench --bench exchange_parts -- [FILTER]
//! ```

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use flownet_core::partition::ResultPartition;
use flownet_core::record::reader::RecordReader;
use flownet_core::record::writer::{FlushPolicy, RecordWriter};
use flownet_core::subpartition::Element;
use flownet_core::wire::{ControlFrame, DataHeader, Decoded, WireLimits, decode};
use flownet_core::{Backlog, ChannelId, Credit, PartitionId, Selector, SubpartitionIndex, Target};
use flownet_memory::{Buffer, BufferBuilder, BufferPool, BufferPoolSettings, KIB, SegmentPool};

criterion_group!(parts, pool, builder, subpartition, records, codec);
criterion_main!(parts);

const SEGMENT_BYTES: usize = 32 * KIB;
const RECORD_BYTES: usize = 8;
const PREFIXED_BYTES: usize = RECORD_BYTES + 4;
/// Whole records of one segment.
const RECORDS_PER_SEGMENT: usize = SEGMENT_BYTES / PREFIXED_BYTES;

fn new_pool() -> Arc<BufferPool> {
    let settings = BufferPoolSettings { min: 16, max: None, lanes: 1, max_per_lane: usize::MAX, max_overdraft: 0 };
    SegmentPool::new(16, SEGMENT_BYTES)
        .and_then(|segments| segments.create_buffer_pool(settings))
        .expect("sixteen segments can be had")
}

fn pool(c: &mut Criterion) {
    let pool = new_pool();
    let mut group = c.benchmark_group("segment_pool");
    group.bench_function("take_recycle", |b| b.iter(|| drop(black_box(pool.try_take(0)))));
    group.finish();
}

fn builder(c: &mut Criterion) {
    let pool = new_pool();
    let mut group = c.benchmark_group("buffer_builder");
    group.throughput(Throughput::Elements(RECORDS_PER_SEGMENT as u64));
    group.bench_function(format!("append_commit/bytes={PREFIXED_BYTES}"), |b| {
        b.iter(|| {
            let segment = pool.try_take(0).expect("the last one came home");
            let (mut builder, mut consumer) = BufferBuilder::new(segment);
            let record = black_box([7; PREFIXED_BYTES]);
            while builder.writable_bytes() >= PREFIXED_BYTES {
                builder.append(&record);
                builder.commit();
            }
            builder.finish();
            consumer.poll()
        });
    });
    group.finish();
}

fn subpartition(c: &mut Criterion) {
    let mut partition = ResultPartition::new(PartitionId::new(1), new_pool(), 1);
    let cell = Arc::clone(&partition.subpartitions()[0]);
    cell.attach_reader(std::task::Waker::noop().clone()).expect("its first reader");
    let bytes = vec![7; SEGMENT_BYTES];
    let mut group = c.benchmark_group("subpartition");
    group.bench_function("emit_poll/buffers=1", |b| {
        b.iter(|| {
            // All but the copying: one byte stands for a full buffer.
            partition.try_write(SubpartitionIndex::new(0), &bytes[..1]);
            partition.end_record(SubpartitionIndex::new(0));
            partition.flush(SubpartitionIndex::new(0));
            black_box(cell.poll())
        });
    });
    group.finish();
}

fn records(c: &mut Criterion) {
    let partition = ResultPartition::new(PartitionId::new(1), new_pool(), 1);
    let cell = Arc::clone(&partition.subpartitions()[0]);
    cell.attach_reader(std::task::Waker::noop().clone()).expect("its first reader");
    let mut writer = RecordWriter::new(partition, Selector::Forward, FlushPolicy::Timer, KIB);
    let mut reader = RecordReader::new(KIB);
    let mut group = c.benchmark_group("records");
    group.throughput(Throughput::Elements(RECORDS_PER_SEGMENT as u64));
    group.bench_function(format!("write_read/record_bytes={RECORD_BYTES}"), |b| {
        b.iter(|| {
            for value in 0..RECORDS_PER_SEGMENT as u64 {
                let _emitted = writer.try_emit(Target::Any, &value.to_le_bytes());
            }
            writer.flush_all();
            let mut bytes = 0;
            while let Some(polled) = cell.poll() {
                if let Element::Data(buffer) = polled.element {
                    reader.push(buffer);
                }
                while let Ok(Some(record)) = reader.next_record() {
                    bytes += record.len();
                }
            }
            bytes
        });
    });
    group.finish();

    let pool = new_pool();
    let mut segment = pool.try_take(0).expect("nobody else takes");
    for record in segment.as_mut_slice().as_chunks_mut::<PREFIXED_BYTES>().0 {
        record[..4].copy_from_slice(&(RECORD_BYTES as u32).to_le_bytes());
    }
    let buffer = Buffer::from_segment(segment, RECORDS_PER_SEGMENT * PREFIXED_BYTES);
    let mut group = c.benchmark_group("records");
    group.throughput(Throughput::Elements(RECORDS_PER_SEGMENT as u64));
    group.bench_function(format!("read/record_bytes={RECORD_BYTES}"), |b| {
        b.iter(|| {
            reader.push(buffer.clone());
            let mut bytes = 0;
            while let Ok(Some(record)) = reader.next_record() {
                bytes += record.len();
            }
            bytes
        });
    });
    group.finish();
}

fn codec(c: &mut Criterion) {
    let limits = WireLimits::for_segments(SEGMENT_BYTES as u32);
    let header = DataHeader {
        channel: ChannelId::new(3),
        sequence: 4,
        backlog: Backlog::new(5),
        payload_bytes: SEGMENT_BYTES as u32,
        checksum: None,
    };
    let mut group = c.benchmark_group("wire");
    group.bench_function("data_header/encode_decode", |b| {
        b.iter(|| {
            let bytes = black_box(header).encode();
            matches!(decode(&bytes, &limits), Ok(Decoded::Data { .. }))
        });
    });
    let credits: Vec<_> = (0..64).map(|channel| (ChannelId::new(channel), Credit::new(1))).collect();
    group.throughput(Throughput::Elements(credits.len() as u64));
    let mut bytes = Vec::new();
    group.bench_function(format!("credit/encode_decode/channels={}", credits.len()), |b| {
        b.iter(|| {
            bytes.clear();
            flownet_core::wire::encode_credits(credits.iter().copied(), &mut bytes);
            match decode(&bytes, &limits) {
                Ok(Decoded::Control { frame: ControlFrame::Credit(pairs), .. }) => pairs.map(|(_, n)| n.get()).sum(),
                _ => 0,
            }
        });
    });
    group.finish();
}
