//! The contract between the task loop and the operators that it runs.

use std::sync::Arc;
use std::time::Duration;

use flownet_core::{CustomEvent, Round};
use serde::{Deserialize, Serialize};

use crate::error::TaskError;
use crate::flame::Stacks;
use crate::input::InputBatch;
use crate::mailbox::{CancelToken, Mailbox, TaskWaker};
use crate::metrics::TaskMetrics;
use crate::outputs::Outputs;
use crate::snapshot::{IsOver, RestoredPart, WrittenState};
use crate::source::RateLimit;
use crate::spec::{StateBackend, TaskSpec};
use crate::state::KeyGroupRange;
use crate::state_stats::StateStats;
use crate::time::{TimeSignal, WallClock};

/// All operators of one task, fused: records between them are never serialised.
///
/// The task thread makes all calls, one at a time. It calls `open` first, then `restore` if there is state to load.
/// Then it calls any mix of `process` (tasks with inputs) or `poll_source` (tasks without), `on_time`, `on_custom`,
/// `on_timer` and `on_arrived`. If the input reached its own end and was not stopped without draining, `on_time`
/// follows for [`END_OF_TIME_MS`](crate::time::END_OF_TIME_MS). If the input ended at all, `commit` follows. `close`
/// comes last, always. After a call that returns an error, only `close` follows. Exceptions are `snapshot` and
/// `write_on`, whose errors only fail their checkpoint.
///
/// In a job with checkpoints, `snapshot` may be called at any time between `open` and `close`, between two records.
/// After each snapshot the chain learns, at once or later, whether its checkpoint completed.
///
/// Calls should be bounded: cancels and timers are checked between them.
pub trait Chain: Send {
    /// Prepares the operators. State and timers start empty.
    fn open(&mut self, cx: &TaskContext) -> Result<(), TaskError>;

    /// Processes the records that have arrived: `while let Some((input, record)) = input.next()? { ... }`.
    ///
    /// Records left in the batch come again with the next call.
    fn process(&mut self, input: &mut InputBatch<'_>, out: &mut Outputs) -> Result<(), TaskError> {
        let _ = (input, out);
        Err(TaskError::Config("a chain without process() was given an input".into()))
    }

    /// Emits some records. Called only while the outputs are available. After each record it should call
    /// [`Outputs::spend`] to find out whether that was enough. Records beyond that count as a debt.
    fn poll_source(&mut self, out: &mut Outputs) -> Result<SourceStatus, TaskError> {
        let _ = out;
        Err(TaskError::Config("a chain without poll_source() was given no input".into()))
    }

    /// Adds splits for the source, as its operator encodes them. The source skips those that it knows.
    fn add_splits(&mut self, splits: &Arc<[u8]>) {
        let _ = splits;
    }

    /// The rate limit of a source, as set by the job's author. Called once, before the first poll.
    fn rate_limit(&self) -> Option<RateLimit> {
        None
    }

    /// Handles the event time of all inputs together, at `now_ms` of the wall clock. The chain sends it to its outputs,
    /// after the output that it causes. At the end of time, wall-clock timers fire too, so that nothing is lost.
    fn on_time(&mut self, signal: TimeSignal, now_ms: i64, out: &mut Outputs) -> Result<(), TaskError> {
        let _ = now_ms;
        out.tell_time_to_all(signal)
    }

    /// Handles an event that the upstream chain [sent](Outputs::send_custom), in its place among the records of its
    /// channel.
    fn on_custom(&mut self, event: &CustomEvent, out: &mut Outputs) -> Result<(), TaskError> {
        let _ = (event, out);
        Ok(())
    }

    /// Handles a round that has arrived on all inputs within an iteration. The chain sends it to its outputs within the
    /// iteration, after the output of the records before it.
    fn on_round(&mut self, round: Round, out: &mut Outputs) -> Result<(), TaskError> {
        let _ = (round, out);
        Ok(())
    }

    /// The input has ended, with `drain` if it reached its own end. If the chain has ended too, it returns its own
    /// `drain`: false if it leaves work to the run that resumes the job. Otherwise it waits for its waker, and the task
    /// calls this again after each call of the waker.
    fn end_input(&mut self, drain: bool, now_ms: i64, out: &mut Outputs) -> Result<Option<bool>, TaskError> {
        let _ = (now_ms, out);
        Ok(Some(drain))
    }

    /// The time at which it wants `on_timer` next, in milliseconds of wall-clock time since the epoch.
    ///
    /// Called once per batch, so it must be cheap.
    fn next_timer_ms(&self) -> Option<i64> {
        None
    }

    /// Wall-clock time has reached `next_timer_ms`. Fires everything due at `now_ms`.
    fn on_timer(&mut self, now_ms: i64, out: &mut Outputs) -> Result<(), TaskError> {
        let _ = (now_ms, out);
        Ok(())
    }

    /// Loads the state of its operators, and skips that of others.
    fn restore(&mut self, parts: &[RestoredPart]) -> Result<(), TaskError> {
        let _ = parts;
        Ok(())
    }

    /// Writes all state of the operators, and prepares the output that sinks commit with this checkpoint. It may build
    /// on the complete checkpoint `base`. Large state may be [written later](Self::write_on).
    fn snapshot(&mut self, checkpoint_id: u64, base: Option<u64>) -> Result<WrittenState, TaskError> {
        let _ = (checkpoint_id, base);
        Ok(WrittenState::default())
    }

    /// Returns true if part of the snapshot is yet to be written.
    fn is_writing(&self) -> bool {
        false
    }

    /// Continues to write the last snapshot, which is of this checkpoint, until all is written or `is_over` ends this
    /// turn. Returns the parts to add to the snapshot. An error only fails the checkpoint.
    fn write_on(&mut self, checkpoint_id: u64, is_over: IsOver<'_>) -> Result<WrittenState, TaskError> {
        let _ = (checkpoint_id, is_over);
        Ok(WrittenState::default())
    }

    /// The state stats of the operators, and the lag of the source. Called after `open`, and from time to time between
    /// two batches.
    fn tally(&self) -> StateStats {
        StateStats::default()
    }

    /// The data that is needed to decode records on their way to or from the chain, for a checkpoint that overtakes
    /// them.
    fn medium(&mut self) -> Result<Vec<Vec<u8>>, TaskError> {
        Ok(Vec::new())
    }

    /// Restores one item of [`medium`](Self::medium), before any record that needs it.
    fn learn(&mut self, kept: &[u8]) -> Result<(), TaskError> {
        let _ = kept;
        Ok(())
    }

    /// The checkpoint is complete: sinks commit the output that they prepared for it and for earlier ones.
    fn complete(&mut self, checkpoint_id: u64) -> Result<(), TaskError> {
        let _ = checkpoint_id;
        Ok(())
    }

    /// The checkpoint will never complete. The output that was prepared for it belongs to the next one, and no more is
    /// written for it.
    fn abort(&mut self, checkpoint_id: u64) -> Result<(), TaskError> {
        let _ = checkpoint_id;
        Ok(())
    }

    /// The input that the task awaits. A chain that is full because of its own records then takes input in between.
    fn await_input(&mut self, awaited: AwaitedInput) {
        let _ = awaited;
    }

    /// Returns true if it takes no more records for now, because its operators wait for something outside the exchange.
    /// The task then neither reads its input nor polls its source.
    ///
    /// Called once per batch, so it must be cheap.
    fn is_full(&self) -> bool {
        false
    }

    /// Sets the event time up to which the source may read, because of the sources that it is aligned with.
    fn align(&mut self, limit_ms: i64) {
        let _ = limit_ms;
    }

    /// Returns true if the source has read past that time. The task does not poll it then.
    ///
    /// Called once per poll, so it must be cheap.
    fn is_ahead(&self) -> bool {
        false
    }

    /// The [`TaskWaker`] was called: emits records that have arrived, at `now_ms` of the wall clock.
    fn on_arrived(&mut self, now_ms: i64, out: &mut Outputs) -> Result<(), TaskError> {
        let _ = (now_ms, out);
        Ok(())
    }

    /// The last record has been processed: sinks commit their output.
    fn commit(&mut self, out: &mut Outputs) -> Result<(), TaskError> {
        let _ = out;
        Ok(())
    }

    /// Releases the resources that `open` acquired. Called once, after success or failure. An error fails a task that
    /// has not failed yet, because a sink may write its last bytes here.
    fn close(&mut self) -> Result<(), TaskError> {
        Ok(())
    }
}

/// The input that a task awaits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AwaitedInput {
    /// Records only.
    Nothing,
    /// The barrier of a checkpoint.
    Barrier,
    /// The end of a job that is stopped without working off the queued records.
    Stop,
}

/// The state of a source after it has emitted some records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceStatus {
    /// There is more input: call again.
    More,
    /// No input for now; call again after this time, or earlier.
    Idle {
        /// The longest time that the task may sleep.
        wake_after: Duration,
    },
    /// The end: no input will ever follow.
    Finished,
}

/// Builds the chain of a task, on the worker that runs it.
pub trait ChainFactory: Send + Sync {
    /// Builds the operators of `task`.
    fn build(&self, task: &TaskSpec) -> Result<Box<dyn Chain>, TaskError>;

    /// Returns the reader of a running task's stacks, by its number. `None` if its functions have no readable stacks.
    /// Called on the thread that reads them.
    fn stacks(&self, task: u32) -> Option<Box<dyn Stacks>> {
        let _ = task;
        None
    }

    /// The garbage collections of this process's interpreter, if its chains have one. A control thread calls this for
    /// each status, so it must not block.
    fn garbage_collections(&self) -> GarbageCollections {
        GarbageCollections::default()
    }
}

/// Garbage collections of an interpreter, of all generations, since it runs tasks.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct GarbageCollections {
    /// Number of collections.
    pub count: u64,
    /// Their total duration.
    pub time: Duration,
}

/// The environment of a task, for its operators.
#[derive(Clone, Debug)]
pub struct TaskContext {
    /// Name of the vertex.
    pub task_name: String,
    /// Index of this subtask, less than `parallelism`.
    pub subtask: u32,
    /// Number of subtasks of the vertex.
    pub parallelism: u32,
    /// Number of key groups of the vertex.
    pub max_parallelism: u32,
    /// The key groups that this subtask owns.
    pub key_group_range: KeyGroupRange,
    /// The worker it runs on, as shown to users.
    pub worker: String,
    /// Longest record, in bytes.
    pub max_record_bytes: usize,
    /// Counters of the task, live.
    pub metrics: Arc<TaskMetrics>,
    /// Set when the task is cancelled; long calls should check it.
    pub cancel: CancelToken,
    /// Wakes the task when something has arrived for an operator.
    pub bell: TaskWaker,
    /// The wall clock of the task.
    pub clock: WallClock,
    /// True if the job takes checkpoints.
    pub takes_checkpoints: bool,
    /// The place where keyed state is stored.
    pub state: StateBackend,
    /// Number of channels of its widest output; 0 for a sink.
    pub channels: u32,
}

impl TaskContext {
    /// The context of a subtask that runs on `worker`.
    pub(crate) fn of(
        spec: &TaskSpec,
        worker: String,
        max_record_bytes: usize,
        mailbox: &Mailbox,
        clock: WallClock,
    ) -> Self {
        let TaskSpec { subtask, parallelism, max_parallelism, .. } = *spec;
        Self {
            task_name: spec.name.clone(),
            subtask,
            parallelism,
            max_parallelism,
            // Without keys the groups have no meaning, and there may be fewer of them than subtasks.
            key_group_range: KeyGroupRange::of(subtask, parallelism, max_parallelism.max(parallelism)),
            worker,
            max_record_bytes,
            metrics: Arc::new(TaskMetrics::new()),
            cancel: mailbox.cancel_token(),
            bell: mailbox.bell(),
            clock,
            takes_checkpoints: false,
            state: spec.state.clone(),
            channels: spec.outputs.iter().map(|output| output.subpartitions).max().unwrap_or(0),
        }
    }
}
