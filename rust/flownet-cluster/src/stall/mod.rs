//! Whether a job stands still although records wait, and who waits for whom. No IO, no clock.
//!
//! The driver tells [`StallMachine`] what workers report and what time it is, and carries out its commands. Counters
//! that travel anyway say that nothing moves; only then are the workers asked what their tasks wait for.
//!
//! ```text
//! Watching -- nothing moved for `patience` --> Asking -- answers, or no time left --> Stalled
//!    ^  ^-- nothing waits, or not known: again after `patience` ---'                     |
//!    '-------------------------- a counter moves, a task ends --------------------------'
//! ```
//!
//! # Invariants
//! - S1: a job is stalled only if no counter of any task moved for `patience` of watched time, and something waits. A gap
//!   between two looks counts for at most [`LONGEST_STEP`]: a process that was stopped, or a machine that slept, saw
//!   nothing in between.
//! - S2: workers are asked at most once in `patience`, and an answer counts only for the question it answers.
//! - S3: whatever moves ends all of it at once, and the time begins anew.
//! - S4: what workers say of their tasks counts only if a report that came after it still shows no movement: the tasks
//!   were not looked at in one moment.
//! - S5: a stall is said once. A function that does not return is said once for all subtasks of its task in the whole
//!   job: it may well be what the user wants.

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

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Command {
    /// Ask every worker what its tasks wait for; answered by [`StallMachine::on_inspection`] with the same `round`.
    Inspect { round: u32 },
    /// The job stands still. `is_new` unless the user was told before.
    Show { stall: Stall, is_new: bool },
    /// It moves again, or it ends.
    Clear,
}

/// See the [module docs](self).
#[derive(Debug)]
pub(crate) struct StallMachine {
    patience: Duration,
    answer_limit: Duration,
    phase: Phase,
    /// When each worker last reported.
    heard: BTreeMap<u32, Duration>,
    tasks: Vec<TaskMoves>,
    /// When anything last moved.
    since: Duration,
    /// How much of the time since then was watched.
    still_for: Duration,
    last_look: Duration,
    round: u32,
    /// Vertices whose functions were said not to return.
    hinted: BTreeSet<u32>,
    commands: VecDeque<Command>,
}

/// The last movement of one task.
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
        /// `still_for` at which those who have not answered are given up.
        until: Duration,
        answers: BTreeMap<u32, Inspection>,
        /// Workers that have reported since they answered.
        confirmed: BTreeSet<u32>,
    },
    Stalled,
}

impl StallMachine {
    /// Workers report every `report_interval`; with fewer than a few reports in it, no patience is long enough.
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

    /// A worker reported, `now` after the job's beginning.
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

    /// Something moved that is no counter: a task has ended.
    pub(crate) fn on_movement(&mut self, now: Duration) {
        self.since = now;
        self.last_look = now;
        self.still_for = Duration::ZERO;
        if matches!(std::mem::replace(&mut self.phase, Phase::Watching), Phase::Stalled) {
            self.commands.push_back(Command::Clear);
        }
    }

    /// A worker says what its tasks wait for.
    pub(crate) fn on_inspection(&mut self, round: u32, worker: u32, inspection: Inspection) {
        if let Phase::Asking { answers, .. } = &mut self.phase
            && round == self.round
        {
            answers.insert(worker, inspection);
        }
    }

    /// Time has passed. While the job is not running, nothing is expected to move.
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

    /// When to call [`Self::on_time`] at the latest.
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        let left = match &self.phase {
            Phase::Watching => self.patience.saturating_sub(self.still_for),
            Phase::Asking { until, .. } => until.saturating_sub(self.still_for),
            Phase::Stalled => return None,
        };
        Some(self.last_look + left.min(LONGEST_STEP))
    }

    /// What to do next; `None` until another input changes that.
    pub(crate) fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    fn conclude(&mut self, now: Duration, plan: &Plan) {
        let Phase::Asking { since, answers, .. } = std::mem::replace(&mut self.phase, Phase::Watching) else { return };
        // A worker that reports and does not answer is slow, or this one is: what its tasks wait for is not known.
        let is_slow = |(worker, &heard): (&u32, &Duration)| heard > since && !answers.contains_key(worker);
        let is_known = !self.heard.iter().any(is_slow);
        let Some(diagnosis) = is_known.then(|| Diagnosis::of(plan, &answers)).flatten() else {
            // S2: the next question is `patience` away.
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

/// What moves when records do. What pools hold may change without any of it.
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

/// The driver looks more often than this, unless it could not.
const LONGEST_STEP: Duration = Duration::from_millis(1500);
/// A worker that takes longer to say what its tasks wait for has more wrong with it than they.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
