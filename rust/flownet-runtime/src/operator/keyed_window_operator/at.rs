//! Calls the trigger and the fold for one window of one key.

use super::{Calls, FiringRule, Trigger, TriggerCall, TriggeredWindow};
use crate::error::TaskError;
use crate::operator::{Collector, Fold, RecordFormat};
use crate::time::Clock;
use crate::window::{Cell, TriggerResult};

/// The parts of an operator that process one window.
pub(super) struct WindowScope<'a, F, C> {
    pub(super) fold: &'a mut F,
    pub(super) calls: &'a mut C,
    pub(super) trigger: Trigger,
    pub(super) clock: Clock,
    pub(super) clock_ms: i64,
    pub(super) watermark_ms: i64,
    pub(super) key: &'a [u8],
}

impl<F, C> WindowScope<'_, F, C> {
    pub(super) fn ask<M, V, T>(
        &mut self,
        call: TriggerCall<'_>,
        cell: &mut Cell<V, T>,
        collector: &mut Collector<'_, '_, M>,
    ) -> Result<TriggerResult, TaskError>
    where
        M: RecordFormat,
        C: Calls<M, TriggerState = T>,
    {
        let mut result = match (self.trigger.when, call) {
            (FiringRule::BuiltIn(trigger), TriggerCall::Record(record)) => {
                // Records in a global window may have an event time. A trigger of the wall clock ignores it.
                let time_ms = match self.clock {
                    Clock::Event => record.timestamp_ms,
                    Clock::Processing => self.clock_ms.saturating_add(1),
                };
                cell.on_record(trigger, time_ms, self.clock_ms)
            }
            (FiringRule::BuiltIn(trigger), TriggerCall::Time(clock, time_ms)) if clock == self.clock => {
                cell.on_time(trigger, time_ms)
            }
            (FiringRule::BuiltIn(_), _) => TriggerResult::CONTINUE,
            (FiringRule::Own, call) => {
                let window = cell.window;
                let mut asked = TriggeredWindow {
                    window,
                    kept: &mut cell.kept,
                    watermark_ms: self.watermark_ms,
                    timers: Vec::new(),
                };
                let result = self.calls.trigger(call, &mut asked, collector)?;
                for (clock, time_ms, is_set) in asked.timers {
                    if is_set {
                        cell.set_timer(index(clock), time_ms)
                    } else {
                        cell.delete_timer(index(clock), time_ms)
                    }
                }
                result
            }
        };
        result.purges |= result.fires && self.trigger.purges;
        Ok(result)
    }

    pub(super) fn follow<M, V, T>(
        &mut self,
        result: TriggerResult,
        cell: &mut Cell<V, T>,
        collector: &mut Collector<'_, '_, M>,
    ) -> Result<(), TaskError>
    where
        M: RecordFormat,
        F: Fold<M, Value = V>,
        V: Default,
    {
        // As in Flink, a trigger that fires for a window without records emits nothing.
        if result.fires && self.fold.has_records(&cell.value) {
            self.fold.on_watermark(self.watermark_ms);
            let before = std::mem::replace(&mut collector.timestamp_ms, cell.window.max_ms());
            self.fold.emit(cell.window, self.key, &mut cell.value, collector)?;
            collector.timestamp_ms = before;
        }
        if result.purges {
            self.fold.purge(&mut cell.value);
        }
        Ok(())
    }

    /// Fires the due timers of one window by one clock. Returns true if the window is over and has to be deleted.
    pub(super) fn look<M, V, T>(
        &mut self,
        cell: &mut Cell<V, T>,
        (clock, time_ms, over_ms): (Clock, i64, i64),
        collector: &mut Collector<'_, '_, M>,
    ) -> Result<bool, TaskError>
    where
        M: RecordFormat,
        F: Fold<M, Value = V>,
        C: Calls<M, TriggerState = T>,
        V: Default,
    {
        while let Some(due_ms) = cell.take_timer(index(clock), time_ms) {
            let result = self.ask(TriggerCall::Time(clock, due_ms), cell, collector)?;
            self.follow(result, cell, collector)?;
        }
        if matches!(self.trigger.when, FiringRule::BuiltIn(_)) {
            // A trigger that fires by the clock may be due more than once if time advanced by much.
            loop {
                let result = self.ask(TriggerCall::Time(clock, time_ms), cell, collector)?;
                if !result.fires {
                    break;
                }
                self.follow(result, cell, collector)?;
            }
        }
        Ok(clock == self.clock && over_ms <= time_ms)
    }
}

/// Returns the index of a clock among the timers of a window.
pub(super) const fn index(clock: Clock) -> usize {
    match clock {
        Clock::Processing => 0,
        Clock::Event => 1,
    }
}
