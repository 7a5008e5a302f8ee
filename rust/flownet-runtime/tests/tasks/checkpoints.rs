//! Jobs that are cut off and go on from a checkpoint: the same results as those that were not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flownet_core::{Barrier, BarrierKind, CheckpointId};
use flownet_runtime::operator::{
    Asked, Assigner, Calls, Entry, Flow, KeyedRecord, Kind, Operator, Running as RunningFold, Sliced, Source, Trigger,
    TriggerCall, When, Windows,
};
use flownet_runtime::snapshot::{Input, Restored, Snapshot};
use flownet_runtime::spec::Partitioner;
use flownet_runtime::state::KeyGroupRange;
use flownet_runtime::time::{Clock, TimeSignal};
use flownet_runtime::window::{BuiltIn, Grid, TriggerResult, Window};
use flownet_runtime::{
    CheckpointMode, CheckpointOrder, CheckpointReport, Checkpointing, SourceStatus, StatePart, TaskContext, TaskError,
};

use crate::bytes::{Bytes, BytesExit, Counting, Step, chain_of};
use crate::rig::{Job, Running, wait_until};

/// Emits steps up to a limit that the test moves, and goes back to where it was.
struct Steps {
    steps: Arc<Vec<Step>>,
    next: usize,
    limit: Arc<AtomicUsize>,
}

impl Source<Bytes> for Steps {
    fn open(&mut self, (): (), _: &TaskContext) -> Result<(), TaskError> {
        Ok(())
    }

    fn emit<'m>(&mut self, flow: &mut Flow<'_, 'm, Bytes>) -> Result<SourceStatus, TaskError> {
        let end = self.steps.len().min(self.limit.load(Ordering::SeqCst)).min(self.next + 7).max(self.next);
        for step in &self.steps[self.next..end] {
            match *step {
                Step::Record(key, at_ms) => flow.emit_at(at_ms, vec![key])?,
                Step::Watermark(at_ms) => flow.emit_time(TimeSignal::Watermark(at_ms))?,
            }
        }
        self.next = end;
        Ok(match end {
            _ if end == self.steps.len() => SourceStatus::Finished,
            _ if end >= self.limit.load(Ordering::SeqCst) => {
                SourceStatus::Idle { wake_after: Duration::from_millis(1) }
            }
            _ => SourceStatus::More,
        })
    }

    fn snapshot(&mut self, (): (), to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        to.add_items("position", [(self.next as u64).to_le_bytes()]);
        Ok(())
    }

    fn restore(&mut self, (): (), from: &Restored<'_>) -> Result<(), TaskError> {
        for mut position in from.dealt_items("position", SOURCES as u32)? {
            self.next = u64::from_le_bytes(position.rest().try_into().unwrap()) as usize;
        }
        Ok(())
    }
}

/// Keeps all that it is given as state, and makes it known when it is told that this is final.
struct Kept {
    records: Vec<Vec<u8>>,
    seen: Arc<AtomicUsize>,
    committed: Arc<Mutex<Vec<Vec<u8>>>>,
    refuses: Arc<AtomicUsize>,
}

impl Operator<Bytes> for Kept {
    fn process<'m>(&mut self, record: Vec<u8>, _: &mut Flow<'_, 'm, Bytes>) -> Result<(), TaskError> {
        self.seen.fetch_add(1, Ordering::SeqCst);
        self.records.push(record);
        Ok(())
    }

    fn snapshot(&mut self, (): (), to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        if to.checkpoint_id() == self.refuses.load(Ordering::SeqCst) as u64 {
            return Err(TaskError::Config("the sink refuses".into()));
        }
        to.add_items("records", &self.records);
        Ok(())
    }

    fn restore(&mut self, (): (), from: &Restored<'_>) -> Result<(), TaskError> {
        for (_, mut record) in from.items("records")? {
            self.records.push(record.rest().to_vec());
        }
        Ok(())
    }

    fn commit(&mut self, _: &mut Flow<'_, '_, Bytes>) -> Result<(), TaskError> {
        *self.committed.lock().unwrap() = std::mem::take(&mut self.records);
        Ok(())
    }
}

/// Windows that ask nobody.
struct NoCalls;

impl Calls<Bytes> for NoCalls {
    type Kept = ();

    fn gap_ms(&mut self, _: &KeyedRecord<'_>, _: &mut Flow<'_, '_, Bytes>) -> Result<i64, TaskError> {
        unreachable!("the gap is fixed")
    }

    fn trigger(
        &mut self,
        _: TriggerCall<'_>,
        _: &mut Asked<'_, ()>,
        _: &mut Flow<'_, '_, Bytes>,
    ) -> Result<TriggerResult, TaskError> {
        unreachable!("the trigger is the product's")
    }

    fn merge_kept(&mut self, _: Window, (): &mut (), (): (), (): ()) -> Result<(), TaskError> {
        Ok(())
    }

    fn write_kept(&self, (): (), _: &[u8], (): &(), _: &mut Vec<u8>) -> Result<(), TaskError> {
        Ok(())
    }

    fn read_kept(&self, (): (), _: &mut Input<'_>) -> Result<(), TaskError> {
        Ok(())
    }

    fn open(&mut self, (): (), _: &TaskContext) -> Result<(), TaskError> {
        Ok(())
    }
}

/// What is done by key, where the results do not depend on when watermarks come.
#[derive(Clone, Copy, Debug)]
enum Keyed {
    Running,
    Tumbling,
    Sliding { lateness_ms: i64 },
    Session,
    ByCount,
}

const ALL: [Keyed; 6] = [
    Keyed::Running,
    Keyed::Tumbling,
    Keyed::Sliding { lateness_ms: 0 },
    Keyed::Sliding { lateness_ms: 8 },
    Keyed::Session,
    Keyed::ByCount,
];

impl Keyed {
    fn operator(self, range: KeyGroupRange) -> Box<dyn Operator<Bytes>> {
        let sliced = |size_ms, slide_ms, lateness_ms| {
            Box::new(Sliced::new(Counting, Clock::Event, Grid::new(size_ms, slide_ms, 0).unwrap(), lateness_ms, None))
        };
        let windows = |assigner, when| {
            let trigger = Trigger { when: When::BuiltIn(when), purges: false };
            Box::new(Windows::new((Counting, NoCalls), (assigner, trigger, Clock::Event), (0, None), range))
        };
        match self {
            Self::Running => Box::new(RunningFold::new(Counting, range)),
            Self::Tumbling => sliced(10, 10, 0),
            Self::Sliding { lateness_ms } => sliced(12, 4, lateness_ms),
            Self::Session => windows(Assigner::Session(Some(5)), BuiltIn::AtEnd),
            Self::ByCount => windows(Assigner::Grid(Grid::new(20, 20, 0).unwrap()), BuiltIn::Count(2)),
        }
    }
}

const SOURCES: usize = 2;
const MAX_PARALLELISM: u32 = 128;

/// One run of the job, and what the test needs to lead it.
struct Run {
    running: Running,
    limit: Arc<AtomicUsize>,
    seen: Arc<AtomicUsize>,
    refuses: Arc<AtomicUsize>,
    committed: Arc<Mutex<Vec<Vec<u8>>>>,
    reports: Arc<Mutex<Vec<(u32, CheckpointReport)>>>,
}

impl Run {
    /// Sources on two workers, `parallelism` subtasks by key, one sink.
    fn start(
        keyed: Keyed,
        parallelism: u32,
        mode: CheckpointMode,
        steps: &[Arc<Vec<Step>>; SOURCES],
        restored: &[StatePart],
    ) -> Self {
        let mut job = Job::new(2);
        let (limit, seen, refuses) = (Arc::default(), Arc::default(), Arc::default());
        let (committed, reports) = (Arc::default(), Arc::<Mutex<Vec<_>>>::default());
        let source = job.vertex("source", &[0, 1]);
        let placement: Vec<u32> = (0..parallelism).map(|subtask| subtask % 2).collect();
        let middle = job.vertex("keyed", &placement);
        let sink = job.vertex("sink", &[1]);
        job.edge(source, middle, Partitioner::KeyGroup);
        job.edge(middle, sink, Partitioner::Rebalance);
        job.run(source, |subtask| {
            let (steps, limit) = (Arc::clone(&steps[subtask as usize]), Arc::clone(&limit));
            let source = Kind::Source(Box::new(Steps { steps, next: 0, limit }));
            chain_of("source", source, None, Some((BytesExit { key_bytes: Some(1) }, true)))
        });
        job.run(middle, |subtask| {
            let operator = keyed.operator(KeyGroupRange::of(subtask, parallelism, MAX_PARALLELISM));
            let entry = Entry { side: 0, keyed: true, stamps: true };
            chain_of("keyed", Kind::Operator(operator), Some(entry), Some((BytesExit { key_bytes: None }, false)))
        });
        job.run(sink, |_| {
            let (seen, committed, refuses) = (Arc::clone(&seen), Arc::clone(&committed), Arc::clone(&refuses));
            let kept = Kept { records: vec![], seen, committed, refuses };
            chain_of("sink", Kind::Operator(Box::new(kept)), Some(Entry::default()), None)
        });
        let running = job.start_with(|spec| {
            let (reports, task) = (Arc::clone(&reports), spec.task_id);
            let report = Arc::new(move |report| reports.lock().unwrap().push((task, report)));
            Some(Checkpointing { mode, restored: restored.to_vec(), has_finished: false, report })
        });
        Self { running, limit, seen, refuses, committed, reports }
    }

    /// Lets sources come so far.
    fn go_to(&self, limit: usize) {
        self.limit.store(limit, Ordering::SeqCst);
    }

    fn order(&self, order: CheckpointOrder) {
        self.running.tasks.iter().for_each(|task| task.checkpoint(order));
    }

    fn trigger(&self, id: u64) {
        let barrier = Barrier { checkpoint_id: CheckpointId::new(id), timestamp_ms: 0, kind: BarrierKind::Aligned };
        self.order(CheckpointOrder::Trigger(barrier));
    }

    /// A checkpoint from its trigger to the acknowledgement of all.
    fn checkpoint(&self, id: u64) -> Vec<StatePart> {
        self.trigger(id);
        let tasks: BTreeSet<u32> = self.running.tasks.iter().map(|task| task.spec().task_id).collect();
        wait_until("all tasks acknowledge", || {
            let acknowledged: BTreeSet<u32> = self.acknowledged(id).into_keys().collect();
            acknowledged == tasks
        });
        self.acknowledged(id).into_values().flatten().collect()
    }

    fn acknowledged(&self, of: u64) -> BTreeMap<u32, Vec<StatePart>> {
        let reports = self.reports.lock().unwrap();
        let parts = reports.iter().filter_map(|(task, report)| match report {
            CheckpointReport::Acknowledged { checkpoint_id, parts, .. } if *checkpoint_id == of => {
                Some((*task, parts.clone()))
            }
            _ => None,
        });
        parts.collect()
    }

    fn has_finished(&self) -> bool {
        let finished = CheckpointReport::Finished { drain: true };
        let reports = self.reports.lock().unwrap();
        reports.iter().filter(|(_, report)| *report == finished).count() == self.running.tasks.len()
    }

    /// Runs to the end, which the checkpoint of this number keeps.
    fn run_to_end(self, id: u64) -> Vec<Vec<u8>> {
        self.go_to(usize::MAX);
        wait_until("all tasks have finished", || self.has_finished());
        assert!(self.committed.lock().unwrap().is_empty(), "nothing is final before a checkpoint stands");
        self.checkpoint(id);
        self.order(CheckpointOrder::Complete(id));
        self.running.join();
        let mut committed = std::mem::take(&mut *self.committed.lock().unwrap());
        self.running.finish_and_assert_all_segments_home();
        committed.sort();
        committed
    }

    /// Ends as if its processes had been killed.
    fn kill(self) {
        self.running.finish_and_assert_all_segments_home();
    }
}

/// Records of a few keys, out of order by a little, with watermarks that leave none of them late: what comes out does not
/// depend on how the two sources are read by turns. The same for each seed.
fn steps(seed: u64) -> [Arc<Vec<Step>>; SOURCES] {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    std::array::from_fn(|_| {
        let mut steps = Vec::new();
        for at in 0..120_i64 {
            steps.push(match next(6) {
                0 => Step::Watermark(at - 5),
                _ => Step::Record(next(9) as u8, at + next(8) as i64 - 4),
            });
        }
        Arc::new(steps)
    })
}

#[test]
fn a_job_that_is_killed_and_goes_on_from_a_checkpoint_gives_what_an_undisturbed_one_gives() {
    for (seed, keyed) in (0..).zip(ALL.into_iter().cycle().take(3 * ALL.len())) {
        let steps = steps(seed);
        let expected = Run::start(keyed, 2, CheckpointMode::ExactlyOnce, &steps, &[]).run_to_end(1);
        assert!(expected.len() > 10, "{keyed:?}: {}", expected.len());

        let mut restored = Vec::new();
        let (mut id, mut at) = (0, 0);
        for parallelism in [2, 3, 1] {
            let run = Run::start(keyed, parallelism, CheckpointMode::ExactlyOnce, &steps, &restored);
            at += 20 + seed as usize;
            run.go_to(at);
            id += 1;
            // While records are on their way.
            restored = run.checkpoint(id);
            run.order(CheckpointOrder::Complete(id));
            // What comes after the checkpoint is lost with the run.
            run.go_to(at + 11);
            std::thread::sleep(Duration::from_millis(seed % 3));
            run.kill();
        }
        let found = Run::start(keyed, 2, CheckpointMode::ExactlyOnce, &steps, &restored).run_to_end(id + 1);
        assert_eq!(found, expected, "{keyed:?}, seed {seed}");
    }
}

#[test]
fn at_least_once_loses_nothing() {
    let steps = steps(5);
    let distinct = |records: Vec<Vec<u8>>| records.into_iter().map(|record| record[8]).collect::<BTreeSet<u8>>();
    let expected = Run::start(Keyed::Running, 2, CheckpointMode::AtLeastOnce, &steps, &[]).run_to_end(1);
    let run = Run::start(Keyed::Running, 2, CheckpointMode::AtLeastOnce, &steps, &[]);
    run.go_to(60);
    let restored = run.checkpoint(1);
    run.kill();
    let found = Run::start(Keyed::Running, 2, CheckpointMode::AtLeastOnce, &steps, &restored).run_to_end(2);
    assert!(found.len() >= expected.len());
    assert_eq!(distinct(found), distinct(expected));
}

#[test]
fn a_checkpoint_that_an_operator_refuses_is_declined_and_the_next_one_is_taken() {
    let steps = steps(3);
    let run = Run::start(Keyed::Tumbling, 2, CheckpointMode::ExactlyOnce, &steps, &[]);
    run.go_to(40);
    run.refuses.store(1, Ordering::SeqCst);
    run.trigger(1);
    let declined = || {
        let reports = run.reports.lock().unwrap();
        reports.iter().any(|(_, report)| {
            matches!(report, CheckpointReport::Declined { checkpoint_id: 1, reason } if reason == "the sink refuses")
        })
    };
    wait_until("the sink declines", declined);
    run.order(CheckpointOrder::Abort(1));
    assert!(!run.checkpoint(2).is_empty());
    run.order(CheckpointOrder::Complete(2));
    assert!(run.run_to_end(3).len() > 10);
}

#[test]
fn channels_that_wait_for_a_checkpoint_go_on_when_it_is_given_up() {
    let steps = steps(4);
    let run = Run::start(Keyed::Running, 2, CheckpointMode::ExactlyOnce, &steps, &[]);
    run.go_to(30);
    // One source alone sends its barrier: those behind it wait for the other.
    let barrier = Barrier { checkpoint_id: CheckpointId::new(1), timestamp_ms: 0, kind: BarrierKind::Aligned };
    run.running.task("source", 0).checkpoint(CheckpointOrder::Trigger(barrier));
    wait_until("the source has sent it", || !run.acknowledged(1).is_empty());
    run.order(CheckpointOrder::Abort(1));
    run.checkpoint(2);
    run.order(CheckpointOrder::Complete(2));
    assert!(run.run_to_end(3).len() > 10);
}

#[test]
fn a_job_whose_tasks_have_all_finished_begins_again_at_its_end() {
    let steps = steps(6);
    let run = Run::start(Keyed::Session, 2, CheckpointMode::ExactlyOnce, &steps, &[]);
    run.go_to(usize::MAX);
    wait_until("all tasks have finished", || run.has_finished());
    let restored = run.checkpoint(1);
    let seen = run.seen.load(Ordering::SeqCst);
    run.kill();
    let again = Run::start(Keyed::Session, 3, CheckpointMode::ExactlyOnce, &steps, &restored);
    let again_seen = Arc::clone(&again.seen);
    assert_eq!(again.run_to_end(2).len(), seen);
    assert_eq!(again_seen.load(Ordering::SeqCst), 0, "nothing is emitted again");
}
