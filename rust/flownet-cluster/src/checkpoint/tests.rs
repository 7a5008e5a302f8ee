//! Tests of the machine with task reports that are lost, repeated, delayed and reordered, and attempts that end at any
//! step.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use flownet_runtime::{RootCause, snapshot::Share};
use flownet_store::{PartRef, TaskSnapshot};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn limits() -> CheckpointLimits {
    let (interval, timeout, min_pause) = (SECOND * 10, SECOND * 60, Duration::ZERO);
    CheckpointLimits { interval, timeout, aligned_timeout: None, min_pause, tolerable_failures: 0 }
}

/// Returns a snapshot that encodes its checkpoint and task.
fn kept(checkpoint: u64, task: u32) -> TaskSnapshotRef {
    let snapshot = TaskSnapshot { parts: vec![], bytes: checkpoint * 1000 + u64::from(task) };
    TaskSnapshotRef { snapshot, is_last: false, has_finished: false }
}

/// Returns a part in a checkpoint's file.
pub(super) fn part(uid: &str, name: &str, share: Share) -> PartRef {
    let (uid, name, file) = (uid.into(), name.into(), "f".into());
    PartRef { uid, name, share, file, offset: 0, bytes: 9, crc: 0, digest: None, is_of_changes: false, is_piece: false }
}

fn machine(tasks: usize, limits: CheckpointLimits) -> CheckpointMachine {
    let mut machine = CheckpointMachine::new(limits, tasks, 1);
    machine.handle(Input::Running, Duration::ZERO);
    machine
}

fn commands(machine: &mut CheckpointMachine) -> Vec<Command> {
    std::iter::from_fn(|| machine.poll_command()).collect()
}

fn acknowledge(machine: &mut CheckpointMachine, checkpoint: u64, task: u32, now: Duration) {
    machine.handle(Input::Acknowledged { task, checkpoint, kept: kept(checkpoint, task) }, now);
}

#[test]
fn a_checkpoint_counts_when_all_have_answered_and_it_is_published() {
    let mut machine = machine(2, limits());
    assert_eq!(machine.poll_timeout(), Some(SECOND * 10));
    machine.handle(Input::Tick, SECOND * 9);
    assert!(commands(&mut machine).is_empty());
    machine.handle(Input::Tick, SECOND * 10);
    assert_eq!(commands(&mut machine), [Command::Trigger { checkpoint: 1 }]);
    acknowledge(&mut machine, 1, 0, SECOND * 11);
    acknowledge(&mut machine, 1, 0, SECOND * 11);
    acknowledge(&mut machine, 9, 1, SECOND * 11);
    assert!(commands(&mut machine).is_empty(), "one of two has answered, twice");
    acknowledge(&mut machine, 1, 1, SECOND * 12);
    let kept: BTreeMap<_, _> = [(0, kept(1, 0)), (1, kept(1, 1))].into();
    assert_eq!(commands(&mut machine), [Command::Publish { checkpoint: 1, triggered_at: SECOND * 10, kept }]);
    machine.handle(Input::Tick, SECOND * 1000);
    assert!(commands(&mut machine).is_empty(), "what is being published is not given up");
    machine.handle(Input::Published { checkpoint: 1 }, SECOND * 1000);
    let next = [Command::Complete { checkpoint: 1 }, Command::Trigger { checkpoint: 2 }];
    assert_eq!(commands(&mut machine), next);
}

#[test]
fn the_next_one_waits_for_its_time_and_for_the_pause() {
    let mut machine = machine(1, CheckpointLimits { min_pause: SECOND * 8, ..limits() });
    machine.handle(Input::Tick, SECOND * 10);
    acknowledge(&mut machine, 1, 0, SECOND * 15);
    machine.handle(Input::Published { checkpoint: 1 }, SECOND * 15);
    assert_eq!(
        machine.poll_timeout(),
        Some(SECOND * 23),
        "8 s behind its end, which is more than 10 behind its trigger"
    );
}

#[test]
fn what_fails_is_aborted_and_counted_and_too_many_in_a_row_fail_the_attempt() {
    let mut machine = machine(2, CheckpointLimits { tolerable_failures: 1, ..limits() });
    let decline = |machine: &mut CheckpointMachine, checkpoint, now| {
        machine.handle(Input::Declined { task: 1, checkpoint, reason: "no room".into(), root_cause: None }, now);
        machine.handle(Input::Declined { task: 0, checkpoint, reason: "again".into(), root_cause: None }, now);
    };
    machine.handle(Input::Tick, SECOND * 10);
    commands(&mut machine);
    decline(&mut machine, 1, SECOND * 11);
    let reason = "no room".to_owned();
    assert_eq!(commands(&mut machine), [Command::Abort { checkpoint: 1, reason }], "counted once");
    acknowledge(&mut machine, 1, 0, SECOND * 12);
    acknowledge(&mut machine, 1, 1, SECOND * 12);
    assert!(commands(&mut machine).is_empty(), "too late");
    machine.handle(Input::Tick, SECOND * 20);
    machine.handle(Input::Tick, SECOND * 80);
    let all = commands(&mut machine);
    let reason = "2 of 2 tasks have not answered within 60s".to_owned();
    let expected = [
        Command::Trigger { checkpoint: 2 },
        Command::Abort { checkpoint: 2, reason: reason.clone() },
        Command::Fail { checkpoint: 2, failed: 2, reason, root_cause: None },
    ];
    assert_eq!(all, expected);
    machine.handle(Input::Tick, SECOND * 1000);
    assert!(commands(&mut machine).is_empty());
}

#[test]
fn one_that_counts_forgives_those_before() {
    let mut machine = machine(1, CheckpointLimits { tolerable_failures: 1, ..limits() });
    for round in 0..5 {
        let now = SECOND * 20 * (round + 1);
        machine.handle(Input::Tick, now);
        let checkpoint = u64::from(round) + 1;
        assert_eq!(commands(&mut machine), [Command::Trigger { checkpoint }]);
        if round % 2 == 0 {
            acknowledge(&mut machine, checkpoint, 0, now);
            machine.handle(Input::NotPublished { checkpoint, reason: "full".into() }, now);
            assert_eq!(commands(&mut machine).last(), Some(&Command::Abort { checkpoint, reason: "full".into() }));
        } else {
            acknowledge(&mut machine, checkpoint, 0, now);
            machine.handle(Input::Published { checkpoint }, now);
            assert_eq!(commands(&mut machine).last(), Some(&Command::Complete { checkpoint }));
        }
    }
}

#[test]
fn tasks_that_have_finished_get_one_more_checkpoint_at_once_and_only_one() {
    let mut machine = machine(2, limits());
    machine.handle(Input::Finished { task: 0 }, SECOND);
    assert!(commands(&mut machine).is_empty(), "the other one still works");
    machine.handle(Input::Finished { task: 1 }, SECOND * 2);
    assert_eq!(commands(&mut machine), [Command::Trigger { checkpoint: 1 }]);
    for task in 0..2 {
        let kept = TaskSnapshotRef { is_last: true, has_finished: true, ..kept(1, task) };
        machine.handle(Input::Acknowledged { task, checkpoint: 1, kept }, SECOND * 3);
    }
    commands(&mut machine);
    machine.handle(Input::Published { checkpoint: 1 }, SECOND * 4);
    assert_eq!(commands(&mut machine), [Command::Complete { checkpoint: 1 }]);
    machine.handle(Input::Tick, SECOND * 1000);
    assert!(commands(&mut machine).is_empty() && machine.poll_timeout().is_none());
}

#[test]
fn one_that_was_under_way_when_tasks_finished_is_followed_by_another() {
    let mut machine = machine(1, limits());
    machine.handle(Input::Tick, SECOND * 10);
    acknowledge(&mut machine, 1, 0, SECOND * 11);
    machine.handle(Input::Finished { task: 0 }, SECOND * 11);
    commands(&mut machine);
    machine.handle(Input::Published { checkpoint: 1 }, SECOND * 12);
    assert_eq!(commands(&mut machine), [Command::Complete { checkpoint: 1 }, Command::Trigger { checkpoint: 2 }]);
}

#[test]
fn what_tasks_that_have_ended_kept_goes_with_every_checkpoint_after() {
    let mut machine = machine(2, limits());
    machine.handle(Input::Finished { task: 0 }, SECOND);
    machine.handle(Input::Tick, SECOND * 10);
    let last = TaskSnapshotRef { is_last: true, has_finished: true, ..kept(1, 0) };
    machine.handle(Input::Acknowledged { task: 0, checkpoint: 1, kept: last.clone() }, SECOND * 10);
    acknowledge(&mut machine, 1, 1, SECOND * 10);
    machine.handle(Input::Published { checkpoint: 1 }, SECOND * 11);
    machine.handle(Input::Ended { task: 0 }, SECOND * 11);
    for checkpoint in 2..4 {
        machine.handle(Input::Tick, SECOND * 10 * checkpoint as u32);
        commands(&mut machine);
        acknowledge(&mut machine, checkpoint, 1, SECOND * 10 * checkpoint as u32);
        let published = commands(&mut machine);
        let [Command::Publish { kept, .. }] = &published[..] else { panic!("{published:?}") };
        assert_eq!(kept[&0], last, "of task 0 what it kept last");
        assert_eq!(kept[&1].snapshot.bytes, checkpoint * 1000 + 1);
        machine.handle(Input::Published { checkpoint }, SECOND * 10 * checkpoint as u32);
    }
}

#[test]
fn what_was_on_its_way_from_a_task_that_has_ended_is_of_one_checkpoint_only() {
    let state = part("#1", "state", Share::All { subtask: 0 });
    let on_its_way = part("#1", "state", Share::Channel { edge: 0, producer: 0, subpartition: 0 });
    let mut machine = machine(2, limits());
    machine.handle(Input::Finished { task: 0 }, SECOND);
    machine.handle(Input::Tick, SECOND * 10);
    let snapshot = TaskSnapshot { parts: vec![state.clone(), on_its_way.clone()], bytes: 18 };
    let last = TaskSnapshotRef { snapshot, is_last: true, has_finished: true };
    machine.handle(Input::Acknowledged { task: 0, checkpoint: 1, kept: last }, SECOND * 10);
    // The task ends with the checkpoint that contains its end, and downstream tasks continue to read.
    for (checkpoint, parts) in [(1, vec![state.clone(), on_its_way]), (2, vec![state.clone()]), (3, vec![state])] {
        let now = SECOND * 10 * checkpoint as u32;
        machine.handle(Input::Tick, now);
        acknowledge(&mut machine, checkpoint, 1, now);
        let published = commands(&mut machine);
        let Some(Command::Publish { kept, .. }) = published.last() else { panic!("{published:?}") };
        assert_eq!(kept[&0].snapshot.parts, parts, "{checkpoint}");
        machine.handle(Input::Published { checkpoint }, now);
        machine.handle(Input::Ended { task: 0 }, now);
    }
}

#[test]
fn one_that_is_asked_for_is_taken_at_once_or_behind_the_one_under_way() {
    let mut machine = machine(1, CheckpointLimits { min_pause: SECOND * 5, ..limits() });
    machine.handle(Input::Requested, SECOND);
    machine.handle(Input::Requested, SECOND);
    assert_eq!(commands(&mut machine), [Command::Trigger { checkpoint: 1 }], "several want the same");
    machine.handle(Input::Requested, SECOND * 2);
    assert!(commands(&mut machine).is_empty(), "it was triggered before");
    acknowledge(&mut machine, 1, 0, SECOND * 3);
    commands(&mut machine);
    machine.handle(Input::Published { checkpoint: 1 }, SECOND * 4);
    assert_eq!(commands(&mut machine), [Command::Complete { checkpoint: 1 }, Command::Trigger { checkpoint: 2 }]);
}

#[test]
fn one_that_takes_too_long_in_line_overtakes_and_waits_for_all_to_have_done_so() {
    let aligned_timeout = Some(SECOND * 2);
    let mut machine = machine(2, CheckpointLimits { aligned_timeout, ..limits() });
    machine.handle(Input::Tick, SECOND * 10);
    commands(&mut machine);
    acknowledge(&mut machine, 1, 0, SECOND * 11);
    assert_eq!(machine.poll_timeout(), Some(SECOND * 12));
    machine.handle(Input::Tick, SECOND * 12);
    machine.handle(Input::Tick, SECOND * 13);
    assert_eq!(commands(&mut machine), [Command::Overtake { checkpoint: 1 }]);
    assert_eq!(machine.poll_timeout(), Some(SECOND * 70), "it may still take too long");
    acknowledge(&mut machine, 1, 1, SECOND * 13);
    let part = part("#1", "in_flight.output", Share::Channel { edge: 0, producer: 0, subpartition: 0 });
    for (task, parts) in [(1, vec![]), (0, vec![part.clone()])] {
        assert!(commands(&mut machine).is_empty(), "task {task} may have barriers in line");
        let snapshot = TaskSnapshot { parts, bytes: 5 };
        machine.handle(Input::Overtook { task, checkpoint: 1, snapshot }, SECOND * 14);
    }
    let published = commands(&mut machine);
    let [Command::Publish { kept: all, .. }] = &published[..] else { panic!("{published:?}") };
    assert_eq!((&all[&0].snapshot.parts[..], all[&0].snapshot.bytes), (&[part][..], kept(1, 0).snapshot.bytes + 5));
    assert_eq!(all[&1].snapshot.parts, []);
}

#[test]
fn one_that_is_in_time_or_to_be_aligned_is_never_told_to_overtake() {
    let mut machine = machine(1, CheckpointLimits { aligned_timeout: Some(SECOND * 2), ..limits() });
    machine.handle(Input::Tick, SECOND * 10);
    acknowledge(&mut machine, 1, 0, SECOND * 11);
    machine.handle(Input::Published { checkpoint: 1 }, SECOND * 15);
    machine.handle(Input::Tick, SECOND * 20);
    machine.handle(Input::Aligned { checkpoint: 2 }, SECOND * 20);
    machine.handle(Input::Tick, SECOND * 50);
    let told = commands(&mut machine);
    assert!(!told.iter().any(|command| matches!(command, Command::Overtake { .. })), "{told:?}");
    assert_eq!(machine.poll_timeout(), Some(SECOND * 80));
}

/// Simulation of tasks that answer late, twice, in any order or never.
struct World {
    rng: fastrand::Rng,
    machine: CheckpointMachine,
    now: Duration,
    tasks: Vec<Task>,
    /// Messages on their way to the machine, with arrival times.
    mail: Vec<(Duration, Input)>,
    /// Notifications on their way to the tasks.
    orders: Vec<(Duration, usize, Notification)>,
    losses: bool,
    /// Checkpoints that were switched to unaligned barriers.
    overtaking: BTreeSet<u64>,
    triggered: u64,
    published: BTreeSet<u64>,
    being_published: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Notification {
    Trigger(u64),
    Overtake(u64),
    Complete(u64),
}

#[derive(Clone, Debug, Default)]
struct Task {
    finishes_at: Duration,
    has_finished: bool,
    has_ended: bool,
    /// First checkpoint that the task took after it had finished.
    last: Option<u64>,
    /// Snapshots of the task by checkpoint.
    kept: BTreeMap<u64, TaskSnapshotRef>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let losses = rng.bool();
        // Often late enough that all tasks answer before.
        let aligned_timeout = rng.bool().then(|| Duration::from_millis(rng.u64(1..2_000)));
        let limits = CheckpointLimits {
            interval: Duration::from_millis(rng.u64(1..5_000)),
            timeout: aligned_timeout.unwrap_or_default() + Duration::from_millis(rng.u64(1_000..5_000)),
            aligned_timeout,
            min_pause: Duration::from_millis(rng.u64(0..2_000)),
            tolerable_failures: u32::MAX,
        };
        let count = rng.usize(1..6);
        let mut machine = CheckpointMachine::new(limits, count, 1);
        machine.handle(Input::Running, Duration::ZERO);
        let finishes = |rng: &mut fastrand::Rng| Duration::from_millis(rng.u64(0..30_000));
        let tasks = (0..count).map(|_| Task { finishes_at: finishes(&mut rng), ..Task::default() }).collect();
        let (mail, orders, published) = (Vec::new(), Vec::new(), BTreeSet::new());
        let now = Duration::ZERO;
        Self {
            rng,
            machine,
            now,
            tasks,
            mail,
            orders,
            losses,
            overtaking: BTreeSet::new(),
            triggered: 0,
            published,
            being_published: None,
        }
    }

    fn run(&mut self) {
        while self.now < SECOND * 3000 && !self.tasks.iter().all(|task| task.has_ended) {
            self.now += Duration::from_millis(self.rng.u64(1..100));
            if self.rng.u8(0..100) == 0 {
                self.machine.handle(Input::Requested, self.now);
                self.obey();
            }
            self.tasks_finish();
            self.deliver();
            self.machine.handle(Input::Tick, self.now);
            self.obey();
        }
        assert!(self.tasks.iter().all(|task| task.has_ended), "a job whose tasks have finished comes to its end");
    }

    fn soon(&mut self) -> Duration {
        self.now + Duration::from_millis(self.rng.u64(0..800))
    }

    /// Delivers a message once, twice or never. Reports of a task's own progress are never lost: losing their
    /// connection ends the task.
    fn post(&mut self, input: Input) {
        let may_be_lost = matches!(input, Input::Acknowledged { .. } | Input::Overtook { .. } | Input::Declined { .. });
        let copies = match self.rng.u8(0..10) {
            0 if self.losses && may_be_lost => 0,
            1 => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let at = self.soon();
            self.mail.push((at, input.clone()));
        }
    }

    fn tasks_finish(&mut self) {
        for number in 0..self.tasks.len() {
            if !self.tasks[number].has_finished && self.now >= self.tasks[number].finishes_at {
                self.tasks[number].has_finished = true;
                self.post(Input::Finished { task: number as u32 });
            }
        }
    }

    fn deliver(&mut self) {
        let now = self.now;
        let (due, later): (Vec<_>, Vec<_>) = self.orders.drain(..).partition(|(at, ..)| *at <= now);
        self.orders = later;
        for (_, task, told) in due {
            self.tell(task, told);
        }
        let (due, later): (Vec<_>, Vec<_>) = self.mail.drain(..).partition(|(at, _)| *at <= now);
        self.mail = later;
        for (_, input) in due {
            if let Input::Published { checkpoint } = input {
                self.published.insert(checkpoint);
                self.being_published = None;
            } else if let Input::NotPublished { .. } = input {
                self.being_published = None;
            }
            self.machine.handle(input, now);
            self.obey();
        }
    }

    fn tell(&mut self, number: usize, told: Notification) {
        let task = &mut self.tasks[number];
        if task.has_ended {
            return;
        }
        match told {
            Notification::Trigger(checkpoint) if !task.kept.contains_key(&checkpoint) => {
                let of = kept(checkpoint, number as u32);
                let kept = TaskSnapshotRef { is_last: task.has_finished, has_finished: task.has_finished, ..of };
                task.kept.insert(checkpoint, kept.clone());
                if task.has_finished {
                    task.last.get_or_insert(checkpoint);
                }
                let task = number as u32;
                if self.rng.u8(0..20) == 0 {
                    self.post(Input::Declined { task, checkpoint, reason: "drawn".into(), root_cause: None });
                } else {
                    self.post(Input::Acknowledged { task, checkpoint, kept });
                }
            }
            Notification::Trigger(_) => {}
            Notification::Overtake(checkpoint) => {
                let task = number as u32;
                let share = Share::Channel { edge: 0, producer: task, subpartition: 0 };
                let snapshot = TaskSnapshot { parts: vec![part("#1", "in_flight.output", share)], bytes: 0 };
                self.post(Input::Overtook { task, checkpoint, snapshot });
            }
            Notification::Complete(checkpoint) => {
                if task.last.is_some_and(|last| last <= checkpoint) {
                    task.has_ended = true;
                    self.post(Input::Ended { task: number as u32 });
                }
            }
        }
    }

    fn obey(&mut self) {
        while let Some(command) = self.machine.poll_command() {
            match command {
                Command::Trigger { checkpoint } => {
                    assert!(checkpoint > self.triggered, "I1: numbers grow");
                    assert_eq!(self.being_published, None, "I1: one at a time");
                    self.triggered = checkpoint;
                    self.tell_all(Notification::Trigger(checkpoint));
                }
                Command::Overtake { checkpoint } => {
                    assert_eq!(checkpoint, self.triggered);
                    assert!(self.overtaking.insert(checkpoint), "I6: once");
                    self.tell_all(Notification::Overtake(checkpoint));
                }
                Command::Publish { checkpoint, kept, .. } => {
                    assert_eq!(checkpoint, self.triggered);
                    self.check_whole(checkpoint, &kept);
                    self.being_published = Some(checkpoint);
                    let input = match self.rng.u8(0..8) {
                        0 => Input::NotPublished { checkpoint, reason: "drawn".into() },
                        _ => Input::Published { checkpoint },
                    };
                    let at = self.soon();
                    self.mail.push((at, input));
                }
                Command::Complete { checkpoint } => {
                    assert!(self.published.contains(&checkpoint), "I3: only what was published");
                    self.tell_all(Notification::Complete(checkpoint));
                }
                Command::Abort { checkpoint, .. } => {
                    assert!(!self.published.contains(&checkpoint), "I3: what counts is not called off");
                    assert_ne!(self.being_published, Some(checkpoint), "I3: nor what may yet count");
                }
                Command::GiveUp { .. } => panic!("no task fails"),
                Command::Fail { .. } => panic!("all failures are tolerated"),
            }
        }
    }

    /// Checks I2.
    fn check_whole(&self, checkpoint: u64, kept: &BTreeMap<u32, TaskSnapshotRef>) {
        assert_eq!(kept.len(), self.tasks.len(), "something of every task");
        for (number, kept) in kept {
            let of = kept.snapshot.bytes / 1000;
            let task = &self.tasks[*number as usize];
            assert_eq!(kept.snapshot.bytes % 1000, u64::from(*number));
            assert!(of == checkpoint || (task.has_ended && kept.is_last), "{of} in {checkpoint} of a task that runs");
            let overtaken = kept.snapshot.parts.len();
            let is_told = of == checkpoint && self.overtaking.contains(&checkpoint);
            assert!(overtaken == usize::from(is_told) || task.has_ended, "I6: {overtaken} in {checkpoint}");
            let parts = Vec::new();
            let kept = TaskSnapshotRef { snapshot: TaskSnapshot { parts, ..kept.snapshot.clone() }, ..kept.clone() };
            assert_eq!(task.kept.get(&of), Some(&kept), "as the task kept it");
        }
    }

    fn tell_all(&mut self, told: Notification) {
        for task in 0..self.tasks.len() {
            let at = self.soon();
            self.orders.push((at, task, told));
        }
    }
}

#[test]
fn whatever_is_lost_doubled_or_late_only_whole_checkpoints_count_and_the_job_ends() {
    let mut published = 0;
    for seed in 0..10_000 {
        let mut world = World::new(seed);
        world.run();
        published += world.published.len();
    }
    assert!(published > 50_000, "{published} of 10,000 jobs");
}

#[test]
fn delays_grow_up_to_a_minute_and_shrink_when_it_has_run_for_an_hour() {
    let mut supervisor = Supervisor::new(&Restart::Auto, true, 7);
    let mut now = Duration::ZERO;
    let (mut expected, mut delays) = (1.0_f64, Vec::new());
    for _ in 0..20 {
        let delay = supervisor.failed(now, None, None).expect("always");
        let share = delay.as_secs_f64() / expected;
        assert!((0.9..=1.1).contains(&share), "{delay:?} where {expected} s were due");
        delays.push(share);
        expected = (expected * 1.5).min(60.0);
        now += delay + SECOND;
        supervisor.begins(now);
    }
    assert!(delays.iter().any(|share| (share - 1.0).abs() > 0.01), "they are spread");
    let delay = supervisor.failed(now + SECOND * 3600, None, None).expect("always");
    assert!(delay < SECOND * 2, "{delay:?}");
}

/// Root cause of a record that cannot be parsed.
fn cause() -> Option<RootCause> {
    Some(RootCause { operator: "parse".into(), error_type: "ValueError".into(), position: "'x'".into() })
}

#[test]
fn others_restart_so_often_as_they_say() {
    let restarts = |restart: &str, has_checkpoints, every: u32| {
        let mut supervisor = Supervisor::new(&restart.parse().expect(restart), has_checkpoints, 0);
        (0..100).take_while(|n| supervisor.failed(SECOND * every * *n, cause(), None).is_some()).count()
    };
    assert_eq!((restarts("auto", false, 1), restarts("none", true, 1)), (0, 0));
    assert_eq!(restarts("auto", true, 1), 4, "the fifth failure at the same record is final");
    assert_eq!((restarts("exponential", false, 1), restarts("fixed:3:10s", true, 1)), (100, 3));
    assert_eq!((restarts("rate:3:1min:1s", true, 1), restarts("rate:3:1min:1s", true, 30)), (3, 100));
    let mut fixed = Supervisor::new(&"fixed:1:250ms".parse().expect("a way"), false, 0);
    assert_eq!(
        (fixed.failed(SECOND, None, None), fixed.failed(SECOND, None, None)),
        (Some(Duration::from_millis(250)), None)
    );
}

#[test]
fn a_way_to_restart_is_read_as_it_is_shown_and_what_is_none_is_refused() {
    for text in ["auto", "none", "exponential", "fixed:3:10s", "rate:3:300s:1500ms"] {
        assert_eq!(text.parse::<Restart>().expect(text).to_string(), text);
    }
    assert_eq!("rate:3:5min:0.5s".parse::<Restart>().expect("a way").to_string(), "rate:3:300s:500ms");
    for text in ["", "fixed", "fixed:3", "fixed:x:1s", "fixed:3:1", "fixed:3:1y", "rate:1:1s", "often"] {
        let error = text.parse::<Restart>().expect_err(text).to_string();
        assert!(error.contains(&format!("restart={text:?} must be")), "{error}");
    }
}
