//! How far senders fill the buffers of an input, so that what is in flight to a task is worked off in a given time.
//!
//! Flow control counts buffers. Full of small records, the few that a slow task has on their way are minutes of its work,
//! and a record is as old as that before it is looked at. So the task measures what it gets through, and tells its
//! producers how far to fill a buffer: what it gets through in the time given, shared over the buffers that hold data for
//! it. (Flink calls it buffer debloating, FLIP-183.) A buffer that is closed early costs its segment and its credit like
//! any other, so nothing changes in what is promised and reserved.
//!
//! It begins with one record a buffer and grows as the task shows what it can do: by rounds as long as what is in flight
//! takes it, so a fast task has full buffers after a few hundred records, and a slow one never has much before it.
//!
//! # Invariants
//! - D1: the limit is at least a byte, which is a record a buffer, and at most a segment.
//! - D2: a step changes it by a factor of [`MOST_PER_STEP`] at most, up or down, and by half of the way, in proportion, to
//!   what the step found: one odd measurement is not much, and a few that agree are.
//! - D3: a time in which the task did not work, or got through nothing, changes nothing.
//! - D4: what was told last is the limit but for a quarter of it; that it reached one of its bounds is always told.

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
    /// Bytes of the present round: what was in flight when it began, as far as the limit says.
    round_bytes: u64,
    in_flight: Duration,
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
    /// Channels of the input. Each is looked at for a measurement: where there are very many, it is made less often.
    pub channels: u32,
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
        Self { bounds, limit: 1, told: None, since: None, round_bytes: 0, in_flight: Duration::ZERO }
    }

    /// Is it time for [`Self::adjust`]? When a round is over while the limit may grow, and every [`INTERVAL_MS`] or
    /// so if anything came. Cheap: to be asked for each buffer.
    #[inline]
    #[must_use]
    pub fn is_due(&self, now_ms: i64, bytes: u64) -> bool {
        let Some(since) = &self.since else { return true };
        let done = bytes.saturating_sub(since.bytes);
        let interval_ms = INTERVAL_MS.max(u64::from(self.bounds.channels) * MS_A_CHANNEL);
        let is_over = now_ms.abs_diff(since.now_ms) >= interval_ms;
        (is_over && done > 0) || (done >= self.round_bytes && self.limit < u64::from(self.bounds.segment_bytes))
    }

    /// Ends a measurement and begins the next. `buffers` hold data for the task, here or at its producers. A limit is to
    /// be told to all of them.
    pub fn adjust(&mut self, now: Progress, buffers: usize) -> Option<FillLimit> {
        let since = self.since.replace(now);
        let buffers = buffers as u64;
        let shares = buffers.max(u64::from(self.bounds.least_buffers)).max(1);
        if let Some(done) = since.and_then(|since| Done::between(&since, &now)) {
            self.step(done.bytes_in(self.bounds.max_time) / shares);
            self.in_flight = done.time_for(buffers);
        }
        self.round_bytes = self.limit.saturating_mul(shares);
        self.news()
    }

    /// Bytes up to which buffers are filled.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.limit
    }

    /// The time that the task needs for what was in flight when it was measured last.
    #[must_use]
    pub fn in_flight(&self) -> Duration {
        self.in_flight
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
struct Done {
    bytes: u64,
    buffers: u64,
    worked_ns: u64,
}

impl Done {
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

/// Subpartitions of a partition whose readers may limit it, and channels of a task that does. With more, what is in flight
/// is bounded by the memory that they share, and buffers with a record or two in them cost more than they spare.
pub const MOST_CHANNELS: u32 = 8;
/// Between two measurements, if anything came and no round was over before.
pub const INTERVAL_MS: u64 = 200;
/// Less than a tenth of a thousandth of that is spent on looking at a channel.
const MS_A_CHANNEL: u64 = 2;
/// A step makes the limit at most so many times as large, or as small.
pub const MOST_PER_STEP: u64 = 4;
/// What differs by less than one of so many parts is not told.
const TOLD_PARTS: u64 = 4;

#[cfg(test)]
mod tests;
