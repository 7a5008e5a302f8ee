//! The small cases that are explored to the end.

use flownet_core::PoolSizing;

use crate::action::{Action, Side, Turn};
use crate::model::Proof;
use crate::plan::{ExchangePlan, LinkPlan, Plan, Spread, TaskPlan, Work, WorkerPlan};

/// Those that every run of the tests explores.
#[must_use]
pub fn small() -> Vec<Proof> {
    vec![
        Proof {
            name: "2 x 1, one segment for both, none exclusive",
            scripts: vec![buffers(0, &[0, 0]), buffers(1, &[0, 0])],
            ..case(&[0, 1], &[2], 0, 1)
        },
        Proof {
            name: "2 x 1, two segments, buffers held",
            scripts: vec![buffers(0, &[0, 0]), buffers(1, &[0, 0])],
            holds: true,
            ..case(&[0, 1], &[2], 0, 2)
        },
        Proof {
            name: "2 x 2 on four connections",
            scripts: vec![buffers(0, &[0, 1]), buffers(1, &[1, 0])],
            ..opened(case(&[0, 1], &[2, 3], 0, 1), 4)
        },
        Proof {
            name: "2 x 2 on one connection",
            scripts: vec![buffers(0, &[0, 1]), buffers(1, &[1, 0])],
            ..opened(case(&[0, 0], &[1, 1], 0, 1), 1)
        },
        Proof {
            name: "2 x 1 on one connection, one exclusive segment, to the end",
            scripts: vec![then(buffers(0, &[0, 0]), Action::Finish { producer: 0 }), buffers(1, &[0])],
            ..opened(case(&[0, 0], &[1], 1, 1), 1)
        },
        Proof {
            name: "2 x 1, a barrier in between, one exclusive segment",
            scripts: vec![around_barrier(0, &[0, 0], &[0]), buffers(1, &[0])],
            ..opened(case(&[0, 1], &[2], 1, 1), 2)
        },
        Proof {
            name: "2 x 1, barriers in between, none exclusive",
            scripts: vec![around_barrier(0, &[0], &[0]), around_barrier(1, &[0], &[0])],
            ..opened(case(&[0, 1], &[2], 0, 2), 2)
        },
        Proof {
            name: "2 x 1, one channel released anywhere",
            scripts: vec![buffers(0, &[0, 0]), buffers(1, &[0])],
            faults: vec![Action::Release { consumer: 0, producer: 0 }],
            holds: true,
            splits: true,
            ..case(&[0, 1], &[2], 0, 1)
        },
        Proof {
            name: "2 x 1, cancel, failure, loss or death anywhere",
            scripts: vec![buffers(0, &[0, 0]), buffers(1, &[0])],
            faults: faults(),
            ..case(&[0, 1], &[2], 0, 1)
        },
        Proof {
            name: "1 x 2, open buffers that are flushed and written on",
            scripts: vec![bits(0, &[0, 1, 0])],
            holds: true,
            ..case(&[0], &[1, 2], 0, 1)
        },
        Proof {
            name: "two tasks, one behind them and a last one in one process, at need",
            scripts: vec![to_end(0, &[4]), to_end(1, &[2])],
            ..row(&[&[0, 0], &[0], &[0]], SEGMENT_BYTES - 1)
        },
        Proof {
            name: "three tasks in a row in two processes, at need",
            scripts: vec![to_end(0, &[3, 1])],
            ..row(&[&[0], &[1], &[0]], SEGMENT_BYTES - 1)
        },
        Proof {
            name: "apart and together again in one process, at need",
            scripts: vec![[records(0, 0, &[2]), records(0, 1, &[3]), records(0, 0, &[1])].concat()],
            ..row(&[&[0], &[0, 0], &[0]], SEGMENT_BYTES)
        },
    ]
}

/// Those that take minutes: the same with twice as much in it.
#[must_use]
pub fn large() -> Vec<Proof> {
    vec![
        Proof {
            name: "2 x 2 on four connections, from before they open",
            scripts: vec![buffers(0, &[0, 1]), buffers(1, &[1, 0])],
            ..case(&[0, 1], &[2, 3], 0, 1)
        },
        Proof {
            name: "2 x 2 on one connection, buffers held",
            scripts: vec![buffers(0, &[0, 1]), buffers(1, &[1, 0])],
            holds: true,
            ..case(&[0, 0], &[1, 1], 0, 2)
        },
        Proof {
            name: "2 x 2 on one connection, one exclusive segment, to the end",
            scripts: vec![then(buffers(0, &[0, 1]), Action::Finish { producer: 0 }), buffers(1, &[1, 0])],
            ..opened(case(&[0, 0], &[1, 1], 1, 1), 1)
        },
        Proof {
            name: "2 x 1, a barrier among more, one exclusive segment",
            scripts: vec![around_barrier(0, &[0, 0], &[0, 0]), buffers(1, &[0, 0])],
            ..case(&[0, 1], &[2], 1, 1)
        },
        Proof {
            name: "2 x 2, cancel, failure, loss or death anywhere",
            scripts: vec![buffers(0, &[0, 1]), buffers(1, &[1])],
            faults: faults(),
            ..opened(case(&[0, 1], &[2, 3], 0, 1), 4)
        },
    ]
}

fn faults() -> Vec<Action> {
    vec![
        Action::Release { consumer: 0, producer: 0 },
        Action::CloseGate { consumer: 0 },
        Action::Fail { producer: 0 },
        Action::Lose { connection: 0 },
        Action::Kill { worker: 0 },
    ]
}

/// Sources and sinks on these workers, each source with all sinks. Each gate has `floating` segments beside what is
/// exclusive.
fn case(sources: &[usize], sinks: &[usize], exclusive: u32, floating: u32) -> Proof {
    let gates: Vec<usize> = (sources.len()..sources.len() + sinks.len()).collect();
    let tasks = sources.iter().chain(sinks).map(|&worker| TaskPlan::on(worker));
    let exchange = ExchangePlan { edges: (0..sources.len()).map(|source| (source, gates.clone())).collect() };
    let sizing = PoolSizing { exclusive_buffers: exclusive, floating_buffers: floating, ..PoolSizing::default() };
    let mut proof = of_tasks(tasks.collect(), vec![exchange], sizing);
    proof.plan.share_out_segments(|_, _, wanted| wanted);
    proof
}

/// Stages of tasks on these workers, each with all of the next one: sources, tasks that write what they read in records
/// of this size, sinks. With the product's settings, and exactly the memory that they need.
fn row(stages: &[&[usize]], record_bytes: usize) -> Proof {
    let work = Work { percent: 100, record_bytes, spread: Spread::One };
    let tasks = stages.iter().copied().flatten().map(|&worker| TaskPlan { worker, work }).collect();
    let mut first = 0;
    let exchanges = stages.windows(2).map(|pair| {
        let from = first..first + pair[0].len();
        first = from.end;
        let to: Vec<usize> = (first..first + pair[1].len()).collect();
        ExchangePlan { edges: from.map(|task| (task, to.clone())).collect() }
    });
    let exchanges = exchanges.collect();
    let mut proof = of_tasks(tasks, exchanges, PoolSizing::default());
    proof.plan.share_out_segments(|_, needed, _| needed);
    proof
}

fn of_tasks(tasks: Vec<TaskPlan>, exchanges: Vec<ExchangePlan>, sizing: PoolSizing) -> Proof {
    let workers = tasks.iter().map(|task| task.worker).max().map_or(1, |last| last + 1);
    let worker = WorkerPlan { segments: 0, checksums: false, buffers_per_turn: 8, outbox_bytes: 8 * SEGMENT_BYTES };
    let plan = Plan {
        segment_bytes: SEGMENT_BYTES,
        sizing,
        workers: vec![worker; workers],
        tasks,
        exchanges,
        registered_late: Vec::new(),
        links: vec![LinkPlan { capacity_bytes: usize::MAX, ..LinkPlan::default() }],
        answers_at_once: true,
        is_debloated: false,
        bug: None,
    };
    Proof { name: "", plan, opening: Vec::new(), scripts: Vec::new(), faults: Vec::new(), holds: false, splits: false }
}

/// As the case, from where all channels are open on.
fn opened(case: Proof, connections: usize) -> Proof {
    let open = |connection| {
        [
            (Action::of(Turn::Send(connection, Side::Consumer), usize::MAX)),
            Action::of(Turn::Receive(connection, Side::Producer), usize::MAX),
        ]
    };
    Proof { opening: (0..connections).flat_map(open).collect(), ..case }
}

/// One full buffer for each of these consumers.
fn buffers(producer: usize, consumers: &[usize]) -> Vec<Action> {
    consumers.iter().map(|&consumer| Action::Write { producer, consumer, bytes: SEGMENT_BYTES }).collect()
}

/// Records of so many buffers each for one consumer.
fn records(producer: usize, consumer: usize, buffers: &[usize]) -> Vec<Action> {
    buffers.iter().map(|count| Action::Write { producer, consumer, bytes: count * SEGMENT_BYTES }).collect()
}

/// Records of so many buffers each, for the only consumer, and the end.
fn to_end(producer: usize, buffers: &[usize]) -> Vec<Action> {
    then(records(producer, 0, buffers), Action::Finish { producer })
}

/// A byte for each of these consumers, flushed each time.
fn bits(producer: usize, consumers: &[usize]) -> Vec<Action> {
    let bit = |&consumer: &usize| [Action::Write { producer, consumer, bytes: 1 }, Action::Flush { producer }];
    consumers.iter().flat_map(bit).collect()
}

fn around_barrier(producer: usize, before: &[usize], behind: &[usize]) -> Vec<Action> {
    let barrier = Action::Barrier { producer, is_aligned: true };
    [then(buffers(producer, before), barrier), buffers(producer, behind)].concat()
}

fn then(mut script: Vec<Action>, last: Action) -> Vec<Action> {
    script.push(last);
    script
}

const SEGMENT_BYTES: usize = 4;
