//! Record writer and reader, by size of the record and number of channels.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput};
use flownet_benches::{LENGTH_BYTES, SEGMENT_BYTES, attach_all, new_partition, poll_buffers};
use flownet_core::keygroup::{default_max_parallelism, hash_key};
use flownet_core::record::reader::RecordReader;
use flownet_core::record::writer::{FlushPolicy, RecordWriter};
use flownet_core::{Emit, Selector, SubpartitionCell, Target};
use flownet_memory::{Buffer, KIB};

/// A writer and those who would read what it writes.
pub(crate) struct Rig {
    writer: RecordWriter,
    cells: Vec<Arc<SubpartitionCell>>,
}

impl Rig {
    fn new(channels: u32, selector: Selector) -> Self {
        Self::with_room(channels, selector, SEGMENTS)
    }

    /// One whose channels have room for so many segments between two [`take`](Self::take)s, and two each.
    pub(crate) fn with_room(channels: u32, selector: Selector, segments: usize) -> Self {
        let segments = channels as usize * 2 + segments;
        let partition = new_partition(channels, segments);
        let cells = attach_all(&partition);
        Self { writer: RecordWriter::new(partition, selector, FlushPolicy::Timer, MAX_RECORD_BYTES), cells }
    }

    #[inline]
    pub(crate) fn emit(&mut self, target: Target, record: &[u8]) {
        let emitted = self.writer.try_emit(target, record);
        assert!(matches!(emitted, Ok(Emit::Done)), "the pool holds all of one iteration");
    }

    /// What was written, in buffers.
    pub(crate) fn take(&mut self, each: impl FnMut(Buffer)) {
        self.writer.flush_all();
        poll_buffers(&self.cells, each);
    }
}

/// Writing alone: what was written is dropped unread.
pub(crate) fn write(c: &mut Criterion) {
    let mut group = c.benchmark_group("record_writer");
    for record_bytes in SIZES {
        let records = records_of_one_iteration(record_bytes);
        let mut rig = Rig::new(1, Selector::Forward);
        let record = vec![7; record_bytes];
        group.throughput(Throughput::Elements(records));
        group.bench_function(format!("forward/channels=1/record_bytes={record_bytes}"), |b| {
            b.iter(|| {
                for _ in 0..records {
                    rig.emit(Target::Any, black_box(&record));
                }
                rig.take(drop);
            });
        });
    }
    group.throughput(Throughput::Elements(SCATTERED));
    for channels in [100, 1000] {
        let mut rig = Rig::new(channels, Selector::rebalance(0));
        group.bench_function(format!("rr/channels={channels}/record_bytes=8"), |b| {
            b.iter(|| {
                (0..SCATTERED).for_each(|value| rig.emit(Target::Any, &value.to_le_bytes()));
                rig.take(drop);
            });
        });
        let mut rig = Rig::new(channels, Selector::key_group(default_max_parallelism(channels)));
        group.bench_function(format!("key_group_hash/channels={channels}/record_bytes=8"), |b| {
            b.iter(|| {
                for value in 0..SCATTERED {
                    let record = value.to_le_bytes();
                    rig.emit(Target::KeyHash(hash_key(&record)), &record);
                }
                rig.take(drop);
            });
        });
    }
    let mut rig = Rig::new(100, Selector::Broadcast);
    let records = records_of_one_iteration(8);
    group.throughput(Throughput::Elements(records * 100));
    group.bench_function("broadcast/channels=100/record_bytes=8", |b| {
        b.iter(|| {
            (0..records).for_each(|value| rig.emit(Target::Any, &value.to_le_bytes()));
            rig.take(drop);
        });
    });
    group.finish();
}

/// Reading alone: the same buffers again and again.
pub(crate) fn read(c: &mut Criterion) {
    let mut group = c.benchmark_group("record_reader");
    for record_bytes in SIZES {
        let records = records_of_one_iteration(record_bytes);
        let mut rig = Rig::new(1, Selector::Forward);
        (0..records).for_each(|_| rig.emit(Target::Any, &vec![7; record_bytes]));
        let mut buffers = Vec::new();
        rig.take(|buffer| buffers.push(buffer));
        let mut reader = RecordReader::new(MAX_RECORD_BYTES);
        group.throughput(Throughput::Elements(records));
        group.bench_function(format!("record_bytes={record_bytes}"), |b| {
            b.iter(|| buffers.iter().map(|buffer| read_buffer(&mut reader, buffer.clone())).sum::<u64>());
        });
    }
    group.finish();
}

/// Both, on one thread: nothing waits for anything.
pub(crate) fn write_read(c: &mut Criterion) {
    let mut group = c.benchmark_group("record_writer_reader");
    for record_bytes in SIZES {
        let records = records_of_one_iteration(record_bytes);
        let mut rig = Rig::new(1, Selector::Forward);
        let mut reader = RecordReader::new(MAX_RECORD_BYTES);
        let record = vec![7; record_bytes];
        group.throughput(Throughput::Elements(records));
        group.bench_function(format!("channels=1/record_bytes={record_bytes}"), |b| {
            b.iter(|| {
                for _ in 0..records {
                    rig.emit(Target::Any, black_box(&record));
                }
                let mut sum = 0;
                rig.take(|buffer| sum += read_buffer(&mut reader, buffer));
                sum
            });
        });
    }
    group.finish();
}

/// The sum of the values in front of the records that end in this buffer.
fn read_buffer(reader: &mut RecordReader, buffer: Buffer) -> u64 {
    reader.push(buffer);
    let mut sum = 0_u64;
    while let Ok(Some(record)) = reader.next_record() {
        let value = record.first_chunk::<8>().copied().unwrap_or_default();
        sum = sum.wrapping_add(u64::from_le_bytes(value));
    }
    sum
}

/// As many as fill eight segments, at least two.
fn records_of_one_iteration(record_bytes: usize) -> u64 {
    (8 * SEGMENT_BYTES / (record_bytes + LENGTH_BYTES)) as u64
}

/// The last is larger than a segment: it spans four.
const SIZES: [usize; 4] = [8, 64, KIB, 100 * KIB];
pub(crate) const MAX_RECORD_BYTES: usize = 1024 * KIB;
const SEGMENTS: usize = 16;
/// Records written to many channels in one iteration: up to a thousand bytes each.
const SCATTERED: u64 = 100_000;
