//! Loops of tasks: they end by themselves, drain when they are full, and give everything back when they are cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use flownet_runtime::TaskError;
use flownet_runtime::iteration::{FeedbackEdges, FeedbackLimits};
use flownet_runtime::operator::{Entry, Goal, IterationHead, IterationTail, Kind, ReadBack, RecordFormat};
use flownet_runtime::spec::Partitioner;

use crate::bytes::{Bytes, BytesExit, chain, looping_chain};
use crate::chains::{Numbers, SeenRecords, number};
use crate::rig::{Job, Vertex, wait_until};

/// Takes records as they are.
struct AsTheyAre;

impl ReadBack<Bytes> for AsTheyAre {
    fn decode<'m>(
        &mut self,
        (): <Bytes as RecordFormat>::Token<'m>,
        bytes: &[u8],
    ) -> Result<<Bytes as RecordFormat>::Record<'m>, TaskError> {
        Ok(bytes.to_vec())
    }
}

/// Halves numbers until they are 0, or lets them go round as they are for ever.
struct HalvingLoop {
    seen: SeenRecords,
    ends: bool,
    /// Takes records only while this is set.
    gate: Arc<AtomicBool>,
}

impl Goal<Bytes> for HalvingLoop {
    fn is_reached(&mut self, (): (), record: &Vec<u8>) -> Result<bool, TaskError> {
        while !self.gate.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(1));
        }
        let has_ended = self.ends && number(record) == 0;
        if has_ended || !self.ends {
            self.seen.push(0, record);
        }
        Ok(has_ended)
    }

    fn encode(&mut self, (): (), record: &Vec<u8>, out: &mut Vec<u8>) -> Result<(), TaskError> {
        let next = if self.ends { number(record) / 2 } else { number(record) };
        out.extend(next.to_le_bytes());
        Ok(())
    }
}

/// Numbers to a loop of two subtasks, each on a worker of its own, with an exchange between head and tail.
pub(crate) fn numbers_go_round(job: Job, numbers: u64, seen: &SeenRecords, ends: bool, memory_bytes: u64) -> Job {
    numbers_go_round_behind(&Arc::new(AtomicBool::new(true)), job, numbers, seen, ends, memory_bytes)
}

/// The same, with a tail that takes records only while the gate is open.
fn numbers_go_round_behind(
    gate: &Arc<AtomicBool>,
    mut job: Job,
    numbers: u64,
    seen: &SeenRecords,
    ends: bool,
    memory_bytes: u64,
) -> Job {
    let (source, head, tail) = (job.vertex("source", &[0]), job.vertex("head", &[0, 1]), job.vertex("tail", &[0, 1]));
    job.edge(source, head, Partitioner::Rebalance);
    job.edge_in_iteration(head, tail, Partitioner::Rebalance);
    job.heads_iteration(head);
    let edges = Arc::new(FeedbackEdges::default());
    job.run(source, |_| Numbers::up_to(numbers));
    run_head(&mut job, head, &edges);
    let limits = FeedbackLimits { memory_bytes, disk_bytes: 1 << 30 };
    job.run(tail, |subtask| {
        let goal = HalvingLoop { seen: seen.clone(), ends, gate: Arc::clone(gate) };
        let tail = IterationTail::new("loop", edges.writer(0, subtask, limits), goal);
        chain(Kind::IterationExit(Box::new(tail)), [Entry::default()], None)
    });
    job
}

fn run_head(job: &mut Job, head: Vertex, edges: &Arc<FeedbackEdges>) {
    job.run(head, |subtask| {
        let head = IterationHead::new("loop", edges.reader(0, subtask), AsTheyAre);
        looping_chain(Kind::IterationEntry(Box::new(head)), [Entry::default()], BytesExit::any())
    });
}

#[test]
fn a_loop_between_workers_ends_when_nothing_goes_round() {
    let seen = SeenRecords::default();
    let job = numbers_go_round(Job::new(2), 3000, &seen, true, 1 << 20);
    job.start().join_and_assert_all_segments_home();
    assert_eq!(seen.numbers(), vec![0; 3000]);
}

#[test]
fn a_loop_with_next_to_no_buffers_drains_by_way_of_the_disk() {
    let seen = SeenRecords::default();
    let job = numbers_go_round(Job::with_segments(2, 24, 64), 3000, &seen, true, 0);
    job.start().join_and_assert_all_segments_home();
    assert_eq!(seen.numbers(), vec![0; 3000]);
}

#[test]
fn a_loop_that_never_ends_is_cancelled_and_gives_everything_back() {
    let seen = SeenRecords::default();
    let running = numbers_go_round(Job::new(2), 500, &seen, false, 1 << 20).start();
    wait_until("records have gone round", || seen.len() > 10_000);
    running.finish_and_assert_all_segments_home();
}

#[test]
fn a_loop_that_is_stopped_feeds_nothing_back_while_it_waits_for_the_end() {
    let (seen, gate) = (SeenRecords::default(), Arc::new(AtomicBool::new(true)));
    let running = numbers_go_round_behind(&gate, Job::new(2), u64::MAX, &seen, false, 1 << 20).start();
    // What the heads have sent on, and what of it had come from outside.
    let counted = || {
        let of = |subtask| running.task("head", subtask).metrics();
        let (first, second) = (of(0), of(1));
        (first.records_out + second.records_out, first.records_in + second.records_in)
    };
    wait_until("records have gone round", || {
        let (sent, outside) = counted();
        sent > outside + 10_000
    });
    gate.store(false, Ordering::Release);
    let mut before = counted();
    wait_until("nothing moves", || {
        thread::sleep(Duration::from_millis(50));
        std::mem::replace(&mut before, counted()) == before
    });
    for (name, subtask) in [("tail", 0), ("tail", 1), ("head", 0), ("head", 1), ("source", 0)] {
        running.task(name, subtask).end_source(false);
    }
    gate.store(true, Ordering::Release);
    running.join();
    let after = counted();
    let (sent, outside) = (after.0 - before.0, after.1 - before.1);
    assert!(outside > 1_000, "{outside} records from outside were before the end: too few to tell anything");
    assert_eq!(sent, outside, "records sent, and those of them that came from outside");
    running.finish_and_assert_all_segments_home();
}
