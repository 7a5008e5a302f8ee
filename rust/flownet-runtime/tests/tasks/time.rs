//! Windows and timers in a running task.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flownet_runtime::operator::{Collector, Entry, Kind, Operator, OperatorChain, SliceWindowOperator, Source};
use flownet_runtime::snapshot::Snapshot;
use flownet_runtime::spec::Partitioner;
use flownet_runtime::time::Clock;
use flownet_runtime::timer::{TimerKey, TimerService};
use flownet_runtime::window::AlignedWindows;
use flownet_runtime::{SourceStatus, TaskContext, TaskError};

use crate::bytes::{Bytes, BytesExit, CountingFold, Script, Step, chain, chain_of_two};
use crate::chains::{SeenRecords, Sink};
use crate::rig::{Job, RunningTask, wait_until};

/// A source, counts by key in windows of a grid on two subtasks, and a sink; timestamps travel where `clock` needs them.
fn window_job(
    source_chain: impl Fn(u32) -> OperatorChain<Bytes>,
    clock: Clock,
    grid: AlignedWindows,
) -> (RunningTask, SeenRecords) {
    let mut job = Job::new(2);
    let seen = SeenRecords::default();
    let source = job.vertex("source", &[0]);
    let window = job.vertex("window", &[0, 1]);
    let sink = job.vertex("sink", &[0]);
    job.edge(source, window, Partitioner::KeyGroup);
    job.edge(window, sink, Partitioner::Rebalance);
    job.run(source, source_chain);
    job.run(window, |_| {
        let operator = SliceWindowOperator::new(CountingFold, clock, grid, 0, [None, None]);
        let entry = Entry { side: 0, keyed: true, stamps: clock == Clock::Event };
        chain(Kind::Keyed(Box::new(operator)), Some(entry), Some((BytesExit::any(), false)))
    });
    job.run(sink, |_| Sink::new(&seen));
    (job.start(), seen)
}

fn tumbling(size_ms: i64) -> AlignedWindows {
    AlignedWindows::new(size_ms, size_ms, 0).unwrap()
}

pub(crate) fn script(steps: &[Step], stamps: bool, ends: bool) -> OperatorChain<Bytes> {
    let script = Script { steps: steps.to_vec(), ends };
    chain(Kind::Source(Box::new(script)), None, Some((BytesExit::keyed(1), stamps)))
}

const HOUR_MS: i64 = 3_600_000;
/// So long that the test never sees the end of one by accident.
const CENTURY_MS: i64 = 100 * 365 * 24 * HOUR_MS;

#[test]
fn the_end_of_input_fires_pending_windows() {
    let steps: Vec<_> = (0..100).map(|key| Step::Record(key, 0)).collect();
    let (running, seen) = window_job(|_| script(&steps, false, true), Clock::Processing, tumbling(CENTURY_MS));
    running.join();
    assert_eq!(seen.numbers(), [1; 100]);
    running.finish_and_assert_all_segments_home();
}

/// Key, start of the window, count.
fn counted(seen: &SeenRecords) -> Vec<(u8, i64, u64)> {
    let read = |(_, result): (usize, Vec<u8>)| {
        let (count, rest) = result.split_first_chunk::<8>().unwrap();
        let (key, start_ms) = rest.split_last_chunk::<8>().unwrap();
        (key[0], i64::from_le_bytes(*start_ms), u64::from_le_bytes(*count))
    };
    let mut all: Vec<_> = seen.records().into_iter().map(read).collect();
    all.sort_unstable();
    all
}

#[test]
fn windows_of_event_time_go_by_the_timestamps_of_records_and_not_by_when_they_come() {
    use Step::{Record, Watermark};
    let steps = [
        Record(1, 5),
        Record(2, 12),
        Record(1, 3),
        Watermark(9),
        // Late by now, and dropped.
        Record(1, 4),
        Record(1, 10),
        Record(2, -7),
        Watermark(19),
        Record(2, 25),
    ];
    let (running, seen) = window_job(|_| script(&steps, true, true), Clock::Event, tumbling(10));
    running.join();
    assert_eq!(counted(&seen), [(1, 0, 2), (1, 10, 1), (2, 10, 1), (2, 20, 1)]);
    let metrics: Vec<_> = (0..2).map(|subtask| running.task("window", subtask).metrics().event_time).collect();
    assert_eq!(metrics.iter().map(|time| time.late_records).sum::<u64>(), 2);
    assert!(metrics.iter().all(|time| time.watermark_ms == Some(i64::MAX)));
    running.finish_and_assert_all_segments_home();
}

#[test]
fn windows_that_overlap_count_a_record_in_each() {
    use Step::{Record, Watermark};
    let steps = [Record(1, 5), Record(1, 15), Watermark(14), Record(1, 16)];
    let (running, seen) =
        window_job(|_| script(&steps, true, true), Clock::Event, AlignedWindows::new(20, 10, 0).unwrap());
    running.join();
    assert_eq!(counted(&seen), [(1, -10, 1), (1, 0, 3), (1, 10, 2)]);
    running.finish_and_assert_all_segments_home();
}

#[test]
fn a_record_without_a_timestamp_in_a_window_of_event_time_is_an_error() {
    let steps = [Step::Record(1, flownet_runtime::time::NO_TIMESTAMP)];
    let (running, _) = window_job(|_| script(&steps, true, true), Clock::Event, tumbling(10));
    wait_until("a window has failed", || {
        let failed = |subtask| matches!(running.task("window", subtask).outcome(), Some(Err(TaskError::Config(_))));
        failed(0) || failed(1)
    });
    running.finish_and_assert_all_segments_home();
}

#[test]
fn a_window_fires_by_the_clock_while_nothing_arrives() {
    let steps: Vec<_> = (0..10).map(|key| Step::Record(key, 0)).collect();
    let (running, seen) = window_job(|_| script(&steps, false, false), Clock::Processing, tumbling(50));
    wait_until("the window has fired", || seen.numbers().iter().sum::<u64>() == 10);
    running.finish_and_assert_all_segments_home();
}

/// An operator that only has timers.
struct Metronome {
    timers: TimerService<TimerKey>,
    fired: Arc<Mutex<Vec<(i64, u8)>>>,
    /// Set once all timers have fired.
    is_over: Arc<AtomicBool>,
}

impl Operator<Bytes> for Metronome {
    fn open(&mut self, (): (), _: &TaskContext) -> Result<(), TaskError> {
        // All long due, in no order, one twice.
        for (at, key) in [(30, 1), (10, 2), (30, 1), (20, 3)] {
            self.timers.register(at, TimerKey::held(&[key], None));
        }
        Ok(())
    }

    fn process<'m>(&mut self, _: Vec<u8>, collector: &mut Collector<'_, 'm, Bytes>) -> Result<(), TaskError> {
        collector.refuse("takes no records")
    }

    fn next_timer_ms(&self) -> Option<i64> {
        self.timers.next_ms()
    }

    fn on_timer(&mut self, now_ms: i64, _: &mut Collector<'_, '_, Bytes>) -> Result<(), TaskError> {
        assert!(now_ms > 30);
        while let Some((at, key)) = self.timers.pop_due(now_ms)? {
            let mut fired = self.fired.lock().unwrap();
            fired.push((at, key.key()[0]));
            if fired.len() == 3 {
                // One ahead of now: the task has to sleep for it.
                self.timers.register(now_ms + 30, TimerKey::held(&[4], None));
            }
        }
        self.is_over.store(self.timers.is_empty(), Ordering::Release);
        Ok(())
    }

    fn snapshot(&mut self, (): (), _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }
}

/// A source that emits nothing, until `is_over` is set.
struct EndsWith {
    is_over: Arc<AtomicBool>,
}

impl Source<Bytes> for EndsWith {
    fn open(&mut self, (): (), _: &TaskContext) -> Result<(), TaskError> {
        Ok(())
    }

    fn emit<'m>(&mut self, _: &mut Collector<'_, 'm, Bytes>) -> Result<SourceStatus, TaskError> {
        let is_over = self.is_over.load(Ordering::Acquire);
        Ok(if is_over { SourceStatus::Finished } else { SourceStatus::Idle { wake_after: Duration::from_secs(3600) } })
    }

    fn snapshot(&mut self, (): (), _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }
}

#[test]
fn timers_fire_in_order_once_and_wake_an_idle_task() {
    let mut job = Job::new(1);
    let fired = Arc::new(Mutex::new(Vec::new()));
    let source = job.vertex("source", &[0]);
    job.run(source, |_| {
        let is_over = Arc::new(AtomicBool::new(false));
        let source = EndsWith { is_over: Arc::clone(&is_over) };
        let metronome = Metronome { timers: TimerService::new(), fired: Arc::clone(&fired), is_over };
        chain_of_two(Kind::Source(Box::new(source)), Kind::Operator(Box::new(metronome)))
    });

    let running = job.start();
    running.join();

    let fired = fired.lock().unwrap().clone();
    assert_eq!(fired[..3], [(10, 2), (20, 3), (30, 1)]);
    assert_eq!((fired.len(), fired[3].1), (4, 4));
    assert!(running.task("source", 0).metrics().time.idle >= Duration::from_millis(10));
    running.finish_and_assert_all_segments_home();
}
