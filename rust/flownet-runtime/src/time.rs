//! Event time, the signals about it, and clocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The timestamp of a record that has none.
pub const NO_TIMESTAMP: i64 = i64::MIN;

/// The last watermark: the input has reached its own end.
pub const END_OF_TIME_MS: i64 = i64::MAX;

/// An event time to the nanosecond. Watermarks, timers and windows use only its milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExactTime {
    /// Milliseconds since 1970-01-01 UTC, rounded down.
    pub ms: i64,
    /// Nanoseconds within the millisecond, below 1,000,000.
    pub nanos: u32,
}

impl ExactTime {
    /// The start of a millisecond.
    pub fn of_ms(ms: i64) -> Self {
        Self { ms, nanos: 0 }
    }

    /// The last time before this one; `None` for the earliest time.
    pub fn before(self) -> Option<Self> {
        match self.nanos.checked_sub(1) {
            Some(nanos) => Some(Self { nanos, ..self }),
            None => self.ms.checked_sub(1).map(|ms| Self { ms, nanos: NANOS_PER_MS - 1 }),
        }
    }
}

/// Number of nanoseconds in a millisecond.
pub const NANOS_PER_MS: u32 = 1_000_000;

/// A signal of event time among the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSignal {
    /// No record at or before this time is expected. Records that come nevertheless are late.
    Watermark(i64),
    /// True: the channel is idle, so readers should not wait for it. False: it is active again.
    Idle(bool),
}

/// The clock that a timer or window follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// The wall clock of the machine that runs the task.
    #[default]
    Processing,
    /// Event time: the timestamps of the records, and the watermarks among them.
    Event,
}

/// The system's wall clock, in milliseconds since the epoch. An earlier time counts as the epoch.
pub(crate) fn wall_clock_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
}

/// The same in nanoseconds.
pub(crate) fn wall_clock_ns() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX)
}

/// The wall clock of a task.
#[derive(Clone, Debug, Default)]
pub struct WallClock {
    /// `None` for the system clock.
    by_hand: Option<Arc<AtomicI64>>,
}

impl WallClock {
    /// A clock that does not advance until it is [set](Self::set). Clones share it.
    pub fn by_hand(now_ms: i64) -> Self {
        Self { by_hand: Some(Arc::new(AtomicI64::new(now_ms))) }
    }

    /// Milliseconds since the epoch. A system clock before the epoch counts as the epoch.
    pub fn now_ms(&self) -> i64 {
        self.by_hand.as_ref().map_or_else(wall_clock_ms, |now_ms| now_ms.load(Ordering::Relaxed))
    }

    /// Moves a manual clock forward, and never back. Has no effect on the system clock.
    pub fn set(&self, now_ms: i64) {
        if let Some(held_ms) = &self.by_hand {
            held_ms.fetch_max(now_ms, Ordering::Relaxed);
        }
    }
}
