//! Back-pressure: a slow consumer slows exactly its producers, and the ledger says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flownet_core::Target;
use flownet_core::keygroup::hash_key;
use flownet_net::NetworkConfig;
use flownet_runtime::TaskError;
use flownet_runtime::operator::{Collector, Kind, Operator, OperatorChain};
use flownet_runtime::snapshot::Snapshot;
use flownet_runtime::spec::{Partitioner, TaskSpec, partition_id};
use flownet_runtime::time_accounting::TimeState;

use crate::bytes::{Bytes, chain_to_all};
use crate::chains::{Numbers, PassOn, SeenRecords, SilentSource, Sink, TestChain};
use crate::rig::{Job, wait_until};

#[test]
fn a_slow_sink_slows_its_own_producers_and_no_others() {
    let mut job = Job::new(2);
    let (slow_seen, fast_seen) = (SeenRecords::default(), SeenRecords::default());
    let slow_source = job.vertex("slow source", &[0]);
    let fast_source = job.vertex("fast source", &[0]);
    let slow_sink = job.vertex("slow sink", &[1]);
    let fast_sink = job.vertex("fast sink", &[1]);
    // Both go over the same connection.
    job.edge(slow_source, slow_sink, Partitioner::Forward);
    job.edge(fast_source, fast_sink, Partitioner::Forward);
    job.run(slow_source, |_| Numbers::endless());
    job.run(fast_source, |_| Numbers::up_to(200_000));
    job.run(slow_sink, |_| Sink::slow(&slow_seen, Duration::from_millis(5)));
    job.run(fast_sink, |_| Sink::new(&fast_seen));

    let running = job.start();
    running.task("fast source", 0).join().unwrap();
    running.task("fast sink", 0).join().unwrap();
    assert!(fast_seen.numbers().into_iter().eq(0..200_000));

    let source = || running.task("slow source", 0).metrics();
    wait_until("the slow sink is at work", || slow_seen.len() >= 5);
    wait_until("its producer waits", || source().time.soft_back_pressured > Duration::from_millis(50));
    // All that memory can hold between the two: both pools, and records of 12 bytes.
    let in_flight = source().records_out - slow_seen.len() as u64;
    assert!(in_flight < (10 + 10 + 32) * 4096 / 12, "{in_flight} records in flight");
    assert_eq!(source().time.waiting_for_pool, Duration::ZERO, "there are segments, and its reader takes none");
    running.finish_and_assert_all_segments_home();
}

#[test]
fn a_producer_whose_pool_could_have_more_waits_for_segments() {
    // A partition wants ten. There are four, two of which are those that every partition has.
    let mut job = Job::with_segments(1, 4, 4096);
    let (seen, open) = (SeenRecords::default(), Arc::new(AtomicBool::new(false)));
    let source = job.vertex("source", &[0]);
    let sink = job.vertex("sink", &[0]);
    job.edge(source, sink, Partitioner::Forward);
    job.run(source, |_| Numbers::endless());
    job.run(sink, |_| Sink::shut(&seen, &open));
    let running = job.start();
    let time = || running.task("source", 0).metrics().time;
    wait_until("the source waits", || time().waiting_for_pool > Duration::from_millis(20));
    assert_eq!(time().waiting_for_credit, Duration::ZERO);
    open.store(true, Ordering::Release);
    running.finish_and_assert_all_segments_home();
}

#[test]
fn a_fan_out_in_the_middle_of_a_batch_waits_hard_and_loses_nothing() {
    let mut job = Job::with_segments(1, 64, 256);
    let seen = SeenRecords::default();
    let open = Arc::new(AtomicBool::new(false));
    let source = job.vertex("source", &[0]);
    let middle = job.vertex("middle", &[0]);
    let sink = job.vertex("sink", &[0]);
    job.edge(source, middle, Partitioner::Forward);
    job.edge(middle, sink, Partitioner::Forward);
    job.run(source, |_| Numbers::up_to(20));
    job.run(middle, |_| PassOn { copies: 1000 });
    job.run(sink, |_| Sink::shut(&seen, &open));

    let running = job.start();
    let waited = || running.task("middle", 0).metrics().time.hard_back_pressured;
    wait_until("the fan-out has filled all buffers", || waited() > Duration::from_millis(20));
    open.store(true, Ordering::Release);
    running.join();

    assert_eq!(seen.len(), 20_000);
    running.finish_and_assert_all_segments_home();
}

#[test]
fn time_is_back_pressured_only_while_the_task_is_blocked() {
    let mut job = Job::with_segments(1, 64, 256);
    let seen = SeenRecords::default();
    let open = Arc::new(AtomicBool::new(false));
    let source = job.vertex("source", &[0]);
    let middle = job.vertex("middle", &[0]);
    let sink = job.vertex("sink", &[0]);
    job.edge(source, middle, Partitioner::Forward);
    job.edge(middle, sink, Partitioner::KeyGroup);
    job.run(source, |_| SilentSource(1));
    let may_end = Arc::new(AtomicBool::new(false));
    job.run(middle, |_| ThenBusy { first: PassOn { copies: 20_000 }, may_end: Arc::clone(&may_end) });
    job.run(sink, |_| Sink::shut(&seen, &open));

    let running = job.start();
    let time = || running.task("middle", 0).metrics().time;
    wait_until("the fan-out has filled all buffers", || time().hard_back_pressured > Duration::from_millis(20));
    let blocked = time();
    wait_until("it is blocked for some time", || time().since(&blocked).total() > Duration::from_millis(20));
    let passed = time().since(&blocked);
    assert_eq!(passed.total(), passed.hard_back_pressured, "all of it in the middle of its batch");

    open.store(true, Ordering::Release);
    wait_until("everything arrived", || seen.len() == 20_000);
    let busy = time();
    wait_until("it works for some time", || time().since(&busy).total() > Duration::from_millis(20));
    let passed = time().since(&busy);
    assert_eq!((passed.back_pressured(), passed.busy), (Duration::ZERO, passed.total()), "blocked no more");

    may_end.store(true, Ordering::Release);
    let before = time().idle;
    wait_until("the task idles", || time().idle > before + Duration::from_millis(5));
    let idle = time();
    wait_until("some time has passed", || time().since(&idle).total() > Duration::from_millis(20));
    let passed = time().since(&idle);
    assert_eq!(
        (passed.back_pressured(), passed.idle),
        (Duration::ZERO, passed.total()),
        "nor while it waits for input"
    );
    running.finish_and_assert_all_segments_home();
}

/// Is busy behind its first batch until it may end.
struct ThenBusy {
    first: PassOn,
    may_end: Arc<AtomicBool>,
}

impl Operator<Bytes> for ThenBusy {
    fn process<'m>(&mut self, record: Vec<u8>, collector: &mut Collector<'_, 'm, Bytes>) -> Result<(), TaskError> {
        self.first.process(record, collector)
    }

    fn end_batch(&mut self, _: &mut Collector<'_, '_, Bytes>) -> Result<(), TaskError> {
        while !self.may_end.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        Ok(())
    }

    fn snapshot(&mut self, (): (), _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }
}

impl TestChain for ThenBusy {
    fn chain(self, task: &TaskSpec) -> OperatorChain<Bytes> {
        chain_to_all(Kind::Operator(Box::new(self)), task, |record| Target::KeyHash(hash_key(record)))
    }
}

#[test]
fn a_task_without_input_is_idle_and_its_time_sums_to_the_whole() {
    let mut job = Job::new(1);
    let seen = SeenRecords::default();
    let source = job.vertex("source", &[0]);
    let sink = job.vertex("sink", &[0]);
    job.edge(source, sink, Partitioner::Forward);
    job.run(source, |_| SilentSource(1));
    job.run(sink, |_| Sink::new(&seen));

    let running = job.start();
    wait_until("the record arrived", || seen.len() == 1);
    for name in ["source", "sink"] {
        let time = || running.task(name, 0).metrics().time;
        wait_until("the task idles", || time().idle > Duration::from_millis(20));
        assert!(time().busy < Duration::from_secs(1) && time().back_pressured() < Duration::from_secs(1));
        let (before, begun) = (time(), std::time::Instant::now());
        wait_until("some time has passed", || begun.elapsed() > Duration::from_millis(20));
        let passed = time().since(&before);
        assert_eq!(passed.total(), passed.idle);
        assert!(passed.total() >= Duration::from_millis(20));
    }
    running.finish_and_assert_all_segments_home();
}

#[test]
fn records_wait_for_their_buffer_to_fill_only_if_told_so() {
    for (flush_timeout_us, arrives) in [(None, false), (Some(0), true), (Some(1000), true)] {
        // Where what is in flight is bounded, one record fills the first buffers.
        let mut job = Job::with_config(2, 256, 4096, &NetworkConfig::default());
        let seen = SeenRecords::default();
        let source = job.vertex("source", &[0]);
        let sink = job.vertex("sink", &[1]);
        job.flush_timeout_us = flush_timeout_us;
        job.edge(source, sink, Partitioner::Forward);
        job.run(source, |_| SilentSource(3));
        job.run(sink, |_| Sink::new(&seen));

        let running = job.start();
        wait_until("the records were sent", || running.task("source", 0).metrics().records_out == 3);
        if arrives {
            wait_until("the records arrived", || seen.len() == 3);
        } else {
            assert_eq!(seen.len(), 0);
        }
        running.finish_and_assert_all_segments_home();
    }
}

#[test]
fn an_inspection_says_what_a_task_waits_for() {
    for sink_worker in [0, 1] {
        let mut job = Job::new(2);
        let seen = SeenRecords::default();
        let open = Arc::new(AtomicBool::new(false));
        let source = job.vertex("source", &[0]);
        let sink = job.vertex("sink", &[sink_worker]);
        job.edge(source, sink, Partitioner::Forward);
        job.run(source, |_| Numbers::up_to(100_000));
        job.run(sink, |_| Sink::shut(&seen, &open));

        let running = job.start();
        let inspect = |name: &str| running.task(name, 0).inspect();
        let starved = if sink_worker == 0 { vec![] } else { vec![(partition_id(0, 0), 0)] };
        wait_until("the sink is shut", || inspect("sink").state == Some(TimeState::Busy));
        wait_until("the source has no room", || !inspect("source").outputs[0].is_available);
        let waits = |state: Option<TimeState>| {
            matches!(state, Some(TimeState::SoftBackPressured(_) | TimeState::HardBackPressured(_)))
        };
        wait_until("the source waits for it", || waits(inspect("source").state));
        wait_until("no credit is left", || inspect("sink").input.without_credit == starved);

        let output = inspect("source").outputs.remove(0);
        let queued: Vec<(u32, u64)> = (output.readable > 0).then_some((0, output.readable)).into_iter().collect();
        assert_eq!(output.fullest, queued, "the only subpartition");
        assert!(output.pool.in_use >= output.readable && output.pool.held >= output.pool.in_use, "{output:?}");
        assert!(output.pool.size >= output.pool.guaranteed, "{output:?}");
        let sink = inspect("sink");
        // A local reader may have taken all of it.
        assert!(sink.outputs.is_empty() && sink.unread_buffers + output.readable > 0, "{sink:?} {output:?}");
        assert_eq!(sink.input.pool.is_some(), sink_worker == 1);

        open.store(true, Ordering::Release);
        running.join();
        assert_eq!(inspect("sink").state, None);
        running.finish_and_assert_all_segments_home();
    }
}
