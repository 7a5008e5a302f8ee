//! Where one worker is in its life, and when the coordinator loses patience.

use std::time::Duration;

/// A worker's life runs down this list; steps may be left out, never repeated.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Phase {
    /// Nothing was asked of it.
    Idle,
    /// Asked to start; has not registered.
    Launching,
    /// Registered and asked to deploy.
    Deploying,
    /// All its tasks are built.
    Deployed,
    /// Asked to start its tasks.
    Starting,
    /// Its tasks run.
    Running,
    /// Asked to cancel what runs, to report and to go.
    Stopping,
    /// Its process is being killed.
    Killing,
    /// Nothing is left of it.
    Gone,
}

/// One worker as the machine sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkerState {
    pub(super) phase: Phase,
    /// When it last said anything.
    last_heard: Duration,
    /// When [`Phase::Stopping`] or [`Phase::Killing`] has taken too long.
    deadline: Duration,
}

impl WorkerState {
    pub(super) fn new() -> Self {
        Self { phase: Phase::Idle, last_heard: Duration::ZERO, deadline: Duration::ZERO }
    }

    pub(super) fn heard(&mut self, now: Duration) {
        self.last_heard = now;
    }

    /// Goes to a phase that must be left again by `deadline`.
    pub(super) fn enter_until(&mut self, phase: Phase, deadline: Duration) {
        self.phase = phase;
        self.deadline = deadline;
    }

    /// Whether it answers: registered, and not told to go.
    pub(super) fn is_serving(&self) -> bool {
        (Phase::Deploying..=Phase::Running).contains(&self.phase)
    }

    pub(super) fn is_leaving(&self) -> bool {
        matches!(self.phase, Phase::Stopping | Phase::Killing)
    }

    pub(super) fn is_overdue(&self, now: Duration) -> bool {
        self.is_leaving() && now >= self.deadline
    }

    /// How long it has been silent, if that is too long.
    pub(super) fn silent_for(&self, now: Duration, limit: Duration) -> Option<Duration> {
        let silent = now.saturating_sub(self.last_heard);
        (self.is_serving() && silent >= limit).then_some(silent)
    }

    /// When to look at it again if nothing happens.
    pub(super) fn timeout(&self, heartbeat_timeout: Duration) -> Option<Duration> {
        if self.is_leaving() {
            return Some(self.deadline);
        }
        self.is_serving().then(|| self.last_heard + heartbeat_timeout)
    }
}
