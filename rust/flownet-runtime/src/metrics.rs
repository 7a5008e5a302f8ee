//! Counters of one task. Its thread writes them and any thread reads them, without locks between writer and reader.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::contention::Look;
use crate::late_splits::LateSplits;
use crate::latency::Latencies;
use crate::operator_counts::{OperatorCounters, OperatorCounts};
use crate::state_stats::StateStats;
use crate::time::{END_OF_TIME_MS, NO_TIMESTAMP, wall_clock_ms};
use crate::time_accounting::{TimeAccounting, TimeShares, TimeState};
use crate::user_metrics::UserMetrics;
use crate::watermark::{Alignment, OutOfOrderCounts, StepMonitor};
use crate::work::{Mark, Work};

/// Live counters of one task.
#[derive(Debug)]
pub struct TaskMetrics {
    started: Instant,
    time: TimeAccounting,
    // The current state, for the task's thread only: a switch to the same state then reads no clock.
    state: AtomicU8,
    // The kind of work that its thread does while busy.
    work: AtomicU8,
    // The system's number of its thread; 0 before it has one.
    thread: AtomicU32,
    // CPU time of the thread at the last sample.
    worked_ns: AtomicU64,
    records_in: AtomicU64,
    records_out: AtomicU64,
    // Rows in excess of one per record; wraps below zero.
    more_rows_in: AtomicU64,
    more_rows_out: AtomicU64,
    bytes_in_local: AtomicU64,
    bytes_in_remote: AtomicU64,
    buffers_in: AtomicU64,
    // Buffers that left the gate, read or not.
    bytes_taken: AtomicU64,
    buffers_taken: AtomicU64,
    // The task's last measurement; zero bytes if there is none.
    fill_limit_bytes: AtomicU64,
    in_flight_ns: AtomicU64,
    longest_in_flight_ns: AtomicU64,
    late_records: AtomicU64,
    records_ahead: AtomicU64,
    timed_records: AtomicU64,
    out_of_order_records: AtomicU64,
    out_of_order_ms: AtomicU64,
    // `i64::MIN` before the first watermark.
    watermark_ms: AtomicI64,
    // The same for alignment. `i64::MAX` if no source waits for it.
    aligned_ms: AtomicI64,
    has_input_ended: AtomicBool,
    // Set before the task starts, if its source is aligned with others.
    alignment: OnceLock<StepMonitor>,
    users: UserMetrics,
    late_splits: LateSplits,
    latencies: Latencies,
    tally: TallyBoard,
    // Set when its chain is opened.
    operators: OnceLock<OperatorCounters>,
}

impl TaskMetrics {
    /// All counters are zero. Time runs from now, as idle.
    pub fn new() -> Self {
        Self {
            started: Instant::now(),
            time: TimeAccounting::new(TimeState::Idle, 0),
            state: AtomicU8::new(TimeState::Idle.index() as u8),
            work: AtomicU8::new(Work::Rust as u8),
            thread: AtomicU32::new(0),
            worked_ns: AtomicU64::new(0),
            records_in: AtomicU64::new(0),
            records_out: AtomicU64::new(0),
            more_rows_in: AtomicU64::new(0),
            more_rows_out: AtomicU64::new(0),
            bytes_in_local: AtomicU64::new(0),
            bytes_in_remote: AtomicU64::new(0),
            buffers_in: AtomicU64::new(0),
            bytes_taken: AtomicU64::new(0),
            buffers_taken: AtomicU64::new(0),
            fill_limit_bytes: AtomicU64::new(0),
            in_flight_ns: AtomicU64::new(0),
            longest_in_flight_ns: AtomicU64::new(0),
            late_records: AtomicU64::new(0),
            records_ahead: AtomicU64::new(0),
            timed_records: AtomicU64::new(0),
            out_of_order_records: AtomicU64::new(0),
            out_of_order_ms: AtomicU64::new(0),
            watermark_ms: AtomicI64::new(NO_TIMESTAMP),
            aligned_ms: AtomicI64::new(NO_TIMESTAMP),
            has_input_ended: AtomicBool::new(false),
            alignment: OnceLock::new(),
            users: UserMetrics::default(),
            latencies: Latencies::default(),
            late_splits: LateSplits::default(),
            tally: TallyBoard::default(),
            operators: OnceLock::new(),
        }
    }

    /// Returns a consistent view of the time and a recent one of the counters.
    pub fn snapshot(&self) -> MetricsSnapshot {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (records_in, records_out) = (load(&self.records_in), load(&self.records_out));
        MetricsSnapshot {
            records_in,
            records_out,
            rows_in: records_in.saturating_add_signed(load(&self.more_rows_in).cast_signed()),
            rows_out: records_out.saturating_add_signed(load(&self.more_rows_out).cast_signed()),
            bytes_in_local: self.bytes_in_local.load(Ordering::Relaxed),
            bytes_in_remote: self.bytes_in_remote.load(Ordering::Relaxed),
            bytes_out: 0,
            dropped_records: 0,
            dropped_bytes: 0,
            queues: QueueSnapshot::default(),
            in_flight: self.in_flight(),
            event_time: self.event_time(),
            tally: self.tally.now(),
            time: self.time.snapshot(self.now_ns()),
        }
    }

    /// Metrics of the user's functions.
    pub fn users(&self) -> &UserMetrics {
        &self.users
    }

    /// Names of its splits, and the split with the latest record.
    pub fn late_splits(&self) -> &LateSplits {
        &self.late_splits
    }

    /// Travel times of latency markers to this task.
    pub fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    /// Input and output of each of its operators, upstream first. Empty before its chain is opened.
    pub fn operators(&self) -> Vec<OperatorCounts> {
        self.operators.get().map(OperatorCounters::read).unwrap_or_default()
    }

    /// Sets the counters of its operators. Later calls have no effect.
    pub(crate) fn set_operators(&self, counters: OperatorCounters) {
        let _ = self.operators.set(counters);
    }

    /// Records read so far.
    #[inline]
    pub fn records_in(&self) -> u64 {
        self.records_in.load(Ordering::Relaxed)
    }

    /// Adds records read. Sources call it, because their records pass no gate.
    #[inline]
    pub fn add_records_in(&self, records: u64) {
        bump(&self.records_in, records);
    }

    /// Adds records sent. Sinks call it, because their records pass no exchange.
    #[inline]
    pub fn add_records_out(&self, records: u64) {
        bump(&self.records_out, records);
    }

    /// Counts a record read as this number of rows instead of one.
    pub fn count_rows_in(&self, rows: u64) {
        bump(&self.more_rows_in, rows.wrapping_sub(1));
    }

    /// Counts a record sent as this number of rows instead of one.
    pub fn count_rows_out(&self, rows: u64) {
        bump(&self.more_rows_out, rows.wrapping_sub(1));
    }

    /// Sets the current work of the task's thread. Returns the previous work.
    #[inline]
    pub fn begin(&self, work: Work) -> Mark {
        let before = self.work.load(Ordering::Relaxed);
        self.work.store(work as u8, Ordering::Relaxed);
        Mark(before)
    }

    /// The current work of the task's thread.
    #[inline]
    pub(crate) fn at(&self) -> Mark {
        Mark(self.work.load(Ordering::Relaxed))
    }

    /// Sets the work back to `before`.
    #[inline]
    pub fn resume(&self, before: Mark) {
        self.work.store(before.0, Ordering::Relaxed);
    }

    /// Counts busy time as `work` until the first sample.
    pub(crate) fn assume(&self, work: Work) {
        self.time.assume(work);
    }

    /// Sets the system's number of its thread.
    pub(crate) fn set_thread(&self, thread: u32) {
        self.thread.store(thread, Ordering::Relaxed);
    }

    /// Returns true if the task has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ENDED
    }

    /// Queries the system about its thread, if the task may have to wait for the interpreter in the middle of a call.
    pub(crate) fn at_interpreter(&self) -> Option<Look> {
        let state = self.state.load(Ordering::Relaxed);
        if state == TimeState::Interpreter.index() as u8 {
            let look = Look::at(self.thread.load(Ordering::Relaxed))?;
            if self.state.load(Ordering::Relaxed) == state {
                look.learn();
            }
            return None;
        }
        let is_at_work = state == TimeState::Busy.index() as u8 && self.work() != Work::Rust;
        if is_at_work { Look::at(self.thread.load(Ordering::Relaxed)) } else { None }
    }

    /// Counts the busy time since the last sample as the task's current work. If the task has to wait for the
    /// interpreter, only its CPU time since then counts.
    pub(crate) fn look(&self, seen: Option<Look>, is_contended: bool) {
        if self.state.load(Ordering::Relaxed) != TimeState::Busy.index() as u8 {
            return;
        }
        let Some(look) = seen else { return self.time.look(self.work(), self.now_ns()) };
        let worked_ns = u64::try_from(look.worked.as_nanos()).unwrap_or(u64::MAX);
        let before = self.worked_ns.swap(worked_ns, Ordering::Relaxed);
        if look.is_on_interpreter() || (is_contended && look.wants_interpreter()) {
            self.time.look_waiting(self.work(), worked_ns.saturating_sub(before), self.now_ns());
        } else {
            self.time.look(self.work(), self.now_ns());
        }
    }

    #[inline]
    fn work(&self) -> Work {
        Work::of(self.work.load(Ordering::Relaxed))
    }

    /// Adds records that were dropped because they came too late.
    pub fn add_late_records(&self, records: u64) {
        bump(&self.late_records, records);
    }

    /// Adds records that did not advance event time, because they were too far ahead of the others of their split.
    pub(crate) fn add_records_ahead(&self, records: u64) {
        bump(&self.records_ahead, records);
    }

    /// Sets the number of out-of-order records, of all records that got their timestamps here.
    pub(crate) fn set_out_of_order(&self, counts: OutOfOrderCounts) {
        self.timed_records.store(counts.records, Ordering::Relaxed);
        self.out_of_order_records.store(counts.out_of_order, Ordering::Relaxed);
        self.out_of_order_ms.store(counts.most_ms, Ordering::Relaxed);
        counts.split.into_iter().for_each(|split| self.late_splits.set_latest(split));
    }

    /// Sets the state stats of the operators.
    pub(crate) fn set_tally(&self, tally: StateStats) {
        self.tally.set(tally);
    }

    /// The state stats of the operators may have changed.
    #[inline]
    pub(crate) fn begin_work(&self) {
        self.tally.is_old.store(true, Ordering::Relaxed);
    }

    /// The operators may have state to count from now on, though they had none so far.
    pub fn expect_tally(&self) {
        self.tally.is_expected.store(true, Ordering::Relaxed);
    }

    /// Returns true if the state stats may have changed since they were last counted or this was last called, and the
    /// operators have anything to count.
    pub(crate) fn wants_tally(&self) -> bool {
        self.tally.is_old.swap(false, Ordering::Relaxed)
            && (self.tally.is_expected.swap(false, Ordering::Relaxed) || self.tally.now() != StateStats::default())
    }

    /// Sets the event time of the task.
    pub(crate) fn set_watermark(&self, timestamp_ms: i64) {
        self.watermark_ms.store(timestamp_ms, Ordering::Relaxed);
    }

    /// Sets the event time of the source for the sources aligned with it. [`END_OF_TIME_MS`] if they need not wait.
    pub(crate) fn set_aligned(&self, timestamp_ms: i64) {
        self.aligned_ms.store(timestamp_ms, Ordering::Relaxed);
        if let Some(alignment) = self.alignment.get() {
            alignment.observe(timestamp_ms);
        }
    }

    /// Reports that the task's input has ended: no source waits for it any more, whatever its operators report.
    pub(crate) fn end_input(&self) {
        self.has_input_ended.store(true, Ordering::Relaxed);
        if let Some(alignment) = self.alignment.get() {
            alignment.observe(END_OF_TIME_MS);
        }
    }

    /// Wakes `monitor` when the task has advanced by a step of this alignment.
    pub(crate) fn watch_alignment(&self, alignment: &Alignment, monitor: &Waker) {
        let _ = self.alignment.set(StepMonitor::new(alignment, monitor.clone()));
    }

    #[inline]
    pub(crate) fn add_bytes_in(&self, bytes: u64, local: bool) {
        bump(if local { &self.bytes_in_local } else { &self.bytes_in_remote }, bytes);
        bump(&self.buffers_in, 1);
    }

    /// Counts buffers that left the gate and will be read one after the other.
    #[inline]
    pub(crate) fn add_taken(&self, buffers: u64, bytes: u64) {
        bump(&self.buffers_taken, buffers);
        bump(&self.bytes_taken, bytes);
    }

    /// Buffers and bytes that left the gate and are not read yet.
    pub(crate) fn unread(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (buffers, bytes) = self.read();
        (load(&self.buffers_taken).saturating_sub(buffers), load(&self.bytes_taken).saturating_sub(bytes))
    }

    /// Buffers and bytes that were read, or are being read.
    pub(crate) fn read(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.buffers_in), load(&self.bytes_in_local) + load(&self.bytes_in_remote))
    }

    /// Time since the metrics were created.
    pub(crate) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Wall time by state.
    pub(crate) fn time(&self) -> TimeShares {
        self.time.snapshot(self.now_ns())
    }

    /// Time in which the task did not wait for input.
    pub(crate) fn worked(&self) -> Duration {
        let time = self.time();
        time.total() - time.idle
    }

    /// Sets the measured in-flight time of the input, and the buffer fill limit computed from it.
    pub(crate) fn set_in_flight(&self, fill_limit_bytes: u64, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.fill_limit_bytes.store(fill_limit_bytes, Ordering::Relaxed);
        self.in_flight_ns.store(ns, Ordering::Relaxed);
        self.longest_in_flight_ns.fetch_max(ns, Ordering::Relaxed);
    }

    fn in_flight(&self) -> InFlightSnapshot {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        InFlightSnapshot {
            fill_limit_bytes: load(&self.fill_limit_bytes),
            time: Duration::from_nanos(load(&self.in_flight_ns)),
            longest: Duration::from_nanos(load(&self.longest_in_flight_ns)),
        }
    }

    fn event_time(&self) -> EventTimeSnapshot {
        let load = |time: &AtomicI64| Some(time.load(Ordering::Relaxed)).filter(|at_ms| *at_ms != NO_TIMESTAMP);
        let watermark_ms = load(&self.watermark_ms);
        let passing_ms = watermark_ms.filter(|at_ms| *at_ms != END_OF_TIME_MS);
        EventTimeSnapshot {
            watermark_ms,
            lag_ms: passing_ms.map(|at_ms| wall_clock_ms().saturating_sub(at_ms)),
            late_records: self.late_records.load(Ordering::Relaxed),
            records_ahead: self.records_ahead.load(Ordering::Relaxed),
            timed_records: self.timed_records.load(Ordering::Relaxed),
            out_of_order_records: self.out_of_order_records.load(Ordering::Relaxed),
            out_of_order_ms: self.out_of_order_ms.load(Ordering::Relaxed),
            aligned_ms: match self.has_input_ended.load(Ordering::Relaxed) {
                true => Some(END_OF_TIME_MS),
                false => load(&self.aligned_ms),
            },
        }
    }

    /// The state of the task's thread; `None` once it has ended.
    pub(crate) fn state(&self) -> Option<TimeState> {
        self.time.state()
    }

    /// The same, and when that state began.
    pub(crate) fn period(&self) -> Option<(TimeState, Instant)> {
        let (state, began_ns) = self.time.period()?;
        Some((state, self.started + Duration::from_nanos(began_ns)))
    }

    pub(crate) fn switch(&self, state: TimeState) {
        let index = state.index() as u8;
        if self.state.load(Ordering::Relaxed) != index {
            self.state.store(index, Ordering::Relaxed);
            self.time.switch(state, self.now_ns());
        }
    }

    pub(crate) fn recount(&self, from: TimeState, to: TimeState, time: Duration) {
        self.time.recount((from, to), self.work(), u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn close(&self) {
        self.state.store(ENDED, Ordering::Relaxed);
        self.time.close(self.now_ns());
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// State stats at the last count.
#[derive(Debug, Default)]
struct TallyBoard {
    // Locked a few times a second.
    tally: Mutex<StateStats>,
    is_old: AtomicBool,
    is_expected: AtomicBool,
}

impl TallyBoard {
    fn set(&self, tally: StateStats) {
        *self.tally.lock().unwrap_or_else(PoisonError::into_inner) = tally;
    }

    fn now(&self) -> StateStats {
        *self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for TaskMetrics {
    fn default() -> Self {
        Self::new()
    }
}

/// Counters of one task at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricsSnapshot {
    /// Records read from inputs, or emitted by a source.
    pub records_in: u64,
    /// Records sent to outputs, or taken by a sink.
    pub records_out: u64,
    /// Rows of the records read.
    pub rows_in: u64,
    /// Rows of the records sent.
    pub rows_out: u64,
    /// Bytes read from producers on the same worker.
    pub bytes_in_local: u64,
    /// Bytes read from producers on other workers.
    pub bytes_in_remote: u64,
    /// Bytes written for consumers, read or not.
    pub bytes_out: u64,
    /// Records that arrived and were dropped, if the exchange may drop records.
    pub dropped_records: u64,
    /// Bytes of these, including length prefixes.
    pub dropped_bytes: u64,
    /// The queues of the task's buffers.
    pub queues: QueueSnapshot,
    /// Data in flight to the task, as a time, if that is limited.
    pub in_flight: InFlightSnapshot,
    /// Event time, late records and out-of-order records.
    pub event_time: EventTimeSnapshot,
    /// State stats of its operators and lag of its source.
    pub tally: StateStats,
    /// Wall time by state.
    pub time: TimeShares,
}

/// Buffers of one task at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSnapshot {
    /// Buffers written, and not yet taken by a reader or a connection.
    pub send_buffers: u64,
    /// Bytes in these.
    pub send_bytes: u64,
    /// Buffers that arrived and are not read: from other workers, or from a queue of this one.
    pub receive_buffers: u64,
    /// Bytes in these.
    pub receive_bytes: u64,
    /// Segments in use from the task's pools.
    pub pool_used: u64,
    /// Segments that the task's pools may hold now.
    pub pool_size: u64,
    /// The part of `pool_used` for its inputs.
    pub in_pool_used: u64,
    /// The part of `pool_size` for its inputs.
    pub in_pool_size: u64,
}

impl QueueSnapshot {
    /// Share of the input pool that is in use. `None` without such a pool, as if all input comes from this process.
    pub fn in_pool_usage(&self) -> Option<f64> {
        share(self.in_pool_used, self.in_pool_size)
    }

    /// The same for its outputs; `None` for a sink.
    pub fn out_pool_usage(&self) -> Option<f64> {
        share(self.pool_used.saturating_sub(self.in_pool_used), self.pool_size.saturating_sub(self.in_pool_size))
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Data in flight to a task, in this process and at its producers, as measured by the task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlightSnapshot {
    /// Number of bytes to which its producers fill buffers. Zero if nothing was measured.
    pub fill_limit_bytes: u64,
    /// The time that the task needs to process the data, as of its last measurement.
    pub time: Duration,
    /// The longest time of any measurement.
    pub longest: Duration,
}

/// Event time of one task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventTimeSnapshot {
    /// The last watermark, in milliseconds since the epoch; the greatest number at the end of time. `None` before the
    /// first one.
    pub watermark_ms: Option<i64>,
    /// Its lag behind the wall clock, at the time of the snapshot. `None` before the first watermark and at the end of
    /// time.
    pub lag_ms: Option<i64>,
    /// Records that were dropped because their window had expired.
    pub late_records: u64,
    /// Records that did not advance event time, because they were too far ahead of the others of their split.
    pub records_ahead: u64,
    /// Records that got their timestamps in this task.
    pub timed_records: u64,
    /// The records among them that came later than the delay of the watermarks allows.
    pub out_of_order_records: u64,
    /// The most that one of them was later than the latest record of its split, in milliseconds.
    pub out_of_order_ms: u64,
    /// Event time of a source that is aligned with others, sent or not. The greatest number while it is idle and after
    /// its end. `None` before its first record.
    pub aligned_ms: Option<i64>,
}

/// The state of a task that has ended.
const ENDED: u8 = u8::MAX;

// There is one writer: a plain load and store costs less than an atomic add and loses nothing.
#[inline]
pub(crate) fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn counters_add_up_by_origin() {
        let metrics = TaskMetrics::new();
        metrics.add_records_in(3);
        metrics.add_records_in(4);
        metrics.add_records_out(1);
        metrics.add_bytes_in(10, true);
        metrics.add_bytes_in(20, false);
        metrics.count_rows_in(1000);
        metrics.count_rows_in(0);
        metrics.count_rows_out(0);
        let seen = metrics.snapshot();
        assert_eq!((seen.records_in, seen.records_out), (7, 1));
        assert_eq!((seen.rows_in, seen.rows_out), (5 + 1000, 0));
        assert_eq!((seen.bytes_in_local, seen.bytes_in_remote), (10, 20));
    }

    #[test]
    fn pools_are_used_in_shares_by_inputs_and_outputs() {
        let queues =
            QueueSnapshot { pool_used: 5, pool_size: 12, in_pool_used: 2, in_pool_size: 8, ..Default::default() };
        assert_eq!((queues.in_pool_usage(), queues.out_pool_usage()), (Some(0.25), Some(0.75)));
        assert_eq!(QueueSnapshot::default().in_pool_usage(), None);
        assert_eq!(QueueSnapshot { in_pool_size: 8, pool_size: 8, ..Default::default() }.out_pool_usage(), None);
    }

    #[test]
    fn the_lag_of_event_time_is_that_behind_the_wall_while_time_passes() {
        let metrics = TaskMetrics::new();
        assert_eq!(metrics.snapshot().event_time, EventTimeSnapshot::default());
        let before_ms = wall_clock_ms();
        metrics.set_watermark(before_ms - 5000);
        let lag_ms = metrics.snapshot().event_time.lag_ms.expect("time passes");
        assert!((5000..=5000 + wall_clock_ms() - before_ms).contains(&lag_ms), "{lag_ms}");
        metrics.set_watermark(END_OF_TIME_MS);
        let ended = metrics.snapshot().event_time;
        assert_eq!((ended.watermark_ms, ended.lag_ms), (Some(END_OF_TIME_MS), None));
    }

    #[test]
    fn nobody_waits_for_a_source_that_is_idle_or_has_ended() {
        let metrics = TaskMetrics::new();
        let aligned_ms = || metrics.snapshot().event_time.aligned_ms;
        metrics.set_aligned(5);
        assert_eq!(aligned_ms(), Some(5));
        metrics.set_aligned(END_OF_TIME_MS);
        assert_eq!(aligned_ms(), Some(END_OF_TIME_MS));
        metrics.set_aligned(NO_TIMESTAMP);
        assert_eq!(aligned_ms(), None);
        metrics.end_input();
        metrics.set_aligned(5);
        assert_eq!(aligned_ms(), Some(END_OF_TIME_MS), "operators go on to the end");
    }

    #[test]
    fn an_aligned_source_asks_for_a_report_when_it_has_moved_by_a_step_or_ended() {
        struct Counter(AtomicU64);
        impl std::task::Wake for Counter {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (metrics, counter) = (TaskMetrics::new(), Arc::new(Counter(AtomicU64::new(0))));
        let [max_drift_ms, update_interval_ms] = [100, 1000].map(|ms: u64| ms.try_into().expect("above zero"));
        let alignment = Alignment { group: "g".into(), max_drift_ms, update_interval_ms };
        metrics.watch_alignment(&alignment, &Waker::from(Arc::clone(&counter)));
        let mut woken = |reached_ms| {
            metrics.set_aligned(reached_ms);
            counter.0.load(Ordering::Relaxed)
        };
        // The first time, after a quarter of the drift, when idle, and after the return.
        assert_eq!([0, 24, 25, 49, END_OF_TIME_MS, 49].map(&mut woken), [1, 1, 2, 2, 3, 4]);
        metrics.end_input();
        assert_eq!(counter.0.load(Ordering::Relaxed), 5);
    }

    #[test]
    fn a_task_is_asked_what_it_holds_where_that_may_have_changed_and_it_can_hold_anything() {
        let metrics = TaskMetrics::new();
        metrics.begin_work();
        assert!(!metrics.wants_tally(), "it has nothing to be counted");
        let mut tally = StateStats::default();
        tally.add_keys(0);
        metrics.set_tally(tally);
        assert!(!metrics.wants_tally(), "it has just been counted");
        metrics.begin_work();
        assert_eq!([metrics.wants_tally(), metrics.wants_tally()], [true, false], "once");
        assert_eq!(metrics.snapshot().tally.state_keys, Some(0));
    }

    #[test]
    fn a_task_is_asked_once_more_where_it_expects_to_hold_something() {
        let metrics = TaskMetrics::new();
        metrics.expect_tally();
        assert!(!metrics.wants_tally(), "nothing was done yet");
        let asked = || {
            metrics.begin_work();
            metrics.wants_tally()
        };
        assert_eq!([asked(), asked()], [true, false], "it was wrong");
    }

    #[test]
    fn time_runs_in_the_state_that_was_switched_to() {
        let metrics = TaskMetrics::new();
        metrics.switch(TimeState::Busy);
        let first = metrics.snapshot().time;
        while metrics.snapshot().time.busy == first.busy {
            std::hint::spin_loop();
        }
        let second = metrics.snapshot().time;
        assert_eq!((second.idle, second.back_pressured()), (first.idle, first.back_pressured()));
    }
}
