//! The controls of a running task besides its outputs: pace, waits and time accounting.

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use flownet_net::{Inlets, ThreadParker};
use rustix::time::ClockId;

use crate::error::TaskError;
use crate::mailbox::CancelToken;
use crate::metrics::TaskMetrics;
use crate::processor::{TimeSpent, cpu_time, queued};
use crate::source::Pace;
use crate::time_accounting::{TimeShares, TimeState};

/// Pace, waits and time accounting of a task.
#[derive(Debug)]
pub struct TaskControl {
    /// Limits of a source; unlimited for other tasks.
    pub pace: Pace,
    /// Accounts for the time of the task.
    pub time: TimeAccountant,
    parker: Arc<ThreadParker>,
    /// The connections that drain the buffers of the outputs.
    inlets: Arc<Inlets>,
    cancel: CancelToken,
}

impl TaskControl {
    pub(crate) fn new(
        parker: Arc<ThreadParker>,
        inlets: Arc<Inlets>,
        cancel: CancelToken,
        metrics: Arc<TaskMetrics>,
    ) -> Self {
        Self { pace: Pace::default(), time: TimeAccountant { metrics }, parker, inlets, cancel }
    }

    /// The read side of the cancel flag.
    pub fn cancel(&self) -> &CancelToken {
        &self.cancel
    }

    /// Sleeps for `duration`, unless the task is cancelled. The time counts as busy, because a slow operator spends it.
    pub fn pause(&self, duration: Duration) -> Result<(), TaskError> {
        let end = Instant::now() + duration;
        loop {
            self.cancel.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.parker.park_timeout(left);
        }
    }

    /// Sleeps until a record has arrived from outside the exchange, or something else wakes the task, at most for
    /// `limit`. Check again after the call. The time counts as [`Awaiting`](TimeState::Awaiting).
    ///
    /// Returns [`TaskError::Cancelled`] if the task is cancelled.
    pub fn await_arrival(&self, limit: Option<Duration>) -> Result<(), TaskError> {
        self.cancel.check()?;
        self.time.during(TimeState::Awaiting, || self.park(limit));
        self.cancel.check()
    }

    /// Sleeps until the task's waker fires, at most for `limit`.
    pub(crate) fn park(&self, limit: Option<Duration>) {
        self.inlets.park(&self.parker, limit);
    }

    pub(crate) fn waker(&self) -> &Waker {
        self.parker.waker()
    }
}

/// Accounts for the time of a task.
#[derive(Debug)]
pub struct TimeAccountant {
    metrics: Arc<TaskMetrics>,
}

impl TimeAccountant {
    /// Runs `wait`, which waits for something outside the exchange. Its time counts as idle.
    pub fn idle_while<R>(&self, wait: impl FnOnce() -> R) -> R {
        self.during(TimeState::Idle, wait)
    }

    /// Runs `pull`, which may block. CPU time and run-queue delay count as busy, the rest as idle. Expensive (it reads
    /// two clocks, and a system file, twice): use it only on slow paths.
    pub fn idle_unless_at_work<R>(&self, pull: impl FnOnce() -> R) -> R {
        let before = queued();
        let result = self.idle_unless_computing(pull);
        self.metrics.recount(TimeState::Idle, TimeState::Busy, queued().saturating_sub(before));
        result
    }

    /// The same, but run-queue delay counts as idle too. The caller accounts for it by [`spent`](Self::spent), for many
    /// calls at once.
    pub fn idle_unless_computing<R>(&self, pull: impl FnOnce() -> R) -> R {
        let before = cpu_time(ClockId::ThreadCPUTime);
        let result = self.idle_while(pull);
        let worked = cpu_time(ClockId::ThreadCPUTime).saturating_sub(before);
        self.metrics.recount(TimeState::Idle, TimeState::Busy, worked);
        result
    }

    /// The time that the task has spent so far, by kind. Expensive: it reads three clocks and a system file.
    pub fn spent(&self) -> TimeSpent {
        let worked = cpu_time(ClockId::ThreadCPUTime);
        let TimeShares { busy, idle, .. } = self.metrics.time();
        TimeSpent { busy, idle, worked, queued: queued(), process: cpu_time(ClockId::ProcessCPUTime) }
    }

    /// Corrects the accounts: `idle` of the recent time was idle, instead of `counted`.
    pub fn set_idle(&self, counted: Duration, idle: Duration) {
        self.metrics.recount(TimeState::Idle, TimeState::Busy, counted.saturating_sub(idle));
        self.metrics.recount(TimeState::Busy, TimeState::Idle, idle.saturating_sub(counted));
    }

    /// The task starts to wait for the interpreter. [`has_interpreter`](Self::has_interpreter) ends the wait.
    pub fn wants_interpreter(&self) {
        self.metrics.switch(TimeState::Interpreter);
    }

    /// The task runs its operators again.
    pub fn has_interpreter(&self) {
        self.metrics.switch(TimeState::Busy);
    }

    fn during<R>(&self, state: TimeState, wait: impl FnOnce() -> R) -> R {
        self.metrics.switch(state);
        let result = wait();
        self.metrics.switch(TimeState::Busy);
        result
    }
}
