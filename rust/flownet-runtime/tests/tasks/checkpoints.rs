//! Jobs that are cut off and go on from a checkpoint: the same results as those that were not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use flownet_core::keygroup::{hash_key, key_group};
use flownet_core::{Barrier, BarrierKind, CheckpointId};
use flownet_runtime::operator::{
    AsOfJoin, Assigner, Calls, Collector, Entry, FiringRule, KeyedOperator, KeyedRecord, KeyedWindowOperator, Kind,
    Operator, RunningFold, SliceWindowOperator, Source, Trigger, TriggerCall, TriggeredWindow,
};
use flownet_runtime::snapshot::{Input, RestoredState, Share, Snapshot, TaskState, WrittenState};
use flownet_runtime::spec::{Partitioner, StateBackend};
use flownet_runtime::state::KeyGroupRange;
use flownet_runtime::time::{Clock, TimeSignal};
use flownet_runtime::window::{AlignedWindows, BuiltIn, TriggerResult, Window};
use flownet_runtime::{
    CancelToken, CheckpointContext, CheckpointMode, CheckpointOrder, CheckpointReport, SourceStatus, StatePart,
    TaskContext, TaskError,
};

use crate::bytes::{Bytes, BytesExit, CountingFold, Step, chain_of};
use crate::joins::BothStreams;
use crate::rig::{Job, RunningTask, now_and_then, wait_until};

/// Emits steps up to a limit that the test moves, and goes back to where it was.
struct Steps {
    steps: Arc<Vec<Step>>,
    next: usize,
    limit: Arc<AtomicUsize>,
    sources: u32,
}

impl Source<Bytes> for Steps {
    fn open(&mut self, (): (), _: &TaskContext) -> Result<(), TaskError> {
        Ok(())
    }

    fn emit<'m>(&mut self, collector: &mut Collector<'_, 'm, Bytes>) -> Result<SourceStatus, TaskError> {
        let end = self.steps.len().min(self.limit.load(Ordering::SeqCst)).min(self.next + 7).max(self.next);
        for step in &self.steps[self.next..end] {
            match *step {
                Step::Record(key, at_ms) => collector.emit_at(at_ms, vec![key])?,
                Step::Watermark(at_ms) => collector.emit_time(TimeSignal::Watermark(at_ms))?,
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

    fn restore(&mut self, (): (), from: &RestoredState<'_>) -> Result<(), TaskError> {
        for mut position in from.dealt_items("position", self.sources)? {
            self.next = u64::from_le_bytes(position.rest().try_into().unwrap()) as usize;
        }
        Ok(())
    }
}

/// Keeps all that it is given as state, and makes it known when it is told that this is final.
struct KeptSnapshot {
    records: Vec<Vec<u8>>,
    seen: Arc<AtomicUsize>,
    committed: Arc<Mutex<Vec<Vec<u8>>>>,
    refuses: Arc<AtomicUsize>,
    permits: Arc<Permits>,
}

/// How many records a slow sink may take, as the test says.
#[derive(Default)]
pub(crate) struct Permits {
    /// None where the sink takes what comes.
    left: Mutex<Option<usize>>,
    changed: Condvar,
}

impl Permits {
    /// From now on the sink takes no record for which it has no permit.
    pub(crate) fn limit(&self) {
        *self.left.lock().unwrap() = Some(0);
    }

    pub(crate) fn lift(&self) {
        *self.left.lock().unwrap() = None;
        self.changed.notify_one();
    }

    pub(crate) fn grant(&self) {
        if let Some(left) = &mut *self.left.lock().unwrap() {
            *left += 1;
        }
        self.changed.notify_one();
    }

    /// Waits for a permit, or until the task is told to stop.
    fn take(&self, cancel: &CancelToken) -> Result<(), TaskError> {
        let mut left = self.left.lock().unwrap();
        while *left == Some(0) {
            cancel.check()?;
            // Nobody is told that a task is to stop: it looks itself.
            left = self.changed.wait_timeout(left, Duration::from_millis(1)).unwrap().0;
        }
        *left = left.map(|left| left - 1);
        Ok(())
    }
}

impl Operator<Bytes> for KeptSnapshot {
    fn process<'m>(&mut self, record: Vec<u8>, collector: &mut Collector<'_, 'm, Bytes>) -> Result<(), TaskError> {
        self.permits.take(collector.cancel())?;
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

    fn restore(&mut self, (): (), from: &RestoredState<'_>) -> Result<(), TaskError> {
        for (_, mut record) in from.items("records")? {
            self.records.push(record.rest().to_vec());
        }
        Ok(())
    }

    fn commit(&mut self, _: &mut Collector<'_, '_, Bytes>) -> Result<(), TaskError> {
        *self.committed.lock().unwrap() = std::mem::take(&mut self.records);
        Ok(())
    }
}

/// Windows that ask nobody.
struct NoCalls;

impl Calls<Bytes> for NoCalls {
    type TriggerState = ();

    fn gap_ms(&mut self, _: &KeyedRecord<'_>, _: &mut Collector<'_, '_, Bytes>) -> Result<i64, TaskError> {
        unreachable!("the gap is fixed")
    }

    fn trigger(
        &mut self,
        _: TriggerCall<'_>,
        _: &mut TriggeredWindow<'_, ()>,
        _: &mut Collector<'_, '_, Bytes>,
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
pub(crate) enum KeyedJob {
    Running,
    Tumbling,
    Sliding { lateness_ms: i64 },
    Session,
    LateSession { lateness_ms: i64 },
    ByCount,
    AsOf,
}

pub(crate) const ALL: [KeyedJob; 6] = [
    KeyedJob::Running,
    KeyedJob::Tumbling,
    KeyedJob::Sliding { lateness_ms: 0 },
    KeyedJob::Sliding { lateness_ms: 8 },
    KeyedJob::Session,
    KeyedJob::ByCount,
];

impl KeyedJob {
    fn operator(self, range: KeyGroupRange) -> Box<dyn KeyedOperator<Bytes>> {
        let sliced = |size_ms, slide_ms, lateness_ms| {
            Box::new(SliceWindowOperator::new(
                CountingFold,
                Clock::Event,
                AlignedWindows::new(size_ms, slide_ms, 0).unwrap(),
                lateness_ms,
                [None, None],
            ))
        };
        let windows = |assigner, when, lateness_ms| {
            let trigger = Trigger { when: FiringRule::BuiltIn(when), purges: false };
            Box::new(KeyedWindowOperator::new(
                (CountingFold, NoCalls),
                (assigner, trigger, Clock::Event),
                (lateness_ms, [None, None]),
                range,
            ))
        };
        match self {
            Self::Running => Box::new(RunningFold::new(CountingFold, range)),
            Self::Tumbling => sliced(10, 10, 0),
            Self::Sliding { lateness_ms } => sliced(12, 4, lateness_ms),
            Self::Session => windows(Assigner::Session(Some(5)), BuiltIn::AtEnd, 0),
            Self::LateSession { lateness_ms } => windows(Assigner::Session(Some(5)), BuiltIn::AtEnd, lateness_ms),
            Self::ByCount => windows(Assigner::Grid(AlignedWindows::new(20, 20, 0).unwrap()), BuiltIn::Count(2), 0),
            Self::AsOf => Box::new(AsOfJoin::new(BothStreams, true, [None, None], range)),
        }
    }

    /// The key of a result.
    fn key_of(self, result: &[u8]) -> u8 {
        if let Self::AsOf = self { result[1] } else { result[8] }
    }
}

const SOURCES: usize = 2;
const MAX_PARALLELISM: u32 = 128;

/// One run of the job, and what the test needs to lead it.
pub(crate) struct Run {
    running: RunningTask,
    limit: Arc<AtomicUsize>,
    pub(crate) seen: Arc<AtomicUsize>,
    refuses: Arc<AtomicUsize>,
    committed: Arc<Mutex<Vec<Vec<u8>>>>,
    reports: Arc<Mutex<Vec<(u32, CheckpointReport)>>>,
    /// States of subtasks that lay on disk in part at a checkpoint.
    on_disk: Arc<AtomicUsize>,
    pub(crate) permits: Arc<Permits>,
    /// Of the barriers that sources send.
    pub(crate) kind: BarrierKind,
}

impl Run {
    /// Sources on up to two workers, `parallelism` subtasks by key, one sink.
    pub(crate) fn start(
        keyed: KeyedJob,
        parallelism: u32,
        mode: CheckpointMode,
        steps: &[Arc<Vec<Step>>],
        restored: &[StatePart],
    ) -> Self {
        Self::start_with(keyed, (parallelism, StateBackend::Memory), mode, steps, restored)
    }

    /// The same with state by key where it is told to be.
    fn start_with(
        keyed: KeyedJob,
        (parallelism, state): (u32, StateBackend),
        mode: CheckpointMode,
        steps: &[Arc<Vec<Step>>],
        restored: &[StatePart],
    ) -> Self {
        let mut job = Job::new(2);
        job.state = state;
        let (limit, seen, refuses) = (Arc::default(), Arc::default(), Arc::default());
        let (committed, reports) = (Arc::default(), Arc::<Mutex<Vec<_>>>::default());
        let (permits, on_disk) = (Arc::<Permits>::default(), Arc::<AtomicUsize>::default());
        let source = job.vertex("source", &[0, 1][..steps.len()]);
        let sources = steps.len() as u32;
        let placement: Vec<u32> = (0..parallelism).map(|subtask| subtask % 2).collect();
        let middle = job.vertex("keyed", &placement);
        let sink = job.vertex("sink", &[1]);
        job.edge(source, middle, Partitioner::KeyGroup);
        job.edge(middle, sink, Partitioner::Rebalance);
        job.run(source, |subtask| {
            let (steps, limit) = (Arc::clone(&steps[subtask as usize]), Arc::clone(&limit));
            let source = Kind::Source(Box::new(Steps { steps, next: 0, limit, sources }));
            chain_of("source", source, None, Some((BytesExit::keyed(1), true)))
        });
        job.run(middle, |subtask| {
            let operator = keyed.operator(KeyGroupRange::of(subtask, parallelism, MAX_PARALLELISM));
            let entry = Entry { side: 0, keyed: true, stamps: true };
            chain_of("keyed", Kind::Keyed(operator), Some(entry), Some((BytesExit::any(), false)))
        });
        job.run(sink, |_| {
            let (seen, committed, refuses) = (Arc::clone(&seen), Arc::clone(&committed), Arc::clone(&refuses));
            let kept = KeptSnapshot { records: vec![], seen, committed, refuses, permits: Arc::clone(&permits) };
            chain_of("sink", Kind::Operator(Box::new(kept)), Some(Entry::default()), None)
        });
        let running = job.start_with(|spec| {
            let (reports, task) = (Arc::clone(&reports), spec.task_id);
            let on_disk = Arc::clone(&on_disk);
            let report = Arc::new(move |report| {
                let (report, pieces) = with_pieces(report);
                on_disk.fetch_add(pieces, Ordering::SeqCst);
                reports.lock().unwrap().push((task, report));
            });
            let overtakes = mode == CheckpointMode::ExactlyOnce;
            Some(CheckpointContext {
                mode,
                overtakes,
                restored: restored.iter().cloned().map(Into::into).collect(),
                has_finished: false,
                report,
            })
        });
        let kind = BarrierKind::Aligned;
        Self { running, limit, seen, refuses, committed, reports, on_disk, permits, kind }
    }

    /// Lets sources come so far.
    pub(crate) fn go_to(&self, limit: usize) {
        self.limit.store(limit, Ordering::SeqCst);
    }

    pub(crate) fn order(&self, order: CheckpointOrder) {
        self.running.tasks.iter().for_each(|task| task.checkpoint(order));
    }

    pub(crate) fn trigger(&self, id: u64) {
        let barrier = Barrier { checkpoint_id: CheckpointId::new(id), timestamp_ms: 0, kind: self.kind };
        self.order(CheckpointOrder::Trigger(barrier));
    }

    /// The checkpoint has taken too long.
    pub(crate) fn overtake(&self, id: u64) {
        let kind = BarrierKind::AlignedWithTimeout;
        self.order(CheckpointOrder::Overtake(Barrier { checkpoint_id: CheckpointId::new(id), timestamp_ms: 0, kind }));
    }

    /// A checkpoint from its trigger to the acknowledgement of all.
    pub(crate) fn checkpoint(&self, id: u64) -> Vec<StatePart> {
        self.trigger(id);
        self.await_acknowledged(id, || true)
    }

    /// The same of one that was told to overtake.
    pub(crate) fn checkpoint_overtaken(&self, id: u64) -> Vec<StatePart> {
        self.await_acknowledged(id, || self.has_overtaken(id))
    }

    fn await_acknowledged(&self, id: u64, is_whole: impl Fn() -> bool) -> Vec<StatePart> {
        let mut is_time = now_and_then();
        wait_until("all tasks acknowledge", || {
            // A slow sink looks up between two records; who waits for room behind it may need one, too.
            let is_awaited = self.is_acknowledged(id, |name| name != "sink");
            if is_awaited || is_time() {
                self.permits.grant();
            }
            self.is_acknowledged(id, |_| true) && is_whole()
        });
        made_of(&self.reports.lock().unwrap(), id)
    }

    /// A checkpoint that counts, behind the first so many steps of each source.
    fn checkpoint_behind(&self, step: usize, ids: &mut impl Iterator<Item = u64>) -> Vec<StatePart> {
        self.go_to(step);
        let is_there = |part: &StatePart| part.bytes.ends_with(&(step as u64).to_le_bytes());
        let mut take = || {
            let id = ids.next().unwrap();
            let parts = self.checkpoint(id);
            self.order(CheckpointOrder::Complete(id));
            parts
        };
        loop {
            let parts = take();
            if parts.iter().filter(|part| part.name == "position").all(is_there) {
                return parts;
            }
        }
    }

    /// Parts of changes so far.
    fn of_changes(&self) -> usize {
        let reports = self.reports.lock().unwrap();
        let parts = reports.iter().filter_map(|(_, report)| match report {
            CheckpointReport::Acknowledged { state, .. } => Some(&state.written.parts),
            _ => None,
        });
        parts.flatten().filter(|part| part.is_of_changes()).count()
    }

    fn is_acknowledged(&self, id: u64, is_meant: impl Fn(&str) -> bool) -> bool {
        let acknowledged = self.acknowledged(id);
        let mut running = self.running.tasks.iter().filter(|task| task.outcome().is_none());
        let mut running = running.by_ref().filter(|task| is_meant(&task.spec().name));
        running.all(|task| acknowledged.contains_key(&task.spec().task_id))
    }

    pub(crate) fn acknowledged(&self, of: u64) -> BTreeMap<u32, Vec<StatePart>> {
        let reports = self.reports.lock().unwrap();
        let parts = reports.iter().filter_map(|(task, report)| match report {
            CheckpointReport::Acknowledged { checkpoint_id, state, .. } if *checkpoint_id == of => {
                Some((*task, state.written.parts.clone()))
            }
            _ => None,
        });
        parts.collect()
    }

    /// Whether every task that runs has overtaken for it, if it was told to.
    pub(crate) fn has_overtaken(&self, of: u64) -> bool {
        let reports = self.reports.lock().unwrap();
        let has = |task: u32| {
            reports.iter().any(|(by, report)| {
                *by == task
                    && matches!(report, CheckpointReport::Overtook { checkpoint_id, .. } if *checkpoint_id == of)
            })
        };
        self.running.tasks.iter().filter(|task| task.outcome().is_none()).all(|task| has(task.spec().task_id))
    }

    fn has_finished(&self) -> bool {
        self.finished() == self.running.tasks.len()
    }

    /// How many tasks have come to the end of their input.
    pub(crate) fn finished(&self) -> usize {
        let finished = CheckpointReport::Finished { drain: true };
        self.reports.lock().unwrap().iter().filter(|(_, report)| *report == finished).count()
    }

    /// Whether all subtasks of a vertex have ended.
    pub(crate) fn has_ended(&self, name: &str) -> bool {
        self.running.tasks.iter().filter(|task| task.spec().name == name).all(|task| task.outcome().is_some())
    }

    /// Runs to the end, which the checkpoint of this number keeps.
    pub(crate) fn run_to_end(self, id: u64) -> Vec<Vec<u8>> {
        self.permits.lift();
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
    pub(crate) fn kill(self) {
        self.running.finish_and_assert_all_segments_home();
    }
}

/// The same with what lies on disk among the parts, and of how many states something does.
fn with_pieces(report: CheckpointReport) -> (CheckpointReport, usize) {
    let CheckpointReport::Acknowledged { checkpoint_id, state, end, aligned_us, snapshot_us } = report else {
        return (report, 0);
    };
    let TaskState { written: WrittenState { parts, pieces }, base } = state;
    let on_disk = pieces.iter().flat_map(|pieces| std::iter::from_fn(|| pieces.take().unwrap()));
    let parts = on_disk.chain(parts).collect();
    let states = pieces.len();
    let state = TaskState { written: WrittenState { parts, pieces: vec![] }, base };
    let report = CheckpointReport::Acknowledged { checkpoint_id, state, end, aligned_us, snapshot_us };
    (report, states)
}

/// What a checkpoint is made of: changes behind what they build on.
fn made_of(reports: &[(u32, CheckpointReport)], id: u64) -> Vec<StatePart> {
    let mut all = Vec::new();
    for (_, report) in reports {
        let (CheckpointReport::Acknowledged { checkpoint_id, state, .. }
        | CheckpointReport::Overtook { checkpoint_id, state }) = report
        else {
            continue;
        };
        let TaskState { written: WrittenState { parts, .. }, base } = state;
        for (place, part) in parts.iter().enumerate().filter(|_| *checkpoint_id == id) {
            let is_same =
                |before: &StatePart| (&before.uid, &before.name, before.share) == (&part.uid, &part.name, part.share);
            // Others build on pieces of what lay on disk.
            if part.is_of_changes() && !parts[..place].iter().any(is_same) {
                all.extend(made_of(reports, base.unwrap()).into_iter().filter(is_same));
            }
            all.push(part.clone());
        }
    }
    all
}

/// State on disk that has room for so much in memory.
fn on_disk(memory_bytes: usize) -> StateBackend {
    StateBackend::Disk { memory_bytes, folder: None }
}

/// Where state lies in runs that follow each other.
fn state_in_turn() -> [[StateBackend; 3]; 3] {
    let memory = || StateBackend::Memory;
    [[memory(), memory(), memory()], [on_disk(0), on_disk(3000), on_disk(0)], [memory(), on_disk(2000), memory()]]
}

/// Many keys, of which few come again, before time passes; none is late.
fn steps_of_few_among_many() -> [Arc<Vec<Step>>; SOURCES] {
    std::array::from_fn(|source| {
        let all = (0..100).map(|key: u8| Step::Record(key, i64::from(key % 10)));
        let few = (0..60).map(|number: u8| Step::Record(number % 5, i64::from(number % 10)));
        let later = (0..60).flat_map(|at| {
            let record = |key: i64| Step::Record(u8::try_from((at * 7 + key) % 13).unwrap(), 10 + at + key % 3);
            [record(0), record(source as i64), Step::Watermark(9 + at)]
        });
        Arc::new([Step::Watermark(-20)].into_iter().chain(all).chain(few).chain(later).collect())
    })
}

#[test]
fn a_job_goes_on_from_changes_upon_changes() {
    let more = [KeyedJob::LateSession { lateness_ms: 8 }, KeyedJob::AsOf];
    let kinds = ALL.into_iter().chain(more).flat_map(|keyed| state_in_turn().map(|backends| (keyed, backends)));
    for (keyed, backends) in kinds {
        let steps = steps_of_few_among_many();
        let expected = Run::start(keyed, 2, CheckpointMode::ExactlyOnce, &steps, &[]).run_to_end(1);
        let has_disk = backends.iter().any(|state| *state != StateBackend::Memory);
        let (mut restored, mut ids, mut of_changes, mut on_disk) = (Vec::new(), 1.., 0, 0);
        for ((parallelism, stops), state) in [(2, 101..161), (3, 161..200), (1, 200..330)].into_iter().zip(backends) {
            let run = Run::start_with(keyed, (parallelism, state), CheckpointMode::ExactlyOnce, &steps, &restored);
            for step in stops.step_by(9) {
                restored = run.checkpoint_behind(step, &mut ids);
            }
            of_changes += run.of_changes();
            on_disk += run.on_disk.load(Ordering::SeqCst);
            run.kill();
        }
        assert!(of_changes > 3, "{keyed:?}: {of_changes}");
        assert_eq!(on_disk > 0, has_disk, "{keyed:?}: {on_disk}");
        let found =
            Run::start(keyed, 2, CheckpointMode::ExactlyOnce, &steps, &restored).run_to_end(ids.next().unwrap());
        assert_eq!(found, expected, "{keyed:?}");
    }
}

/// Records of a few keys, out of order by a little, with watermarks that leave none of them late: what comes out does not
/// depend on how the two sources are read by turns. The same for each seed.
pub(crate) fn steps(seed: u64) -> [Arc<Vec<Step>>; SOURCES] {
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
        let backends = state_in_turn().into_iter().cycle().nth(seed as usize / ALL.len()).unwrap();
        for (parallelism, state) in [2, 3, 1].into_iter().zip(backends) {
            let run = Run::start_with(keyed, (parallelism, state), CheckpointMode::ExactlyOnce, &steps, &restored);
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
fn a_task_some_of_whose_inputs_wait_for_the_barriers_of_others_says_so() {
    let run = Run::start(KeyedJob::Running, 1, CheckpointMode::ExactlyOnce, &steps(1), &[]);
    run.go_to(20);
    let trigger = |subtask| {
        let barrier = Barrier { checkpoint_id: CheckpointId::new(1), timestamp_ms: 0, kind: run.kind };
        run.running.task("source", subtask).checkpoint(CheckpointOrder::Trigger(barrier));
    };
    let time = |name: &str| run.running.task(name, 0).metrics().time;
    trigger(0);
    wait_until("one of two channels waits", || time("keyed").waiting_for_barrier > Duration::from_millis(20));
    trigger(1);
    run.await_acknowledged(1, || true);
    let (idle, waited) = (time("keyed").idle, time("keyed").waiting_for_barrier);
    wait_until("there is nothing to read", || time("keyed").idle > idle + Duration::from_millis(20));
    assert_eq!(time("keyed").waiting_for_barrier, waited, "both barriers have come");
    assert_eq!(time("sink").waiting_for_barrier, Duration::ZERO, "it has one channel");
    run.kill();
}

#[test]
fn event_time_does_not_go_back_when_channels_begin_anew() {
    // Behind the checkpoint a channel comes back that is behind, as one that was idle does.
    let steps = [Step::Record(1, 5), Step::Watermark(100)].into_iter();
    let behind = [Step::Watermark(50), Step::Record(1, 60), Step::Record(2, 7), Step::Record(1, 130)];
    let steps: Arc<Vec<Step>> = Arc::new(steps.chain(behind).collect());
    let steps = [Arc::clone(&steps), steps];
    for keyed in [KeyedJob::Tumbling, KeyedJob::Sliding { lateness_ms: 8 }, KeyedJob::Session] {
        let start = |parallelism, restored: &[StatePart]| {
            Run::start(keyed, parallelism, CheckpointMode::ExactlyOnce, &steps, restored)
        };
        let watermarks_came = |run: &Run| {
            run.go_to(2);
            wait_until("windows fire", || run.seen.load(Ordering::SeqCst) > 0);
        };
        let run = start(2, &[]);
        watermarks_came(&run);
        run.checkpoint(1);
        run.order(CheckpointOrder::Complete(1));
        let expected = run.run_to_end(2);
        for parallelism in [1, 2, 3] {
            let run = start(2, &[]);
            watermarks_came(&run);
            let restored = run.checkpoint(1);
            run.kill();
            let found = start(parallelism, &restored).run_to_end(2);
            assert_eq!(found, expected, "{keyed:?}, {parallelism} subtasks: a window that is over is not opened again");
        }
    }
}

/// A run of one source until it has come to this step, and what is kept then.
fn kept_at(keyed: KeyedJob, steps: &[Arc<Vec<Step>>], step: usize) -> Vec<StatePart> {
    let run = Run::start(keyed, 2, CheckpointMode::ExactlyOnce, steps, &[]);
    run.go_to(step);
    let is_there = |part: &StatePart| part.name == "position" && part.bytes.ends_with(&(step as u64).to_le_bytes());
    let kept = (1..).map(|id| run.checkpoint(id)).find(|parts| parts.iter().any(is_there)).unwrap();
    run.kill();
    kept
}

#[test]
fn event_time_of_a_key_does_not_go_back_whoever_owns_it_then() {
    // One of two subtasks has come to 50, the other one to 100: how far each key has come stays.
    let kinds = [
        KeyedJob::Tumbling,
        KeyedJob::Sliding { lateness_ms: 0 },
        KeyedJob::Sliding { lateness_ms: 8 },
        KeyedJob::Session,
        KeyedJob::LateSession { lateness_ms: 8 },
        KeyedJob::ByCount,
        KeyedJob::AsOf,
    ];
    let is_of_first = |key: u8| key_group(hash_key(&[key]), MAX_PARALLELISM).get() < 64;
    for (seed, keyed) in (0..).zip(kinds.into_iter().cycle().take(2 * kinds.len())) {
        let [before, after] = steps(seed);
        let until_50 = before.iter().take(50).copied().chain([Step::Watermark(50)]);
        let later = after.iter().skip(40).map(|step| match *step {
            Step::Watermark(at_ms) => Step::Watermark(at_ms + 10),
            record => record,
        });
        let steps = [Arc::new(until_50.chain([Step::Watermark(100)]).chain(later).collect::<Vec<_>>())];
        let (at_50, at_100) = (kept_at(keyed, &steps, 51), kept_at(keyed, &steps, 52));
        let source: Vec<_> = at_100.iter().filter(|part| part.uid == "source").cloned().collect();
        let of = |parts: &[StatePart], subtask: u16| -> Vec<StatePart> {
            let is_of = |part: &&StatePart| {
                part.uid == "keyed" && matches!(part.share, Share::Groups { first, .. } if first == 64 * subtask)
            };
            parts.iter().filter(is_of).cloned().collect()
        };
        let go_on = |parallelism, parts: [&[StatePart]; 2]| {
            let restored = [&source, parts[0], parts[1]].concat();
            Run::start(keyed, parallelism, CheckpointMode::ExactlyOnce, &steps, &restored)
        };
        let further = go_on(2, [&of(&at_100, 0), &of(&at_100, 1)]).run_to_end(1);
        let behind = go_on(2, [&of(&at_50, 0), &of(&at_50, 1)]).run_to_end(1);
        let further = further.into_iter().filter(|result| is_of_first(keyed.key_of(result)));
        let behind = behind.into_iter().filter(|result| !is_of_first(keyed.key_of(result)));
        let mut expected: Vec<_> = further.chain(behind).collect();
        expected.sort();
        assert!(expected.len() > 10, "{keyed:?}: {}", expected.len());
        for (parallelism, then) in [(2, 2), (1, 3), (3, 1)] {
            let run = go_on(parallelism, [&of(&at_100, 0), &of(&at_50, 1)]);
            run.go_to(52 + 10 * seed as usize % 30);
            let again = run.checkpoint(1);
            run.kill();
            let found = Run::start(keyed, then, CheckpointMode::ExactlyOnce, &steps, &again).run_to_end(2);
            assert_eq!(found, expected, "{keyed:?}, seed {seed}, {parallelism} and then {then} subtasks");
        }
    }
}

#[test]
fn at_least_once_loses_nothing() {
    let steps = steps(5);
    let distinct = |records: Vec<Vec<u8>>| records.into_iter().map(|record| record[8]).collect::<BTreeSet<u8>>();
    let expected = Run::start(KeyedJob::Running, 2, CheckpointMode::AtLeastOnce, &steps, &[]).run_to_end(1);
    let run = Run::start(KeyedJob::Running, 2, CheckpointMode::AtLeastOnce, &steps, &[]);
    run.go_to(60);
    let restored = run.checkpoint(1);
    run.kill();
    let found = Run::start(KeyedJob::Running, 2, CheckpointMode::AtLeastOnce, &steps, &restored).run_to_end(2);
    assert!(found.len() >= expected.len());
    assert_eq!(distinct(found), distinct(expected));
}

#[test]
fn a_checkpoint_that_an_operator_refuses_is_declined_and_the_next_one_is_taken() {
    let steps = steps(3);
    let run = Run::start(KeyedJob::Tumbling, 2, CheckpointMode::ExactlyOnce, &steps, &[]);
    run.go_to(40);
    run.refuses.store(1, Ordering::SeqCst);
    run.trigger(1);
    let declined = || {
        let reports = run.reports.lock().unwrap();
        reports.iter().any(|(_, report)| {
            matches!(report, CheckpointReport::Declined { checkpoint_id: 1, reason, .. } if reason == "the sink refuses")
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
    let run = Run::start(KeyedJob::Running, 2, CheckpointMode::ExactlyOnce, &steps, &[]);
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
    let run = Run::start(KeyedJob::Session, 2, CheckpointMode::ExactlyOnce, &steps, &[]);
    run.go_to(usize::MAX);
    wait_until("all tasks have finished", || run.has_finished());
    let restored = run.checkpoint(1);
    let seen = run.seen.load(Ordering::SeqCst);
    run.kill();
    let again = Run::start(KeyedJob::Session, 3, CheckpointMode::ExactlyOnce, &steps, &restored);
    let again_seen = Arc::clone(&again.seen);
    assert_eq!(again.run_to_end(2).len(), seen);
    assert_eq!(again_seen.load(Ordering::SeqCst), 0, "nothing is emitted again");
}
