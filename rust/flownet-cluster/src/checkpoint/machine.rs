//! Every decision about the checkpoints of one attempt.
//!
//! ```text
//!          interval, pause over                all have answered           it is in the log
//! Idle --------------------------> Pending ------------------------> Publishing -----------> Idle
//!   ^                                 |  declined, timeout                |  not published
//!   +---------------------------------+-----------------------------------+  (counted; too many: the attempt fails)
//! ```
//!
//! # Invariants
//! - I1: checkpoints are numbered upwards, each triggered once; one is under way at a time.
//! - I2: a checkpoint is published only if every task that has not ended acknowledged it, and what those that have ended
//!   kept last goes with it, but for what was on its way from them: that is kept by those behind them, or was read.
//! - I3: [`Command::Complete`] comes only after it was said to be published, [`Command::Abort`] never for one that may be.
//! - I4: one that was requested is triggered as soon as none is under way.
//! - I5: when all tasks have finished, one more checkpoint is triggered without waiting for its time.
//! - I6: one that takes longer than its aligned timeout is told to overtake, once, and counts only when every task that has
//!   not ended has done so: an acknowledgement says nothing of barriers that are still in line.
//! - I7: while some tasks have failed and others run on, none is under way but one that is being published, and none is
//!   triggered until all run again. What was pending is given up, which is no failure of it. Tasks that begin anew are as at
//!   the beginning, whatever they had come to.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use flownet_runtime::RootCause;
use flownet_store::TaskSnapshot;

/// What happened.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// All tasks run.
    Running,
    /// A task has taken its snapshot, and what it kept is written.
    Acknowledged { task: u32, checkpoint: u64, kept: TaskSnapshotRef },
    /// A task has overtaken for it what was in line at its outputs, and what that was is written.
    Overtook { task: u32, checkpoint: u64, snapshot: TaskSnapshot },
    /// It is to wait in line whatever that takes.
    Aligned { checkpoint: u64 },
    /// A task could not.
    Declined { task: u32, checkpoint: u64, reason: String, root_cause: Option<RootCause> },
    /// A task's input has ended; it stays for one more checkpoint.
    Finished { task: u32 },
    /// A task has ended well.
    Ended { task: u32 },
    /// Somebody wants one that is triggered from now on, whatever the time.
    Requested,
    /// It counts.
    Published { checkpoint: u64 },
    /// It does not, and never will.
    NotPublished { checkpoint: u64, reason: String },
    /// Some tasks have failed, others run on: until all run again nothing is triggered.
    Suspended,
    /// These begin anew.
    Restarted { tasks: Vec<u32> },
    /// The attempt is ending: nothing more is triggered.
    Ending,
    /// Time has passed.
    Tick,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Tell the sources.
    Trigger { checkpoint: u64 },
    /// Tell all tasks that it overtakes from now on.
    Overtake { checkpoint: u64 },
    /// Write what it is made of, and then that it counts. Per task, by its number.
    Publish { checkpoint: u64, triggered_at: Duration, kept: BTreeMap<u32, TaskSnapshotRef> },
    /// Tell all tasks that it counts.
    Complete { checkpoint: u64 },
    /// Tell all tasks that it never will, because some of them have failed.
    GiveUp { checkpoint: u64 },
    /// Count it as failed, and tell all tasks that it never will count.
    Abort { checkpoint: u64, reason: String },
    /// Too many have failed in a row.
    Fail { checkpoint: u64, failed: u32, reason: String, root_cause: Option<RootCause> },
}

/// What a task kept for a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskSnapshotRef {
    /// Where it is.
    pub(crate) snapshot: TaskSnapshot,
    /// Whether the task had come to the end of its input, and will end when this counts.
    pub(crate) is_last: bool,
    /// Whether it was the input's own end, and the task had done what comes then: it never runs again.
    pub(crate) has_finished: bool,
}

impl TaskSnapshotRef {
    /// The same once the task has ended: what was on its way from it then has come to those behind it, or is kept by them.
    fn without_in_flight(&self) -> Self {
        let parts = self.snapshot.parts.iter().filter(|part| !part.share.is_in_flight());
        let snapshot = TaskSnapshot { parts: parts.cloned().collect(), ..self.snapshot.clone() };
        Self { snapshot, ..self.clone() }
    }
}

/// What the machine acts by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckpointLimits {
    /// From trigger to trigger.
    pub(crate) interval: Duration,
    /// From trigger to the last acknowledgement.
    pub(crate) timeout: Duration,
    /// From trigger until it overtakes what it waits behind; none: never, or from the beginning.
    pub(crate) aligned_timeout: Option<Duration>,
    /// From the end of one to the next trigger.
    pub(crate) min_pause: Duration,
    /// How many in a row may fail.
    pub(crate) tolerable_failures: u32,
}

#[derive(Debug)]
enum Phase {
    /// Tasks do not all run yet, or no longer.
    Off,
    Idle,
    Pending {
        checkpoint: u64,
        since: Duration,
        /// When it is to overtake.
        overtakes_at: Option<Duration>,
        kept: BTreeMap<u32, TaskSnapshotRef>,
        /// Once it overtakes: what that was, of each task that has done so.
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

/// The checkpoints of one attempt. See the module documentation.
#[derive(Debug)]
pub(crate) struct CheckpointMachine {
    limits: CheckpointLimits,
    next_checkpoint: u64,
    phase: Phase,
    tasks: Vec<TaskPhase>,
    /// What each task kept for the last checkpoint of this attempt that counts. No task ends before one that it took.
    last_kept: BTreeMap<u32, TaskSnapshotRef>,
    /// What goes with the one that is being published.
    publishing: BTreeMap<u32, TaskSnapshotRef>,
    next_trigger: Duration,
    is_requested: bool,
    /// Some tasks do not run.
    is_suspended: bool,
    /// Of those in a row.
    failed: u32,
    commands: VecDeque<Command>,
}

impl CheckpointMachine {
    /// For so many tasks; the first checkpoint is `next_checkpoint`.
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

    /// Takes what happened, at `now`. Total: what comes too late, twice, or of another checkpoint changes nothing.
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
                    self.abort(checkpoint, (reason, root_cause), now);
                }
            }
            Input::Finished { task } => self.reached(task, TaskPhase::Finished),
            Input::Ended { task } => self.reached(task, TaskPhase::Ended),
            Input::Requested => self.is_requested = true,
            Input::Published { checkpoint } => self.published(checkpoint, now),
            Input::NotPublished { checkpoint, reason } => {
                if matches!(self.phase, Phase::Publishing { checkpoint: of } if of == checkpoint) {
                    self.abort(checkpoint, (reason, None), now);
                }
            }
            Input::Ending => {
                // One that is being published may come to count, and a task that waits for it is to end by that.
                if !matches!(self.phase, Phase::Publishing { .. }) {
                    self.phase = Phase::Off;
                }
                self.next_trigger = Duration::MAX;
            }
        }
        self.publish_if_complete();
        self.check_times(now);
    }

    /// What to do next; `None` until another input changes that.
    pub(crate) fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// When to bring an [`Input::Tick`] if nothing happens before.
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

    /// The checkpoint that is under way: triggered, and neither counted nor failed.
    pub(crate) fn under_way(&self) -> Option<u64> {
        match self.phase {
            Phase::Pending { checkpoint, .. } | Phase::Publishing { checkpoint } => Some(checkpoint),
            Phase::Off | Phase::Idle => None,
        }
    }

    /// Tasks that the pending checkpoint waits for; none if none is pending.
    pub(crate) fn unanswered(&self) -> Vec<u32> {
        if !matches!(self.phase, Phase::Pending { .. }) {
            return Vec::new();
        }
        let is_silent =
            |(task, phase): &(u32, &TaskPhase)| **phase != TaskPhase::Ended && !has_answered(&self.phase, *task);
        (0..).zip(&self.tasks).filter(is_silent).map(|(task, _)| task).collect()
    }

    /// Whether the checkpoint that is under way has all that it needs of a task.
    pub(crate) fn has_answer_of(&self, task: u32) -> bool {
        has_answered(&self.phase, task)
    }

    /// Whether one may come to count any moment.
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

    /// I7.
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
        if *known == TaskPhase::Ended {
            return;
        }
        *known = phase;
        if phase == TaskPhase::Finished && self.next_trigger < Duration::MAX && self.all_finished() {
            // I5.
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
        // I2: of a task that has ended since its acknowledgement, that one; of one that ended before, its last.
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
            // They all end by it.
            self.next_trigger = Duration::MAX;
        }
        self.rest(now);
        self.commands.push_back(Command::Complete { checkpoint });
    }

    fn is_last(&self, task: u32) -> bool {
        self.last_kept.get(&task).is_some_and(|kept| kept.is_last)
    }

    fn abort(&mut self, checkpoint: u64, (reason, root_cause): (String, Option<RootCause>), now: Duration) {
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

    /// Until the next one.
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
                self.abort(checkpoint, (reason, None), now);
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

    /// I6.
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

/// Whether a pending checkpoint has all that it needs of a task (I2, I6).
fn has_answered(phase: &Phase, task: u32) -> bool {
    match phase {
        Phase::Pending { kept, overtaken, .. } => {
            kept.contains_key(&task) && overtaken.as_ref().is_none_or(|overtaken| overtaken.contains_key(&task))
        }
        Phase::Publishing { .. } => true,
        Phase::Off | Phase::Idle => false,
    }
}
