//! Tests of jobs with several regions that fail at any step, each alone: every region commits everything exactly once.
//!
//! Each task counts. It prepares the count since its last checkpoint with the next checkpoint. It commits the count
//! when that checkpoint is published, or when it resumes from it. A failed region returns to the last published
//! checkpoint. The other regions receive no notification.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use flownet_store::TaskSnapshot;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
/// A snapshot's size encodes the position plus the attempt times this factor.
const ATTEMPT: u64 = 1_000_000;

#[derive(Default)]
struct Task {
    region: usize,
    position: u64,
    until: u64,
    /// Position at each checkpoint that this attempt took.
    taken: BTreeMap<u64, u64>,
    last: Option<u64>,
    has_finished: bool,
    has_ended: bool,
    /// Count that was made visible, regardless of later failures.
    committed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Runs,
    /// Failed, or starting; until this time.
    Failed(Duration),
    Starts(Duration),
}

/// A task and its attempt.
type Sender = (usize, u64);

#[derive(Clone, Copy)]
enum Notification {
    Trigger(u64),
    Complete(u64),
}

struct World {
    rng: fastrand::Rng,
    now: Duration,
    machine: CheckpointMachine,
    tasks: Vec<Task>,
    regions: Vec<Phase>,
    /// Attempt of each region.
    attempts: Vec<u64>,
    /// Messages on their way to the coordinator: arrival time and sender.
    mail: Vec<(Duration, Option<Sender>, Input)>,
    orders: Vec<(Duration, usize, u64, Notification)>,
    /// Checkpoint that is being published, and the last published one: positions by task.
    publishing: Option<(u64, BTreeMap<u32, TaskSnapshotRef>)>,
    last: Option<(u64, BTreeMap<u32, TaskSnapshotRef>)>,
    published: BTreeSet<u64>,
    failures: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let limits = CheckpointLimits {
            interval: Duration::from_millis(rng.u64(1..3_000)),
            timeout: SECOND * 30,
            aligned_timeout: None,
            min_pause: Duration::from_millis(rng.u64(0..500)),
            tolerable_failures: u32::MAX,
        };
        let regions = rng.usize(2..5);
        let mut of: Vec<usize> = (0..regions).collect();
        of.extend((0..rng.usize(0..5)).map(|_| rng.usize(0..regions)));
        let mut task = |region| Task { region, until: rng.u64(0..3_000), ..Task::default() };
        let tasks: Vec<Task> = of.into_iter().map(&mut task).collect();
        let mut machine = CheckpointMachine::new(limits, tasks.len(), 1);
        machine.handle(Input::Running, Duration::ZERO);
        Self {
            rng,
            now: Duration::ZERO,
            machine,
            tasks,
            regions: vec![Phase::Runs; regions],
            attempts: vec![1; regions],
            mail: Vec::new(),
            orders: Vec::new(),
            publishing: None,
            last: None,
            published: BTreeSet::new(),
            failures: 0,
        }
    }

    fn run(&mut self) {
        while !self.tasks.iter().all(|task| task.has_ended) {
            assert!(self.now < SECOND * 3000, "a job that fails no more comes to its end");
            self.now += Duration::from_millis(self.rng.u64(1..60));
            self.fail_some();
            self.work();
            self.begin_some();
            self.follow();
            self.deliver();
            self.follow();
        }
        for task in &self.tasks {
            assert_eq!(task.committed, task.until, "all of it");
        }
    }

    fn is_over(&self, region: usize) -> bool {
        self.tasks.iter().filter(|task| task.region == region).all(|task| task.has_ended)
    }

    /// Fails some regions while others run, start or wait.
    fn fail_some(&mut self) {
        for region in 0..self.regions.len() {
            let may_fail = self.now < SECOND * 60 && !self.is_over(region);
            let is_down = matches!(self.regions[region], Phase::Failed(_));
            if may_fail && !is_down && self.rng.u16(0..400) == 0 {
                self.failures += 1;
                let delay = Duration::from_millis(self.rng.u64(0..1_500));
                self.regions[region] = Phase::Failed(self.now + delay);
            }
        }
    }

    fn begin_some(&mut self) {
        for region in 0..self.regions.len() {
            match self.regions[region] {
                Phase::Failed(until) if until <= self.now && !self.machine.is_publishing() => {
                    let starts = Duration::from_millis(self.rng.u64(0..500));
                    self.regions[region] = Phase::Starts(self.now + starts);
                    self.attempts[region] += 1;
                    self.restore(region);
                }
                Phase::Starts(until) if until <= self.now => self.regions[region] = Phase::Runs,
                _ => {}
            }
        }
    }

    fn restore(&mut self, region: usize) {
        let of: Vec<usize> = (0..self.tasks.len()).filter(|task| self.tasks[*task].region == region).collect();
        let last = self.last.as_ref();
        for &number in &of {
            let kept = last.and_then(|(_, kept)| kept.get(&(number as u32)));
            let position = kept.map_or(0, |kept| kept.snapshot.bytes % ATTEMPT);
            let task = &mut self.tasks[number];
            assert!(task.committed <= position, "{} were committed, and {position} counts: doubled", task.committed);
            let (until, committed) = (task.until, position);
            *task = Task { region, position, until, committed, ..Task::default() };
        }
        let tasks = of.into_iter().map(|task| task as u32).collect();
        self.machine.handle(Input::Restarted { tasks }, self.now);
    }

    /// Passes the state of the regions to the machine, as the driver does.
    fn follow(&mut self) {
        let is_broken = self.regions.iter().any(|region| matches!(region, Phase::Failed(_)));
        let all_run = self.regions.iter().all(|region| *region == Phase::Runs);
        let input = if is_broken {
            Input::Suspended
        } else if all_run {
            Input::Running
        } else {
            Input::Tick
        };
        self.machine.handle(input, self.now);
        self.obey();
    }

    fn work(&mut self) {
        for number in 0..self.tasks.len() {
            let steps = self.rng.u64(0..20);
            let task = &mut self.tasks[number];
            if self.regions[task.region] != Phase::Runs || task.has_ended {
                continue;
            }
            task.position = (task.position + steps).min(task.until);
            if task.position == task.until && !task.has_finished {
                task.has_finished = true;
                self.post(number, Input::Finished { task: number as u32 });
            }
        }
    }

    fn soon(&mut self) -> Duration {
        self.now + Duration::from_millis(self.rng.u64(0..400))
    }

    fn post(&mut self, number: usize, input: Input) {
        let attempt = self.attempts[self.tasks[number].region];
        let at = self.soon();
        self.mail.push((at, Some((number, attempt)), input));
    }

    fn tell_all(&mut self, told: Notification) {
        for task in 0..self.tasks.len() {
            let (at, attempt) = (self.soon(), self.attempts[self.tasks[task].region]);
            self.orders.push((at, task, attempt, told));
        }
    }

    fn deliver(&mut self) {
        let now = self.now;
        let (due, later): (Vec<_>, Vec<_>) = self.orders.drain(..).partition(|(at, ..)| *at <= now);
        self.orders = later;
        for (_, task, attempt, told) in due {
            let region = self.tasks[task].region;
            // Tasks of a failed region are cancelled with a delay. Until then they may receive notifications.
            if attempt == self.attempts[region] && !matches!(self.regions[region], Phase::Starts(_)) {
                self.tell(task, told);
            }
        }
        let (due, later): (Vec<_>, Vec<_>) = self.mail.drain(..).partition(|(at, ..)| *at <= now);
        self.mail = later;
        for (_, of, input) in due {
            if of.is_some_and(|(task, attempt)| attempt != self.attempts[self.tasks[task].region]) {
                continue;
            }
            if let Input::Published { checkpoint } = input {
                self.last = self.publishing.take();
                self.published.insert(checkpoint);
            }
            self.machine.handle(input, now);
            self.obey();
        }
    }

    fn tell(&mut self, number: usize, told: Notification) {
        let attempt = self.attempts[self.tasks[number].region];
        let task = &mut self.tasks[number];
        if task.has_ended {
            return;
        }
        match told {
            Notification::Trigger(checkpoint) => {
                task.taken.insert(checkpoint, task.position);
                if task.has_finished {
                    task.last.get_or_insert(checkpoint);
                }
                let snapshot = TaskSnapshot { parts: vec![], bytes: attempt * ATTEMPT + task.position };
                let kept = TaskSnapshotRef { snapshot, is_last: task.has_finished, has_finished: task.has_finished };
                self.post(number, Input::Acknowledged { task: number as u32, checkpoint, kept });
            }
            Notification::Complete(checkpoint) => {
                let Some(to) = task.taken.get(&checkpoint) else { return };
                task.committed = task.committed.max(*to);
                if task.last.is_some_and(|last| last <= checkpoint) {
                    task.has_ended = true;
                    self.post(number, Input::Ended { task: number as u32 });
                }
            }
        }
    }

    fn obey(&mut self) {
        while let Some(command) = self.machine.poll_command() {
            match command {
                Command::Trigger { checkpoint } => {
                    let all_run = self.regions.iter().all(|region| *region == Phase::Runs);
                    assert!(all_run, "I7: {checkpoint} is triggered while not all run");
                    self.tell_all(Notification::Trigger(checkpoint));
                }
                Command::Publish { checkpoint, kept, .. } => {
                    for (task, kept) in &kept {
                        let task = &self.tasks[*task as usize];
                        let of = kept.snapshot.bytes / ATTEMPT;
                        assert_eq!(of, self.attempts[task.region], "of one attempt of each region");
                    }
                    assert_eq!(kept.len(), self.tasks.len(), "something of every task");
                    self.publishing = Some((checkpoint, kept));
                    let input = match self.rng.u8(0..8) {
                        0 => Input::NotPublished { checkpoint, reason: "drawn".into() },
                        _ => Input::Published { checkpoint },
                    };
                    let at = self.soon();
                    self.mail.push((at, None, input));
                }
                Command::Complete { checkpoint } => {
                    assert!(self.published.contains(&checkpoint));
                    self.tell_all(Notification::Complete(checkpoint));
                }
                Command::GiveUp { checkpoint } => assert!(!self.published.contains(&checkpoint)),
                Command::Abort { .. } | Command::Overtake { .. } => {}
                Command::Fail { .. } => panic!("no checkpoint fails for good"),
            }
        }
    }
}

#[test]
fn whichever_regions_fail_and_whenever_all_is_committed_once() {
    let (mut failures, mut published) = (0, 0);
    for seed in 0..3_000 {
        let mut world = World::new(seed);
        world.run();
        (failures, published) = (failures + world.failures, published + world.published.len());
    }
    assert!(failures > 6_000 && published > 10_000, "{failures} failures, {published} checkpoints");
}

#[test]
fn a_checkpoint_that_is_pending_is_given_up_and_counts_as_no_failure() {
    let limits = CheckpointLimits {
        interval: SECOND * 10,
        timeout: SECOND * 60,
        aligned_timeout: None,
        min_pause: Duration::ZERO,
        tolerable_failures: 0,
    };
    let mut machine = CheckpointMachine::new(limits, 2, 1);
    machine.handle(Input::Running, Duration::ZERO);
    machine.handle(Input::Tick, SECOND * 10);
    let acknowledged = |task| Input::Acknowledged { task, checkpoint: 1, kept: TaskSnapshotRef::default() };
    machine.handle(acknowledged(1), SECOND * 11);
    machine.handle(Input::Suspended, SECOND * 11);
    machine.handle(acknowledged(0), SECOND * 12);
    machine.handle(Input::Requested, SECOND * 30);
    let commands: Vec<Command> = std::iter::from_fn(|| machine.poll_command()).collect();
    assert_eq!(commands, [Command::Trigger { checkpoint: 1 }, Command::GiveUp { checkpoint: 1 }]);
    machine.handle(Input::Restarted { tasks: vec![0] }, SECOND * 31);
    machine.handle(Input::Running, SECOND * 31);
    assert_eq!(machine.poll_command(), Some(Command::Trigger { checkpoint: 2 }), "it was requested meanwhile");
}
