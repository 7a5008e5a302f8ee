//! Tests of stalls and of similar conditions, in virtual time.

use std::collections::{BTreeMap, BTreeSet};

use flownet_runtime::{
    QueueSnapshot, TaskInspection,
    inspection::{InputInspection, OutputInspection, PoolInspection},
    spec::{FlowControl, Partitioner, partition_id},
    time_accounting::{BackpressureCause, TimeState},
};

use super::*;
use crate::{plan::tests::DataflowBuilder, settings::JobSettings};

const SECOND: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_millis(200);
const BLOCKED: Option<TimeState> = Some(TimeState::SoftBackPressured(BackpressureCause::Credit));
const IDLE: Option<TimeState> = Some(TimeState::Idle);
const BUSY: Option<TimeState> = Some(TimeState::Busy);

/// Job of source, map and sink with ids 0, 1, 2 and one subtask each.
struct World {
    plan: Plan,
    machine: StallMachine,
    now: Duration,
    metrics: Vec<MetricsSnapshot>,
    tasks: Vec<TaskInspection>,
    free: u64,
    silent: BTreeSet<u32>,
    slow: bool,
    asked: u32,
    shown: Vec<(Stall, bool)>,
    is_stalled: bool,
}

fn plan(parallelism: u32, workers: u32, flow_control: FlowControl) -> Plan {
    let flow = DataflowBuilder::default()
        .operator("source", parallelism)
        .operator("map", parallelism)
        .operator("sink", parallelism)
        .edge("source", "map", Partitioner::Rebalance)
        .edge("map", "sink", Partitioner::Rebalance);
    Plan::new(&flow.0, &JobSettings { workers, flow_control, ..JobSettings::default() }).expect("a sound dataflow")
}

fn pool(held: u64, size: u64) -> PoolInspection {
    PoolInspection { held, in_use: held, size, guaranteed: size }
}

/// Returns inspections in which nothing waits and no task is at work.
fn quiet(plan: &Plan) -> Vec<TaskInspection> {
    let outputs = |count: usize| {
        let output = || OutputInspection { pool: pool(2, 8), is_available: true, ..OutputInspection::default() };
        (0..count).map(|_| output()).collect()
    };
    let quiet = |task: &crate::plan::PlacedTask| TaskInspection {
        state: IDLE,
        outputs: outputs(task.spec.outputs.len()),
        ..TaskInspection::default()
    };
    plan.tasks.iter().map(quiet).collect()
}

impl World {
    fn new() -> Self {
        Self::of(plan(1, 0, FlowControl::Credit))
    }

    fn of(plan: Plan) -> Self {
        Self {
            machine: StallMachine::new(10 * SECOND, INTERVAL, &plan),
            now: Duration::ZERO,
            metrics: vec![MetricsSnapshot::default(); plan.tasks.len()],
            tasks: quiet(&plan),
            free: 100,
            silent: BTreeSet::new(),
            slow: false,
            asked: 0,
            shown: Vec::new(),
            is_stalled: false,
            plan,
        }
    }

    /// Blocks an output; subtask `sub` can read `queued` buffers of it.
    fn block(&mut self, task: usize, sub: u32, queued: u64, pool: PoolInspection) {
        self.tasks[task].state = BLOCKED;
        let fullest = if queued > 0 { vec![(sub, queued)] } else { Vec::new() };
        self.tasks[task].outputs[0] = OutputInspection { pool, is_available: false, readable: queued, fullest };
    }

    /// Moves a record.
    fn work(&mut self, task: usize) {
        self.metrics[task].records_in += 1;
    }

    /// Advances the time in the steps of the driver, with reports of all workers that are not silent.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += INTERVAL;
            self.turn(true);
        }
    }

    fn turn(&mut self, is_running: bool) {
        let workers: BTreeSet<u32> = self.plan.tasks.iter().map(|task| task.worker).collect();
        for &worker in workers.difference(&self.silent) {
            let mine = |task: &&crate::plan::PlacedTask| task.worker == worker;
            let ids = self.plan.tasks.iter().filter(mine).map(|task| task.spec.task_id);
            let metrics: Vec<_> = ids.map(|id| (id, self.metrics[id as usize])).collect();
            self.machine.on_report(worker, &metrics, self.now);
        }
        self.machine.on_time(self.now, is_running, &self.plan);
        while let Some(command) = self.machine.poll_command() {
            match command {
                Command::Inspect { round } => {
                    self.asked += 1;
                    assert!(self.now - self.machine.since >= 10 * SECOND, "S1: {:?}", self.machine);
                    for &worker in workers.difference(&self.silent).filter(|_| !self.slow) {
                        self.machine.on_inspection(round, worker, self.answer(worker));
                    }
                }
                Command::Show { stall, is_new } => {
                    assert!(!std::mem::replace(&mut self.is_stalled, true), "S5: said once");
                    self.shown.push((stall, is_new));
                }
                Command::Clear => assert!(std::mem::replace(&mut self.is_stalled, false), "nothing was shown"),
            }
        }
    }

    fn answer(&self, worker: u32) -> Inspection {
        let mine = self.plan.tasks.iter().filter(|task| task.worker == worker);
        let tasks = mine.map(|task| (task.spec.task_id, self.tasks[task.spec.task_id as usize].clone()));
        Inspection { tasks: tasks.collect(), free: self.free }
    }

    /// Returns the only stall so far.
    fn stall(&self) -> &Stall {
        assert_eq!(self.shown.len(), 1, "{:?}", self.shown);
        &self.shown[0].0
    }
}

#[test]
fn a_job_that_stands_still_while_records_wait_is_said_once_and_cleared_when_it_moves() {
    let mut world = World::new();
    world.pass(3 * SECOND);
    world.work(0);
    world.block(0, 0, 4, pool(6, 2));
    world.pass(10 * SECOND);
    assert_eq!(world.shown, [], "not before its time");
    world.pass(2 * SECOND);
    assert_eq!(world.stall().since, 3 * SECOND + INTERVAL);
    world.pass(60 * SECOND);
    assert!(world.is_stalled && world.shown.len() == 1 && world.asked == 1, "asked {} times", world.asked);
    world.work(2);
    world.pass(INTERVAL);
    assert!(!world.is_stalled);
    // A repeated stall is reported again.
    world.pass(12 * SECOND);
    assert!(world.is_stalled && world.shown.len() == 2);
}

#[test]
fn a_job_in_which_nothing_waits_is_not_stalled_however_long_it_idles() {
    let mut world = World::new();
    // A function of the source that waits for its next record blocks no other task.
    world.tasks[0].state = BUSY;
    world.pass(100 * SECOND);
    assert_eq!((world.shown.len(), world.asked <= 10), (0, true), "S2: asked {} times", world.asked);
}

#[test]
fn what_moves_slowly_is_not_stalled() {
    let mut world = World::new();
    world.block(0, 0, 4, pool(2, 2));
    for _ in 0..20 {
        world.pass(9 * SECOND);
        world.work(1);
    }
    assert_eq!((world.shown.len(), world.asked), (0, 0));
}

#[test]
fn a_task_that_ends_is_a_movement() {
    let mut world = World::new();
    world.block(0, 0, 4, pool(2, 2));
    for _ in 0..20 {
        world.pass(9 * SECOND);
        world.machine.on_movement(world.now);
    }
    assert_eq!(world.asked, 0);
}

#[test]
fn a_coordinator_that_was_stopped_saw_nothing_in_between() {
    let mut world = World::new();
    world.block(0, 0, 4, pool(2, 2));
    world.pass(SECOND);
    for _ in 0..4 {
        world.now += 3600 * SECOND;
        world.turn(true);
    }
    assert_eq!(world.asked, 0, "S1");
}

#[test]
fn a_job_that_is_not_running_is_not_watched() {
    let mut world = World::new();
    world.block(0, 0, 4, pool(2, 2));
    world.pass(12 * SECOND);
    assert!(world.is_stalled);
    world.turn(false);
    assert!(!world.is_stalled, "a job that ends is not stalled any more");
    for _ in 0..100 {
        world.now += INTERVAL;
        world.turn(false);
    }
    assert_eq!(world.shown.len(), 1);
}

#[test]
fn what_moves_while_workers_are_asked_makes_their_answers_void() {
    let mut world = World::new();
    world.block(0, 0, 4, pool(2, 2));
    while world.asked == 0 {
        world.pass(INTERVAL);
    }
    // S4: the report that would confirm the stall shows a movement.
    world.work(1);
    world.pass(5 * SECOND);
    assert_eq!(world.shown, []);
    // An answer to an old question does not count for a new one.
    world.machine.on_inspection(1, 0, world.answer(0));
    world.tasks = quiet(&world.plan);
    world.pass(20 * SECOND);
    assert_eq!(world.shown, []);
}

#[test]
fn a_worker_that_reports_but_is_slow_to_answer_is_not_called_silent() {
    let mut world = World::new();
    world.block(0, 0, 4, pool(2, 2));
    world.slow = true;
    world.pass(60 * SECOND);
    assert_eq!((world.shown.len(), world.asked), (0, 5));
    world.slow = false;
    world.pass(12 * SECOND);
    assert!(world.is_stalled);
}

#[test]
fn a_task_that_has_ended_may_leave_something_unread() {
    let mut world = World::new();
    world.tasks[2] = TaskInspection { state: None, unread_buffers: 3, ..world.tasks[2].clone() };
    world.pass(60 * SECOND);
    assert_eq!(world.shown, []);
}

#[test]
fn rare_reports_make_patience_longer() {
    let world = World::new();
    let mut machine = StallMachine::new(10 * SECOND, 60 * SECOND, &world.plan);
    for second in 0..240 {
        machine.on_time(second * SECOND, true, &world.plan);
        assert_eq!(machine.poll_command(), None, "after {second} s");
    }
    machine.on_time(240 * SECOND, true, &world.plan);
    assert_eq!(machine.poll_command(), Some(Command::Inspect { round: 1 }));
}

#[test]
fn the_driver_is_told_when_to_look() {
    let mut world = World::new();
    world.block(0, 0, 4, pool(2, 2));
    while !world.is_stalled {
        let due = world.machine.poll_timeout().expect("something to wait for");
        assert!(due >= world.now && due <= world.now + LONGEST_STEP);
        world.now = due.max(world.now + Duration::from_millis(1));
        world.turn(true);
    }
    assert_eq!(world.machine.poll_timeout(), None);
}

#[test]
fn a_function_that_does_not_return_is_a_hint_and_said_once_for_its_vertex() {
    let mut world = World::of(plan(2, 0, FlowControl::Credit));
    world.pass(SECOND);
    world.block(0, 0, 10, pool(11, 64));
    world.tasks[2] = TaskInspection { state: BUSY, unread_buffers: 3, ..world.tasks[2].clone() };
    world.pass(12 * SECOND);
    let stall = world.stall();
    assert_eq!((stall.cause, stall.waiting), (StallCause::Function, 1));
    assert_eq!(stall.summary, "map (subtask 1 of 2) is at work and does not return");
    assert_eq!(stall.chain[1], "map (subtask 1 of 2) is at work and does not return, for 10 s");
    assert_eq!(
        stall.chain[0],
        "source (subtask 1 of 2) waits for room: 10 buffers for map (subtask 1 of 2); \
         its output holds 11 of 64 segments (64 guaranteed)"
    );
    assert!(world.shown[0].1, "users are told");

    // The other subtask, later.
    world.work(2);
    world.tasks[2] = quiet(&world.plan)[2].clone();
    world.tasks[3] = TaskInspection { state: BUSY, unread_buffers: 3, ..world.tasks[3].clone() };
    world.block(0, 1, 10, pool(11, 64));
    world.pass(13 * SECOND);
    assert!(world.is_stalled && world.shown.len() == 2);
    assert!(!world.shown[1].1, "S5: not again");
    assert!(world.shown[1].0.summary.starts_with("map (subtask 2 of 2) is at work"), "{:?}", world.shown[1]);
}

#[test]
fn calls_that_do_not_return_are_said_to_be_what_a_job_waits_for() {
    let mut world = World::new();
    world.pass(SECOND);
    world.block(0, 0, 10, pool(11, 64));
    let state = Some(TimeState::Awaiting);
    world.tasks[1] = TaskInspection { state, unread_buffers: 3, ..world.tasks[1].clone() };
    world.pass(12 * SECOND);
    let stall = world.stall();
    assert_eq!((stall.cause, stall.waiting), (StallCause::Function, 1));
    assert_eq!(stall.summary, "map (subtask 1 of 1) waits for calls of its functions, none of which returns");
}

#[test]
fn sources_that_wait_for_others_are_no_stall() {
    let mut world = World::new();
    world.work(0);
    world.pass(SECOND);
    world.tasks[0].state = Some(TimeState::Aligning);
    world.pass(60 * SECOND);
    assert!(!world.is_stalled && world.shown.is_empty());
}

#[test]
fn a_function_is_not_blamed_for_an_exchange_that_stands_still_beside_it() {
    let mut world = World::of(plan(2, 0, FlowControl::Credit));
    world.block(0, 0, 10, pool(2, 2));
    world.tasks[2].state = BUSY;
    world.tasks[3].input.readable = 5;
    world.pass(12 * SECOND);
    assert_eq!(world.stall().cause, StallCause::Exchange);
    assert_eq!(world.stall().summary, "map (subtask 2 of 2) sleeps although it could read 5 buffers");
}

/// As in issue reports: sources hold more than their share, and their consumers lack their guaranteed segments.
#[test]
fn overdraft_that_others_were_promised_is_told_as_a_ring() {
    let mut world = World::new();
    world.free = 0;
    world.block(0, 0, 5, pool(7, 2));
    world.block(1, 0, 0, pool(1, 2));
    world.tasks[1].state = Some(TimeState::HardBackPressured(BackpressureCause::Credit));
    world.pass(12 * SECOND);
    let stall = world.stall();
    assert_eq!(stall.cause, StallCause::Exchange);
    assert_eq!(
        stall.summary,
        "2 subtasks wait for each other, source (subtask 1 of 1) to map (subtask 1 of 1) and back"
    );
    assert_eq!(
        stall.chain,
        [
            "source (subtask 1 of 1) waits for room: 5 buffers for map (subtask 1 of 1); its output holds 7 of 2 segments \
             (2 guaranteed)",
            "map (subtask 1 of 1) waits for a segment: it holds 1 of 2 segments (2 guaranteed), the network memory has none \
             left, and source (subtask 1 of 1) has 5 more than its share",
        ]
    );
    let text = stall.to_string();
    assert!(text.starts_with("nothing has moved for 10 s although records wait: 2 subtasks wait for each"), "{text}");
    assert!(text.contains(" and back; since 0.0 s after its start, and it goes on waiting\n"), "{text}");
    assert!(text.contains("2 subtasks cannot send on"), "{text}");
}

#[test]
fn a_pool_without_what_it_was_promised_is_named_where_nobody_has_too_much() {
    let mut world = World::new();
    world.free = 0;
    world.block(1, 0, 0, pool(1, 2));
    world.pass(12 * SECOND);
    let summary = "map (subtask 1 of 1) waits for a segment: it holds 1 of 2 segments (2 guaranteed), the network memory has \
                   none left, and nobody has more than its share";
    assert_eq!(world.stall().summary, summary);
}

#[test]
fn a_chain_is_followed_over_what_was_taken_and_not_read() {
    let mut world = World::new();
    world.block(0, 0, 0, pool(2, 2));
    world.tasks[1].unread_buffers = 2;
    world.block(1, 0, 3, pool(2, 2));
    world.tasks[2].state = BUSY;
    world.pass(12 * SECOND);
    let chain = &world.stall().chain;
    assert!(chain[0].contains("map (subtask 1 of 1) has its buffers and reads none"), "{chain:?}");
    assert!(chain[1].starts_with("map (subtask 1 of 1) waits for room: 3 buffers for sink"), "{chain:?}");
    assert!(chain[2].starts_with("sink (subtask 1 of 1) is at work"), "{chain:?}");
    assert_eq!((chain.len(), world.stall().waiting), (3, 2));
}

#[test]
fn a_worker_that_does_not_answer_is_named_with_the_time_since_it_was_heard() {
    let mut world = World::of(plan(2, 2, FlowControl::Credit));
    let [victim, other] = [world.plan.tasks[2].worker, world.plan.tasks[0].worker];
    let (map, map_worker) = (3, world.plan.tasks[3].worker);
    assert!(victim == other && map_worker != other, "subtasks take turns");
    world.pass(5 * SECOND);
    world.work(0);
    world.pass(INTERVAL);
    world.silent.insert(map_worker);
    world.block(0, map - 2, 10, pool(11, 64));
    world.pass(20 * SECOND);
    let stall = world.stall();
    assert_eq!(stall.cause, StallCause::Worker);
    let summary = format!("worker {map_worker} does not answer, where map (subtask 2 of 2, worker {map_worker}) runs");
    assert_eq!((&stall.summary, &stall.chain[1]), (&summary, &format!("{summary}, for 11 s")));
    assert!(stall.chain[0].contains(&format!("for map (subtask 2 of 2, worker {map_worker})")), "{:?}", stall.chain);
}

#[test]
fn credit_that_never_comes_is_told_from_a_connection_that_does_not_move() {
    let deliver = |input: InputInspection| {
        let mut world = World::of(plan(2, 2, FlowControl::Credit));
        world.tasks[0].outputs[0].fullest = vec![(1, 3)];
        world.tasks[3].input = input;
        world.pass(12 * SECOND);
        world.stall().summary.clone()
    };
    let gate = Some(pool(1, 1));
    let channel = (partition_id(0, 0), 1);
    let without = InputInspection {
        pool: gate,
        without_credit: vec![channel],
        channels_without_credit: 1,
        ..InputInspection::default()
    };
    let summary = deliver(without.clone());
    assert!(summary.ends_with("has no buffer to promise for it; it holds 1 of 1 segments (1 guaranteed)"), "{summary}");
    // The channel may be among those that were cut off the list.
    let cut = InputInspection { without_credit: vec![(9, 9)], channels_without_credit: 40, ..without };
    assert_eq!(deliver(cut), summary);
    let with = InputInspection { pool: gate, ..InputInspection::default() };
    let summary = deliver(with);
    assert!(
        summary.starts_with("map (subtask 2 of 2, worker 2) gets nothing over the connection from source"),
        "{summary}"
    );
}

#[test]
fn sources_that_the_coordinator_holds_back_are_no_stall() {
    for control in [FlowControl::Storm, FlowControl::Pid] {
        let mut world = World::of(plan(1, 1, control));
        world.tasks[0].state = BLOCKED;
        world.pass(60 * SECOND);
        assert_eq!(world.shown, [], "{control:?}");
    }
    // With credit no source is held back: one that has room and waits for it was not woken.
    let mut world = World::new();
    world.tasks[0].state = BLOCKED;
    world.pass(12 * SECOND);
    assert_eq!(world.stall().summary, "source (subtask 1 of 1) could go on and was not woken");
}

/// A function that does not read its part of a shared socket blocks all channels of an exchange on it.
#[test]
fn a_shared_socket_is_blamed_on_the_function_that_holds_it_up() {
    let mut world = World::of(plan(2, 2, FlowControl::Tcp));
    world.tasks[0].outputs[0].fullest = vec![(0, 3), (1, 3)];
    world.tasks[1].outputs[0].fullest = vec![(1, 3)];
    world.tasks[2].state = BUSY;
    world.pass(12 * SECOND);
    assert_eq!(world.stall().cause, StallCause::Function);
}

#[test]
fn counters_that_move_without_records_are_not_taken_for_movement() {
    let mut world = World::new();
    world.block(0, 0, 4, pool(6, 2));
    for _ in 0..60 {
        let queues = &mut world.metrics[1].queues;
        *queues = QueueSnapshot { pool_used: queues.pool_used + 1, pool_size: 9, ..*queues };
        world.metrics[1].time.busy += Duration::from_millis(1);
        world.pass(INTERVAL);
    }
    assert!(world.is_stalled);
}

/// The diagnosis terminates for any answers of workers.
#[test]
fn any_answer_has_an_end() {
    let plan = plan(3, 2, FlowControl::Credit);
    let mut seed = 1_u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..2000 {
        let mut answers: BTreeMap<u32, Inspection> = BTreeMap::new();
        for task in &plan.tasks {
            let mut small = || draw(3);
            let states = [BUSY, IDLE, BLOCKED, Some(TimeState::HardBackPressured(BackpressureCause::Credit)), None];
            let output = OutputInspection {
                pool: PoolInspection { held: small() * 3, in_use: small(), size: small() * 2, guaranteed: small() },
                is_available: small() == 0,
                readable: small(),
                fullest: (0..small()).map(|_| (small() as u32 * 2, small())).collect(),
            };
            let channel = (partition_id(small() as u32, small() as u32), small() as u32);
            let input = InputInspection {
                pool: Some(output.pool),
                readable: small(),
                without_credit: vec![channel],
                channels_without_credit: small(),
            };
            let outputs = (0..small()).map(|_| output.clone()).collect();
            let (state, unread_buffers) = (states[(small() * 2) as usize], small());
            let seen = TaskInspection { state, unread_buffers, outputs, input };
            if task.worker == 1 || small() > 0 {
                answers.entry(task.worker).or_default().tasks.push((task.spec.task_id, seen));
            }
        }
        if let Some(diagnosis) = Diagnosis::of(&plan, &answers) {
            let zero = |_| Duration::ZERO;
            let stall = Stall::new(&plan, &diagnosis, SECOND, 12 * SECOND, zero, zero);
            assert!(!stall.summary.is_empty() && !stall.chain.is_empty(), "{diagnosis:?}");
        }
    }
}
