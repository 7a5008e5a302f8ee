//! Cancelling a task, whatever it is doing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flownet_runtime::TaskError;
use flownet_runtime::error::Evidence;
use flownet_runtime::spec::Partitioner;

use crate::chains::{Numbers, PassOn, SeenRecords, SilentSource, Sink};
use crate::rig::{Job, RunningTask, wait_until};

/// What the task waits for never comes: one that is not woken is never joined.
fn cancel_what_waits(running: &RunningTask, name: &str) {
    let task = running.task(name, 0);
    assert!(task.outcome().is_none(), "{name} ended too early: {:?}", task.outcome());
    task.cancel();
    assert_eq!(task.join(), Err(TaskError::Cancelled));
    assert_eq!(task.outcome(), Some(Err(TaskError::Cancelled)));
}

fn blocked_job(middle: PassOn) -> (RunningTask, Arc<AtomicBool>) {
    let mut job = Job::with_segments(2, 64, 256);
    let seen = SeenRecords::default();
    let shut = Arc::new(AtomicBool::new(false));
    let source = job.vertex("source", &[0]);
    let pass = job.vertex("middle", &[1]);
    let sink = job.vertex("sink", &[0]);
    job.edge(source, pass, Partitioner::Forward);
    job.edge(pass, sink, Partitioner::Forward);
    let copies = middle.copies;
    job.run(source, |_| Numbers::endless());
    job.run(pass, |_| PassOn { copies });
    job.run(sink, |_| Sink::shut(&seen, &shut));
    (job.start(), shut)
}

#[test]
fn a_task_that_waits_for_its_output_between_records_can_be_cancelled() {
    let (running, _shut) = blocked_job(PassOn { copies: 1 });
    let waited = || running.task("source", 0).metrics().time.back_pressured();
    wait_until("the source waits", || waited() > Duration::from_millis(20));
    cancel_what_waits(&running, "source");
    running.finish_and_assert_all_segments_home();
}

#[test]
fn a_task_that_waits_for_its_output_within_a_batch_can_be_cancelled() {
    let (running, _shut) = blocked_job(PassOn { copies: 100_000 });
    let waited = || running.task("middle", 0).metrics().time.hard_back_pressured;
    wait_until("the fan-out waits", || waited() > Duration::from_millis(20));
    cancel_what_waits(&running, "middle");
    running.finish_and_assert_all_segments_home();
}

#[test]
fn idle_tasks_and_paused_operators_can_be_cancelled() {
    let mut job = Job::new(1);
    let seen = SeenRecords::default();
    let source = job.vertex("source", &[0]);
    let middle = job.vertex("middle", &[0]);
    let sink = job.vertex("sink", &[0]);
    job.edge(source, middle, Partitioner::Forward);
    job.edge(middle, sink, Partitioner::Forward);
    job.run(source, |_| SilentSource(1));
    job.run(middle, |_| PassOn { copies: 1 });
    job.run(sink, |_| Sink::slow(&seen, Duration::from_secs(3600)));

    let running = job.start();
    wait_until("the sink pauses over its record", || seen.len() == 1);
    // From the end: a task whose producer was cancelled fails by that.
    for name in ["sink", "middle", "source"] {
        cancel_what_waits(&running, name);
    }
    running.finish_and_assert_all_segments_home();
}

#[test]
fn cancelling_closes_the_chain_and_leaves_consumers_an_echo() {
    let mut job = Job::new(2);
    let seen = SeenRecords::default();
    let closed = Arc::new(AtomicBool::new(false));
    let source = job.vertex("source", &[0]);
    let sink = job.vertex("sink", &[1]);
    job.edge(source, sink, Partitioner::Forward);
    job.run(source, |_| Numbers::endless());
    job.run(sink, |_| Sink { closed: Arc::clone(&closed), ..Sink::new(&seen) });

    let running = job.start();
    wait_until("records flow", || seen.len() > 1000);
    cancel_what_waits(&running, "source");
    let echo = running.task("sink", 0).join().unwrap_err();
    assert!(echo.evidence() < Evidence::Cause && echo.to_string().contains("cancelled"), "{echo}");
    assert!(closed.load(Ordering::Acquire));
    running.finish_and_assert_all_segments_home();
}

#[test]
fn a_hundred_starts_and_cancels_leave_nothing() {
    for round in 0..100 {
        let mut job = Job::with_segments(2, 64, 256);
        let seen = SeenRecords::default();
        let source = job.vertex("source", &[0, 1]);
        let sink = job.vertex("sink", &[1, 0]);
        job.edge(source, sink, Partitioner::Rebalance);
        job.run(source, |_| Numbers::endless());
        job.run(sink, |_| Sink::new(&seen));
        let running = job.start();
        if round % 2 == 0 {
            wait_until("records flow", || seen.len() > 10);
        }
        running.finish_and_assert_all_segments_home();
    }
}

#[test]
fn a_source_that_is_ended_ends_the_job_well_and_drains_it_if_told() {
    for drain in [true, false] {
        let mut job = Job::new(2);
        let seen = SeenRecords::default();
        let source = job.vertex("source", &[0]);
        let sink = job.vertex("sink", &[1]);
        job.edge(source, sink, Partitioner::Forward);
        job.run(source, |_| Numbers::endless());
        job.run(sink, |_| Sink::new(&seen));
        let running = job.start();
        wait_until("records arrive", || seen.len() > 100);
        // Only sources mind.
        running.task("sink", 0).end_source(drain);
        running.task("source", 0).end_source(drain);
        running.join();
        let sent = running.task("source", 0).metrics().records_out;
        assert_eq!(seen.len() as u64, sent, "what was in flight has arrived");
        running.finish_and_assert_all_segments_home();
    }
}
