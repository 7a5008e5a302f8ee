//! Ends and restarts the regions of a job: separately, together or with the whole job.
//!
//! [`RegionsMachine`] sits between the driver and the [`JobMachine`] of each region. It passes events of a worker to
//! all regions, and events of a task to the task's region. A region that has failed waits. The caller decides about the
//! delay of its restart ([`RegionCommand::Failed`], [`RegionsMachine::restart_at`]).
//!
//! ```text
//! Attempt -- finished --> Finished
//!    ^  '-- failed, may pass --> Waiting --.        all wait: the attempt of the whole job ends, and the driver may
//!    '------ restart delay is over --------'        begin another
//! ```
//!
//! # Invariants
//! - G1: a region is stopped, or a worker killed for it, only if the region itself has failed or the job ends.
//! - G2: while a region is failing, nothing is decided about failed regions and none begins. Failures with one cause,
//!   such as a lost worker, count as one failure. No worker is launched for one region that another may still kill.
//! - G3: failures until the regions restart count as one with the first: the driver is asked about them once.
//! - G4: [`RegionCommand::End`] comes once and last, when no region has anything left. The job may begin again as a
//!   whole if all regions have failed. It may also do so if the failure belongs to no region; then finished regions
//!   begin again, too.
//! - G5: a region's failure ends the job if the region has never run, if the failure cannot pass, or if the user has
//!   already ended the job. So does a failure to load a task of a region that has run only in another process.

use std::{collections::VecDeque, time::Duration};

use super::{Command, Failure, Input, JobMachine, JobState, LaunchHistory, Limits, Outcome};
use crate::plan::Regions;

/// An action for the driver.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum RegionCommand {
    /// Carry out a command for the attempt of a region. Never an end.
    Of { region: u32, command: Command },
    /// These regions have failed while others run; answered by [`RegionsMachine::restart_at`] or
    /// [`RegionsMachine::give_up`].
    Failed { regions: Vec<u32>, failure: Failure },
    /// Attempts of these regions begin; the commands for them follow.
    Begin { regions: Vec<u32> },
    /// The attempt of the whole job is over.
    End { outcome: Outcome },
}

/// State machine of the regions of one attempt of a job. See the module documentation.
#[derive(Debug)]
pub(crate) struct RegionsMachine {
    placement: Placement,
    regions: Vec<Region>,
    waiting: FailedRegions,
    /// Outcome of the job, once it is decided.
    verdict: Option<Outcome>,
    /// Whether the user's stop drains, once the user has stopped the job.
    drain: Option<bool>,
    is_cancelled: bool,
    /// Whether the failure belongs to no region.
    is_global: bool,
    has_ended: bool,
    commands: VecDeque<RegionCommand>,
}

/// Workers and regions of the tasks.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    /// Worker of each task.
    pub(crate) workers: Vec<u32>,
    pub(crate) regions: Regions,
    /// All workers of the job.
    pub(crate) participants: Vec<u32>,
    pub(crate) limits: Limits,
}

#[derive(Debug)]
struct Region {
    machine: JobMachine,
    phase: Phase,
    /// Whether and where an attempt of the region has run.
    past: LaunchHistory,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Attempt,
    /// The region has failed.
    Waiting,
    Finished,
    /// The region has ended, and the job ends with it.
    Over,
}

/// State of the regions that have failed.
#[derive(Debug)]
enum FailedRegions {
    None,
    /// The first failure; the driver was not asked yet.
    Undecided(Failure),
    /// The driver was asked and has not answered.
    Asked(Failure),
    /// The regions begin at this time.
    Until(Failure, Duration),
}

impl RegionsMachine {
    /// Creates the machine with all regions about to begin. `past` is the history of each region; none if empty.
    pub(crate) fn new(placement: Placement, past: &[LaunchHistory]) -> Self {
        let region = |region: u32| Region {
            machine: placement.machine(region),
            phase: Phase::Attempt,
            past: past.get(region as usize).copied().unwrap_or_default(),
        };
        let regions = (0..placement.regions.count()).map(region).collect();
        Self {
            placement,
            regions,
            waiting: FailedRegions::None,
            verdict: None,
            drain: None,
            is_cancelled: false,
            is_global: false,
            has_ended: false,
            commands: VecDeque::new(),
        }
    }

    /// Handles an event at time `now` after the job's beginning: events of a task in its region, others in all regions.
    pub(crate) fn handle(&mut self, input: Input, now: Duration) {
        match input {
            Input::TaskFinished { task } | Input::TaskNotBuilt { task, .. } | Input::TaskFailed { task, .. } => {
                if let Some(region) = self.placement.regions.of_task(task) {
                    self.handle_in(region, input, now);
                }
                return;
            }
            Input::Cancel => self.is_cancelled = true,
            Input::CheckpointsFailed { ref failure } => self.failed_globally(failure),
            Input::Stop { drain } => self.drain = self.drain.or(Some(drain)),
            _ => {}
        }
        (0..self.regions.len()).for_each(|region| self.tell(region, &input, now));
        self.settle(now);
    }

    /// Handles an event of one region's attempt.
    pub(crate) fn handle_in(&mut self, region: u32, input: Input, now: Duration) {
        self.tell(region as usize, &input, now);
        self.settle(now);
    }

    /// Returns the next action, or `None` until another input.
    pub(crate) fn poll_command(&mut self) -> Option<RegionCommand> {
        self.commands.pop_front()
    }

    /// Returns the time of the next [`Input::Tick`] if no other input arrives before.
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        self.attempts().filter_map(|region| region.machine.poll_timeout()).min()
    }

    /// Returns the time to [begin](Self::begin_waiting) failed regions, if nothing happens before.
    pub(crate) fn begins_at(&self) -> Option<Duration> {
        match self.waiting {
            FailedRegions::Until(_, at) if !self.has_failing() && !self.has_ended => Some(at),
            _ => None,
        }
    }

    /// Returns the regions that wait for their next attempt.
    pub(crate) fn waiting(&self) -> Vec<u32> {
        (0..).zip(&self.regions).filter(|(_, one)| one.phase == Phase::Waiting).map(|(region, _)| region).collect()
    }

    /// Sets the time at which failed regions restart. They restart at once if the user has stopped the job.
    pub(crate) fn restart_at(&mut self, at: Duration) {
        if let FailedRegions::Asked(failure) = &self.waiting {
            let at = if self.drain.is_some() { Duration::ZERO } else { at };
            self.waiting = FailedRegions::Until(failure.clone(), at);
        }
    }

    /// Ends the job instead of restarting failed regions.
    pub(crate) fn give_up(&mut self, now: Duration) {
        if let FailedRegions::Asked(failure) = &self.waiting {
            let outcome = Outcome::Failed(failure.clone());
            self.end_with(outcome, now);
            self.settle(now);
        }
    }

    /// Begins attempts of the waiting regions, if it is time.
    pub(crate) fn begin_waiting(&mut self, now: Duration) {
        if self.verdict.is_some() || self.begins_at().is_none_or(|at| at > now) {
            return;
        }
        let regions = self.waiting();
        self.waiting = FailedRegions::None;
        self.commands.push_back(RegionCommand::Begin { regions: regions.clone() });
        for region in regions {
            let machine = self.placement.machine(region);
            let one = &mut self.regions[region as usize];
            (one.machine, one.phase) = (machine, Phase::Attempt);
            self.tell(region as usize, &Input::Begin, now);
            if let Some(drain) = self.drain {
                self.tell(region as usize, &Input::Stop { drain }, now);
            }
        }
        self.settle(now);
    }

    /// Returns the state of the job.
    pub(crate) fn state(&self) -> JobState {
        match &self.verdict {
            _ if self.has_ended => return JobState::Ended,
            Some(Outcome::Failed(_)) => return JobState::Failing,
            Some(_) => return JobState::Cancelling,
            None => {}
        }
        let states: Vec<JobState> = self.attempts().map(|region| region.machine.state()).collect();
        if !states.is_empty() && states.iter().all(|state| *state == JobState::Failing) {
            // All regions with an attempt are failing.
            return JobState::Failing;
        }
        let has_past = |region: &Region| region.past != LaunchHistory::None;
        let begins_anew = self.attempts().any(|region| has_past(region) && is_starting(region.machine.state()));
        if self.is_broken() || (begins_anew && !states.iter().copied().all(is_starting)) {
            return JobState::Restarting;
        }
        LEAST_FIRST.into_iter().find(|state| states.contains(state)).unwrap_or(JobState::Finishing)
    }

    /// Whether the tasks of all regions run, except those of finished regions.
    pub(crate) fn all_run(&self) -> bool {
        let runs = |region: &Region| matches!(region.machine.state(), JobState::Running | JobState::Stopping);
        let is_finishing = |region: &Region| region.machine.state() == JobState::Finishing;
        self.verdict.is_none()
            && self.attempts().any(runs)
            && self.regions.iter().all(|region| match region.phase {
                Phase::Attempt => runs(region) || is_finishing(region),
                Phase::Finished => true,
                Phase::Waiting | Phase::Over => false,
            })
    }

    /// Whether a region has failed and its tasks do not all run again yet.
    pub(crate) fn is_broken(&self) -> bool {
        self.has_failing() || self.regions.iter().any(|region| region.phase == Phase::Waiting)
    }

    /// Returns the history of each region.
    pub(crate) fn past(&self) -> Vec<LaunchHistory> {
        self.regions.iter().map(|region| region.past).collect()
    }

    /// Whether the attempt has ended because all unfinished regions failed, and the job may begin again.
    pub(crate) fn may_begin_again(&self) -> bool {
        self.has_ended && self.verdict.is_none() && !self.is_cancelled
    }

    /// Returns the time of the next attempt, if the driver decided it before all regions had failed.
    pub(crate) fn begins_again_at(&self) -> Option<Duration> {
        match self.waiting {
            FailedRegions::Until(_, at) => Some(at),
            _ => None,
        }
    }

    /// Records a failure of the whole job. If no region is failing, it becomes the cause of everything that ends now,
    /// in place of the failure that regions wait for.
    fn failed_globally(&mut self, failure: &Failure) {
        self.is_global = true;
        if !self.has_failing()
            && let FailedRegions::Undecided(cause) | FailedRegions::Asked(cause) | FailedRegions::Until(cause, _) =
                &mut self.waiting
        {
            *cause = failure.clone();
        }
    }

    fn tell(&mut self, region: usize, input: &Input, now: Duration) {
        let Some(one) = self.regions.get_mut(region).filter(|region| region.phase == Phase::Attempt) else { return };
        one.machine.handle(input.clone(), now);
        if one.machine.has_run() {
            one.past = LaunchHistory::Here;
        }
        let mut ended = None;
        while let Some(command) = one.machine.poll_command() {
            match command {
                Command::End { outcome } => ended = Some(outcome),
                command => self.commands.push_back(RegionCommand::Of { region: region as u32, command }),
            }
        }
        if let Some(outcome) = ended {
            self.ended(region, outcome, now);
        }
    }

    fn ended(&mut self, region: usize, outcome: Outcome, now: Duration) {
        let Region { machine, past, .. } = &self.regions[region];
        let may_wait = machine.may_begin_again(*past) && self.verdict.is_none();
        self.regions[region].phase = match outcome {
            Outcome::Finished => Phase::Finished,
            Outcome::Failed(failure) if may_wait => {
                if matches!(self.waiting, FailedRegions::None) {
                    self.waiting = FailedRegions::Undecided(failure);
                }
                Phase::Waiting
            }
            // G5: other outcomes end the job.
            outcome => {
                self.end_with(outcome, now);
                Phase::Over
            }
        };
    }

    /// Sets the outcome of the job, and ends the remaining regions.
    fn end_with(&mut self, outcome: Outcome, now: Duration) {
        match (&mut self.verdict, outcome) {
            (Some(Outcome::StopTimeout { tasks }), Outcome::StopTimeout { tasks: more }) => {
                return tasks.extend(more);
            }
            // The cause of the failure must not be lost.
            (verdict @ Some(Outcome::Cancelled), outcome @ Outcome::Failed(_)) => *verdict = Some(outcome),
            (Some(_), _) => return,
            (verdict, outcome) => *verdict = Some(outcome),
        }
        for region in self.regions.iter_mut().filter(|region| region.phase == Phase::Waiting) {
            region.phase = Phase::Over;
        }
        (0..self.regions.len()).for_each(|region| self.tell(region, &Input::Cancel, now));
    }

    /// Derives decisions from the phases of the regions.
    fn settle(&mut self, now: Duration) {
        if self.has_ended {
            return;
        }
        if self.is_cancelled && self.verdict.is_none() && !self.waiting().is_empty() {
            // G5: the user has cancelled the job, so no region restarts.
            let cause = self.cause();
            self.end_with(cause, now);
        }
        if self.attempts().next().is_none()
            && let Some(outcome) = self.whole_outcome()
        {
            self.has_ended = true;
            return self.commands.push_back(RegionCommand::End { outcome });
        }
        if !self.has_failing()
            && let FailedRegions::Undecided(failure) = &self.waiting
        {
            let failure = failure.clone();
            self.waiting = FailedRegions::Asked(failure.clone());
            self.commands.push_back(RegionCommand::Failed { regions: self.waiting(), failure });
        }
        if self.drain.is_some()
            && let FailedRegions::Until(_, at) = &mut self.waiting
        {
            *at = Duration::ZERO;
        }
    }

    /// Returns the outcome when no region has an attempt, or `None` if the failed regions restart on their own.
    fn whole_outcome(&self) -> Option<Outcome> {
        if self.verdict.is_some() {
            return self.verdict.clone();
        }
        if self.waiting().is_empty() {
            return Some(Outcome::Finished);
        }
        let has_finished = self.regions.iter().any(|region| region.phase == Phase::Finished);
        // G4: otherwise the failed regions restart on their own.
        (!has_finished || self.is_global).then(|| self.cause())
    }

    fn cause(&self) -> Outcome {
        match &self.waiting {
            FailedRegions::None => Outcome::Cancelled,
            FailedRegions::Undecided(failure) | FailedRegions::Asked(failure) | FailedRegions::Until(failure, _) => {
                Outcome::Failed(failure.clone())
            }
        }
    }

    fn attempts(&self) -> impl Iterator<Item = &Region> {
        self.regions.iter().filter(|region| region.phase == Phase::Attempt)
    }

    fn has_failing(&self) -> bool {
        self.attempts().any(|region| region.machine.state() == JobState::Failing)
    }
}

impl Placement {
    /// Creates the machine of a region's attempt. Workers without tasks belong to the first region.
    fn machine(&self, region: u32) -> JobMachine {
        let of = |task: usize| self.regions.of_task(task as u32);
        let placed = |worker: u32, region| {
            (0..self.workers.len()).any(|task| self.workers[task] == worker && of(task) == region)
        };
        let is_idle = |worker: u32| !self.workers.contains(&worker);
        let takes_part = |worker: &u32| placed(*worker, Some(region)) || (region == 0 && is_idle(*worker));
        let participants: Vec<u32> = self.participants.iter().copied().filter(takes_part).collect();
        JobMachine::of_some(&participants, &self.workers, self.limits, |task| of(task) == Some(region))
    }
}

fn is_starting(state: JobState) -> bool {
    matches!(state, JobState::Created | JobState::Launching | JobState::Deploying)
}

/// The state of the job is the first of these states that a region is in.
const LEAST_FIRST: [JobState; 7] = [
    JobState::Created,
    JobState::Launching,
    JobState::Deploying,
    JobState::Cancelling,
    JobState::Running,
    JobState::Stopping,
    JobState::Finishing,
];

#[cfg(test)]
#[path = "regions_tests.rs"]
mod tests;
