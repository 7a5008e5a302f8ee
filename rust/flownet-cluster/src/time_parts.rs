//! What a task's shares of time are made of.

use std::time::Duration;

use flownet_runtime::time_accounting::TimeShares;
use serde::Serialize;

/// Parts of the shares of a task, each a share of its whole time, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TimeParts {
    /// The part of `busy` in operators that call functions of Python. By looking now and then, as the other parts of `busy`.
    pub python: f64,
    /// The part of `busy` that was spent on encoding and decoding.
    pub serialising: f64,
    /// The rest of it.
    pub rust: f64,
    /// The part of `back_pressured` in which its readers had not taken what is theirs, or the coordinator gave no leave.
    pub waiting_for_credit: f64,
    /// The rest of it: its pools had no segment left.
    pub waiting_for_pool: f64,
    /// The part of `idle` in which some of its inputs waited for the barriers of others.
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

    /// Of so many tasks, of which these have parts.
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
