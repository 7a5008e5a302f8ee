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

/// A partition short of memory, and what was read of each subpartition.
struct Rig {
    segments: Arc<SegmentPool>,
    pool: Arc<BufferPool>,
    partition: ResultPartition,
    cells: Vec<Arc<SubpartitionCell>>,
    written: Vec<Vec<u8>>,
    read: Vec<Vec<u8>>,
}

impl Rig {
    fn new(subpartitions: usize, memory: usize) -> Self {
        let segments = SegmentPool::new(memory, SEGMENT_BYTES).unwrap();
        let pool = segments.create_buffer_pool(PoolSizing::default().partition(subpartitions as u32)).unwrap();
        let partition = ResultPartition::new(PartitionId::new(1), Arc::clone(&pool), subpartitions as u32);
        let cells = partition.subpartitions().to_vec();
        cells.iter().for_each(|cell| cell.attach_reader(Waker::noop().clone()).unwrap());
        let empty = vec![Vec::new(); subpartitions];
        Self { segments, pool, partition, cells, written: empty.clone(), read: empty }
    }

    /// Writes a record; where no segment is to be had, all that may be read is read first, and that must be enough.
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
        read
    }

    fn finish_and_assert_all_segments_home(mut self) {
        self.partition.finish(true);
        self.read_all();
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
    let records_a_buffer = 60 * 2000 / rig.partition.counters().buffers_out;
    assert!(records_a_buffer > 100, "{records_a_buffer} of 8 bytes each in a buffer of 16 KiB or a part of it");
    rig.finish_and_assert_all_segments_home();
}

#[test]
fn a_segment_is_whole_again_once_few_are_busy() {
    let mut rig = Rig::new(60, 16);
    (0..60 * 100).for_each(|number| rig.emit(number % 60, &[1; 8]));
    rig.read_all();
    let mut before = rig.partition.counters();
    for round in 0..20 {
        (0..1_000_000 / 8).for_each(|_| rig.emit(7, &[2; 8]));
        let after = rig.partition.counters();
        if round == 19 {
            let bytes_a_buffer = (after.bytes_out - before.bytes_out) / (after.buffers_out - before.buffers_out);
            assert_eq!(bytes_a_buffer as usize, SEGMENT_BYTES);
        }
        before = after;
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
    let before = rig.partition.counters();
    (0..100_000).for_each(|_| rig.emit(7, &[2; 8]));
    let after = rig.partition.counters();
    let bytes_a_buffer = (after.bytes_out - before.bytes_out) / (after.buffers_out - before.buffers_out);
    assert!(bytes_a_buffer as usize > SEGMENT_BYTES * 3 / 4, "{bytes_a_buffer}");
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
                Op::Flush => rig.partition.handle().flush_dirty(),
                Op::Broadcast(bytes) => {
                    rig.partition.handle().flush_dirty();
                    let taken = rig.partition.try_broadcast_write(&vec![step as u8; bytes]);
                    rig.partition.end_broadcast_record();
                    rig.written.iter_mut().for_each(|written| written.extend(std::iter::repeat_n(step as u8, taken)));
                }
            }
        }
        rig.finish_and_assert_all_segments_home();
    }
}

/// One subpartition begins most segments, and others have parts of them open, read to the end: its lane is at its quota.
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
