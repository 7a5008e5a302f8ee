//! Tests with failing tasks, dying workers and answers that are late or reordered, also while regions restart.

use std::collections::{BTreeMap, BTreeSet};

use flownet_runtime::{OperatorFailure, TaskError};
use proptest::prelude::*;

use super::*;
use crate::error::WorkerExit;

const LIMITS: Limits = Limits {
    launch: Duration::from_secs(60),
    heartbeat: Duration::from_secs(10),
    stop: Duration::from_secs(7),
    cancel: Duration::from_secs(5),
};
const SECOND: Duration = Duration::from_secs(1);

fn failure() -> TaskError {
    OperatorFailure {
        operator: "map".into(),
        subtask: 0,
        parallelism: 1,
        record: None,
        error_type: "ValueError".into(),
        message: "raised".into(),
        traceback: None,
        is_transient: false,
    }
    .into()
}

fn killed() -> WorkerExit {
    WorkerExit::Signalled { signal: 9 }
}

/// Answer that a worker sends if it lives until then.
#[derive(Clone, Debug)]
enum Answer {
    Registered { worker: u32 },
    Deployed { region: u32, worker: u32, attempt: u32 },
    Started { region: u32, worker: u32, attempt: u32 },
    Stopped { region: u32, worker: u32, attempt: u32 },
    Exited { worker: u32 },
}

impl Answer {
    fn worker(&self) -> u32 {
        match *self {
            Self::Registered { worker } | Self::Exited { worker } => worker,
            Self::Deployed { worker, .. } | Self::Started { worker, .. } | Self::Stopped { worker, .. } => worker,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Process {
    is_launched: bool,
    is_registered: bool,
    is_leaving: bool,
}

/// Simulation of a job and its workers that checks the commands.
struct World {
    machine: RegionsMachine,
    placement: Placement,
    now: Duration,
    answers: Vec<Answer>,
    processes: BTreeMap<u32, Process>,
    /// Attempt of each region.
    attempts: Vec<u32>,
    /// Pairs of a region and a worker on which it is deployed and not freed.
    deployed: BTreeSet<(u32, u32)>,
    runs: BTreeSet<(u32, u32)>,
    /// Regions that were affected by an event since they began.
    hurt: BTreeSet<u32>,
    is_ending: bool,
    asked: u32,
    end: Option<Outcome>,
}

impl World {
    fn new(of_task: &[u32], workers: &[u32]) -> Self {
        Self::after(LaunchHistory::None, of_task, workers)
    }

    fn after(past: LaunchHistory, of_task: &[u32], workers: &[u32]) -> Self {
        let participants: Vec<u32> = workers.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        let regions = Regions::of_tasks(of_task);
        let attempts = vec![1; regions.count() as usize];
        let placement = Placement { workers: workers.to_vec(), regions, participants, limits: LIMITS };
        let mut world = Self {
            machine: RegionsMachine::new(placement.clone(), &vec![past; attempts.len()]),
            placement,
            now: Duration::ZERO,
            answers: Vec::new(),
            processes: BTreeMap::new(),
            attempts,
            deployed: BTreeSet::new(),
            runs: BTreeSet::new(),
            hurt: BTreeSet::new(),
            is_ending: false,
            asked: 0,
            end: None,
        };
        world.handle(Input::Begin);
        world
    }

    fn handle(&mut self, input: Input) {
        self.machine.handle(input, self.now);
        self.obey();
    }

    fn handle_in(&mut self, region: u32, input: Input) {
        self.machine.handle_in(region, input, self.now);
        self.obey();
    }

    fn obey(&mut self) {
        while let Some(command) = self.machine.poll_command() {
            assert!(self.end.is_none(), "G4: {command:?} after the end");
            match command {
                RegionCommand::Of { region, command } => self.obey_in(region, command),
                RegionCommand::Failed { regions, .. } => {
                    assert!(!self.machine.has_failing(), "G2");
                    assert!(regions.iter().all(|region| self.hurt.contains(region)), "{regions:?} of {:?}", self.hurt);
                    self.asked += 1;
                    self.machine.restart_at(self.now + SECOND);
                }
                RegionCommand::Begin { regions } => {
                    assert!(!self.machine.has_failing(), "G2");
                    for region in regions {
                        let left: Vec<_> = self.deployed.iter().filter(|(of, _)| *of == region).collect();
                        assert!(left.is_empty(), "begun while {left:?} is there");
                        self.attempts[region as usize] += 1;
                        self.hurt.remove(&region);
                    }
                }
                RegionCommand::End { outcome } => {
                    assert!(self.deployed.is_empty(), "ended while {:?} is there", self.deployed);
                    self.end = Some(outcome);
                }
            }
        }
    }

    fn obey_in(&mut self, region: u32, command: Command) {
        let attempt = self.attempts[region as usize];
        match command {
            Command::Launch { worker } => {
                let process = self.processes.entry(worker).or_default();
                if process.is_registered && !process.is_leaving {
                    return self.handle_in(region, Input::Registered { worker });
                }
                assert!(!process.is_leaving || !process.is_launched, "launched while it is being killed");
                if !process.is_launched {
                    *process = Process { is_launched: true, ..Process::default() };
                    self.answers.push(Answer::Registered { worker });
                }
            }
            Command::Deploy { worker } => {
                assert!(self.deployed.insert((region, worker)), "deployed twice");
                self.answers.push(Answer::Deployed { region, worker, attempt });
            }
            Command::Start { worker } => {
                let mine = |(of, _): &&(u32, u32)| *of == region;
                let needed = self
                    .placement
                    .workers
                    .iter()
                    .zip(0..)
                    .filter(|(_, task)| self.placement.regions.of_task(*task) == Some(region));
                let needed: BTreeSet<u32> = needed.map(|(worker, _)| *worker).collect();
                let there: BTreeSet<u32> = self.deployed.iter().filter(mine).map(|(_, worker)| *worker).collect();
                assert!(there.is_superset(&needed), "started before all is there");
                self.answers.push(Answer::Started { region, worker, attempt });
            }
            Command::Stop { worker } => {
                self.assert_to_be_ended(region);
                self.answers.push(Answer::Stopped { region, worker, attempt });
            }
            Command::Kill { worker } => {
                self.assert_to_be_ended(region);
                let process = self.processes.entry(worker).or_default();
                process.is_leaving = true;
                if process.is_launched {
                    self.answers.push(Answer::Exited { worker });
                }
                self.lose(worker);
                self.machine.handle(Input::WorkerLost { worker, how: killed() }, self.now);
                if !self.processes[&worker].is_launched {
                    self.machine.handle(Input::WorkerGone { worker }, self.now);
                }
            }
            Command::EndSources { .. } => {}
            Command::End { .. } => panic!("an end of a region is nobody else's"),
        }
    }

    /// Checks G1.
    fn assert_to_be_ended(&self, region: u32) {
        let has_finished = self.machine.regions[region as usize].machine.state() == JobState::Finishing;
        assert!(
            self.hurt.contains(&region) || self.is_ending || has_finished,
            "region {region} is ended, and nothing happened to it"
        );
    }

    /// Loses a worker, which affects all regions with something on it.
    fn lose(&mut self, worker: u32) {
        let tasks = self.placement.workers.iter().zip(0..).filter(|(at, _)| **at == worker);
        self.hurt.extend(tasks.filter_map(|(_, task)| self.placement.regions.of_task(task)));
        self.deployed.retain(|(_, at)| *at != worker);
        self.runs.retain(|(_, at)| *at != worker);
        self.answers.retain(|answer| answer.worker() != worker || matches!(answer, Answer::Exited { .. }));
    }

    fn die(&mut self, worker: u32) {
        let Some(process) = self.processes.get_mut(&worker).filter(|process| process.is_launched) else { return };
        let was_leaving = std::mem::take(process).is_leaving;
        self.answers.retain(|answer| !matches!(answer, Answer::Exited { worker: of } if *of == worker));
        self.lose(worker);
        if was_leaving {
            self.handle(Input::WorkerGone { worker });
        } else {
            self.handle(Input::WorkerLost { worker, how: killed() });
        }
    }

    fn fail(&mut self, task: u32) {
        let worker = self.placement.workers[task as usize];
        let region = self.placement.regions.of_task(task).expect("a task of some region");
        if self.runs.contains(&(region, worker)) {
            self.hurt.insert(region);
            self.handle(Input::TaskFailed { task, error: failure(), has_run: true });
        }
    }

    /// Replaces the answer that all tasks are deployed.
    fn fail_to_build(&mut self, task: u32) {
        let worker = self.placement.workers[task as usize];
        let region = self.placement.regions.of_task(task).expect("a task of some region");
        let mut answers = self.answers.iter();
        let is_deploying = |answer: &Answer| matches!(answer, Answer::Deployed { region: of, worker: at, .. } if (*of, *at) == (region, worker));
        if let Some(at) = answers.position(is_deploying) {
            self.answers.remove(at);
            self.hurt.insert(region);
            self.handle(Input::TaskNotBuilt { task, error: failure() });
        }
    }

    fn answer(&mut self, at: usize) {
        if self.answers.is_empty() {
            return;
        }
        let answer = self.answers.remove(at % self.answers.len());
        let is_current = |world: &Self, region: u32, attempt: u32| world.attempts[region as usize] == attempt;
        match answer {
            Answer::Registered { worker } => {
                self.processes.entry(worker).or_default().is_registered = true;
                self.handle(Input::Registered { worker });
            }
            Answer::Deployed { region, worker, attempt } if is_current(self, region, attempt) => {
                self.handle_in(region, Input::Deployed { worker });
            }
            Answer::Started { region, worker, attempt } if is_current(self, region, attempt) => {
                if self.deployed.contains(&(region, worker)) {
                    self.runs.insert((region, worker));
                }
                self.handle_in(region, Input::Started { worker });
            }
            Answer::Stopped { region, worker, attempt } if is_current(self, region, attempt) => {
                self.deployed.remove(&(region, worker));
                self.runs.remove(&(region, worker));
                self.handle_in(region, Input::WorkerGone { worker });
            }
            Answer::Exited { worker } => self.die(worker),
            _ => {}
        }
    }

    fn wait(&mut self, by: Duration) {
        self.now += by;
        // All workers are alive and report it.
        let alive: Vec<u32> = self.processes.iter().filter(|(_, one)| one.is_registered).map(|(one, _)| *one).collect();
        alive.into_iter().for_each(|worker| self.handle(Input::Heartbeat { worker }));
        self.handle(Input::Tick);
        self.machine.begin_waiting(self.now);
        self.obey();
    }

    /// Delivers all answers until nothing happens any more.
    fn come_to_rest(&mut self) {
        for _ in 0..400 {
            while !self.answers.is_empty() {
                self.answer(0);
            }
            self.wait(SECOND / 4);
        }
    }
}

fn world_of(seed: u64) -> (World, fastrand::Rng) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let regions = rng.u32(1..5);
    let mut of_task: Vec<u32> = (0..regions).collect();
    of_task.extend((0..rng.u32(0..6)).map(|_| rng.u32(0..regions)));
    let workers: Vec<u32> = of_task.iter().map(|_| rng.u32(0..4)).collect();
    (World::new(&of_task, &workers), rng)
}

#[test]
fn a_region_that_fails_begins_anew_and_the_others_are_told_nothing() {
    let mut world = World::new(&[0, 0, 1, 1], &[1, 2, 1, 2]);
    world.come_to_rest();
    assert_eq!((world.machine.state(), world.machine.all_run()), (JobState::Running, true));
    world.fail(1);
    assert_eq!((world.machine.state(), world.machine.all_run()), (JobState::Restarting, false));
    assert!(
        world.answers.iter().all(|answer| matches!(answer, Answer::Stopped { region: 0, .. })),
        "{:?}",
        world.answers
    );
    world.come_to_rest();
    assert_eq!((world.machine.state(), world.machine.all_run()), (JobState::Running, true));
    assert_eq!((world.attempts.as_slice(), world.asked), (&[2, 1][..], 1));
}

#[test]
fn a_lost_worker_is_one_failure_of_all_that_had_tasks_in_it() {
    let mut world = World::new(&[0, 1, 2], &[1, 1, 2]);
    world.come_to_rest();
    world.die(1);
    world.come_to_rest();
    assert_eq!((world.attempts.as_slice(), world.asked), (&[2, 2, 1][..], 1));
    assert_eq!(world.machine.state(), JobState::Running);
}

#[test]
fn where_all_have_failed_the_job_ends_and_may_begin_again_as_a_whole() {
    for workers in [[1, 1], [1, 2]] {
        let mut world = World::new(&[0, 1], &workers);
        world.come_to_rest();
        world.fail(0);
        world.fail(1);
        while world.end.is_none() {
            world.answer(0);
        }
        assert!(matches!(world.end, Some(Outcome::Failed(_))));
        assert!(world.machine.may_begin_again());
        assert_eq!((world.asked, world.machine.past()), (0, vec![LaunchHistory::Here; 2]));
    }
}

#[test]
fn what_is_no_failure_of_a_region_ends_the_attempt_of_the_whole_job() {
    let mut world = World::new(&[0, 1, 2], &[1, 2, 2]);
    world.come_to_rest();
    world.handle(Input::TaskFinished { task: 2 });
    world.come_to_rest();
    world.is_ending = true;
    let failure = Failure::Checkpoint { checkpoint: 3, failed: 1, reason: "full".into(), root_cause: None };
    world.handle(Input::CheckpointsFailed { failure: failure.clone() });
    world.come_to_rest();
    assert_eq!(world.end, Some(Outcome::Failed(failure)));
    assert!(world.machine.may_begin_again());
}

#[test]
fn what_fails_for_all_while_a_region_waits_is_why_the_job_ends() {
    let mut world = World::new(&[0, 1], &[1, 2]);
    world.come_to_rest();
    world.fail(0);
    world.answer(0);
    assert_eq!(world.machine.waiting(), [0]);
    world.is_ending = true;
    let failure = Failure::Checkpoint { checkpoint: 3, failed: 1, reason: "fenced".into(), root_cause: None };
    world.handle(Input::CheckpointsFailed { failure: failure.clone() });
    world.answer(0);
    assert_eq!(world.end, Some(Outcome::Failed(failure)));
    assert_eq!(world.machine.begins_again_at(), Some(world.now + SECOND), "it was counted");
}

#[test]
fn what_has_finished_stays_so_when_all_others_fail() {
    let mut world = World::new(&[0, 1], &[1, 1]);
    world.come_to_rest();
    world.handle(Input::TaskFinished { task: 0 });
    world.come_to_rest();
    assert!(world.machine.all_run(), "the other one does");
    world.fail(1);
    world.come_to_rest();
    assert_eq!((world.attempts.as_slice(), world.machine.state()), (&[1, 2][..], JobState::Running));
    world.handle(Input::TaskFinished { task: 1 });
    world.come_to_rest();
    assert_eq!(world.end, Some(Outcome::Finished));
}

#[test]
fn a_region_that_never_ran_is_not_tried_again() {
    let mut world = World::new(&[0, 1], &[1, 2]);
    while !world.answers.is_empty() {
        world.answer(0);
        if world.deployed.len() == 2 {
            break;
        }
    }
    world.is_ending = true;
    world.hurt.insert(0);
    world.handle(Input::TaskFailed { task: 0, error: failure(), has_run: false });
    world.come_to_rest();
    assert!(matches!(world.end, Some(Outcome::Failed(Failure::Task { task: 0, .. }))), "{:?}", world.end);
    assert!(!world.machine.may_begin_again());
}

#[test]
fn of_what_cannot_be_loaded_where_it_never_ran_the_job_ends_and_elsewhere_its_region_begins_anew() {
    let error = failure();
    for past in [LaunchHistory::None, LaunchHistory::Elsewhere, LaunchHistory::Here] {
        let mut world = World::after(past, &[0, 1], &[1, 2]);
        while !world.answers.iter().any(|answer| matches!(answer, Answer::Deployed { region: 0, .. })) {
            world.answer(0);
        }
        world.is_ending = past != LaunchHistory::Here;
        world.fail_to_build(0);
        world.come_to_rest();
        if past == LaunchHistory::Here {
            assert_eq!((world.attempts.as_slice(), world.machine.state()), (&[2, 1][..], JobState::Running));
        } else {
            assert_eq!(world.end, Some(Outcome::Failed(Failure::Build { task: 0, error: error.clone() })));
            assert!(!world.machine.may_begin_again());
        }
    }
}

#[test]
fn a_cancel_while_a_region_fails_or_waits_ends_the_job_by_its_cause() {
    for waits in [false, true] {
        let mut world = World::new(&[0, 1], &[1, 2]);
        world.come_to_rest();
        world.fail(0);
        if waits {
            world.answer(0);
            assert_eq!(world.asked, 1);
        }
        world.is_ending = true;
        world.handle(Input::Cancel);
        world.come_to_rest();
        assert!(matches!(world.end, Some(Outcome::Failed(_))), "{:?}", world.end);
        assert!(!world.machine.may_begin_again(), "the user does not want it to");
    }
}

#[test]
fn a_cancel_is_not_forgotten_while_the_only_region_fails() {
    let mut world = World::new(&[0], &[1]);
    world.come_to_rest();
    world.fail(0);
    world.handle(Input::Cancel);
    world.come_to_rest();
    assert!(matches!(world.end, Some(Outcome::Failed(_))));
    assert!(!world.machine.may_begin_again());
}

#[test]
fn a_stop_begins_what_waits_at_once_and_ends_its_sources_too() {
    let mut world = World::new(&[0, 1], &[1, 2]);
    world.come_to_rest();
    world.fail(0);
    world.answer(0);
    assert_eq!(world.machine.begins_at(), Some(world.now + SECOND));
    world.handle(Input::Stop { drain: true });
    assert_eq!(world.machine.begins_at(), Some(Duration::ZERO));
    world.machine.begin_waiting(world.now);
    world.obey();
    while !world.answers.is_empty() {
        world.answer(0);
    }
    assert_eq!((world.machine.state(), world.machine.all_run()), (JobState::Stopping, true));
    for task in 0..2 {
        world.handle(Input::TaskFinished { task });
    }
    world.come_to_rest();
    assert_eq!(world.end, Some(Outcome::Finished));
}

#[test]
fn a_stop_that_takes_too_long_names_the_tasks_of_all_regions() {
    let mut world = World::new(&[0, 1], &[1, 2]);
    world.come_to_rest();
    world.is_ending = true;
    world.handle(Input::Stop { drain: true });
    world.come_to_rest();
    assert_eq!(world.end, Some(Outcome::StopTimeout { tasks: vec![0, 1] }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// G1 to G4 hold at each command (see [`World`]). When nothing happens any more, everything runs again.
    #[test]
    fn whatever_fails_only_that_begins_anew_and_all_comes_to_run(seed in any::<u64>()) {
        let (mut world, mut rng) = world_of(seed);
        for _ in 0..rng.usize(0..120) {
            if world.end.is_some() {
                break;
            }
            match rng.u32(0..20) {
                0 => {
                    // The loss of a region that has never run would end the job.
                    let worker = rng.u32(0..4);
                    if world.machine.past().iter().all(|past| *past == LaunchHistory::Here) {
                        world.die(worker);
                    }
                }
                1 => world.fail(rng.usize(0..world.placement.workers.len()) as u32),
                2 => {
                    let task = rng.usize(0..world.placement.workers.len()) as u32;
                    if world.machine.past().iter().all(|past| *past == LaunchHistory::Here) {
                        world.fail_to_build(task);
                    }
                }
                3..6 => world.wait(SECOND * rng.u32(0..3) / 2),
                _ => world.answer(rng.usize(0..64)),
            }
        }
        world.come_to_rest();
        if let Some(outcome) = &world.end {
            prop_assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
            prop_assert!(world.machine.may_begin_again() || world.machine.past().contains(&LaunchHistory::None));
            return Ok(());
        }
        prop_assert_eq!(world.machine.state(), JobState::Running);
        prop_assert!(world.machine.all_run());
        for task in 0..world.placement.workers.len() as u32 {
            world.handle(Input::TaskFinished { task });
        }
        world.come_to_rest();
        prop_assert_eq!(&world.end, &Some(Outcome::Finished));
    }
}
