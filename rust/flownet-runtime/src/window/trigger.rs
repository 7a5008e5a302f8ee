//! Built-in triggers, which decide when a window emits its result.

use crate::error::TaskError;
use crate::snapshot::{Input, put_option};
use crate::varint::put_varint;

/// The decision of a trigger about a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TriggerResult {
    /// The window emits its result.
    pub fires: bool,
    /// The window deletes its records.
    pub purges: bool,
}

impl TriggerResult {
    /// Neither.
    pub const CONTINUE: Self = Self { fires: false, purges: false };
    /// The window emits its result.
    pub const FIRE: Self = Self { fires: true, purges: false };
}

/// The built-in triggers. Their state for a window is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuiltIn {
    /// Fires at the window's end, and for each late record after it.
    AtEnd,
    /// Fires after every so many records.
    Count(u64),
    /// Fires each time the clock passes a multiple of this many milliseconds, and at the window's end.
    Every(i64),
    /// Never fires.
    Never,
}

/// State of a built-in trigger for a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TriggerProgress {
    /// Number of records since it last fired.
    records: u64,
    /// The next time at which it fires.
    next_ms: Option<i64>,
}

impl BuiltIn {
    /// Handles a record of a window whose last millisecond is `max_ms`, at `clock_ms` of the window's clock.
    pub(super) fn on_record(
        self,
        kept: &mut TriggerProgress,
        max_ms: i64,
        timestamp_ms: i64,
        clock_ms: i64,
    ) -> TriggerResult {
        let is_over = max_ms <= clock_ms;
        match self {
            // Fire now, and not again when the clock advances.
            Self::AtEnd | Self::Every(_) if is_over => {
                kept.next_ms = None;
                TriggerResult::FIRE
            }
            Self::AtEnd => {
                kept.next_ms = Some(max_ms);
                TriggerResult::CONTINUE
            }
            Self::Every(interval_ms) => {
                // Starts at the first record, with the next multiple after it.
                let next_ms =
                    timestamp_ms.saturating_sub(timestamp_ms.rem_euclid(interval_ms)).saturating_add(interval_ms);
                kept.next_ms.get_or_insert(next_ms.min(max_ms));
                TriggerResult::CONTINUE
            }
            Self::Count(limit) => {
                kept.records += 1;
                // A global window emits its remaining records at the end of time.
                kept.next_ms = (max_ms == i64::MAX && kept.records < limit).then_some(max_ms);
                if kept.records < limit {
                    return TriggerResult::CONTINUE;
                }
                kept.records = 0;
                TriggerResult::FIRE
            }
            Self::Never => TriggerResult::CONTINUE,
        }
    }

    /// The clock has reached `next_ms`.
    pub(super) fn on_time(self, kept: &mut TriggerProgress, max_ms: i64, time_ms: i64) -> TriggerResult {
        let Some(due_ms) = kept.next_ms.take_if(|next_ms| *next_ms <= time_ms) else { return TriggerResult::CONTINUE };
        if let Self::Every(interval_ms) = self
            && due_ms < max_ms
            && time_ms < i64::MAX
        {
            kept.next_ms = Some(due_ms.saturating_add(interval_ms).min(max_ms));
        }
        TriggerResult::FIRE
    }

    /// Two windows have merged into one that ends at `max_ms`.
    pub(super) fn on_merge(self, kept: &mut TriggerProgress, other: TriggerProgress, max_ms: i64) {
        kept.records += other.records;
        kept.next_ms = match self {
            Self::AtEnd => Some(max_ms),
            _ => [kept.next_ms, other.next_ms].into_iter().flatten().min(),
        };
    }
}

impl TriggerProgress {
    /// A trigger that fires at this time and has no other state.
    pub(super) fn at(next_ms: i64) -> Self {
        Self { records: 0, next_ms: Some(next_ms) }
    }

    pub(super) fn next_ms(&self) -> Option<i64> {
        self.next_ms
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        put_varint(out, self.records);
        put_option(out, self.next_ms);
    }

    pub(super) fn read(input: &mut Input<'_>) -> Result<Self, TaskError> {
        Ok(Self { records: input.varint()?, next_ms: input.option()? })
    }
}
