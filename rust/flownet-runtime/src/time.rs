//! Event time: what is said of it between tasks and operators.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// The timestamp of a record that has none.
pub const NO_TIMESTAMP: i64 = i64::MIN;

/// The last watermark: the input has come to its own end.
pub const END_OF_TIME_MS: i64 = i64::MAX;

/// What is known of event time, among the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSignal {
    /// No record of an earlier time, or of this one, is expected; those that come are late.
    Watermark(i64),
    /// Nothing comes for now, and nobody should wait for it; or it does again.
    Idle(bool),
}

/// By which clock something is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// The wall's, where the task runs.
    #[default]
    Processing,
    /// That of the records: their timestamps, and the watermarks among them.
    Event,
}

/// The wall's clock, in milliseconds since the epoch.
pub(crate) fn wall_clock_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    i64::try_from(since_epoch.unwrap_or_default().as_millis()).unwrap_or(i64::MAX)
}
