//! The small cases that are explored to the end.

use crate::action::{Action, Side, Turn};
use crate::model::Proof;
use crate::plan::{ConsumerPlan, LinkPlan, Plan, ProducerPlan, WorkerPlan};

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

/// Producers and consumers on these workers. Each gate has `floating` segments beside what is exclusive.
fn case(producers: &[usize], consumers: &[usize], exclusive: u32, floating: usize) -> Proof {
    let workers = producers.iter().chain(consumers).max().map_or(1, |last| last + 1);
    let worker =
        WorkerPlan { segments: 0, exclusive, checksums: false, buffers_per_turn: 8, outbox_bytes: 8 * SEGMENT_BYTES };
    let max_segments = consumers.len() + 1;
    let producer = |&worker: &usize| ProducerPlan { worker, max_segments, overdraft: 0, is_registered: true };
    let gate_segments = exclusive as usize * producers.len() + floating;
    let mut plan = Plan {
        segment_bytes: SEGMENT_BYTES,
        workers: vec![worker; workers],
        producers: producers.iter().map(producer).collect(),
        consumers: consumers.iter().map(|&worker| ConsumerPlan { worker, max_segments: gate_segments }).collect(),
        links: vec![LinkPlan { capacity_bytes: usize::MAX, ..LinkPlan::default() }],
        answers_at_once: true,
        bug: None,
    };
    plan.share_out_segments(|_, _, wanted| wanted);
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
