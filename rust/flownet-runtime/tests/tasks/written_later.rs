//! Snapshots that are written while the task goes on: when it tells of them, and what becomes of those that are given up.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flownet_core::{Barrier, BarrierKind, CheckpointId};
use flownet_runtime::operator::{Collector, KeyedOperator, KeyedRecord, Kind, Operator, Source};
use flownet_runtime::snapshot::{IsOver, Snapshot};
use flownet_runtime::{
    CheckpointContext, CheckpointMode, CheckpointOrder, CheckpointReport, SourceStatus, TaskContext, TaskError,
};

use crate::bytes::{Bytes, chain_of_two};
use crate::rig::{Job, RunningTask, wait_until};

/// What the test and the chain know of each other.
#[derive(Default)]
struct SharedCounts {
    polls: AtomicUsize,
    ends: AtomicBool,
    /// Up to which checkpoint all may be written.
    permitted: AtomicU64,
    /// The one that cannot be written.
    refused: AtomicU64,
    written_on: AtomicUsize,
    reports: Mutex<Vec<CheckpointReport>>,
}

/// Counts the polls of a source, until it ends.
struct PolledSource {
    shared: Arc<SharedCounts>,
}

impl Source<Bytes> for PolledSource {
    fn open(&mut self, (): (), _: &TaskContext) -> Result<(), TaskError> {
        Ok(())
    }

    fn emit<'m>(&mut self, _: &mut Collector<'_, 'm, Bytes>) -> Result<SourceStatus, TaskError> {
        self.shared.polls.fetch_add(1, Ordering::SeqCst);
        Ok(if self.shared.ends.load(Ordering::SeqCst) {
            SourceStatus::Finished
        } else {
            SourceStatus::Idle { wake_after: Duration::from_millis(1) }
        })
    }

    fn snapshot(&mut self, (): (), _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }
}

/// An operator that has half of each snapshot ready, and writes the other half when it may.
struct LaterWriter {
    shared: Arc<SharedCounts>,
    writing: Option<u64>,
}

impl Operator<Bytes> for LaterWriter {
    fn process<'m>(&mut self, _: Vec<u8>, collector: &mut Collector<'_, 'm, Bytes>) -> Result<(), TaskError> {
        collector.refuse("takes no records")
    }

    fn snapshot(&mut self, (): (), to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        self.writing = Some(to.checkpoint_id());
        to.add_items("at once", [b"half"]);
        Ok(())
    }

    fn abort(&mut self, (): (), checkpoint_id: u64) -> Result<(), TaskError> {
        self.writing.take_if(|writing| *writing == checkpoint_id);
        Ok(())
    }
}

impl KeyedOperator<Bytes> for LaterWriter {
    fn process_keyed(
        &mut self,
        _: &KeyedRecord<'_>,
        collector: &mut Collector<'_, '_, Bytes>,
    ) -> Result<(), TaskError> {
        collector.refuse("takes no records")
    }

    fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    fn write_on(&mut self, (): (), to: &mut Snapshot<'_>, is_over: IsOver<'_>) -> Result<(), TaskError> {
        let checkpoint_id = to.checkpoint_id();
        assert_eq!(self.writing, Some(checkpoint_id));
        self.shared.written_on.fetch_add(1, Ordering::SeqCst);
        if self.shared.refused.load(Ordering::SeqCst) == checkpoint_id {
            self.writing = None;
            return Err(TaskError::Config("no".into()));
        }
        if self.shared.permitted.load(Ordering::SeqCst) < checkpoint_id {
            while !is_over() {
                std::thread::yield_now();
            }
            return Ok(());
        }
        self.writing = None;
        to.add_items("later", [b"half"]);
        Ok(())
    }
}

struct Rig {
    shared: Arc<SharedCounts>,
    running: RunningTask,
}

impl Rig {
    fn new() -> Self {
        let shared = Arc::new(SharedCounts::default());
        let mut job = Job::new(1);
        let source = job.vertex("source", &[0]);
        job.run(source, |_| {
            let source = PolledSource { shared: Arc::clone(&shared) };
            let writer = LaterWriter { shared: Arc::clone(&shared), writing: None };
            chain_of_two(Kind::Source(Box::new(source)), Kind::Keyed(Box::new(writer)))
        });
        let running = job.start_with(|_| {
            let shared = Arc::clone(&shared);
            let report = Arc::new(move |report| shared.reports.lock().unwrap().push(report));
            let mode = CheckpointMode::ExactlyOnce;
            Some(CheckpointContext { mode, overtakes: true, restored: vec![], has_finished: false, report })
        });
        Self { shared, running }
    }

    fn order(&self, order: CheckpointOrder) {
        self.running.tasks[0].checkpoint(order);
    }

    fn trigger(&self, id: u64, kind: BarrierKind) {
        let checkpoint_id = CheckpointId::new(id);
        self.order(CheckpointOrder::Trigger(Barrier { checkpoint_id, timestamp_ms: 0, kind }));
    }

    fn permit(&self, id: u64) {
        self.shared.permitted.store(id, Ordering::SeqCst);
    }

    /// Waits until the task has gone round, and written on, a few times more.
    fn go_round(&self) {
        let seen = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        let before = seen(&self.shared.written_on);
        wait_until("it writes on", || seen(&self.shared.written_on) > before + 3);
    }

    fn reports(&self) -> Vec<String> {
        let reports = self.shared.reports.lock().unwrap();
        let said = |report: &CheckpointReport| match report {
            CheckpointReport::Acknowledged { checkpoint_id, state, end, .. } => {
                let parts: Vec<_> = state.written.parts.iter().map(|part| &*part.name).collect();
                format!("{checkpoint_id}: {}{}", parts.join(", "), if end.is_some() { ", ended" } else { "" })
            }
            CheckpointReport::Overtook { checkpoint_id, .. } => format!("{checkpoint_id} overtook"),
            CheckpointReport::Declined { checkpoint_id, reason, .. } => format!("{checkpoint_id} declined: {reason}"),
            CheckpointReport::Finished { .. } => "finished".to_owned(),
        };
        reports.iter().map(said).collect()
    }

    fn wait_for(&self, expected: &[&str]) {
        wait_until("it tells", || self.reports().len() >= expected.len());
        assert_eq!(self.reports(), expected);
    }
}

#[test]
fn a_task_goes_on_while_it_writes_and_tells_when_all_is_written() {
    let rig = Rig::new();
    for (id, kind) in [(1, BarrierKind::Aligned), (2, BarrierKind::Unaligned)] {
        rig.trigger(id, kind);
        rig.go_round();
        let polls = rig.shared.polls.load(Ordering::SeqCst);
        rig.go_round();
        assert!(rig.shared.polls.load(Ordering::SeqCst) > polls, "it works meanwhile");
        assert_eq!(rig.reports().len() as u64, id - 1);
        rig.permit(id);
        wait_until("it tells", || rig.reports().len() as u64 == id);
        rig.order(CheckpointOrder::Complete(id));
    }
    rig.wait_for(&["1: at once, later", "2: at once, later"]);
    rig.running.finish_and_assert_all_segments_home();
}

#[test]
fn one_that_is_given_up_is_not_told_of_whoever_gives_it_up() {
    let rig = Rig::new();
    rig.trigger(1, BarrierKind::Aligned);
    rig.go_round();
    rig.order(CheckpointOrder::Abort(1));
    // Told of no more than the next.
    rig.trigger(2, BarrierKind::Aligned);
    rig.go_round();
    rig.trigger(3, BarrierKind::Aligned);
    rig.go_round();
    rig.order(CheckpointOrder::Abort(2));
    rig.permit(3);
    rig.wait_for(&["3: at once, later"]);
    rig.shared.refused.store(4, Ordering::SeqCst);
    rig.trigger(4, BarrierKind::Aligned);
    rig.wait_for(&["3: at once, later", "4 declined: no"]);
    rig.order(CheckpointOrder::Abort(4));
    rig.permit(5);
    rig.trigger(5, BarrierKind::Aligned);
    wait_until("it takes the next", || rig.reports().len() == 3);
    rig.running.finish_and_assert_all_segments_home();
}

#[test]
fn a_task_that_ends_meanwhile_writes_on_and_waits_for_a_checkpoint_behind_its_end() {
    let rig = Rig::new();
    rig.trigger(1, BarrierKind::Aligned);
    rig.go_round();
    rig.shared.ends.store(true, Ordering::SeqCst);
    rig.wait_for(&["finished"]);
    rig.go_round();
    // Told to overtake what it has taken: nothing is in line.
    let barrier =
        Barrier { checkpoint_id: CheckpointId::new(1), timestamp_ms: 0, kind: BarrierKind::AlignedWithTimeout };
    rig.order(CheckpointOrder::Overtake(barrier));
    rig.wait_for(&["finished", "1 overtook"]);
    rig.permit(2);
    rig.wait_for(&["finished", "1 overtook", "1: at once, later"]);
    rig.order(CheckpointOrder::Complete(1));
    assert!(rig.running.tasks[0].outcome().is_none());
    rig.trigger(2, BarrierKind::Aligned);
    rig.wait_for(&["finished", "1 overtook", "1: at once, later", "2: at once, finished, later, ended"]);
    rig.order(CheckpointOrder::Complete(2));
    rig.running.join();
    rig.running.finish_and_assert_all_segments_home();
}
