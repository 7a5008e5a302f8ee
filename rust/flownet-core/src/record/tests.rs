//! Records from a writer through a partition of a real pool to the readers of its subpartitions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Wake, Waker};

use flownet_memory::{BufferPool, BufferPoolSettings, SegmentPool};
use proptest::collection::vec;
use proptest::prelude::*;

use super::{Emit, FlushPolicy, LENGTH_PREFIX_BYTES, RecordReader, RecordWriter};
use crate::error::{ExchangeError, SelectError};
use crate::event::{Barrier, BarrierKind, Event};
use crate::ids::{CheckpointId, PartitionId, SubpartitionIndex};
use crate::partition::{ResultPartition, SubpartitionCell};
use crate::selector::{Selector, Target};
use crate::sizing::PoolSizing;
use crate::subpartition::Element;

const MAX_RECORD_BYTES: usize = 10_000;

/// Element that a reader sees.
#[derive(Clone, Debug, Eq, PartialEq)]
enum ReaderEvent {
    Record(Vec<u8>),
    Event(Event),
}

/// One writer, and one reader per subpartition.
struct Rig {
    segments: Arc<SegmentPool>,
    pool: Arc<BufferPool>,
    writer: RecordWriter,
    inputs: Vec<Input>,
}

struct Input {
    cell: Arc<SubpartitionCell>,
    reader: RecordReader,
    read: Vec<ReaderEvent>,
}

impl Rig {
    fn new(segments: usize, segment_bytes: usize, subpartitions: u32, selector: Selector, flush: FlushPolicy) -> Self {
        let quota = PoolSizing::default().max_buffers_per_subpartition as usize;
        Self::with_quota(quota, segments, segment_bytes, subpartitions, selector, flush)
    }

    fn with_quota(
        max_per_lane: usize,
        segments: usize,
        segment_bytes: usize,
        subpartitions: u32,
        selector: Selector,
        flush: FlushPolicy,
    ) -> Self {
        let all = SegmentPool::new(segments, segment_bytes).unwrap();
        let product = PoolSizing::default().partition(subpartitions);
        let settings = BufferPoolSettings { min: segments, max: None, max_per_lane, ..product };
        let pool = all.create_buffer_pool(settings).unwrap();
        let partition = ResultPartition::new(PartitionId::new(1), Arc::clone(&pool), subpartitions);
        let inputs = partition.subpartitions().iter().map(Input::new).collect();
        let writer = RecordWriter::new(partition, selector, flush, MAX_RECORD_BYTES);
        Self { segments: all, pool, writer, inputs }
    }

    /// Emits as a task does; the readers read as much as they can whenever the writer waits.
    fn emit(&mut self, target: Target, record: &[u8]) {
        let emitted = self.writer.try_emit(target, record).unwrap();
        self.wait(emitted);
    }

    fn emit_all(&mut self, records: impl IntoIterator<Item = (Target, Vec<u8>)>) {
        let mut records = records.into_iter();
        while self.writer.try_emit_all(&mut records).unwrap() == Emit::Blocked {
            self.wait(Emit::Blocked);
        }
    }

    fn wait(&mut self, mut emitted: Emit) {
        while emitted == Emit::Blocked {
            assert!(self.writer.is_blocked() && !self.writer.is_available());
            self.read_all();
            assert!(matches!(self.writer.poll_ready(Waker::noop()), Poll::Ready(Ok(()))), "readers gave segments back");
            emitted = self.writer.resume().unwrap();
        }
        assert!(!self.writer.is_blocked());
    }

    fn read_all(&mut self) {
        self.inputs.iter_mut().for_each(Input::read_all);
    }

    fn finish(&mut self) {
        self.writer.finish(true).unwrap();
        self.read_all();
    }

    /// Returns the elements of each reader, without the events that end a partition.
    fn finish_and_assert_all_segments_home(mut self) -> Vec<Vec<ReaderEvent>> {
        self.finish();
        let written = self.writer.partition().handle();
        for (outgoing, input) in written.outgoing().zip(&self.inputs) {
            assert_eq!((outgoing.records, outgoing.bytes), (input.records() as u64, input.bytes()), "all is counted");
        }
        let total = self.segments.total();
        assert!(self.writer.partition().is_consumed());
        assert_eq!(self.pool.in_use(), 0);
        drop(self.writer);
        assert_eq!(self.segments.available(), total);
        let without_end = |mut input: Input| {
            let end = [ReaderEvent::Event(Event::EndOfData { drain: true }), ReaderEvent::Event(Event::EndOfPartition)];
            assert_eq!(input.read.split_off(input.read.len() - 2), end);
            input.read
        };
        self.inputs.into_iter().map(without_end).collect()
    }
}

impl Input {
    fn new(cell: &Arc<SubpartitionCell>) -> Self {
        cell.attach_reader(Waker::noop().clone()).unwrap();
        Self { cell: Arc::clone(cell), reader: RecordReader::new(MAX_RECORD_BYTES), read: Vec::new() }
    }

    fn read_all(&mut self) {
        while let Some(polled) = self.cell.poll() {
            match polled.element {
                Element::Data(buffer) => {
                    self.reader.push(buffer);
                    while let Some(record) = self.reader.next_record().unwrap() {
                        self.read.push(ReaderEvent::Record(record.to_vec()));
                    }
                }
                Element::Event(event) => {
                    self.reader.check_boundary().unwrap();
                    self.read.push(ReaderEvent::Event(event));
                }
            }
        }
    }

    fn records(&self) -> usize {
        self.read.iter().filter(|read| matches!(read, ReaderEvent::Record(_))).count()
    }

    /// Returns the bytes of the records, including length prefixes.
    fn bytes(&self) -> u64 {
        let bytes_of = |read: &ReaderEvent| match read {
            ReaderEvent::Record(record) => (LENGTH_PREFIX_BYTES + record.len()) as u64,
            ReaderEvent::Event(_) => 0,
        };
        self.read.iter().map(bytes_of).sum()
    }
}

#[derive(Default)]
struct WakeCount(AtomicUsize);

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn any_policy() -> impl Strategy<Value = FlushPolicy> {
    prop_oneof![Just(FlushPolicy::EveryRecord), Just(FlushPolicy::Timer), Just(FlushPolicy::WhenFull)]
}

/// A step of a task: a record to a subpartition, an event to all of them, a run of the flusher, a turn of the readers.
#[derive(Clone, Debug)]
enum Step {
    Record { subpartition: u32, bytes: Vec<u8> },
    Watermark(i64),
    FlusherComes,
    ReadersCome,
}

fn any_step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![8 => 0usize..40, 1 => 0usize..400];
    prop_oneof![
        8 => (0u32..3, len, any::<u8>()).prop_map(|(subpartition, len, fill)| Step::Record {
            subpartition,
            bytes: (0..len).map(|n| (n as u8).wrapping_add(fill)).collect()
        }),
        1 => any::<i64>().prop_map(Step::Watermark),
        1 => Just(Step::FlusherComes),
        1 => Just(Step::ReadersCome),
    ]
}

fn run(rig: &mut Rig, steps: &[Step]) {
    for step in steps {
        match step {
            Step::Record { subpartition, bytes } => rig.emit(Target::Subpartition(*subpartition), bytes),
            Step::Watermark(timestamp_ms) => {
                rig.writer.broadcast_event(&Event::Watermark { timestamp_ms: *timestamp_ms }).unwrap();
            }
            Step::FlusherComes => rig.writer.partition().handle().flush_dirty(),
            Step::ReadersCome => rig.read_all(),
        }
    }
}

/// Returns the elements that the reader of a subpartition must see. `None`: all records were broadcast.
fn expected(steps: &[Step], reader: Option<u32>) -> Vec<ReaderEvent> {
    let seen = |step: &Step| match step {
        Step::Record { subpartition, bytes } if reader.is_none_or(|reader| reader == *subpartition) => {
            Some(ReaderEvent::Record(bytes.clone()))
        }
        Step::Watermark(timestamp_ms) => Some(ReaderEvent::Event(Event::Watermark { timestamp_ms: *timestamp_ms })),
        _ => None,
    };
    steps.iter().filter_map(seen).collect()
}

proptest! {
    #[test]
    fn records_and_events_of_any_size_keep_their_order_through_any_segment_size(
        steps in vec(any_step(), 0..60),
        segment_bytes in 1usize..70,
        segments in 1usize..9,
        flush in any_policy(),
    ) {
        let mut rig = Rig::new(segments, segment_bytes, 3, Selector::Custom, flush);
        run(&mut rig, &steps);
        let read = rig.finish_and_assert_all_segments_home();
        for (subpartition, read) in (0..).zip(read) {
            prop_assert_eq!(read, expected(&steps, Some(subpartition)));
        }
    }

    #[test]
    fn records_taken_all_at_once_arrive_as_those_taken_one_by_one(
        bursts in vec(vec((0u32..3, prop_oneof![8 => Just(8usize), 1 => 0usize..200]), 0..40), 0..6),
        selector in prop_oneof![Just(Selector::Custom), Just(Selector::rebalance(1)), Just(Selector::Broadcast)],
        is_alone in any::<bool>(),
        segment_bytes in 1usize..70,
        segments in 1usize..9,
        flush in any_policy(),
    ) {
        let subpartitions = if is_alone { 1 } else { 3 };
        let read = [false, true].map(|at_once| {
            let mut rig = Rig::new(segments, segment_bytes, subpartitions, selector.clone(), flush);
            for burst in &bursts {
                let records = burst.iter().enumerate().map(|(n, &(to, len))| {
                    (Target::Subpartition(to % subpartitions), vec![n as u8; len])
                });
                if at_once {
                    rig.emit_all(records);
                } else {
                    records.for_each(|(target, record)| rig.emit(target, &record));
                }
            }
            rig.finish_and_assert_all_segments_home()
        });
        prop_assert_eq!(&read[0], &read[1]);
    }

    #[test]
    fn broadcast_records_and_events_reach_every_reader_in_order(
        steps in vec(any_step(), 0..60),
        segment_bytes in 1usize..70,
        segments in 1usize..5,
        flush in any_policy(),
    ) {
        let mut rig = Rig::new(segments, segment_bytes, 3, Selector::Broadcast, flush);
        run(&mut rig, &steps);
        for read in rig.finish_and_assert_all_segments_home() {
            prop_assert_eq!(read, expected(&steps, None));
        }
    }
}

#[test]
fn a_broadcast_record_is_stored_once_and_read_by_each_reader_at_its_own_pace() {
    let mut rig = Rig::new(4, 64, 3, Selector::Broadcast, FlushPolicy::EveryRecord);
    rig.emit(Target::Any, &[1; 20]);
    assert_eq!(rig.pool.in_use(), 1);

    rig.inputs[0].read_all();
    rig.emit(Target::Any, &[2; 20]);
    rig.inputs[1].read_all();
    let counts: Vec<usize> = rig.inputs.iter().map(Input::records).collect();
    assert_eq!(counts, [1, 2, 0]);
    assert_eq!(rig.pool.in_use(), 1);
    for read in rig.finish_and_assert_all_segments_home() {
        assert_eq!(read, [ReaderEvent::Record(vec![1; 20]), ReaderEvent::Record(vec![2; 20])]);
    }
}

#[test]
fn a_record_larger_than_the_whole_pool_gets_through_while_its_reader_reads() {
    let mut rig = Rig::new(2, 16, 1, Selector::Forward, FlushPolicy::WhenFull);
    let large: Vec<u8> = (0..1_000).map(|n| n as u8).collect();
    rig.emit(Target::Any, &large);
    rig.emit(Target::Any, &[5]);
    let read = rig.finish_and_assert_all_segments_home();
    assert_eq!(read, [[ReaderEvent::Record(large), ReaderEvent::Record(vec![5])]]);
}

#[test]
fn fewer_segments_than_subpartitions_serve_them_all_in_turn() {
    let mut rig = Rig::new(2, 64, 5, Selector::Custom, FlushPolicy::WhenFull);
    for record in 0..50_u8 {
        rig.emit(Target::Subpartition(u32::from(record) % 5), &[record]);
    }
    for (subpartition, read) in (0_u8..).zip(rig.finish_and_assert_all_segments_home()) {
        let expected: Vec<ReaderEvent> =
            (0..10).map(|turn| ReaderEvent::Record(vec![turn * 5 + subpartition])).collect();
        assert_eq!(read, expected);
    }
}

#[test]
fn a_record_that_blocks_inside_its_length_is_finished_later() {
    for room in 0..4 {
        let mut rig = Rig::new(1, 16 + room, 1, Selector::Forward, FlushPolicy::WhenFull);
        rig.emit(Target::Any, &[1; 12]);
        rig.emit(Target::Any, &[2; 3]);
        let read = rig.finish_and_assert_all_segments_home();
        assert_eq!(
            read,
            [[ReaderEvent::Record(vec![1; 12]), ReaderEvent::Record(vec![2; 3])]],
            "{room} bytes of the length fit"
        );
    }
}

#[test]
fn nothing_else_is_taken_while_a_record_blocks() {
    let mut rig = Rig::new(1, 16, 2, Selector::Custom, FlushPolicy::WhenFull);
    assert_eq!(rig.writer.try_emit(Target::Subpartition(0), &[1; 20]).unwrap(), Emit::Blocked);
    assert_eq!(rig.writer.resume().unwrap(), Emit::Blocked);

    let watermark = Event::Watermark { timestamp_ms: 1 };
    assert!(matches!(rig.writer.try_emit(Target::Subpartition(1), &[2]), Err(ExchangeError::Misuse(_))));
    assert!(matches!(rig.writer.broadcast_event(&watermark), Err(ExchangeError::Misuse(_))));
    assert!(matches!(rig.writer.emit_event(SubpartitionIndex::new(1), &watermark), Err(ExchangeError::Misuse(_))));
    assert!(matches!(rig.writer.finish(true), Err(ExchangeError::Misuse(_))));

    rig.read_all();
    assert_eq!(rig.writer.resume().unwrap(), Emit::Done);
    let read = rig.finish_and_assert_all_segments_home();
    assert_eq!(read, [vec![ReaderEvent::Record(vec![1; 20])], vec![]]);
}

#[test]
fn a_blocked_writer_is_woken_when_a_reader_gives_a_segment_back() {
    for selector in [Selector::Forward, Selector::Broadcast] {
        let mut rig = Rig::new(1, 16, 1, selector, FlushPolicy::WhenFull);
        let woken = Arc::new(WakeCount::default());
        let waker = Waker::from(Arc::clone(&woken));
        assert!(matches!(rig.writer.poll_ready(&waker), Poll::Ready(Ok(()))), "nothing blocks yet");

        assert_eq!(rig.writer.try_emit(Target::Any, &[1; 20]).unwrap(), Emit::Blocked);
        assert!(rig.writer.poll_ready(&waker).is_pending());
        assert!(rig.writer.poll_available(&waker).is_pending());
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        rig.read_all();
        assert!(woken.0.load(Ordering::Relaxed) > 0);
        assert!(matches!(rig.writer.poll_ready(&waker), Poll::Ready(Ok(()))));
        assert_eq!(rig.writer.resume().unwrap(), Emit::Done);
        assert_eq!(rig.finish_and_assert_all_segments_home(), [[ReaderEvent::Record(vec![1; 20])]]);
    }
}

#[test]
fn a_blocked_writer_learns_that_its_pool_is_gone() {
    let mut rig = Rig::new(1, 16, 1, Selector::Forward, FlushPolicy::WhenFull);
    assert_eq!(rig.writer.try_emit(Target::Any, &[1; 20]).unwrap(), Emit::Blocked);
    assert!(rig.writer.poll_ready(Waker::noop()).is_pending());
    rig.pool.destroy();
    assert!(matches!(rig.writer.poll_ready(Waker::noop()), Poll::Ready(Err(ExchangeError::Memory(_)))));
    drop(rig.writer);
    drop(rig.inputs);
    assert_eq!(rig.segments.available(), 1);
}

#[test]
fn availability_follows_the_pool() {
    let mut rig = Rig::new(2, 16, 1, Selector::Forward, FlushPolicy::WhenFull);
    assert!(rig.writer.is_available());
    rig.emit(Target::Any, &[1; 12]);
    rig.emit(Target::Any, &[2; 12]);
    assert!(!rig.writer.is_available(), "both segments are queued");
    rig.read_all();
    assert!(rig.writer.is_available());
    assert!(matches!(rig.writer.poll_available(Waker::noop()), Poll::Ready(Ok(()))));
    rig.finish_and_assert_all_segments_home();
}

#[test]
fn a_writer_is_unavailable_while_one_of_its_readers_has_all_it_may() {
    let mut rig = Rig::with_quota(2, 8, 16, 2, Selector::Custom, FlushPolicy::WhenFull);
    let woken = Arc::new(WakeCount::default());
    let waker = Waker::from(Arc::clone(&woken));
    rig.emit(Target::Subpartition(0), &[1; 12]);
    rig.emit(Target::Subpartition(1), &[1; 12]);
    assert!(rig.writer.is_available());
    rig.emit(Target::Subpartition(0), &[2; 12]);
    assert!(!rig.writer.is_available(), "of eight segments three are in use, two of them by one reader");
    assert!(rig.writer.poll_available(&waker).is_pending());
    rig.emit(Target::Subpartition(1), &[2; 6]);
    rig.inputs[1].read_all();
    assert!(!rig.writer.is_available(), "the other reader's segments change nothing");
    assert_eq!(woken.0.load(Ordering::Relaxed), 0);

    rig.inputs[0].read_all();
    assert!(rig.writer.is_available());
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert!(matches!(rig.writer.poll_available(&waker), Poll::Ready(Ok(()))));
    rig.finish_and_assert_all_segments_home();
}

#[test]
fn a_record_beyond_the_limit_is_refused_before_a_byte_is_written() {
    let mut rig = Rig::new(2, 16, 1, Selector::Forward, FlushPolicy::EveryRecord);
    let refused = rig.writer.try_emit(Target::Any, &[0; MAX_RECORD_BYTES + 1]);
    assert!(matches!(refused, Err(ExchangeError::RecordTooLarge { bytes: 10_001, max_bytes: MAX_RECORD_BYTES })));
    assert_eq!(rig.pool.in_use(), 0);

    rig.emit(Target::Any, &[0; MAX_RECORD_BYTES]);
    assert_eq!(rig.finish_and_assert_all_segments_home(), [[ReaderEvent::Record(vec![0; MAX_RECORD_BYTES])]]);
}

#[test]
fn of_records_taken_at_once_those_before_a_bad_one_are_written() {
    for (selector, subpartitions) in [(Selector::Forward, 1), (Selector::rebalance(0), 2)] {
        let mut rig = Rig::new(8, 64, subpartitions, selector, FlushPolicy::EveryRecord);
        let sizes = [1, 2, MAX_RECORD_BYTES + 1, 3];
        let mut records = sizes.iter().map(|&len| (Target::Any, vec![7; len]));
        let refused = rig.writer.try_emit_all(&mut records);
        assert!(matches!(refused, Err(ExchangeError::RecordTooLarge { bytes: 10_001, .. })));
        assert_eq!(rig.writer.try_emit_all(&mut records).unwrap(), Emit::Done, "the rest is still there to be taken");
        let read = rig.finish_and_assert_all_segments_home().concat();
        assert_eq!(read.len(), 3);
        assert!([1, 2, 3].into_iter().all(|len| read.contains(&ReaderEvent::Record(vec![7; len]))));
    }
}

#[test]
fn no_record_is_taken_from_the_row_while_one_blocks_or_once_finished() {
    let mut rig = Rig::new(2, 16, 1, Selector::Forward, FlushPolicy::EveryRecord);
    let mut records = (0..3).map(|fill| (Target::Any, [fill; 40]));
    assert_eq!(rig.writer.try_emit_all(&mut records).unwrap(), Emit::Blocked);
    let misused = rig.writer.try_emit_all(&mut records);
    assert!(matches!(misused, Err(ExchangeError::Misuse(_))));
    rig.wait(Emit::Blocked);
    while rig.writer.try_emit_all(&mut records).unwrap() == Emit::Blocked {
        rig.wait(Emit::Blocked);
    }
    rig.finish();
    let mut late = std::iter::once((Target::Any, [9]));
    assert!(matches!(rig.writer.try_emit_all(&mut late), Err(ExchangeError::Misuse(_))));
    assert!(late.next().is_some());
    let expected = [0, 1, 2].map(|fill| ReaderEvent::Record(vec![fill; 40]));
    assert_eq!(rig.inputs[0].read[..3], expected);
}

#[test]
fn a_record_in_a_row_that_has_no_place_is_an_error_and_those_around_it_arrive() {
    let wrong = [
        (Selector::Custom, Target::Subpartition(2), Target::Subpartition(1)),
        (Selector::key_group(128), Target::Any, Target::KeyHash(7)),
    ];
    for (selector, bad, good) in wrong {
        let mut rig = Rig::new(4, 64, 2, selector, FlushPolicy::Timer);
        let mut records = [(good, [1]), (bad, [2]), (good, [3])].into_iter();
        assert!(matches!(rig.writer.try_emit_all(&mut records), Err(ExchangeError::Select(_))));
        assert_eq!(rig.writer.try_emit_all(&mut records).unwrap(), Emit::Done);
        let read = rig.finish_and_assert_all_segments_home().concat();
        assert_eq!(read, [1, 3].map(|fill| ReaderEvent::Record(vec![fill])));
    }
}

#[test]
fn a_record_that_cannot_be_placed_is_refused_before_a_byte_is_written() {
    let mut rig = Rig::new(2, 16, 2, Selector::Custom, FlushPolicy::EveryRecord);
    let refused = rig.writer.try_emit(Target::Subpartition(2), &[1]);
    let out_of_range = SelectError::OutOfRange { chosen: 2, subpartitions: 2 };
    assert!(matches!(refused, Err(ExchangeError::Select(error)) if error == out_of_range));
    assert_eq!(rig.pool.in_use(), 0);
    rig.finish_and_assert_all_segments_home();
}

#[test]
fn the_flush_policy_says_when_an_open_buffer_is_seen() {
    for (flush, at_once, after_flusher) in
        [(FlushPolicy::EveryRecord, 1, 1), (FlushPolicy::Timer, 0, 1), (FlushPolicy::WhenFull, 0, 0)]
    {
        for selector in [Selector::Forward, Selector::Broadcast] {
            let mut rig = Rig::new(2, 64, 1, selector, flush);
            rig.emit(Target::Any, &[1; 10]);
            rig.read_all();
            assert_eq!(rig.inputs[0].records(), at_once, "{flush:?}");
            if flush == FlushPolicy::Timer {
                rig.writer.partition().handle().flush_dirty();
            }
            rig.read_all();
            assert_eq!(rig.inputs[0].records(), after_flusher, "{flush:?}");
            rig.writer.flush_all();
            rig.read_all();
            assert_eq!(rig.inputs[0].records(), 1, "{flush:?}");
            rig.finish_and_assert_all_segments_home();
        }
    }
}

#[test]
fn where_every_record_is_flushed_one_that_goes_on_in_an_open_buffer_is_too() {
    let mut rig = Rig::new(2, 64, 1, Selector::Forward, FlushPolicy::EveryRecord);
    for records in 1..=4 {
        rig.emit(Target::Any, &[1; 5]);
        rig.read_all();
        assert_eq!(rig.inputs[0].records(), records);
    }
    rig.finish_and_assert_all_segments_home();
}

#[test]
fn an_event_shows_the_records_in_front_of_it_at_once() {
    let mut rig = Rig::new(4, 64, 2, Selector::rebalance(0), FlushPolicy::WhenFull);
    rig.emit(Target::Any, &[1]);
    rig.emit(Target::Any, &[2]);
    let marker = Event::LatencyMarker { timestamp_ns: 1, task: 2, subtask: 3 };
    rig.writer.emit_event(SubpartitionIndex::new(1), &marker).unwrap();
    rig.read_all();
    assert_eq!(rig.inputs[0].read, []);
    assert_eq!(rig.inputs[1].read, [ReaderEvent::Record(vec![2]), ReaderEvent::Event(marker)]);
    rig.finish_and_assert_all_segments_home();
}

#[test]
fn nothing_is_taken_after_the_end() {
    let mut rig = Rig::new(2, 16, 1, Selector::Forward, FlushPolicy::EveryRecord);
    rig.writer.finish(false).unwrap();
    assert!(matches!(rig.writer.try_emit(Target::Any, &[1]), Err(ExchangeError::Misuse(_))));
    assert!(matches!(rig.writer.broadcast_event(&Event::EndOfPartition), Err(ExchangeError::Misuse(_))));
    assert!(matches!(rig.writer.finish(true), Err(ExchangeError::Misuse(_))));
    rig.read_all();
    assert_eq!(rig.inputs[0].read, [Event::EndOfData { drain: false }, Event::EndOfPartition].map(ReaderEvent::Event));
    drop(rig.writer);
    assert_eq!(rig.segments.available(), 2);
}

#[test]
fn records_to_a_reader_that_left_are_dropped_and_their_segments_go_home() {
    let mut rig = Rig::new(2, 16, 2, Selector::Custom, FlushPolicy::EveryRecord);
    rig.inputs[0].cell.release();
    for round in 0..50 {
        rig.emit(Target::Subpartition(0), &[round; 9]);
        rig.emit(Target::Subpartition(1), &[round; 3]);
    }
    rig.finish();
    assert_eq!((rig.inputs[0].records(), rig.inputs[1].records()), (0, 50));
    drop(rig.writer);
    assert_eq!(rig.segments.available(), 2);
}

#[test]
fn a_barrier_overtakes_what_the_writer_has_queued() {
    let barrier = |kind| Event::Barrier(Barrier { checkpoint_id: CheckpointId::new(1), timestamp_ms: 0, kind });
    for kind in [BarrierKind::Unaligned, BarrierKind::AlignedWithTimeout] {
        let mut rig = Rig::new(4, 16, 2, Selector::Custom, FlushPolicy::WhenFull);
        rig.emit(Target::Subpartition(1), &[7; 3]);
        let overtaken = if kind == BarrierKind::Unaligned {
            rig.writer.overtake(&barrier(kind)).unwrap()
        } else {
            rig.writer.broadcast_event(&barrier(kind)).unwrap();
            rig.writer.expire(CheckpointId::new(1))
        };
        assert_eq!(overtaken.iter().map(|one| one.elements.len()).collect::<Vec<_>>(), [0, 1], "{kind:?}");
        drop(overtaken);
        let read = rig.finish_and_assert_all_segments_home();
        assert!(
            matches!(&read[1][..], [ReaderEvent::Event(Event::Barrier(_)), ReaderEvent::Record(_)]),
            "{:?}",
            read[1]
        );
    }
}

#[test]
fn events_may_follow_the_end_of_data() {
    let mut rig = Rig::new(2, 16, 1, Selector::Forward, FlushPolicy::WhenFull);
    rig.writer.end_data(true).unwrap();
    rig.read_all();
    assert_eq!(rig.inputs[0].read, [ReaderEvent::Event(Event::EndOfData { drain: true })]);
    rig.writer.broadcast_event(&Event::Watermark { timestamp_ms: 1 }).unwrap();
    rig.finish();
    let rest = [Event::Watermark { timestamp_ms: 1 }, Event::EndOfPartition].map(ReaderEvent::Event);
    assert_eq!(rig.inputs[0].read[1..], rest, "and it is told once");
    assert!(matches!(rig.writer.end_data(true), Err(ExchangeError::Misuse(_))));
}
