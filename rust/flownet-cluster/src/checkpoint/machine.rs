//! Decides when one attempt triggers, publishes and aborts checkpoints.
//!
//! ```text
//!          interval, pause over                all have answered           it is in the log
//! Idle --------------------------> Pending ------------------------> Publishing -----------> Idle
//!   ^                                 |  declined, timeout                |  not published
//!   +---------------------------------+-----------------------------------+  (counted; too many: the attempt fails)
//! ```
//!
//! # Invariants
//! - I1: checkpoint numbers increase, and each checkpoint is triggered once. At most one is under way.
//! - I2: a checkpoint is published only if every task that has not ended has acknowledged it. For ended tasks it
//!   contains their last snapshot without in-flight data: downstream tasks have that data in their own snapshots, or
//!   have read it.
//! - I3: [`Command::Complete`] follows only after the checkpoint is published. [`Command::Abort`] never follows for a
//!   checkpoint that may be published.
//! - I4: a requested checkpoint is triggered as soon as none is under way.
//! - I5: when all tasks have finished, one more checkpoint is triggered without waiting for the interval.
//! - I6: a checkpoint that exceeds its aligned timeout switches to unaligned barriers, once. It then counts only when
//!   every task that has not ended has switched: an acknowledgement does not cover barriers that are still queued.
//! - I7: while some tasks have failed and others run, only a checkpoint that is being published stays under way. None
//!   is triggered until all tasks run again. A pending checkpoint is given up, which does not count as a failure.
//!   Restarted tasks are as at the beginning, even if they had finished or ended.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use flownet_runtime::RootCause;
use flownet_store::TaskSnapshot;

/// An event that the machine reacts to.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// All tasks run.
    Running,
    /// A task has taken its snapshot and written it.
    Acknowledged { task: u32, checkpoint: u64, kept: TaskSnapshotRef },
    /// A task's unaligned barriers have overtaken its queued output, and the in-flight data is written.
    Overtook { task: u32, checkpoint: u64, snapshot: TaskSnapshot },
    /// The checkpoint stays aligned, without an aligned timeout.
    Aligned { checkpoint: u64 },
    /// A task could not take its snapshot.
    Declined { task: u32, checkpoint: u64, reason: String, root_cause: Option<RootCause> },
    /// A task's input has ended. The task waits for one more checkpoint.
    Finished { task: u32 },
    /// A task has ended successfully.
    Ended { task: u32 },
    /// Requests a checkpoint that is triggered from now on, regardless of the interval.
    Requested,
    /// The checkpoint is published.
    Published { checkpoint: u64 },
    /// The checkpoint is not published and never will be.
    NotPublished { checkpoint: u64, reason: String },
    /// Some tasks have failed and others run. No checkpoint is triggered until all run again.
    Suspended,
    /// These tasks restart.
    Restarted { tasks: Vec<u32> },
    /// The attempt is ending: no more checkpoints are triggered.
    Ending,
    /// Time has passed.
    Tick,
}

/// An action for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Trigger the checkpoint at the sources.
    Trigger { checkpoint: u64 },
    /// Switch the checkpoint to unaligned barriers in all tasks.
    Overtake { checkpoint: u64 },
    /// Write the manifest, then the log record that publishes the checkpoint. Snapshots are by task number.
    Publish { checkpoint: u64, triggered_at: Duration, kept: BTreeMap<u32, TaskSnapshotRef> },
    /// Notify all tasks that the checkpoint is published.
    Complete { checkpoint: u64 },
    /// Notify all tasks that the checkpoint is given up because some tasks have failed.
    GiveUp { checkpoint: u64 },
    /// Count the checkpoint as failed, and notify all tasks that it is aborted.
    Abort { checkpoint: u64, reason: String },
    /// Fail the attempt: too many checkpoints in a row have failed.
    Fail { checkpoint: u64, failed: u32, reason: String, root_cause: Option<RootCause> },
}

/// Snapshot of a task for a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskSnapshotRef {
    /// References to the written parts.
    pub(crate) snapshot: TaskSnapshot,
    /// Whether the task had reached the end of its input, and ends when this checkpoint is published.
    pub(crate) is_last: bool,
    /// Whether the input ended by itself and the task had done its work at the end: it never runs again.
    pub(crate) has_finished: bool,
}

impl TaskSnapshotRef {
    /// Returns the snapshot of an ended task. Its in-flight data has reached the downstream tasks or is in their
    /// snapshots.
    fn without_in_flight(&self) -> Self {
        let parts = self.snapshot.parts.iter().filter(|part| !part.share.is_in_flight());
        let snapshot = TaskSnapshot { parts: parts.cloned().collect(), ..self.snapshot.clone() };
        Self { snapshot, ..self.clone() }
    }
}

/// Time and failure limits of the machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckpointLimits {
    /// Time between two triggers.
    pub(crate) interval: Duration,
    /// Longest time from the trigger to the last acknowledgement.
    pub(crate) timeout: Duration,
    /// Time from the trigger until barriers become unaligned. None: never, or from the beginning.
    pub(crate) aligned_timeout: Option<Duration>,
    /// Shortest time from the end of a checkpoint to the next trigger.
    pub(crate) min_pause: Duration,
    /// Number of consecutive checkpoints that may fail.
    pub(crate) tolerable_failures: u32,
}

#[derive(Debug)]
enum Phase {
    /// Not all tasks run yet, or not all run any more.
    Off,
    Idle,
    Pending {
        checkpoint: u64,
        since: Duration,
        /// Time at which barriers become unaligned.
        overtakes_at: Option<Duration>,
        kept: BTreeMap<u32, TaskSnapshotRef>,
        /// In-flight data by task, once barriers are unaligned.
        overtaken: Option<BTreeMap<u32, TaskSnapshot>>,
    },
    Publishing {
        checkpoint: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskPhase {
    Runs,
    Finished,
    Ended,
}

/// State machine of the checkpoints of one attempt. See the module documentation.
#[derive(Debug)]
pub(crate) struct CheckpointMachine {
    limits: CheckpointLimits,
    next_checkpoint: u64,
    phase: Phase,
    tasks: Vec<TaskPhase>,
    /// Snapshot of each task in the last published checkpoint of this attempt. A task ends only after a checkpoint that
    /// it acknowledged.
    last_kept: BTreeMap<u32, TaskSnapshotRef>,
    /// Snapshots of the checkpoint that is being published.
    publishing: BTreeMap<u32, TaskSnapshotRef>,
    next_trigger: Duration,
    is_requested: bool,
    /// Whether some tasks do not run.
    is_suspended: bool,
    /// Number of consecutive failed checkpoints.
    failed: u32,
    commands: VecDeque<Command>,
}

impl CheckpointMachine {
    /// Creates the machine of `tasks` tasks. The first checkpoint is `next_checkpoint`.
    pub(crate) fn new(limits: CheckpointLimits, tasks: usize, next_checkpoint: u64) -> Self {
        Self {
            limits,
            next_checkpoint,
            phase: Phase::Off,
            tasks: vec![TaskPhase::Runs; tasks],
            last_kept: BTreeMap::new(),
            publishing: BTreeMap::new(),
            next_trigger: Duration::MAX,
            is_requested: false,
            is_suspended: false,
            failed: 0,
            commands: VecDeque::new(),
        }
    }

    /// Handles an event at time `now`. Total: late or repeated events, and events of other checkpoints, change nothing.
    pub(crate) fn handle(&mut self, input: Input, now: Duration) {
        match input {
            Input::Running => self.runs(now),
            Input::Suspended => self.suspend(),
            Input::Restarted { tasks } => self.restarted(&tasks),
            Input::Tick => {}
            Input::Acknowledged { task, checkpoint, kept } => self.acknowledged(task, checkpoint, kept),
            Input::Overtook { task, checkpoint, snapshot } => self.overtook(task, checkpoint, snapshot),
            Input::Aligned { checkpoint } => {
                if let Phase::Pending { checkpoint: of, overtakes_at, .. } = &mut self.phase
                    && *of == checkpoint
                {
                    *overtakes_at = None;
                }
            }
            Input::Declined { task, checkpoint, reason, root_cause } => {
                if self.is_pending(checkpoint) && (task as usize) < self.tasks.len() {
                    self.abort(checkpoint, reason, root_cause, now);
                }
            }
            Input::Finished { task } => self.reached(task, TaskPhase::Finished),
            Input::Ended { task } => self.reached(task, TaskPhase::Ended),
            Input::Requested => self.is_requested = true,
            Input::Published { checkpoint } => self.published(checkpoint, now),
            Input::NotPublished { checkpoint, reason } => {
                if matches!(self.phase, Phase::Publishing { checkpoint: of } if of == checkpoint) {
                    self.abort(checkpoint, reason, None, now);
                }
            }
            Input::Ending => {
                // A checkpoint that is being published may still count, and lets the tasks that wait for it end.
                if !matches!(self.phase, Phase::Publishing { .. }) {
                    self.phase = Phase::Off;
                }
                self.next_trigger = Duration::MAX;
            }
        }
        self.publish_if_complete();
        self.check_times(now);
    }

    /// Returns the next action, or `None` until another input.
    pub(crate) fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// Returns the time of the next [`Input::Tick`] if no other input arrives before.
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        let at = match &self.phase {
            Phase::Idle => self.next_trigger,
            Phase::Pending { since, overtakes_at, .. } => {
                let given_up = *since + self.limits.timeout;
                overtakes_at.map_or(given_up, |overtakes_at| overtakes_at.min(given_up))
            }
            Phase::Off | Phase::Publishing { .. } => return None,
        };
        (at < Duration::MAX).then_some(at)
    }

    /// Returns the checkpoint that is triggered and neither published nor failed.
    pub(crate) fn under_way(&self) -> Option<u64> {
        match self.phase {
            Phase::Pending { checkpoint, .. } | Phase::Publishing { checkpoint } => Some(checkpoint),
            Phase::Off | Phase::Idle => None,
        }
    }

    /// Returns the tasks that have not answered the pending checkpoint; empty if none is pending.
    pub(crate) fn unanswered(&self) -> Vec<u32> {
        if !matches!(self.phase, Phase::Pending { .. }) {
            return Vec::new();
        }
        let is_silent =
            |(task, phase): &(u32, &TaskPhase)| **phase != TaskPhase::Ended && !has_answered(&self.phase, *task);
        (0..).zip(&self.tasks).filter(is_silent).map(|(task, _)| task).collect()
    }

    /// Whether the checkpoint that is under way has everything that it needs from a task.
    pub(crate) fn has_answer_of(&self, task: u32) -> bool {
        has_answered(&self.phase, task)
    }

    /// Whether a checkpoint is being published and may count at any moment.
    pub(crate) fn is_publishing(&self) -> bool {
        matches!(self.phase, Phase::Publishing { .. })
    }

    fn runs(&mut self, now: Duration) {
        self.is_suspended = false;
        if matches!(self.phase, Phase::Off) {
            self.phase = Phase::Idle;
            self.next_trigger = if self.all_finished() { now } else { now + self.limits.interval };
        }
    }

    /// Suspends checkpoints (I7).
    fn suspend(&mut self) {
        self.is_suspended = true;
        match self.phase {
            Phase::Pending { checkpoint, .. } => {
                self.phase = Phase::Off;
                self.commands.push_back(Command::GiveUp { checkpoint });
            }
            Phase::Idle => self.phase = Phase::Off,
            Phase::Off | Phase::Publishing { .. } => {}
        }
    }

    fn restarted(&mut self, tasks: &[u32]) {
        self.suspend();
        for task in tasks {
            if let Some(phase) = self.tasks.get_mut(*task as usize) {
                *phase = TaskPhase::Runs;
            }
        }
    }

    fn acknowledged(&mut self, task: u32, checkpoint: u64, new: TaskSnapshotRef) {
        if let Phase::Pending { checkpoint: of, kept, .. } = &mut self.phase
            && *of == checkpoint
            && (task as usize) < self.tasks.len()
        {
            // Reports may be repeated: only the first of each task counts.
            kept.entry(task).or_insert(new);
        }
    }

    fn overtook(&mut self, task: u32, checkpoint: u64, new: TaskSnapshot) {
        if let Phase::Pending { checkpoint: of, overtaken: Some(overtaken), .. } = &mut self.phase
            && *of == checkpoint
            && (task as usize) < self.tasks.len()
        {
            overtaken.entry(task).or_insert(new);
        }
    }

    fn reached(&mut self, task: u32, phase: TaskPhase) {
        let Some(known) = self.tasks.get_mut(task as usize) else { return };
        // Reports may arrive late: an ended task stays ended.
        if *known == TaskPhase::Ended {
            return;
        }
        *known = phase;
        if phase == TaskPhase::Finished && self.next_trigger < Duration::MAX && self.all_finished() {
            // I5: the last checkpoint does not wait for the interval.
            self.next_trigger = Duration::ZERO;
        }
    }

    fn all_finished(&self) -> bool {
        !self.tasks.contains(&TaskPhase::Runs)
    }

    fn publish_if_complete(&mut self) {
        let is_pending = matches!(self.phase, Phase::Pending { .. });
        let is_silent =
            |(task, phase): (u32, &TaskPhase)| *phase != TaskPhase::Ended && !has_answered(&self.phase, task);
        if !is_pending || (0..).zip(&self.tasks).any(is_silent) {
            return;
        }
        let Phase::Pending { checkpoint, since, kept, overtaken, .. } = &mut self.phase else { return };
        let (checkpoint, triggered_at) = (*checkpoint, *since);
        // I2: a task that has ended since its acknowledgement contributes that snapshot; one that ended before, its
        // last.
        let (mut kept, overtaken) = (std::mem::take(kept), overtaken.take());
        for (task, overtaken) in overtaken.into_iter().flatten() {
            if let Some(kept) = kept.get_mut(&task) {
                kept.snapshot.parts.extend(overtaken.parts);
                kept.snapshot.bytes += overtaken.bytes;
            }
        }
        for (task, phase) in (0..).zip(&self.tasks) {
            if *phase == TaskPhase::Ended
                && let Some(last) = self.last_kept.get(&task)
            {
                kept.entry(task).or_insert_with(|| last.without_in_flight());
            }
        }
        self.publishing = kept.clone();
        self.phase = Phase::Publishing { checkpoint };
        self.commands.push_back(Command::Publish { checkpoint, triggered_at, kept });
    }

    fn published(&mut self, checkpoint: u64, now: Duration) {
        if !matches!(self.phase, Phase::Publishing { checkpoint: of } if of == checkpoint) {
            return;
        }
        self.failed = 0;
        self.last_kept = std::mem::take(&mut self.publishing);
        if (0..).zip(&self.tasks).all(|(task, phase)| *phase == TaskPhase::Ended || self.is_last(task)) {
            // All tasks end with this checkpoint, so no other follows.
            self.next_trigger = Duration::MAX;
        }
        self.rest(now);
        self.commands.push_back(Command::Complete { checkpoint });
    }

    fn is_last(&self, task: u32) -> bool {
        self.last_kept.get(&task).is_some_and(|kept| kept.is_last)
    }

    fn abort(&mut self, checkpoint: u64, reason: String, root_cause: Option<RootCause>, now: Duration) {
        self.failed += 1;
        self.publishing.clear();
        self.rest(now);
        self.commands.push_back(Command::Abort { checkpoint, reason: reason.clone() });
        if self.failed > self.limits.tolerable_failures {
            self.phase = Phase::Off;
            self.next_trigger = Duration::MAX;
            self.commands.push_back(Command::Fail { checkpoint, failed: self.failed, reason, root_cause });
        }
    }

    /// Waits for the next trigger.
    fn rest(&mut self, now: Duration) {
        let rests = self.next_trigger == Duration::MAX || self.is_suspended;
        self.phase = if rests { Phase::Off } else { Phase::Idle };
        if self.next_trigger < Duration::MAX {
            self.next_trigger = self.next_trigger.max(now + self.limits.min_pause);
        }
    }

    fn check_times(&mut self, now: Duration) {
        match &self.phase {
            Phase::Pending { checkpoint, since, .. } if now >= *since + self.limits.timeout => {
                let (checkpoint, limit, silent) = (*checkpoint, self.limits.timeout, self.unanswered().len());
                let reason = format!("{silent} of {} tasks have not answered within {limit:?}", self.tasks.len());
                self.abort(checkpoint, reason, None, now);
            }
            Phase::Pending { checkpoint, overtakes_at: Some(overtakes_at), .. } if now >= *overtakes_at => {
                let checkpoint = *checkpoint;
                self.overtake(checkpoint);
            }
            _ => {}
        }
        let has_tasks = self.tasks.iter().any(|phase| *phase != TaskPhase::Ended);
        let is_due = now >= self.next_trigger || self.is_requested;
        if matches!(self.phase, Phase::Idle) && is_due && has_tasks {
            self.is_requested = false;
            let checkpoint = self.next_checkpoint;
            self.next_checkpoint += 1;
            self.next_trigger = now + self.limits.interval;
            let overtakes_at = self.limits.aligned_timeout.map(|timeout| now + timeout);
            self.phase =
                Phase::Pending { checkpoint, since: now, overtakes_at, kept: BTreeMap::new(), overtaken: None };
            self.commands.push_back(Command::Trigger { checkpoint });
        }
    }

    /// Switches the checkpoint to unaligned barriers (I6).
    fn overtake(&mut self, of: u64) {
        if let Phase::Pending { overtakes_at, overtaken, .. } = &mut self.phase {
            (*overtakes_at, *overtaken) = (None, Some(BTreeMap::new()));
            self.commands.push_back(Command::Overtake { checkpoint: of });
        }
    }

    fn is_pending(&self, checkpoint: u64) -> bool {
        matches!(self.phase, Phase::Pending { checkpoint: of, .. } if of == checkpoint)
    }
}

/// Whether a pending checkpoint has everything that it needs from a task (I2, I6).
fn has_answered(phase: &Phase, task: u32) -> bool {
    match phase {
        Phase::Pending { kept, overtaken, .. } => {
            kept.contains_key(&task) && overtaken.as_ref().is_none_or(|overtaken| overtaken.contains_key(&task))
        }
        Phase::Publishing { .. } => true,
        Phase::Off | Phase::Idle => false,
    }
}
