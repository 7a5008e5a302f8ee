//! Aligns sources: a source that is too far ahead of the others in event time waits for them.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Waker;

use serde::{Deserialize, Serialize};

use super::Watermarks;
use crate::time::NO_TIMESTAMP;

/// The group that a source is aligned with, and the greatest drift.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alignment {
    /// Sources of one name wait for each other.
    pub group: String,
    /// Most that the watermark of one may be ahead of the least, in milliseconds.
    pub max_drift_ms: NonZeroU64,
    /// Time after which a new limit is sent even if the group has moved by less than a step, in milliseconds.
    pub update_interval_ms: NonZeroU64,
}

impl Alignment {
    /// Event time by which a source moves before it reports, and by which a limit moves before it is sent at
    /// once. Four steps are one drift, so a new limit is sent long before the last source reaches the
    /// previous one.
    pub fn step_ms(&self) -> u64 {
        (self.max_drift_ms.get() / STEPS_PER_DRIFT).max(1)
    }
}

const STEPS_PER_DRIFT: u64 = 4;

/// Asks for a report when a source has moved by a step: limits do not wait for the next regular report.
#[derive(Debug)]
pub(crate) struct StepMonitor {
    step_ms: u64,
    reported_ms: AtomicI64,
    monitor: Waker,
}

impl StepMonitor {
    pub(crate) fn new(alignment: &Alignment, monitor: Waker) -> Self {
        Self { step_ms: alignment.step_ms(), reported_ms: AtomicI64::new(NO_TIMESTAMP), monitor }
    }

    /// Notes the event time that the source has reached. Called by its task only.
    pub(crate) fn observe(&self, reached_ms: i64) {
        if reached_ms.abs_diff(self.reported_ms.load(Ordering::Relaxed)) >= self.step_ms {
            self.reported_ms.store(reached_ms, Ordering::Relaxed);
            self.monitor.wake_by_ref();
        }
    }
}

/// Event time up to which one source may read.
#[derive(Debug)]
pub(super) struct Limit {
    limit_ms: Option<i64>,
    /// Records later than this may exceed the limit.
    latest_ms: i64,
    /// The same time, or the greatest while checks are suspended until the end of the batch.
    asked_ms: i64,
}

impl Limit {
    /// No limit.
    pub(super) fn none() -> Self {
        Self { limit_ms: None, latest_ms: i64::MAX, asked_ms: i64::MAX }
    }

    /// Allows watermarks up to `limit_ms`.
    pub(super) fn of(limit_ms: i64, watermarks: Watermarks) -> Self {
        let latest_ms = match watermarks {
            Watermarks::Bounded { delay_ms } => {
                limit_ms.saturating_add(1).saturating_add(i64::try_from(delay_ms).unwrap_or(i64::MAX))
            }
            // Times of records do not determine the watermark: check after each record.
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
