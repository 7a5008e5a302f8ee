//! Markers of latency: what they measure, and that they hold nothing up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flownet_core::Target;
use flownet_runtime::latency::Latency;
use flownet_runtime::spec::Partitioner;
use flownet_runtime::{Outputs, SourceStatus, TaskError};

use crate::chains::{PassOn, SeenRecords, SilentSource, Sink, WritingSource};
use crate::iterations::numbers_go_round;
use crate::rig::{Job, RunningTask, wait_until};

const MS: Duration = Duration::from_millis(1);

/// Emits records while there is room for them, as sources do.
struct PoliteSource;

impl WritingSource for PoliteSource {
    fn write(&mut self, out: &mut Outputs) -> Result<SourceStatus, TaskError> {
        for _ in 0..100 {
            if !out.is_available() {
                break;
            }
            out.emit(0, Target::Any, &[0; 8])?;
        }
        Ok(SourceStatus::More)
    }
}

fn marked(workers: u32) -> Job {
    let mut job = Job::new(workers);
    job.latency_interval_us = Some(1000);
    job
}

/// Of all markers that came to a subtask.
fn latency(running: &RunningTask, name: &str, subtask: u32) -> Latency {
    let mut all = Latency::of(0);
    running.task(name, subtask).latencies().iter().for_each(|latency| all.add(latency));
    all
}

/// Two workers, on the second of which everything waits for a sink.
fn line_to(mut job: Job, sink: impl Fn() -> Sink) -> RunningTask {
    let source = job.vertex("source", &[0]);
    let middle = job.vertex("middle", &[0]);
    let slow = job.vertex("slow", &[1]);
    job.edge(source, middle, Partitioner::Forward);
    job.edge(middle, slow, Partitioner::KeyGroup);
    job.run(source, |_| PoliteSource);
    job.run(middle, |_| PassOn { copies: 1 });
    job.run(slow, |_| sink());
    job.start()
}

#[test]
fn the_latency_of_a_slow_task_is_greater_than_that_of_those_before_it() {
    let seen = SeenRecords::default();
    let running = line_to(marked(2), || Sink::slow(&seen, MS * 5));
    // This holds marker by marker, but some have come by the one before and are on their way yet.
    let mean = |latency: &Latency| latency.sum.as_secs_f64() / latency.count() as f64;
    wait_until("markers have come by what waits for the slow one", || {
        let (slow, middle) = (latency(&running, "slow", 0), latency(&running, "middle", 0));
        slow.quantile(0.5) > Some(MS * 50) && mean(&slow) > mean(&middle)
    });
    assert_eq!(running.task("slow", 0).latencies()[0].source, 0, "the vertex of the source");
    running.finish_and_assert_all_segments_home();
}

#[test]
fn a_source_that_is_held_back_goes_on_to_emit_and_what_it_waits_for_is_measured() {
    let (seen, open) = (SeenRecords::default(), Arc::new(AtomicBool::new(false)));
    let running = line_to(marked(2), || Sink::shut(&seen, &open));
    let held = || running.task("source", 0).metrics().time.soft_back_pressured;
    wait_until("the source is held back", || held() > MS * 200);
    open.store(true, Ordering::Release);
    wait_until("a marker has come that stood in line", || latency(&running, "slow", 0).max > MS * 100);
    running.finish_and_assert_all_segments_home();
}

#[test]
fn without_an_interval_no_task_hears_of_any() {
    let seen = SeenRecords::default();
    let running = line_to(Job::new(2), || Sink::new(&seen));
    wait_until("records have come", || seen.len() > 1000);
    assert!(running.tasks.iter().all(|task| task.latencies().is_empty()));
    running.finish_and_assert_all_segments_home();
}

#[test]
fn a_source_that_has_nothing_to_emit_emits_markers() {
    let (mut job, seen) = (marked(1), SeenRecords::default());
    let (source, sink) = (job.vertex("source", &[0]), job.vertex("sink", &[0]));
    job.edge(source, sink, Partitioner::Forward);
    job.run(source, |_| SilentSource(1));
    job.run(sink, |_| Sink::new(&seen));
    let running = job.start();
    wait_until("markers come", || latency(&running, "sink", 0).count() > 20);
    running.finish_and_assert_all_segments_home();
}

#[test]
fn each_marker_takes_one_channel_of_every_output_and_all_channels_get_some() {
    for partitioner in [Partitioner::Rebalance, Partitioner::Broadcast, Partitioner::KeyGroup] {
        let (mut job, seen) = (marked(2), SeenRecords::default());
        let source = job.vertex("source", &[0, 1]);
        let (left, right) = (job.vertex("left", &[0, 1, 0]), job.vertex("right", &[0]));
        job.edge(source, left, partitioner);
        job.edge(source, right, Partitioner::Rebalance);
        job.run(source, |_| SilentSource(0));
        job.run(left, |_| Sink::new(&seen));
        job.run(right, |_| Sink::new(&seen));
        let running = job.start();
        let counts = || [0, 1, 2].map(|subtask| latency(&running, "left", subtask).count());
        wait_until("every subtask has got some", || counts().iter().all(|count| *count > 3));
        for task in &running.tasks {
            task.end_source(true);
        }
        running.join();
        // About, as some are left out where too many wait. Sent to all channels they would be three times as many.
        let (left, right) = (counts().iter().sum::<u64>(), latency(&running, "right", 0).count());
        assert!(left < 2 * right && right < 2 * left, "{left} by three channels, {right} by one");
        running.finish_and_assert_all_segments_home();
    }
}

#[test]
fn markers_do_not_go_round_in_a_loop() {
    let seen = SeenRecords::default();
    let running = numbers_go_round(marked(2), 30_000, &seen, true, 1 << 20).start();
    running.join();
    assert_eq!(seen.numbers(), vec![0; 30_000]);
    let count = |name| [0, 1].map(|subtask| latency(&running, name, subtask).count()).iter().sum::<u64>();
    assert!(count("head") > 0, "it took longer than some intervals");
    assert!(count("tail") <= count("head"), "each comes by once");
    running.finish_and_assert_all_segments_home();
}
