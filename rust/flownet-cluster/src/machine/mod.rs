//! Decides about one attempt of some tasks, without I/O and without a clock.
//!
//! A job has one machine for each of its [regions](regions). The driver passes events to [`JobMachine::handle`] with
//! the time since the job began, then carries out the commands of [`JobMachine::poll_command`].
//! [`JobMachine::poll_timeout`] returns the time of the next [`Input::Tick`] if nothing happens before.
//!
//! ```text
//! Created -> Launching -> Deploying -> Running -> Stopping -> Finishing -> Ended
//!                 \___________\___________\___________\____-> Failing ---/
//!                 \___________\___________\___________\____-> Cancelling-/
//! ```
//!
//! # Invariants
//! - I1: the commands to one worker are a subsequence of Launch, Deploy, Start, EndSources, Stop, Kill, each at most
//!   once. All except the first and the last come only while the worker answers.
//! - I2: no task starts before every task of the job is deployed, so a partition exists when a consumer requests it.
//! - I3: [`Command::End`] comes once, last, and when every worker is gone.
//! - I4: an ending job has ended within the cancel timeout plus [`KILL_LIMIT`], whether or not its workers answer.
//! - I5: a job that the user stops is ending within the stop timeout.
//!
//! # Cause of a failure
//! A task that lost its connection, or whose producer failed, reports an echo of another failure. The machine waits for
//! the root failure before it takes the echo for the cause. It waits [`ROOT_GRACE`], or [`HEARSAY_GRACE`] if a failed
//! task has not reported yet. Of several echoes it takes the one with the strongest evidence: a lost connection before
//! its effects on others. The first root failure wins over all later ones.

mod regions;
mod worker;

#[cfg(test)]
mod tests;

use std::{collections::VecDeque, fmt, time::Duration};

use flownet_runtime::{RootCause, TaskError, error::Evidence};
use flownet_store::StoreError;
use serde::Serialize;

pub(crate) use self::regions::{Placement, RegionCommand, RegionsMachine};
use self::worker::{Phase, WorkerState};
use crate::{
    error::{ClusterError, WorkerExit, WorkerIdentity},
    plan::Plan,
};

/// An event that the machine reacts to.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// The job may begin.
    Begin,
    /// A worker can be called.
    Registered { worker: u32 },
    /// A worker built all its tasks.
    Deployed { worker: u32 },
    /// A worker's tasks run.
    Started { worker: u32 },
    /// A worker is alive.
    Heartbeat { worker: u32 },
    /// A task ended successfully.
    TaskFinished { task: u32 },
    /// A worker could not build a task.
    TaskNotBuilt { task: u32, error: TaskError },
    /// A task ended with an error. `has_run`: its operators were open.
    TaskFailed { task: u32, error: TaskError, has_run: bool },
    /// A worker failed to carry out a request.
    WorkerFailed { worker: u32, message: String },
    /// A worker's process ended or its connection closed without a request.
    WorkerLost { worker: u32, how: WorkerExit },
    /// A worker that was stopped or killed is gone.
    WorkerGone { worker: u32 },
    /// Checkpoints cannot be taken any more, or cannot be read.
    CheckpointsFailed { failure: Failure },
    /// The user cancels the job.
    Cancel,
    /// The user stops the job gracefully: its sources end. This waits until all tasks run.
    Stop { drain: bool },
    /// Time has passed.
    Tick,
}

/// An action for the driver.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Command {
    /// Start the worker; answered by `Registered`.
    Launch { worker: u32 },
    /// Send the worker its tasks; answered by `Deployed`.
    Deploy { worker: u32 },
    /// Send the addresses of its peers and start its tasks; answered by `Started`.
    Start { worker: u32 },
    /// End the worker's sources; answered by their ends.
    EndSources { worker: u32, drain: bool },
    /// Cancel its tasks, fetch its last report and release it; answered by `WorkerGone`.
    Stop { worker: u32 },
    /// Kill its process; answered by `WorkerGone`.
    Kill { worker: u32 },
    /// The attempt is over.
    End { outcome: Outcome },
}

/// Result of an attempt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    Finished,
    Cancelled,
    /// The user stopped the job, and it was cancelled because these tasks had not ended in time.
    StopTimeout {
        tasks: Vec<u32>,
    },
    Failed(Failure),
}

/// Reason why a job failed, with the numbers that the machine knows. `Build`: the parts of a task cannot be loaded, for
/// example because a module is missing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Failure {
    Task { task: u32, error: TaskError },
    Build { task: u32, error: TaskError },
    Worker { worker: u32, message: String },
    WorkerLost { worker: u32, how: WorkerExit },
    LaunchFailed { worker: u32, how: WorkerExit },
    LaunchTimeout { workers: Vec<u32>, limit: Duration },
    HeartbeatTimeout { worker: u32, silent_for: Duration },
    Checkpoint { checkpoint: u64, failed: u32, reason: String, root_cause: Option<RootCause> },
    Store { error: StoreError },
}

/// Whether tasks have ever run, and where.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum LaunchHistory {
    #[default]
    None,
    /// In an earlier process, from whose checkpoint the job resumes.
    Elsewhere,
    /// In an attempt of this process.
    Here,
}

impl Failure {
    /// Whether the next attempt may succeed, given the attempts so far. A task that cannot begin with its snapshot
    /// cannot begin with it later either. Code that cannot be loaded must be fixed, unless it was loaded here before:
    /// then something else is wrong.
    fn may_pass(&self, past: LaunchHistory) -> bool {
        match self {
            Self::Task { error: TaskError::Snapshot(error), .. } if !error.may_pass() => false,
            Self::Build { .. } => past == LaunchHistory::Here,
            // The objects of a checkpoint are never written again.
            Self::Store { error } if error.is_damage() => false,
            _ => past != LaunchHistory::None,
        }
    }

    /// Returns the root cause if it is in the program or its data. Returns `None` if a retry may help, as after a lost
    /// worker or an unavailable storage.
    pub(crate) fn root_cause(&self) -> Option<RootCause> {
        match self {
            Self::Task { error, .. } | Self::Build { error, .. } => error.root_cause(),
            Self::Checkpoint { root_cause, .. } => root_cause.clone(),
            _ => None,
        }
    }

    fn evidence(&self) -> Evidence {
        match self {
            Self::Task { error, .. } | Self::Build { error, .. } => error.evidence(),
            _ => Evidence::Cause,
        }
    }

    /// Converts the failure to the terms of users: names, addresses and processes.
    pub(crate) fn into_error(self, plan: &Plan, identity: impl Fn(u32) -> WorkerIdentity) -> ClusterError {
        match self {
            Self::Task { task, error } | Self::Build { task, error } => {
                let placed = &plan.tasks[task as usize];
                let (spec, worker) = (&placed.spec, identity(placed.worker));
                match error {
                    TaskError::Operator(failure) => ClusterError::Operator { failure, worker },
                    error => ClusterError::Task {
                        task: spec.name.clone(),
                        subtask: spec.subtask,
                        parallelism: spec.parallelism,
                        worker,
                        error: Box::new(error),
                    },
                }
            }
            Self::Worker { worker, message } => ClusterError::WorkerFailed { worker: identity(worker), message },
            Self::WorkerLost { worker, how } => ClusterError::WorkerLost { worker: identity(worker), how },
            Self::LaunchFailed { worker, how } => ClusterError::LaunchFailed { worker, how },
            Self::LaunchTimeout { workers, limit } => ClusterError::LaunchTimeout { workers, limit },
            Self::HeartbeatTimeout { worker, silent_for } => {
                ClusterError::HeartbeatTimeout { worker: identity(worker), silent_for }
            }
            Self::Checkpoint { checkpoint, failed, reason, .. } => {
                ClusterError::Checkpoint { checkpoint, failed, reason }
            }
            Self::Store { error } => ClusterError::Store(error),
        }
    }
}

/// State of a job. Shown to users.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Nothing has started.
    Created,
    /// Workers are starting.
    Launching,
    /// All workers have registered; tasks are being built.
    Deploying,
    /// Tasks run.
    Running,
    /// The user stopped the job: sources have ended, and in-flight records are processed.
    Stopping,
    /// Every task ended successfully; workers are leaving.
    Finishing,
    /// A failure occurred; the machine looks for its cause, or workers are leaving.
    Failing,
    /// The user cancelled; workers are leaving.
    Cancelling,
    /// An attempt has failed; the next one waits for its delay.
    Restarting,
    /// Nothing is left.
    Ended,
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "CREATED",
            Self::Launching => "LAUNCHING",
            Self::Deploying => "DEPLOYING",
            Self::Running => "RUNNING",
            Self::Stopping => "STOPPING",
            Self::Finishing => "FINISHING",
            Self::Failing => "FAILING",
            Self::Cancelling => "CANCELLING",
            Self::Restarting => "RESTARTING",
            Self::Ended => "ENDED",
        })
    }
}

/// Time limits of the machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) launch: Duration,
    pub(crate) heartbeat: Duration,
    pub(crate) stop: Duration,
    pub(crate) cancel: Duration,
}

/// State machine of one attempt. See the module documentation.
#[derive(Debug)]
pub(crate) struct JobMachine {
    limits: Limits,
    state: JobState,
    workers: Vec<WorkerState>,
    /// For each task of the job, its worker, and whether it is over or not part of this attempt.
    tasks: Vec<(u32, bool)>,
    unfinished: usize,
    /// Time at which launching and deploying has taken too long.
    launch_deadline: Duration,
    /// Whether the user's stop drains, and the deadline of the stop.
    stop: Option<(bool, Duration)>,
    /// Echo of a failure, and the time until which its root may still be reported.
    suspicion: Option<(Failure, Duration)>,
    outcome: Option<Outcome>,
    has_run: bool,
    commands: VecDeque<Command>,
}

impl JobMachine {
    /// Creates the machine of the `wanted` tasks of a job, by their numbers. The workers are `participants`; task `i`
    /// runs on `placement[i]`. Events of other tasks change nothing.
    pub(crate) fn of_some(
        participants: &[u32],
        placement: &[u32],
        limits: Limits,
        wanted: impl Fn(usize) -> bool,
    ) -> Self {
        let tasks: Vec<(u32, bool)> =
            placement.iter().enumerate().map(|(task, &worker)| (worker, !wanted(task))).collect();
        let count = participants.iter().max().map_or(0, |&last| last as usize + 1);
        let mut workers = vec![WorkerState::new(); count];
        for (worker, state) in (0_u32..).zip(&mut workers) {
            if !participants.contains(&worker) {
                state.phase = Phase::Gone;
            }
        }
        Self {
            limits,
            state: JobState::Created,
            workers,
            unfinished: tasks.iter().filter(|(_, is_over)| !is_over).count(),
            tasks,
            launch_deadline: Duration::MAX,
            stop: None,
            suspicion: None,
            outcome: None,
            has_run: false,
            commands: VecDeque::new(),
        }
    }

    /// Handles an event at time `now` after the job's beginning. Total: late or repeated events change nothing.
    pub(crate) fn handle(&mut self, input: Input, now: Duration) {
        if self.state == JobState::Ended {
            return;
        }
        match input {
            Input::Begin => self.begin(now),
            Input::Registered { worker } => {
                self.advance(worker, Phase::Launching, Phase::Deploying, now);
            }
            Input::Deployed { worker } => self.advance(worker, Phase::Deploying, Phase::Deployed, now),
            Input::Started { worker } => self.advance(worker, Phase::Starting, Phase::Running, now),
            Input::Heartbeat { worker } => self.heard(worker, now),
            Input::TaskFinished { task } => self.task_finished(task, now),
            Input::TaskNotBuilt { task, error } => self.task_not_built(task, error, now),
            Input::TaskFailed { task, error, has_run } => self.task_failed(task, error, has_run, now),
            Input::WorkerFailed { worker, message } => self.fail(Failure::Worker { worker, message }, now),
            Input::WorkerLost { worker, how } => self.worker_lost(worker, how, now),
            Input::WorkerGone { worker } => self.worker_gone(worker),
            Input::CheckpointsFailed { failure } => self.fail(failure, now),
            Input::Cancel => self.cancel(now),
            Input::Stop { drain } => self.stop(drain, now),
            Input::Tick => {}
        }
        self.check_times(now);
        self.end_if_deserted();
        self.assert_invariants();
    }

    /// Returns the next action, or `None` until another input.
    pub(crate) fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// Returns the time of the next [`Input::Tick`] if no other input arrives before.
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        let workers = self.workers.iter().filter_map(|worker| worker.timeout(self.limits.heartbeat));
        let suspicion = self.suspicion.iter().map(|&(_, deadline)| deadline);
        let launch = self.is_starting().then_some(self.launch_deadline);
        // The stop timeout does not apply to a failing attempt, which ends by its failure.
        let is_stopping = self.outcome.is_none() && self.suspicion.is_none();
        let stop = self.stop.filter(|_| is_stopping).map(|(_, deadline)| deadline);
        workers.chain(suspicion).chain(launch).chain(stop).min()
    }

    pub(crate) fn state(&self) -> JobState {
        self.state
    }

    /// Whether the attempt has run: all its tasks did, or one did and failed before all workers had started.
    pub(crate) fn has_run(&self) -> bool {
        self.has_run
    }

    /// Whether the attempt ends by a failure that may pass, given this history, and the user has not stopped the job.
    pub(crate) fn may_begin_again(&self, past: LaunchHistory) -> bool {
        self.stop.is_none() && matches!(&self.outcome, Some(Outcome::Failed(failure)) if failure.may_pass(past))
    }

    fn begin(&mut self, now: Duration) {
        if self.state != JobState::Created {
            return;
        }
        self.state = JobState::Launching;
        self.launch_deadline = now + self.limits.launch;
        for worker in self.workers_in(Phase::Idle) {
            self.set_phase(worker, Phase::Launching);
            self.commands.push_back(Command::Launch { worker });
        }
    }

    /// Moves a worker that has answered to its next phase, and possibly the job with it.
    fn advance(&mut self, worker: u32, from: Phase, to: Phase, now: Duration) {
        self.heard(worker, now);
        if self.phase(worker) != Some(from) {
            return;
        }
        self.set_phase(worker, to);
        if to == Phase::Deploying {
            // Deployment does not wait until all workers have registered: building chains takes time, and the workers
            // build in parallel.
            self.commands.push_back(Command::Deploy { worker });
        }
        if self.suspicion.is_some() || !self.is_starting() {
            return;
        }
        if self.state == JobState::Launching && self.all_reached(Phase::Deploying) {
            self.state = JobState::Deploying;
        }
        if self.all_reached(Phase::Deployed) {
            for worker in self.workers_in(Phase::Deployed) {
                self.set_phase(worker, Phase::Starting);
                self.commands.push_back(Command::Start { worker });
            }
        }
        if self.all_reached(Phase::Running) {
            self.state = JobState::Running;
            self.has_run = true;
            self.end_sources();
        }
    }

    fn task_finished(&mut self, task: u32, now: Duration) {
        let Some(&(worker, finished)) = self.tasks.get(task as usize) else { return };
        self.heard(worker, now);
        // A task may finish before its worker has answered the start.
        let has_run = self.phase(worker).is_some_and(|phase| phase >= Phase::Starting);
        if finished || !has_run {
            return;
        }
        self.tasks[task as usize].1 = true;
        self.unfinished -= 1;
        if self.unfinished == 0 && self.outcome.is_none() && self.suspicion.is_none() {
            self.end_with(Outcome::Finished, JobState::Finishing, now);
        }
    }

    fn task_not_built(&mut self, task: u32, error: TaskError, now: Duration) {
        let Some(&(worker, _)) = self.tasks.get(task as usize) else { return };
        self.heard(worker, now);
        // Other build errors may pass: the worker may have more resources in another attempt.
        let is_of_the_program = matches!(error, TaskError::Operator(_) | TaskError::Config(_));
        let failure = if is_of_the_program { Failure::Build { task, error } } else { Failure::Task { task, error } };
        self.fail(failure, now);
    }

    fn task_failed(&mut self, task: u32, error: TaskError, has_run: bool, now: Duration) {
        let Some(&(worker, _)) = self.tasks.get(task as usize) else { return };
        self.heard(worker, now);
        // A task that failed because of another does not show whether this attempt has run.
        self.has_run |= has_run && error.evidence() == Evidence::Cause;
        self.fail(Failure::Task { task, error }, now);
    }

    fn worker_lost(&mut self, worker: u32, how: WorkerExit, now: Duration) {
        let Some(phase) = self.phase(worker) else { return };
        if phase == Phase::Idle || phase >= Phase::Killing {
            return;
        }
        // The process may still run without a connection. If it is dead, the kill reaps it.
        self.kill(worker, now);
        match phase {
            Phase::Launching => self.fail(Failure::LaunchFailed { worker, how }, now),
            Phase::Stopping => {}
            _ => self.fail(Failure::WorkerLost { worker, how }, now),
        }
    }

    fn worker_gone(&mut self, worker: u32) {
        if self.workers.get(worker as usize).is_some_and(WorkerState::is_leaving) {
            self.set_phase(worker, Phase::Gone);
        }
    }

    fn cancel(&mut self, now: Duration) {
        // A failing job continues to fail, so that its cause is not lost.
        if self.suspicion.is_none() {
            self.end_with(Outcome::Cancelled, JobState::Cancelling, now);
        }
    }

    fn stop(&mut self, drain: bool, now: Duration) {
        if self.stop.is_none() && self.suspicion.is_none() && self.outcome.is_none() {
            self.stop = Some((drain, now + self.limits.stop));
            self.end_sources();
        }
    }

    /// Ends the sources once the user has stopped the job and all tasks run.
    fn end_sources(&mut self) {
        let (JobState::Running, Some((drain, _))) = (self.state, self.stop) else { return };
        self.state = JobState::Stopping;
        for worker in self.workers_in(Phase::Running) {
            self.commands.push_back(Command::EndSources { worker, drain });
        }
    }

    fn fail(&mut self, failure: Failure, now: Duration) {
        if self.outcome.is_some() {
            return;
        }
        let evidence = failure.evidence();
        if evidence == Evidence::Cause {
            return self.end_with(Outcome::Failed(failure), JobState::Failing, now);
        }
        let grace = if evidence == Evidence::Hearsay { HEARSAY_GRACE } else { ROOT_GRACE };
        match &mut self.suspicion {
            Some((known, deadline)) if evidence > known.evidence() => {
                *known = failure;
                // Hearsay replaces the short deadline of an echo without evidence. A lost connection never extends the
                // wait.
                *deadline = if evidence == Evidence::Break { (*deadline).min(now + grace) } else { now + grace };
            }
            Some(_) => {}
            none => *none = Some((failure, now + grace)),
        }
        self.state = JobState::Failing;
    }

    fn check_times(&mut self, now: Duration) {
        for worker in self.all_workers() {
            let state = self.workers[worker as usize];
            if let Some(silent_for) = state.silent_for(now, self.limits.heartbeat) {
                self.kill(worker, now);
                self.fail(Failure::HeartbeatTimeout { worker, silent_for }, now);
            } else if state.is_overdue(now) {
                match state.phase {
                    Phase::Stopping => self.kill(worker, now),
                    // I4: the job ends without a killed process that is not gone in time.
                    _ => self.set_phase(worker, Phase::Gone),
                }
            }
        }
        if self.is_starting() && now >= self.launch_deadline {
            // The workers that have progressed least delay the others.
            let last = self.workers.iter().map(|worker| worker.phase).min().unwrap_or(Phase::Launching);
            let workers = self.workers_in(last);
            self.fail(Failure::LaunchTimeout { workers, limit: self.limits.launch }, now);
        }
        if self.suspicion.is_none() && self.stop.is_some_and(|(_, deadline)| now >= deadline) {
            let unfinished = (0..).zip(&self.tasks).filter(|(_, (_, has_finished))| !has_finished);
            let tasks = unfinished.map(|(task, _)| task).collect();
            self.end_with(Outcome::StopTimeout { tasks }, JobState::Cancelling, now);
        }
        if let Some((failure, _)) = self.suspicion.take_if(|&mut (_, deadline)| now >= deadline) {
            self.end_with(Outcome::Failed(failure), JobState::Failing, now);
        }
    }

    /// Sets the outcome once, and releases every worker.
    fn end_with(&mut self, outcome: Outcome, state: JobState, now: Duration) {
        if self.outcome.is_some() {
            return;
        }
        self.outcome = Some(outcome);
        self.suspicion = None;
        self.state = state;
        for worker in self.all_workers() {
            let state = self.workers[worker as usize];
            match state.phase {
                Phase::Idle => self.set_phase(worker, Phase::Gone),
                // A worker that has not registered cannot be called, so it is not asked to stop.
                Phase::Launching => self.kill(worker, now),
                _ if state.is_serving() => {
                    self.workers[worker as usize].enter_until(Phase::Stopping, now + self.limits.cancel);
                    self.commands.push_back(Command::Stop { worker });
                }
                _ => {}
            }
        }
    }

    fn kill(&mut self, worker: u32, now: Duration) {
        self.workers[worker as usize].enter_until(Phase::Killing, now + KILL_LIMIT);
        self.commands.push_back(Command::Kill { worker });
    }

    fn end_if_deserted(&mut self) {
        if self.all_reached(Phase::Gone)
            && let Some(outcome) = self.outcome.clone()
        {
            self.state = JobState::Ended;
            self.commands.push_back(Command::End { outcome });
        }
    }

    fn heard(&mut self, worker: u32, now: Duration) {
        if let Some(worker) = self.workers.get_mut(worker as usize) {
            worker.heard(now);
        }
    }

    fn phase(&self, worker: u32) -> Option<Phase> {
        self.workers.get(worker as usize).map(|worker| worker.phase)
    }

    fn set_phase(&mut self, worker: u32, phase: Phase) {
        self.workers[worker as usize].phase = phase;
    }

    fn all_workers(&self) -> std::ops::Range<u32> {
        0..self.workers.len() as u32
    }

    fn workers_in(&self, phase: Phase) -> Vec<u32> {
        self.all_workers().filter(|&worker| self.phase(worker) == Some(phase)).collect()
    }

    fn all_reached(&self, phase: Phase) -> bool {
        self.workers.iter().all(|worker| worker.phase >= phase)
    }

    fn is_starting(&self) -> bool {
        matches!(self.state, JobState::Launching | JobState::Deploying)
    }

    fn assert_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let started = self.workers.iter().any(|worker| matches!(worker.phase, Phase::Starting | Phase::Running));
        let undeployed = self.workers.iter().any(|worker| worker.phase < Phase::Deployed);
        assert!(!(started && undeployed), "I2: no task starts before every task is deployed");
        assert!(
            self.state != JobState::Ended || self.all_reached(Phase::Gone),
            "I3: a job ends when every worker is gone"
        );
        assert!(
            self.outcome.is_none() || !self.workers.iter().any(WorkerState::is_serving),
            "I4: a job that ends has told every worker to go"
        );
    }
}

/// Time that an echo of a failure waits for its root.
pub(crate) const ROOT_GRACE: Duration = Duration::from_millis(500);
/// Time that an echo waits if it names a failed task. That task's own report is already on its way, and only an
/// overloaded worker delays it this long.
pub(crate) const HEARSAY_GRACE: Duration = Duration::from_secs(5);
/// Time after which the job ends without a killed process. Only an in-process worker with a stuck task takes this long.
pub(crate) const KILL_LIMIT: Duration = Duration::from_secs(2);
