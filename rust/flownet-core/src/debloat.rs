//! How far senders fill the buffers of an input, so that what is in flight to a task is worked off in a given time.
//!
//! Flow control counts buffers. Full of small records, the few that a slow task has on their way are minutes of its work,
//! and a record is as old as that before it is looked at. So the task measures what it gets through, and tells its
//! producers how far to fill a buffer: what it gets through in the time given, shared over the buffers that hold data for
//! it. (Flink calls it buffer debloating, FLIP-183.) A buffer that is closed early costs its segment and its credit like
//! any other, so nothing changes in what is promised and reserved.
//!
//! It begins with one record a buffer and grows as the task shows what it can do, so a fast task has full buffers after a
//! few hundred records, and a slow one never has much before it.
//!
//! # Many channels
//! The limit is the gate's, one for all of its channels. A producer in the same process has it at once, one elsewhere with
//! its next credit: nothing is sent, and nobody woken, for a channel that carries nothing, and one that begins to carry
//! something is told what the gate has learned from the others.
//!
//! There are more buffers where channels are more: a balanced exchange of N x N has up to `2 N + 8` of a task's in its
//! partition, and as many in its gate, as far as memory goes round. One record in each, or [`LEAST_WORK`], is the least
//! there can be before a task; with less in them buffers would cost more than the records do, so tasks would get through
//! less, so buffers would be made smaller yet. So what is in flight is the larger of the time given and that floor: with
//! the default sizes `(4 N + 16)` times a record's work or 0.3 ms, which is 25 ms of small records for 16 channels and
//! 0.25 s for 200.
//!
//! # Invariants
//! - D1: the limit is at least a byte, which is a record a buffer, and at most a segment. No
//!   measurement leads it below what the task got through in [`LEAST_WORK`].
//! - D2: a step changes it by a factor of [`MOST_PER_STEP`] at most, up or down, and by half of the way, in proportion, to
//!   what the step found: one odd measurement is not much, and a few that agree are.
//! - D3: a time in which the task did not work, or got through nothing, changes nothing.
//! - D4: what was told last is the limit but for a quarter of it; that it reached one of its bounds is always told.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::wire::frame::PairCount;

/// Bytes at which a sender closes a buffer: the record that reaches them is the last one in it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct FillLimit(u32);

impl FillLimit {
    /// Buffers are filled to their end.
    pub const NONE: Self = Self(u32::MAX);

    /// Each record has a buffer of its own.
    pub const ONE_RECORD: Self = Self(1);

    /// A limit of so many bytes. Zero is as one.
    #[must_use]
    pub const fn new(bytes: u32) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// A limit that one thread sets and others look up when they come by: late is soon enough.
#[derive(Debug, Default)]
pub(crate) struct SharedFillLimit(AtomicU32);

impl SharedFillLimit {
    pub(crate) fn set(&self, limit: FillLimit) {
        self.0.store(limit.get().max(1), Ordering::Relaxed);
    }

    /// `None` before one was set.
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

/// Of one input: decides its [`FillLimit`]. See the [module docs](self).
#[derive(Debug)]
pub struct Debloater {
    bounds: InFlightBounds,
    /// In bytes (D1).
    limit: u64,
    told: Option<u64>,
    /// Where the present measurement began.
    since: Option<Progress>,
    in_flight: Option<Duration>,
}

/// What a [`Debloater`] keeps to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct InFlightBounds {
    /// In so much time, all of it work, the task shall be through with what is in flight.
    pub max_time: Duration,
    /// Of one segment.
    pub segment_bytes: u32,
    /// Over so many buffers at least what is in flight is shared, even where fewer are in use: a burst soon has them all.
    pub least_buffers: u32,
}

/// How far a task has come with its input. Measurements are differences of two.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Progress {
    /// Milliseconds on a clock that may start anywhere.
    pub now_ms: i64,
    /// Bytes that the task is through with.
    pub bytes: u64,
    /// Buffers that they came in.
    pub buffers: u64,
    /// Time that the task did not wait for input. What it waited for its outputs counts: its input waits as long.
    pub worked: Duration,
}

impl Debloater {
    /// One whose producers begin with [`FillLimit::ONE_RECORD`].
    #[must_use]
    pub fn new(bounds: InFlightBounds) -> Self {
        Self { bounds, limit: 1, told: None, since: None, in_flight: None }
    }

    /// Is it time for [`Self::adjust`]? When enough buffers were read to say something: at once while the limit may grow,
    /// otherwise every [`INTERVAL_MS`] or so. Cheap: to be asked for each buffer.
    #[inline]
    #[must_use]
    pub fn is_due(&self, now_ms: i64, buffers: u64) -> bool {
        let Some(since) = &self.since else { return true };
        let read = buffers.saturating_sub(since.buffers);
        let elapsed_ms = now_ms.abs_diff(since.now_ms);
        let is_sample = read >= u64::from(self.bounds.least_buffers) || elapsed_ms >= LONGEST_MS;
        read > 0 && is_sample && (self.may_grow() || elapsed_ms >= INTERVAL_MS)
    }

    /// Ends a measurement and begins the next. `buffers` hold data for the task, here or at its producers. A limit is to
    /// be told to all of them.
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

    /// Bytes up to which buffers are filled.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.limit
    }

    /// The time that the task needs for what was in flight when it was measured last; `None` before it was.
    #[must_use]
    pub fn in_flight(&self) -> Option<Duration> {
        self.in_flight
    }

    fn may_grow(&self) -> bool {
        self.limit < u64::from(self.bounds.segment_bytes)
    }

    /// D2.
    fn step(&mut self, wanted: u64) {
        let reach = MOST_PER_STEP * MOST_PER_STEP;
        let wanted = wanted.clamp(self.limit.div_ceil(reach), self.limit * reach);
        self.limit = (self.limit * wanted).isqrt().clamp(1, u64::from(self.bounds.segment_bytes));
    }

    /// D4.
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

/// What a task did in a time.
struct WorkSample {
    bytes: u64,
    buffers: u64,
    worked_ns: u64,
}

impl WorkSample {
    /// `None` if that says nothing (D3).
    fn between(since: &Progress, now: &Progress) -> Option<Self> {
        let done = Self {
            bytes: now.bytes.saturating_sub(since.bytes),
            buffers: now.buffers.saturating_sub(since.buffers).max(1),
            worked_ns: saturating_ns(now.worked.saturating_sub(since.worked)),
        };
        (done.bytes > 0 && done.worked_ns > 0).then_some(done)
    }

    /// What it gets through in so much work.
    fn bytes_in(&self, time: Duration) -> u64 {
        scaled(self.bytes, saturating_ns(time), self.worked_ns)
    }

    /// The work of so many buffers like those it had.
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

/// Between two measurements of a task whose buffers are full, at least.
pub const INTERVAL_MS: u64 = 200;
/// A measurement is over after so long, however few buffers were read.
const LONGEST_MS: u64 = 1000;
/// A buffer that is less work than this costs more than it spares: to send one and to turn to it takes both tasks some
/// microseconds, and more where many wait for one interpreter.
pub const LEAST_WORK: Duration = Duration::from_micros(300);
/// A few buffers say little of many: one that waited long for the processor is not what all will take.
const MOST_FORESEEN: u64 = 4;
/// A step makes the limit at most so many times as large, or as small.
pub const MOST_PER_STEP: u64 = 4;
/// What differs by less than one of so many parts is not told.
const TOLD_PARTS: u64 = 4;

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
