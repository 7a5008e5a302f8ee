//! More busy subpartitions than segments: segments are split, and nothing else changes.

use std::sync::Arc;
use std::task::Waker;

use flownet_memory::{BufferPool, SegmentPool};
use proptest::prelude::*;

use crate::debloat::FillLimit;
use crate::ids::{PartitionId, SubpartitionIndex};
use crate::partition::{ResultPartition, SubpartitionCell};
use crate::sizing::PoolSizing;
use crate::subpartition::Element;

const SEGMENT_BYTES: usize = 16 * 1024;

/// A partition short of memory, and the data read from each subpartition.
struct Rig {
    segments: Arc<SegmentPool>,
    pool: Arc<BufferPool>,
    partition: ResultPartition,
    cells: Vec<Arc<SubpartitionCell>>,
    written: Vec<Vec<u8>>,
    records: Vec<u64>,
    read: Vec<Vec<u8>>,
    buffers_read: usize,
}

impl Rig {
    fn new(subpartitions: usize, memory: usize) -> Self {
        let segments = SegmentPool::new(memory, SEGMENT_BYTES).unwrap();
        let pool = segments.create_buffer_pool(PoolSizing::default().partition(subpartitions as u32)).unwrap();
        let partition = ResultPartition::new(PartitionId::new(1), Arc::clone(&pool), subpartitions as u32);
        let cells = partition.subpartitions().to_vec();
        cells.iter().for_each(|cell| cell.attach_reader(Waker::noop().clone()).unwrap());
        let empty = vec![Vec::new(); subpartitions];
        let records = vec![0; subpartitions];
        Self { segments, pool, partition, cells, written: empty.clone(), records, read: empty, buffers_read: 0 }
    }

    /// Writes a record. If no segment is available, reads all readable data first, and that must be enough.
    fn emit(&mut self, to: usize, record: &[u8]) {
        let subpartition = SubpartitionIndex::new(to as u32);
        let mut taken = 0;
        loop {
            taken += self.partition.try_write(subpartition, &record[taken..]);
            if taken == record.len() {
                break;
            }
            assert!(self.read_all() > 0, "what blocks a writer can be read");
            assert!(self.partition.poll_segment(subpartition, Waker::noop()).is_ready(), "and is then to be had");
        }
        self.partition.end_record(subpartition);
        self.written[to].extend_from_slice(record);
        self.records[to] += 1;
    }

    fn read_all(&mut self) -> usize {
        (0..self.cells.len()).map(|index| self.read(index)).sum()
    }

    fn read(&mut self, index: usize) -> usize {
        let mut read = 0;
        while let Some(polled) = self.cells[index].poll() {
            if let Element::Data(data) = polled.element {
                self.read[index].extend_from_slice(&data);
                read += 1;
            }
        }
        self.buffers_read += read;
        read
    }

    /// Returns the bytes per buffer read since then.
    fn bytes_a_buffer_since(&self, (bytes, buffers): (usize, usize)) -> usize {
        (self.bytes_read() - bytes) / (self.buffers_read - buffers)
    }

    fn bytes_read(&self) -> usize {
        self.read.iter().map(Vec::len).sum()
    }

    fn assert_all_is_counted(&self) {
        let counted = self.partition.handle().outgoing().map(|one| (one.records, one.bytes)).collect::<Vec<_>>();
        let written = self.written.iter().map(|written| written.len() as u64);
        assert_eq!(counted, self.records.iter().copied().zip(written).collect::<Vec<_>>());
    }

    fn finish_and_assert_all_segments_home(mut self) {
        self.partition.finish(true);
        self.assert_all_is_counted();
        self.read_all();
        self.assert_all_is_counted();
        assert!(self.written == self.read, "every byte arrived where it was sent, in order");
        assert_eq!(self.pool.in_use(), 0);
        let Self { segments, pool, partition, .. } = self;
        drop((partition, pool));
        assert_eq!(segments.available(), segments.total());
    }
}

#[test]
fn busy_subpartitions_share_segments_rather_than_send_single_records() {
    let mut rig = Rig::new(60, 16);
    for number in 0..60 * 2000_usize {
        rig.emit(number % 60, &number.to_le_bytes());
    }
    rig.read_all();
    let records_a_buffer = rig.bytes_a_buffer_since((0, 0)) / 8;
    assert!(records_a_buffer > 100, "{records_a_buffer} of 8 bytes each in a buffer of 16 KiB or a part of it");
    rig.finish_and_assert_all_segments_home();
}

#[test]
fn a_segment_is_whole_again_once_few_are_busy() {
    let mut rig = Rig::new(60, 16);
    (0..60 * 100).for_each(|number| rig.emit(number % 60, &[1; 8]));
    rig.read_all();
    for round in 0..20 {
        let before = (rig.bytes_read(), rig.buffers_read);
        (0..1_000_000 / 8).for_each(|_| rig.emit(7, &[2; 8]));
        rig.read_all();
        if round == 19 {
            assert_eq!(rig.bytes_a_buffer_since(before), SEGMENT_BYTES);
        }
    }
    rig.finish_and_assert_all_segments_home();
}

#[test]
fn idle_subpartitions_do_not_split_the_segments_of_a_busy_one() {
    let mut rig = Rig::new(60, 16);
    for number in 0..60 {
        rig.emit(number, &[1; 8]);
        rig.partition.handle().flush_dirty();
        rig.read_all();
    }
    let before = (rig.bytes_read(), rig.buffers_read);
    (0..100_000).for_each(|_| rig.emit(7, &[2; 8]));
    rig.read_all();
    let bytes_a_buffer = rig.bytes_a_buffer_since(before);
    assert!(bytes_a_buffer > SEGMENT_BYTES * 3 / 4, "{bytes_a_buffer}");
    rig.finish_and_assert_all_segments_home();
}

#[derive(Clone, Debug)]
enum Op {
    Emit(usize, usize),
    Round,
    Read(usize),
    Flush,
    Broadcast(usize),
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_writer_gets_on_and_leaves_nothing_behind(
        subpartitions in 1..50usize,
        memory in 2..20usize,
        ops in proptest::collection::vec(
            prop_oneof![
                8 => (0..50usize, 1..3000usize).prop_map(|(to, bytes)| Op::Emit(to, bytes)),
                4 => Just(Op::Round),
                4 => (0..50usize).prop_map(Op::Read),
                1 => Just(Op::Flush),
                1 => (1..100usize).prop_map(Op::Broadcast),
            ],
            0..200,
        ),
    ) {
        let mut rig = Rig::new(subpartitions, memory);
        for (step, op) in ops.into_iter().enumerate() {
            match op {
                Op::Emit(to, bytes) => rig.emit(to % subpartitions, &vec![step as u8; bytes]),
                Op::Round => (0..subpartitions).for_each(|to| rig.emit(to, &step.to_le_bytes())),
                Op::Read(index) => { rig.read(index % subpartitions); }
                Op::Flush => {
                    rig.partition.handle().flush_dirty();
                    rig.assert_all_is_counted();
                }
                Op::Broadcast(bytes) => {
                    rig.partition.handle().flush_dirty();
                    let taken = rig.partition.try_broadcast_write(&vec![step as u8; bytes]);
                    rig.partition.end_broadcast_record();
                    rig.records.iter_mut().for_each(|records| *records += 1);
                    rig.written.iter_mut().for_each(|written| written.extend(std::iter::repeat_n(step as u8, taken)));
                }
            }
        }
        rig.finish_and_assert_all_segments_home();
    }
}

/// One subpartition begins most segments. Others have parts of them open that were read to the end, so its lane is at
/// its quota.
#[test]
fn what_others_have_open_of_a_busy_subpartitions_segments_does_not_stop_the_writer() {
    for limit in [FillLimit::NONE, FillLimit::ONE_RECORD, FillLimit::new(100)] {
        let mut rig = Rig::new(64, 24);
        rig.partition.set_fill_limit(limit);
        for round in 0..20_000usize {
            let to = if round % 3 == 0 { (round * 7919) % 64 } else { 0 };
            rig.emit(to, &[1; 20]);
            if round % 5 == 0 {
                rig.partition.flush_all();
                rig.read_all();
            }
            if rig.partition.poll_available(Waker::noop()).is_pending() {
                rig.read_all();
                assert!(
                    rig.partition.is_available(),
                    "{limit:?}, {round}: all is read, and nobody would wake the writer"
                );
            }
        }
    }
}
