//! Alignment of sources: who is too far ahead of the others in event time waits for them.

use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

use super::Watermarks;

/// With whom a source is aligned, and how closely.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alignment {
    /// Sources of one name wait for each other.
    pub group: String,
    /// Most that the watermark of one may be ahead of the least, in milliseconds.
    pub max_drift_ms: NonZeroU64,
    /// How often they are told how far they may go, in milliseconds.
    pub update_interval_ms: NonZeroU64,
}

/// How far one source may go.
#[derive(Debug)]
pub(super) struct Limit {
    limit_ms: Option<i64>,
    /// Records later than this may be too far.
    latest_ms: i64,
    /// The same, while the batch goes on.
    asked_ms: i64,
}

impl Limit {
    /// As far as it likes.
    pub(super) fn none() -> Self {
        Self { limit_ms: None, latest_ms: i64::MAX, asked_ms: i64::MAX }
    }

    /// Watermarks up to this.
    pub(super) fn of(limit_ms: i64, watermarks: Watermarks) -> Self {
        let latest_ms = match watermarks {
            Watermarks::Bounded { delay_ms } => {
                limit_ms.saturating_add(1).saturating_add(i64::try_from(delay_ms).unwrap_or(i64::MAX))
            }
            // The times of records do not tell: ask at each.
            Watermarks::Unordered | Watermarks::Own | Watermarks::Never => i64::MIN,
        };
        Self { limit_ms: Some(limit_ms), latest_ms, asked_ms: latest_ms }
    }

    pub(super) fn is_some(&self) -> bool {
        self.limit_ms.is_some()
    }

    pub(super) fn is_some_and(&self, holds: impl FnOnce(i64) -> bool) -> bool {
        self.limit_ms.is_some_and(holds)
    }

    #[inline]
    pub(super) fn may_be_behind(&self, timestamp_ms: i64) -> bool {
        timestamp_ms > self.asked_ms
    }

    pub(super) fn rest(&mut self) {
        self.asked_ms = i64::MAX;
    }

    pub(super) fn wake(&mut self) {
        self.asked_ms = self.latest_ms;
    }
}
