//! Buffer debloating: limits how far senders fill buffers, so that a task processes its in-flight data in a given time.
//!
//! Flow control counts buffers. If these are full of small records, the few buffers in flight to a slow task are
//! minutes of its work. Each record is that old when the task reads it. So the task measures its throughput and sends
//! its producers a fill limit. The limit is the throughput in the given time, divided by the number of buffers that
//! hold data for the task. (Flink calls it buffer debloating, FLIP-183.) A buffer that is closed early costs its
//! segment and its credit like any other, so promises and reservations do not change.
//!
//! Debloating begins with one record per buffer and grows with the measured throughput. A fast task has full buffers
//! after a few hundred records, and a slow one never has much queued.
//!
//! # Many channels
//! The limit belongs to the gate and applies to all of its channels. A producer in the same process gets it at once, a
//! remote one with its next credit. Nothing is sent, and no thread is woken, for a channel without data. A channel that
//! starts to carry data gets the limit that the gate has learned from the others.
//!
//! More channels have more buffers. In a balanced exchange of N x N, a task has up to `2 N + 8` buffers in its
//! partition and as many in its gate, if memory suffices. One record in each buffer, or [`LEAST_WORK`], is the least
//! that can be queued for a task. With less in them, buffers would cost more than the records do, so throughput would
//! fall, so buffers would be made smaller still. The work in flight is therefore the larger of the given time and that
//! floor. With the default sizes the floor is `(4 N + 16)` times a record's work or 0.3 ms. That is 25 ms of small
//! records for 16 channels and 0.25 s for 200.
//!
//! # Invariants
//! - D1: the limit is at least a byte, which means one record per buffer, and at most a segment. No measurement reduces
//!   it below the task's throughput in [`LEAST_WORK`].
//! - D2: a step changes the limit by a factor of [`MOST_PER_STEP`] at most, up or down. It moves half of the way, in
//!   proportion, to the measured value. One odd measurement thus has little effect, and a few that agree have a large
//!   one.
//! - D3: a period in which the task did not work, or processed nothing, changes nothing.
//! - D4: the last reported limit differs from the limit by at most a quarter; reaching a bound is always reported.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::wire::frame::PairCount;

/// Bytes at which a sender closes a buffer: the record that reaches them is the last one in it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct FillLimit(u32);

impl FillLimit {
    /// No limit: buffers are filled completely.
    pub const NONE: Self = Self(u32::MAX);

    /// One record per buffer.
    pub const ONE_RECORD: Self = Self(1);

    /// Creates a limit of `bytes` bytes. Zero means one.
    #[must_use]
    pub const fn new(bytes: u32) -> Self {
        Self(bytes)
    }

    /// Returns the number of bytes.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// A limit that one thread sets and others read when they next need it; a delay is harmless.
#[derive(Debug, Default)]
pub(crate) struct SharedFillLimit(AtomicU32);

impl SharedFillLimit {
    pub(crate) fn set(&self, limit: FillLimit) {
        self.0.store(limit.get().max(1), Ordering::Relaxed);
    }

    /// Returns the limit, or `None` before one was set.
    pub(crate) fn get(&self) -> Option<FillLimit> {
        let bytes = self.0.load(Ordering::Relaxed);
        (bytes > 0).then_some(FillLimit(bytes))
    }
}

impl PairCount for FillLimit {
    fn from_number(number: u32) -> Self {
        Self::new(number)
    }

    fn number(self) -> u32 {
        self.get()
    }
}

/// Controls the [`FillLimit`] of one input. See the [module docs](self).
#[derive(Debug)]
pub struct Debloater {
    bounds: InFlightBounds,
    /// In bytes (D1).
    limit: u64,
    told: Option<u64>,
    /// Start of the current measurement.
    since: Option<Progress>,
    in_flight: Option<Duration>,
}

/// Targets and bounds of a [`Debloater`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct InFlightBounds {
    /// Working time in which the task should process the in-flight data.
    pub max_time: Duration,
    /// Size of one segment.
    pub segment_bytes: u32,
    /// Least number of buffers to divide the in-flight data by, even if fewer are in use: a burst soon uses them all.
    pub least_buffers: u32,
}

/// Progress of a task through its input. A measurement is the difference of two.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Progress {
    /// Milliseconds on a clock that may start at any value.
    pub now_ms: i64,
    /// Bytes that the task has processed.
    pub bytes: u64,
    /// Buffers that contained these bytes.
    pub buffers: u64,
    /// Time in which the task did not wait for input. Waits for its outputs count, because its input waits as long.
    pub worked: Duration,
}

impl Debloater {
    /// Creates a debloater whose producers begin with [`FillLimit::ONE_RECORD`].
    #[must_use]
    pub fn new(bounds: InFlightBounds) -> Self {
        Self { bounds, limit: 1, told: None, since: None, in_flight: None }
    }

    /// Returns whether to call [`Self::adjust`], because enough buffers were read for a measurement. While the limit
    /// may grow, this is true at once, otherwise about every [`INTERVAL_MS`]. Cheap enough to call for each buffer.
    #[inline]
    #[must_use]
    pub fn is_due(&self, now_ms: i64, buffers: u64) -> bool {
        let Some(since) = &self.since else { return true };
        let read = buffers.saturating_sub(since.buffers);
        let elapsed_ms = now_ms.abs_diff(since.now_ms);
        let is_sample = read >= u64::from(self.bounds.least_buffers) || elapsed_ms >= LONGEST_MS;
        read > 0 && is_sample && (self.may_grow() || elapsed_ms >= INTERVAL_MS)
    }

    /// Ends a measurement and begins the next. `buffers` is the number of buffers that hold data for the task, here or
    /// at its producers. Send a returned limit to all producers.
    pub fn adjust(&mut self, now: Progress, buffers: usize) -> Option<FillLimit> {
        let since = self.since.replace(now);
        let buffers = buffers as u64;
        let shares = buffers.max(u64::from(self.bounds.least_buffers)).max(1);
        if let Some(done) = since.and_then(|since| WorkSample::between(&since, &now)) {
            let bounded = done.bytes_in(self.bounds.max_time) / shares;
            self.step(bounded.max(done.bytes_in(LEAST_WORK)));
            self.in_flight = Some(done.time_for(buffers.min(done.buffers.saturating_mul(MOST_FORESEEN))));
        }
        self.news()
    }

    /// Returns the number of bytes up to which buffers are filled.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.limit
    }

    /// Returns the time that the task needs for the data in flight at the last measurement; `None` before the first
    /// one.
    #[must_use]
    pub fn in_flight(&self) -> Option<Duration> {
        self.in_flight
    }

    fn may_grow(&self) -> bool {
        self.limit < u64::from(self.bounds.segment_bytes)
    }

    /// Moves the limit towards `wanted` (D2).
    fn step(&mut self, wanted: u64) {
        // A step goes half of the way in proportion, that is by the square root: so the reach is the square.
        let reach = MOST_PER_STEP * MOST_PER_STEP;
        let wanted = wanted.clamp(self.limit.div_ceil(reach), self.limit * reach);
        self.limit = (self.limit * wanted).isqrt().clamp(1, u64::from(self.bounds.segment_bytes));
    }

    /// Returns the limit if it must be reported (D4).
    fn news(&mut self) -> Option<FillLimit> {
        let (limit, most) = (self.limit, u64::from(self.bounds.segment_bytes));
        let is_news = match self.told {
            None => limit > 1,
            Some(told) if limit == 1 || limit == most => told != limit,
            Some(told) => limit.abs_diff(told) * TOLD_PARTS > told,
        };
        if !is_news {
            return None;
        }
        self.told = Some(limit);
        Some(if limit == most { FillLimit::NONE } else { FillLimit::new(limit as u32) })
    }
}

/// Work of a task in one measurement.
struct WorkSample {
    bytes: u64,
    buffers: u64,
    worked_ns: u64,
}

impl WorkSample {
    /// Returns the difference, or `None` if it contains no work (D3).
    fn between(since: &Progress, now: &Progress) -> Option<Self> {
        let done = Self {
            bytes: now.bytes.saturating_sub(since.bytes),
            buffers: now.buffers.saturating_sub(since.buffers).max(1),
            worked_ns: saturating_ns(now.worked.saturating_sub(since.worked)),
        };
        (done.bytes > 0 && done.worked_ns > 0).then_some(done)
    }

    /// Returns the bytes that the task processes in this working time.
    fn bytes_in(&self, time: Duration) -> u64 {
        scaled(self.bytes, saturating_ns(time), self.worked_ns)
    }

    /// Returns the time for this many buffers of the same kind.
    fn time_for(&self, buffers: u64) -> Duration {
        Duration::from_nanos(scaled(self.worked_ns, buffers, self.buffers))
    }
}

fn scaled(amount: u64, by: u64, over: u64) -> u64 {
    u64::try_from(u128::from(amount) * u128::from(by) / u128::from(over)).unwrap_or(u64::MAX)
}

fn saturating_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Least time between two measurements of a task whose buffers are full.
pub const INTERVAL_MS: u64 = 200;
/// Longest measurement, however few buffers were read.
const LONGEST_MS: u64 = 1000;
/// Least work of a buffer that is worth its cost. Both tasks take some microseconds to send a buffer and to turn to it,
/// and more if many wait for one interpreter.
pub const LEAST_WORK: Duration = Duration::from_micros(300);
/// Most buffers to predict per buffer measured. A few buffers say little about many: one that waited long for the
/// processor is not typical.
const MOST_FORESEEN: u64 = 4;
/// Largest factor by which a step changes the limit, up or down.
pub const MOST_PER_STEP: u64 = 4;
/// A limit is reported only if it differs by more than one of this many parts.
const TOLD_PARTS: u64 = 4;

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
