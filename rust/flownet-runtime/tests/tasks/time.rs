//! Windows and timers in a running task.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use flownet_core::Target;
use flownet_core::keygroup::hash_key;
use flownet_runtime::spec::Partitioner;
use flownet_runtime::timer::TimerService;
use flownet_runtime::{Chain, Outputs, SourceStatus, TaskContext, TaskError};

use crate::chains::{Numbers, Seen, Silent, Sink, WindowCount};
use crate::rig::{Job, Running, wait_until};

fn window_job<C: Chain + 'static>(source_chain: impl Fn(u32) -> C, size_ms: i64) -> (Running, Seen) {
    let mut job = Job::new(2);
    let seen = Seen::default();
    let source = job.vertex("source", &[0]);
    let window = job.vertex("window", &[0, 1]);
    let sink = job.vertex("sink", &[0]);
    job.edge(source, window, Partitioner::KeyGroup);
    job.edge(window, sink, Partitioner::Rebalance);
    job.run(source, source_chain);
    job.run(window, |_| WindowCount::new(size_ms));
    job.run(sink, |_| Sink::new(&seen));
    (job.start(), seen)
}

const HOUR_MS: i64 = 3_600_000;
/// So long that the test never sees the end of one by accident.
const CENTURY_MS: i64 = 100 * 365 * 24 * HOUR_MS;

#[test]
fn the_end_of_input_fires_pending_windows() {
    let key = |n: u64| Target::KeyHash(hash_key(&n.to_le_bytes()));
    let (running, seen) = window_job(|_| Numbers::keyed(1000, key), CENTURY_MS);
    running.join();
    assert_eq!(seen.numbers(), [1; 1000]);
    running.finish_and_assert_all_segments_home();
}

#[test]
fn a_window_fires_by_the_clock_while_nothing_arrives() {
    let (running, seen) = window_job(|_| Silent(10), 50);
    wait_until("the window has fired", || seen.numbers().iter().sum::<u64>() == 10);
    running.finish_and_assert_all_segments_home();
}

/// A source that only has timers.
struct Metronome {
    timers: TimerService<u32>,
    fired: Arc<Mutex<Vec<(i64, u32)>>>,
}

impl Chain for Metronome {
    fn open(&mut self, _: &TaskContext) -> Result<(), TaskError> {
        // All long due, in no order, one twice.
        for (at, key) in [(30, 1), (10, 2), (30, 1), (20, 3)] {
            self.timers.register(at, key);
        }
        Ok(())
    }

    fn poll_source(&mut self, _: &mut Outputs) -> Result<SourceStatus, TaskError> {
        let done = self.timers.is_empty();
        Ok(if done { SourceStatus::Finished } else { SourceStatus::Idle { wake_after: Duration::from_secs(3600) } })
    }

    fn next_timer_ms(&self) -> Option<i64> {
        self.timers.next_ms()
    }

    fn on_timer(&mut self, now_ms: i64, _: &mut Outputs) -> Result<(), TaskError> {
        assert!(now_ms > 30);
        while let Some((at, key)) = self.timers.pop_due(now_ms) {
            let mut fired = self.fired.lock().unwrap();
            fired.push((at, key));
            if fired.len() == 3 {
                // One ahead of now: the task has to sleep for it.
                self.timers.register(now_ms + 30, 4);
            }
        }
        Ok(())
    }
}

#[test]
fn timers_fire_in_order_once_and_wake_an_idle_task() {
    let mut job = Job::new(1);
    let fired = Arc::new(Mutex::new(Vec::new()));
    let source = job.vertex("source", &[0]);
    job.run(source, |_| Metronome { timers: TimerService::new(), fired: Arc::clone(&fired) });

    let running = job.start();
    running.join();

    let fired = fired.lock().unwrap().clone();
    assert_eq!(fired[..3], [(10, 2), (20, 3), (30, 1)]);
    assert_eq!((fired.len(), fired[3].1), (4, 4));
    assert!(running.task("source", 0).metrics().time.idle >= Duration::from_millis(10));
    running.finish_and_assert_all_segments_home();
}
