//! Tracks the phase of one worker and the time limits of the coordinator for it.

use std::time::Duration;

/// Phase of a worker. Phases follow in this order; some may be skipped, none repeats.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Phase {
    /// No request was sent.
    Idle,
    /// Launch requested; not registered yet.
    Launching,
    /// Registered, deployment requested.
    Deploying,
    /// All its tasks are built.
    Deployed,
    /// Start of its tasks requested.
    Starting,
    /// Its tasks run.
    Running,
    /// Asked to cancel its tasks, to send its last report and to exit.
    Stopping,
    /// Its process is being killed.
    Killing,
    /// Nothing is left of it.
    Gone,
}

/// State of one worker in the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkerState {
    pub(super) phase: Phase,
    /// Time of the last message.
    last_heard: Duration,
    /// Time at which [`Phase::Stopping`] or [`Phase::Killing`] has taken too long.
    deadline: Duration,
}

impl WorkerState {
    pub(super) fn new() -> Self {
        Self { phase: Phase::Idle, last_heard: Duration::ZERO, deadline: Duration::ZERO }
    }

    pub(super) fn heard(&mut self, now: Duration) {
        self.last_heard = now;
    }

    /// Enters a phase that must end by `deadline`.
    pub(super) fn enter_until(&mut self, phase: Phase, deadline: Duration) {
        self.phase = phase;
        self.deadline = deadline;
    }

    /// Whether the worker answers: it has registered and was not released.
    pub(super) fn is_serving(&self) -> bool {
        (Phase::Deploying..=Phase::Running).contains(&self.phase)
    }

    pub(super) fn is_leaving(&self) -> bool {
        matches!(self.phase, Phase::Stopping | Phase::Killing)
    }

    pub(super) fn is_overdue(&self, now: Duration) -> bool {
        self.is_leaving() && now >= self.deadline
    }

    /// Returns how long the worker has been silent, if that is too long.
    pub(super) fn silent_for(&self, now: Duration, limit: Duration) -> Option<Duration> {
        let silent = now.saturating_sub(self.last_heard);
        (self.is_serving() && silent >= limit).then_some(silent)
    }

    /// Returns the time of the next check if nothing happens before.
    pub(super) fn timeout(&self, heartbeat_timeout: Duration) -> Option<Duration> {
        if self.is_leaving() {
            return Some(self.deadline);
        }
        self.is_serving().then(|| self.last_heard + heartbeat_timeout)
    }
}
