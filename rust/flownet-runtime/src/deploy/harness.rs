//! Runs the tasks of a job without threads, for tests. The owner of the harness takes every step, and moves
//! the clock.
//!
//! In all other respects they are the tasks of a job: loop, gates, partitions and chains are the same, in one
//! process. Nothing blocks: a wait for time lasts until the clock is moved.
//!
//! # Invariants
//! - I1: after a call nothing is left to do at the time that the clock shows.
//! - I2: the clock stops at each timer's time, so a timer that fires sees the time at which it is due.
//! - I3: opened chains are closed when the harness is closed or dropped, even after failures.

use std::collections::BTreeMap;
use std::sync::Arc;

use flownet_core::gate::InputGate;
use flownet_core::partition::{PartitionHandle, ResultPartition};
use flownet_core::record::writer::{FlushPolicy, RecordWriter};
use flownet_core::{ChannelIndex, ExchangeError, PartitionId, SubpartitionIndex};
use flownet_memory::{BufferPoolSettings, SegmentPool};
use flownet_net::{Inlets, ThreadParker};

use super::prepared::{check, full_name, selector};
use crate::chain::{TaskChain, TaskContext};
use crate::error::TaskError;
use crate::input::{ChannelPlace, TaskInput};
use crate::mailbox::Mailbox;
use crate::metrics::{MetricsSnapshot, TaskMetrics};
use crate::operator::{OperatorChain, RecordFormat};
use crate::outputs::Outputs;
use crate::snapshot::{Edges, RestoredPart, StatePart};
use crate::spec::TaskSpec;
use crate::task::{ManualTask, TaskSetup, TurnOutcome, catching};
use crate::time::WallClock;
use crate::user_metrics::UserMetricSnapshot;

/// Segments for data that was emitted and not yet read. They cost no memory until they are written.
const SEGMENTS: usize = 2048;
const SEGMENT_BYTES: usize = 32 << 10;

/// The tasks of a job on the caller's thread.
pub struct Harness {
    seats: Vec<HarnessTask>,
    clock: WallClock,
    /// Number of checkpoints so far.
    checkpoints: u64,
}

/// One task, and its state.
struct HarnessTask {
    name: String,
    spec: TaskSpec,
    task: Box<dyn ManualTask>,
    metrics: Arc<TaskMetrics>,
    partitions: Vec<PartitionHandle>,
    gate: Option<Arc<InputGate>>,
    is_open: bool,
    has_ended: bool,
}

/// Error that stopped a harness, and the task that failed.
#[derive(Clone, Debug)]
pub struct HarnessStop {
    /// Name of the task.
    pub task: String,
    /// Index of its subtask.
    pub subtask: u32,
    /// Subtasks of the task.
    pub parallelism: u32,
    /// The error of the task.
    pub error: TaskError,
}

impl Harness {
    /// The tasks of a whole job, upstream first, with their chains. All channels are between them. The clock
    /// shows `now_ms`.
    pub fn new(tasks: Vec<(TaskSpec, TaskChain)>, now_ms: i64, max_record_bytes: usize) -> Result<Self, TaskError> {
        let segments = SegmentPool::new(SEGMENTS, SEGMENT_BYTES).map_err(ExchangeError::from)?;
        let clock = WallClock::by_hand(now_ms);
        let mut partitions = BTreeMap::new();
        let mut seats = Vec::with_capacity(tasks.len());
        for (spec, chain) in tasks {
            check(&spec)?;
            seats.push(HarnessTask::new(spec, chain, (&segments, &mut partitions), &clock, max_record_bytes)?);
        }
        seats.iter().try_for_each(|seat| seat.connect(&partitions))?;
        Ok(Self { seats, clock, checkpoints: 0 })
    }

    /// Opens all chains, downstream ones first, so that a chain that emits while it opens reaches an open
    /// one. Tasks downstream of sources restore their parts of a [snapshot](Self::snapshot).
    pub fn open(&mut self, restored: &[StatePart]) -> Result<(), HarnessStop> {
        let restored: Vec<_> = restored.iter().cloned().map(RestoredPart::Here).collect();
        self.seats.iter_mut().rev().try_for_each(|seat| seat.step(|seat| seat.open(&restored)).map(drop))?;
        self.run()
    }

    /// The state of all tasks downstream of sources, as in a completed checkpoint.
    pub fn snapshot(&mut self) -> Result<Vec<StatePart>, HarnessStop> {
        self.run()?;
        self.checkpoints += 1;
        let (id, mut all) = (self.checkpoints, Vec::new());
        for seat in &mut self.seats {
            seat.step(|seat| seat.keep(id, &mut all))?;
        }
        Ok(all)
    }

    /// Takes every step that is possible at the time that the clock shows.
    pub fn run(&mut self) -> Result<(), HarnessStop> {
        loop {
            let mut has_moved = false;
            for seat in &mut self.seats {
                while seat.step(HarnessTask::turn)? {
                    has_moved = true;
                }
            }
            if !has_moved {
                return Ok(());
            }
        }
    }

    /// Moves the clock from timer to timer, and takes every step on the way. A clock never goes back.
    pub fn advance_to(&mut self, now_ms: i64) -> Result<(), HarnessStop> {
        self.run()?;
        while let Some(due_ms) = self.next_timer_ms().filter(|due_ms| *due_ms < now_ms) {
            self.clock.set(due_ms);
            self.run()?;
        }
        self.clock.set(now_ms);
        self.run()
    }

    /// Time of the clock.
    pub fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// Returns true if every task has reached the end of its input.
    pub fn has_ended(&self) -> bool {
        self.seats.iter().all(|seat| seat.has_ended)
    }

    /// The tasks whose records have this format, and their chains, in the order in which they were given.
    pub fn chains<M: RecordFormat>(&self) -> impl Iterator<Item = (&TaskSpec, &OperatorChain<M>)> {
        self.seats.iter().filter_map(|seat| Some((&seat.spec, seat.task.chain().downcast_ref()?)))
    }

    /// Counters of the tasks, in the same order.
    pub fn metrics(&self) -> impl Iterator<Item = (&TaskSpec, MetricsSnapshot)> {
        self.seats.iter().map(|seat| (&seat.spec, seat.metrics.snapshot()))
    }

    /// Metrics of their functions, in the same order.
    pub fn user_metrics(&self) -> impl Iterator<Item = UserMetricSnapshot> {
        self.seats.iter().flat_map(|seat| seat.metrics.users().snapshot())
    }

    /// Closes open chains. Returns the first error.
    pub fn close(&mut self) -> Result<(), HarnessStop> {
        let mut closed = Ok(());
        for seat in &mut self.seats {
            closed = closed.and(seat.step(HarnessTask::close).map(drop));
        }
        closed
    }

    /// Time of the next timer, if there is a later one.
    fn next_timer_ms(&self) -> Option<i64> {
        let waiting = self.seats.iter().filter(|seat| !seat.has_ended);
        waiting.filter_map(|seat| seat.task.next_timer_ms()).filter(|due_ms| *due_ms > self.now_ms()).min()
    }
}

impl HarnessTask {
    fn new(
        spec: TaskSpec,
        chain: TaskChain,
        (segments, partitions): (&Arc<SegmentPool>, &mut BTreeMap<PartitionId, PartitionHandle>),
        clock: &WallClock,
        max_record_bytes: usize,
    ) -> Result<Self, TaskError> {
        let mailbox = Mailbox::new();
        let cx = TaskContext::of(&spec, "harness".to_owned(), max_record_bytes, &mailbox, clock.clone());
        let (mut writers, mut output_pools, mut handles) = (Vec::new(), Vec::new(), Vec::new());
        for output in &spec.outputs {
            let pool = segments.create_buffer_pool(settings(output.subpartitions)).map_err(ExchangeError::from)?;
            let partition = ResultPartition::new(output.partition_id(), Arc::clone(&pool), output.subpartitions);
            partitions.insert(output.partition_id(), partition.handle());
            handles.push(partition.handle());
            writers.push(RecordWriter::new(
                partition,
                selector(output, &spec),
                FlushPolicy::EveryRecord,
                max_record_bytes,
            ));
            output_pools.push(pool);
        }
        let (parker, inlets) = (Arc::new(ThreadParker::current()), Inlets::new());
        let (cancel, metrics) = (cx.cancel.clone(), Arc::clone(&cx.metrics));
        let mut outputs =
            Outputs::new(writers, Arc::clone(&parker), Inlets::new(), cancel.clone(), Arc::clone(&metrics));
        outputs.is_alone = true;
        let places: Vec<_> = (spec.inputs.iter().enumerate())
            .flat_map(|(input, of)| {
                of.channels.iter().map(move |_| ChannelPlace {
                    input,
                    is_local: true,
                    in_iteration: of.in_iteration,
                    counts: Arc::default(),
                })
            })
            .collect();
        let gate = (!spec.is_source()).then(|| InputGate::new(u32::try_from(places.len()).unwrap_or(u32::MAX)));
        let input = gate
            .as_ref()
            .map(|gate| TaskInput::new(Arc::clone(gate), &places, max_record_bytes, cancel, Arc::clone(&metrics)));
        let task = chain.into_manual(TaskSetup {
            cx,
            input,
            inlets,
            outputs,
            output_pools,
            partitions: handles.clone(),
            mailbox,
            parker,
            checkpointing: None,
            edges: Edges::default(),
            markers: None,
        });
        let name = full_name(&spec);
        Ok(Self { name, spec, task, metrics, partitions: handles, gate, is_open: false, has_ended: false })
    }

    fn connect(&self, partitions: &BTreeMap<PartitionId, PartitionHandle>) -> Result<(), TaskError> {
        let Some(gate) = &self.gate else { return Ok(()) };
        let channels = self.spec.inputs.iter().flat_map(|input| &input.channels);
        for (index, channel) in (0..).map(ChannelIndex::new).zip(channels) {
            let (partition, subpartition) = (channel.partition_id(), SubpartitionIndex::new(channel.subpartition));
            let handle = partitions.get(&partition).ok_or(ExchangeError::PartitionNotFound { partition })?;
            let cell = handle.subpartition(subpartition);
            let cell = cell.ok_or(ExchangeError::SubpartitionNotFound { partition, subpartition })?;
            gate.set_local(index, Arc::clone(cell));
        }
        Ok(())
    }

    fn open(&mut self, restored: &[RestoredPart]) -> Result<bool, TaskError> {
        self.is_open = true;
        self.task.open(if self.spec.is_source() { &[] } else { restored })?;
        Ok(true)
    }

    /// Adds the state of the task, unless it is a source or has ended.
    fn keep(&mut self, checkpoint_id: u64, all: &mut Vec<StatePart>) -> Result<bool, TaskError> {
        if self.spec.is_source() || self.has_ended {
            return Ok(false);
        }
        self.task.keep(checkpoint_id, all)?;
        Ok(true)
    }

    /// Runs the task's loop once. Returns true if it has done anything.
    fn turn(&mut self) -> Result<bool, TaskError> {
        if self.has_ended {
            return Ok(false);
        }
        let turn = self.task.turn()?;
        self.has_ended = turn == TurnOutcome::Ended;
        Ok(turn != TurnOutcome::Waiting)
    }

    fn close(&mut self) -> Result<bool, TaskError> {
        if std::mem::take(&mut self.is_open) {
            self.task.close()?;
        }
        Ok(true)
    }

    /// Runs a step. A failure names the task.
    fn step(&mut self, step: impl FnOnce(&mut Self) -> Result<bool, TaskError>) -> Result<bool, HarnessStop> {
        let name = self.name.clone();
        let mut done = false;
        catching(&name, || {
            done = step(self)?;
            Ok(())
        })
        .map_err(|error| {
            let TaskSpec { subtask, parallelism, .. } = self.spec;
            HarnessStop { task: self.spec.name.clone(), subtask, parallelism, error }
        })?;
        Ok(done)
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        if let Err(HarnessStop { task, error, .. }) = self.close() {
            tracing::warn!(task, %error, "close() failed");
        }
        for seat in &self.seats {
            seat.partitions.iter().for_each(|partition| partition.release());
            if let Some(gate) = &seat.gate {
                gate.close();
            }
        }
    }
}

/// No limit: no other task takes segments while one runs.
fn settings(subpartitions: u32) -> BufferPoolSettings {
    let lanes = usize::try_from(subpartitions).unwrap_or(usize::MAX);
    BufferPoolSettings { min: 2, max: None, lanes, max_per_lane: usize::MAX, max_overdraft: 0 }
}
