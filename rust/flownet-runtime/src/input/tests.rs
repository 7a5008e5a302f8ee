//! The input of a task against partitions of the same process.

use std::sync::Arc;

use flownet_core::partition::ResultPartition;
use flownet_core::record::writer::{Emit, FlushPolicy, RecordWriter};
use flownet_core::{Barrier, BarrierKind, CheckpointId, PartitionId, PoolSizing, Selector, SubpartitionIndex, Target};
use flownet_memory::SegmentPool;

use super::*;
use crate::error::Evidence;
use crate::mailbox::{Mail, Mailbox};

const SEGMENT_BYTES: usize = 64;

/// Writers, each with one channel into the same gate.
struct Rig {
    segments: Arc<SegmentPool>,
    writers: Vec<RecordWriter>,
    input: TaskInput,
    mailbox: Mailbox,
    metrics: Arc<TaskMetrics>,
}

/// All that a task would see, in order.
#[derive(Debug, PartialEq, Eq)]
enum SeenEvent {
    Record(usize, String),
    Signal(Signal),
    End { drain: bool },
}

impl Rig {
    fn new(channels: usize) -> Self {
        let segments = SegmentPool::new(64, SEGMENT_BYTES).unwrap();
        let gate = InputGate::new(channels as u32);
        let writer = |channel: u32| {
            let pool = segments.create_buffer_pool(PoolSizing::default().partition(1)).unwrap();
            let partition = ResultPartition::new(PartitionId::new(channel.into()), pool, 1);
            let cell = Arc::clone(partition.handle().subpartition(SubpartitionIndex::new(0)).unwrap());
            gate.set_local(ChannelIndex::new(channel), cell);
            RecordWriter::new(partition, Selector::Forward, FlushPolicy::EveryRecord, 1000)
        };
        let writers = (0..channels as u32).map(writer).collect();
        let (mailbox, metrics) = (Mailbox::new(), Arc::new(TaskMetrics::new()));
        let places: Vec<_> = (0..channels)
            .map(|input| ChannelPlace { input, is_local: true, in_iteration: false, counts: Arc::default() })
            .collect();
        let input = TaskInput::new(gate, &places, 1000, mailbox.cancel_token(), Arc::clone(&metrics));
        Self { segments, writers, input, mailbox, metrics }
    }

    fn emit(&mut self, channel: usize, record: &str) {
        let emit = self.writers[channel].try_emit(Target::Any, record.as_bytes()).unwrap();
        assert_eq!(emit, Emit::Done);
    }

    fn send(&mut self, channel: usize, event: &Event) {
        self.writers[channel].broadcast_event(event).unwrap();
    }

    fn finish(&mut self, channel: usize, drain: bool) {
        self.writers[channel].finish(drain).unwrap();
    }

    /// Reads until no data is left, as the task loop does.
    fn read(&mut self) -> Result<Vec<SeenEvent>, TaskError> {
        let mut seen = Vec::new();
        loop {
            match self.input.poll(Waker::noop()) {
                Poll::Pending => return Ok(seen),
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Ready(Ok(Arrival::End { drain })) => {
                    seen.push(SeenEvent::End { drain });
                    return Ok(seen);
                }
                Poll::Ready(Ok(Arrival::Events)) => {}
                Poll::Ready(Ok(Arrival::Buffer)) => {
                    let mut batch = self.input.batch(&|| false, 0);
                    while let Some((input, record)) = batch.next()? {
                        seen.push(SeenEvent::Record(input, String::from_utf8(record.to_vec()).unwrap()));
                    }
                }
            }
            seen.extend(std::iter::from_fn(|| self.input.take_signal()).map(SeenEvent::Signal));
        }
    }

    fn assert_all_segments_home(self) {
        let Self { segments, writers, input, .. } = self;
        input.gate.close();
        drop((writers, input));
        assert_eq!(segments.available(), segments.total());
    }
}

fn record(input: usize, text: &str) -> SeenEvent {
    SeenEvent::Record(input, text.to_owned())
}

fn time(signal: TimeSignal) -> SeenEvent {
    SeenEvent::Signal(Signal::Time(signal))
}

fn watermark(timestamp_ms: i64) -> Event {
    Event::Watermark { timestamp_ms }
}

#[test]
fn what_a_chain_says_to_the_next_keeps_its_place_among_the_records_of_its_channel() {
    let mut rig = Rig::new(2);
    let said = |text: &str| CustomEvent::new(7, text.as_bytes()).unwrap();
    rig.emit(0, "a");
    rig.send(0, &Event::Custom(said("b")));
    rig.emit(0, "c");
    rig.emit(1, "d");
    let seen = rig.read().unwrap();
    let of_first: Vec<_> = seen.into_iter().filter(|seen| *seen != record(1, "d")).collect();
    assert_eq!(of_first, [record(0, "a"), SeenEvent::Signal(Signal::Custom(said("b"))), record(0, "c")]);
    rig.assert_all_segments_home();
}

#[test]
fn records_and_watermarks_keep_their_order_and_time_is_that_of_the_slowest_channel() {
    let mut rig = Rig::new(2);
    rig.emit(0, "a");
    rig.send(0, &watermark(10));
    rig.emit(0, "b");
    assert_eq!(rig.read().unwrap(), [record(0, "a"), record(0, "b")]);
    rig.emit(1, "c");
    rig.send(1, &watermark(5));
    rig.emit(1, "d");
    let expected = [record(1, "c"), time(TimeSignal::Watermark(5)), record(1, "d")];
    assert_eq!(rig.read().unwrap(), expected);
    rig.finish(1, true);
    assert_eq!(rig.read().unwrap(), [time(TimeSignal::Watermark(10))], "who has ended holds nobody back");
    rig.finish(0, true);
    assert_eq!(rig.read().unwrap(), [SeenEvent::End { drain: true }]);
    rig.assert_all_segments_home();
}

#[test]
fn idle_channels_are_told_on() {
    let mut rig = Rig::new(1);
    rig.send(0, &Event::WatermarkStatus { idle: true });
    rig.send(0, &Event::WatermarkStatus { idle: false });
    let signals = [true, false].map(|idle| time(TimeSignal::Idle(idle)));
    assert_eq!(rig.read().unwrap(), signals);
    rig.assert_all_segments_home();
}

#[test]
fn the_input_is_drained_only_if_every_channel_is() {
    for (one, other, all) in [(true, true, true), (true, false, false), (false, false, false)] {
        let mut rig = Rig::new(2);
        rig.finish(0, one);
        rig.finish(1, other);
        assert_eq!(rig.read().unwrap(), [SeenEvent::End { drain: all }]);
        rig.assert_all_segments_home();
    }
}

#[test]
fn a_channel_goes_on_behind_a_barrier_of_any_kind() {
    let mut rig = Rig::new(1);
    for kind in [BarrierKind::Aligned, BarrierKind::Unaligned, BarrierKind::AlignedWithTimeout] {
        rig.emit(0, "before");
        rig.send(0, &Event::Barrier(Barrier { checkpoint_id: CheckpointId::new(1), timestamp_ms: 0, kind }));
        rig.emit(0, "behind");
        assert_eq!(rig.read().unwrap(), [record(0, "before"), record(0, "behind")], "{kind:?}");
    }
    rig.send(0, &Event::CancelBarrier { checkpoint_id: CheckpointId::new(1) });
    assert_eq!(rig.read().unwrap(), []);
    rig.assert_all_segments_home();
}

#[test]
fn a_marker_is_seen_between_the_records_before_it_and_those_behind() {
    let mut rig = Rig::new(1);
    let marker = Event::LatencyMarker { timestamp_ns: 1, task: 2, subtask: 3 };
    rig.emit(0, "before");
    rig.send(0, &marker);
    rig.emit(0, "behind");
    let signal = SeenEvent::Signal(Signal::Marker(marker));
    assert_eq!(rig.read().unwrap(), [record(0, "before"), signal, record(0, "behind")]);
    rig.assert_all_segments_home();
}

#[test]
fn records_left_unread_come_with_the_next_batch() {
    let mut rig = Rig::new(1);
    for text in ["a", "b", "c"] {
        rig.emit(0, text);
    }
    assert_eq!(rig.input.poll(Waker::noop()), Poll::Ready(Ok(Arrival::Buffer)));
    assert_eq!(rig.input.batch(&|| false, 0).next().unwrap(), Some((0, &b"a"[..])));
    assert_eq!(rig.read().unwrap(), [record(0, "b"), record(0, "c")]);
    rig.assert_all_segments_home();
}

#[test]
fn a_batch_goes_on_over_buffers_until_the_task_is_wanted_or_nothing_is_left() {
    let mut rig = Rig::new(3);
    for channel in 0..3 {
        rig.emit(channel, "x");
    }
    rig.send(2, &watermark(1));
    assert_eq!(rig.input.poll(Waker::noop()), Poll::Ready(Ok(Arrival::Buffer)));
    {
        let mut batch = rig.input.batch(&|| true, 7);
        assert_eq!(batch.now_ms(), 7);
        assert_eq!(batch.next().unwrap(), Some((0, &b"x"[..])));
        assert_eq!(batch.next().unwrap(), None);
        assert!(!batch.next_buffer().unwrap(), "somebody wants the task");
    }
    let mut batch = rig.input.batch(&|| false, 0);
    for input in 1..3 {
        assert!(batch.next_buffer().unwrap());
        assert_eq!(batch.next().unwrap(), Some((input, &b"x"[..])));
        assert_eq!(batch.next().unwrap(), None);
    }
    assert!(!batch.next_buffer().unwrap());
    rig.assert_all_segments_home();
}

#[test]
fn a_record_longer_than_a_buffer_is_whole_between_others() {
    let mut rig = Rig::new(1);
    let long = "y".repeat(3 * SEGMENT_BYTES);
    for text in ["x", &long, "z"] {
        rig.emit(0, text);
    }
    assert_eq!(rig.read().unwrap(), [record(0, "x"), record(0, &long), record(0, "z")]);
    let seen = rig.metrics.snapshot();
    assert_eq!((seen.records_in, seen.bytes_in_local), (3, 3 * 4 + 2 + long.len() as u64));
    rig.assert_all_segments_home();
}

#[test]
fn a_cancelled_task_gets_no_further_record() {
    let mut rig = Rig::new(1);
    rig.emit(0, "a");
    rig.mailbox.post(Mail::Cancel);
    assert_eq!(rig.read(), Err(TaskError::Cancelled));
    rig.assert_all_segments_home();
}

#[test]
fn a_channel_that_ends_without_saying_that_its_data_ended_is_an_error() {
    let mut rig = Rig::new(1);
    rig.send(0, &Event::EndOfPartition);
    assert_eq!(rig.read().unwrap_err().to_string(), "channel 0 ended before its data did");
    rig.assert_all_segments_home();
}

#[test]
fn a_channel_that_was_stopped_holds_event_time_where_it_left_it() {
    for drain in [true, false] {
        let mut rig = Rig::new(2);
        rig.send(0, &watermark(50));
        rig.send(1, &watermark(200));
        rig.finish(0, drain);
        rig.send(1, &watermark(300));
        let told = rig.read().unwrap();
        let signals: Vec<_> = told.into_iter().filter(|seen| *seen != time(TimeSignal::Watermark(50))).collect();
        // The stopped channel may resume from 50 later. Its records would be late if event time were at 300.
        match drain {
            true => assert_eq!(signals.last(), Some(&time(TimeSignal::Watermark(300)))),
            false => assert_eq!(signals, []),
        }
        rig.assert_all_segments_home();
    }
}

#[test]
fn a_failed_producer_fails_the_input_with_its_cause() {
    let mut rig = Rig::new(2);
    rig.emit(0, "a");
    rig.writers[1].partition().handle().fail("boom");
    let error = loop {
        match rig.read() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(error.evidence() < Evidence::Cause && error.to_string().ends_with("boom"), "{error}");
    rig.assert_all_segments_home();
}
