//! Splits a task's time shares into finer parts.

use std::time::Duration;

use flownet_runtime::time_accounting::TimeShares;
use serde::Serialize;

/// Parts of a task's time shares, each as a share of its whole time, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TimeParts {
    /// Part of `busy` in operators that call Python functions. Estimated by sampling, as the other parts of `busy`.
    pub python: f64,
    /// Part of `busy` spent on encoding and decoding.
    pub serialising: f64,
    /// Rest of `busy`.
    pub rust: f64,
    /// Part of `back_pressured` in which its readers had not taken their records, or the coordinator held it back.
    pub waiting_for_credit: f64,
    /// Rest of `back_pressured`: its pools had no segment left.
    pub waiting_for_pool: f64,
    /// Part of `idle` in which some inputs waited for the barriers of others.
    pub waiting_for_barrier: f64,
}

impl TimeParts {
    pub(crate) fn of(time: &TimeShares) -> Self {
        let seconds = time.total().as_secs_f64();
        let share = |part: Duration| if seconds > 0.0 { part.as_secs_f64() / seconds } else { 0.0 };
        Self {
            python: share(time.python),
            serialising: share(time.serialising),
            rust: share(time.rust),
            waiting_for_credit: share(time.waiting_for_credit),
            waiting_for_pool: share(time.waiting_for_pool),
            waiting_for_barrier: share(time.waiting_for_barrier),
        }
    }

    /// Returns the mean of all `tasks` over the `count` that ran.
    pub(crate) fn mean(tasks: impl Iterator<Item = Self> + Clone, count: usize) -> Self {
        let mean = |part: fn(&Self) -> f64| tasks.clone().map(|task| part(&task)).sum::<f64>() / count as f64;
        Self {
            python: mean(|task| task.python),
            serialising: mean(|task| task.serialising),
            rust: mean(|task| task.rust),
            waiting_for_credit: mean(|task| task.waiting_for_credit),
            waiting_for_pool: mean(|task| task.waiting_for_pool),
            waiting_for_barrier: mean(|task| task.waiting_for_barrier),
        }
    }
}
