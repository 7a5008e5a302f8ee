//! Detects whether a job is stalled although records wait, and which tasks wait for which. No I/O, no clock.
//!
//! The driver passes workers' reports and the time to [`StallMachine`], and carries out its commands. Counters of the
//! regular reports show that nothing moves. Only then does the machine ask the workers what their tasks wait for.
//!
//! ```text
//! Watching -- nothing moved for `patience` --> Asking -- answers, or no time left --> Stalled
//!    ^  ^-- nothing waits, or not known: again after `patience` ---'                     |
//!    '-------------------------- a counter moves, a task ends --------------------------'
//! ```
//!
//! # Invariants
//! - S1: a job is stalled only if no counter of any task moved for `patience` of watched time, and something waits. A
//!   gap between two checks counts for at most [`LONGEST_STEP`]: a process that was stopped, or a machine that slept,
//!   observed nothing in between.
//! - S2: workers are asked at most once in `patience`, and an answer counts only for its own question.
//! - S3: any movement ends the stall at once, and the time starts at 0 again.
//! - S4: the answers of workers count only if a later report still shows no movement: the tasks were not inspected at
//!   the same moment.
//! - S5: a stall is reported once. A function that does not return is reported once per job for all subtasks of its
//!   task: the user may intend it.

mod diagnosis;
mod report;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use flownet_runtime::MetricsSnapshot;

use self::diagnosis::Diagnosis;
pub use self::report::{Stall, StallCause, StallHistory};
use crate::{plan::Plan, rpc::Inspection};

/// An action for the driver.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Command {
    /// Ask every worker what its tasks wait for; answered by [`StallMachine::on_inspection`] with the same `round`.
    Inspect { round: u32 },
    /// The job is stalled. `is_new` unless the user was notified before.
    Show { stall: Stall, is_new: bool },
    /// The job makes progress again, or ends.
    Clear,
}

/// State machine that detects stalls. See the module documentation.
#[derive(Debug)]
pub(crate) struct StallMachine {
    patience: Duration,
    answer_limit: Duration,
    phase: Phase,
    /// Time of each worker's last report.
    heard: BTreeMap<u32, Duration>,
    tasks: Vec<TaskMoves>,
    /// Time of the last movement.
    since: Duration,
    /// Watched time since then.
    still_for: Duration,
    last_look: Duration,
    round: u32,
    /// Vertices whose functions were reported not to return.
    hinted: BTreeSet<u32>,
    commands: VecDeque<Command>,
}

/// Last movement of one task.
#[derive(Clone, Copy, Debug, Default)]
struct TaskMoves {
    counters: [u64; 10],
    at: Duration,
}

#[derive(Debug)]
enum Phase {
    Watching,
    Asking {
        since: Duration,
        /// Value of `still_for` at which the machine stops waiting for answers.
        until: Duration,
        answers: BTreeMap<u32, Inspection>,
        /// Workers that have reported since they answered.
        confirmed: BTreeSet<u32>,
    },
    Stalled,
}

impl StallMachine {
    /// Creates the machine. Workers report every `report_interval`. The patience must span several reports, so it is at
    /// least four intervals.
    pub(crate) fn new(patience: Duration, report_interval: Duration, plan: &Plan) -> Self {
        Self {
            patience: patience.max(report_interval * 4),
            answer_limit: ANSWER_LIMIT.max(report_interval * 4),
            phase: Phase::Watching,
            heard: plan.tasks.iter().map(|task| (task.worker, Duration::ZERO)).collect(),
            tasks: vec![TaskMoves::default(); plan.tasks.len()],
            since: Duration::ZERO,
            still_for: Duration::ZERO,
            last_look: Duration::ZERO,
            round: 0,
            hinted: BTreeSet::new(),
            commands: VecDeque::new(),
        }
    }

    /// Handles a report of a worker, `now` after the job's beginning.
    pub(crate) fn on_report(&mut self, worker: u32, metrics: &[(u32, MetricsSnapshot)], now: Duration) {
        self.heard.insert(worker, now);
        let mut has_moved = false;
        for (task, metrics) in metrics {
            let Some(task) = self.tasks.get_mut(*task as usize) else { continue };
            let counters = counters(metrics);
            if task.counters != counters {
                *task = TaskMoves { counters, at: now };
                has_moved = true;
            }
        }
        if has_moved {
            return self.on_movement(now);
        }
        if let Phase::Asking { answers, confirmed, .. } = &mut self.phase
            && answers.contains_key(&worker)
        {
            confirmed.insert(worker);
        }
    }

    /// Handles a movement that no counter shows: a task has ended.
    pub(crate) fn on_movement(&mut self, now: Duration) {
        self.since = now;
        self.last_look = now;
        self.still_for = Duration::ZERO;
        if matches!(std::mem::replace(&mut self.phase, Phase::Watching), Phase::Stalled) {
            self.commands.push_back(Command::Clear);
        }
    }

    /// Handles the answer of a worker about its tasks.
    pub(crate) fn on_inspection(&mut self, round: u32, worker: u32, inspection: Inspection) {
        if let Phase::Asking { answers, .. } = &mut self.phase
            && round == self.round
        {
            answers.insert(worker, inspection);
        }
    }

    /// Advances the time to `now`. While the job is not running, no movement is expected.
    pub(crate) fn on_time(&mut self, now: Duration, is_running: bool, plan: &Plan) {
        let step = now.saturating_sub(self.last_look).min(LONGEST_STEP);
        self.last_look = now;
        if !is_running {
            return self.on_movement(now);
        }
        self.still_for += step;
        match &self.phase {
            Phase::Watching if self.still_for >= self.patience => {
                self.round += 1;
                let until = self.still_for + self.answer_limit;
                self.phase = Phase::Asking { since: now, until, answers: BTreeMap::new(), confirmed: BTreeSet::new() };
                self.commands.push_back(Command::Inspect { round: self.round });
            }
            Phase::Asking { until, confirmed, .. }
                if self.still_for >= *until || confirmed.len() == self.heard.len() =>
            {
                self.conclude(now, plan);
            }
            _ => {}
        }
    }

    /// Returns the latest time of the next call of [`Self::on_time`].
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        let left = match &self.phase {
            Phase::Watching => self.patience.saturating_sub(self.still_for),
            Phase::Asking { until, .. } => until.saturating_sub(self.still_for),
            Phase::Stalled => return None,
        };
        Some(self.last_look + left.min(LONGEST_STEP))
    }

    /// Returns the next action, or `None` until another input.
    pub(crate) fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    fn conclude(&mut self, now: Duration, plan: &Plan) {
        let Phase::Asking { since, answers, .. } = std::mem::replace(&mut self.phase, Phase::Watching) else { return };
        // If a worker reports and does not answer, it is slow, or the coordinator is. Then the wait states of its tasks
        // are unknown.
        let is_slow = |(worker, &heard): (&u32, &Duration)| heard > since && !answers.contains_key(worker);
        let is_known = !self.heard.iter().any(is_slow);
        let Some(diagnosis) = is_known.then(|| Diagnosis::of(plan, &answers)).flatten() else {
            // S2: the next question follows after `patience`.
            self.still_for = Duration::ZERO;
            return;
        };
        self.phase = Phase::Stalled;
        let is_new = match diagnosis.slow_function() {
            Some(task) => self.hinted.insert(plan.tasks[task as usize].spec.vertex),
            None => true,
        };
        let silent_since = |worker: u32| self.heard.get(&worker).copied().unwrap_or_default();
        let moved_at = |task: u32| self.tasks[task as usize].at;
        let stall = Stall::new(plan, &diagnosis, self.since, now, silent_since, moved_at);
        self.commands.push_back(Command::Show { stall, is_new });
    }
}

/// Returns the counters that change when records move. The segments in pools may change without any record moving, so
/// they are not included.
fn counters(metrics: &MetricsSnapshot) -> [u64; 10] {
    let queues = &metrics.queues;
    [
        metrics.records_in,
        metrics.records_out,
        metrics.bytes_in_local,
        metrics.bytes_in_remote,
        metrics.bytes_out,
        metrics.dropped_records,
        queues.send_buffers,
        queues.send_bytes,
        queues.receive_buffers,
        queues.receive_bytes,
    ]
}

/// The driver checks more often than this unless it was prevented.
const LONGEST_STEP: Duration = Duration::from_millis(1500);
/// A worker that needs longer for its answer has a worse problem than its tasks.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
