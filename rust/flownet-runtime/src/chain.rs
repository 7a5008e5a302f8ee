//! What runs inside a task: the contract between the task loop and the operators it drives.

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
/// The task thread calls everything here, one call at a time, in this order: `open`, and `restore` if there is something to
/// begin with; then any mix of `process` (tasks
/// with inputs) or `poll_source` (tasks without), `on_time`, `on_custom`, `on_timer` and `on_arrived`; then, if the input came to its own
/// end and was not stopped without draining, `on_time` for [`END_OF_TIME_MS`](crate::time::END_OF_TIME_MS); if it ended at
/// all, `commit`; then `close`, always. A call that returns an error is followed by `close` only, but for `snapshot`, whose
/// error is that of a checkpoint, and for `write_on`.
///
/// Of a job with checkpoints, `snapshot` may be called at any time between `open` and `close`, between two records; each
/// snapshot is followed, now or later, by what became of its checkpoint.
///
/// Calls should be bounded: cancels and timers are looked at between them.
pub trait Chain: Send {
    /// Prepares the operators. State and timers start empty.
    fn open(&mut self, cx: &TaskContext) -> Result<(), TaskError>;

    /// Takes the records that have arrived: `while let Some((input, record)) = input.next()? { ... }`.
    ///
    /// Records left in the batch come again with the next call.
    fn process(&mut self, input: &mut InputBatch<'_>, out: &mut Outputs) -> Result<(), TaskError> {
        let _ = (input, out);
        Err(TaskError::Config("a chain without process() was given an input".into()))
    }

    /// Produces some records; called only while the outputs are available. After each record it should ask
    /// [`Outputs::spend`] whether that was enough; what it produces beyond counts as a debt.
    fn poll_source(&mut self, out: &mut Outputs) -> Result<SourceStatus, TaskError> {
        let _ = out;
        Err(TaskError::Config("a chain without poll_source() was given no input".into()))
    }

    /// There is more for the source to read, as its operator writes it; what it knows of it passes over.
    fn add_splits(&mut self, splits: &Arc<[u8]>) {
        let _ = splits;
    }

    /// The most that a source may produce, as the job's author says; asked once, before the first poll.
    fn rate_limit(&self) -> Option<RateLimit> {
        None
    }

    /// What all inputs together say of event time, at `now_ms` of the wall clock. The chain tells its outputs, behind
    /// what it emits because of it. At the end of time also what waits for the wall clock fires, so that nothing is lost.
    fn on_time(&mut self, signal: TimeSignal, now_ms: i64, out: &mut Outputs) -> Result<(), TaskError> {
        let _ = now_ms;
        out.tell_time_to_all(signal)
    }

    /// An event that the chain upstream [sent](Outputs::send_custom), in its place among the records of its channel.
    fn on_custom(&mut self, event: &CustomEvent, out: &mut Outputs) -> Result<(), TaskError> {
        let _ = (event, out);
        Ok(())
    }

    /// All inputs that lie within an iteration have brought this round. The chain tells its outputs that do, behind what it
    /// emits because of the records before it.
    fn on_round(&mut self, round: Round, out: &mut Outputs) -> Result<(), TaskError> {
        let _ = (round, out);
        Ok(())
    }

    /// The input has ended, `drain` if it came to its own end. If the chain has, too, it answers with its own `drain`: a chain
    /// that leaves work to the next run has not come to its own end. Otherwise it waits for what it is told of by the bell, and
    /// is asked again behind each.
    fn end_input(&mut self, drain: bool, now_ms: i64, out: &mut Outputs) -> Result<Option<bool>, TaskError> {
        let _ = (now_ms, out);
        Ok(Some(drain))
    }

    /// When `on_timer` is wanted next, in milliseconds of wall-clock time since the epoch.
    ///
    /// Asked once a batch, so it must be cheap.
    fn next_timer_ms(&self) -> Option<i64> {
        None
    }

    /// Wall-clock time has reached `next_timer_ms`. Fires everything due at `now_ms`.
    fn on_timer(&mut self, now_ms: i64, out: &mut Outputs) -> Result<(), TaskError> {
        let _ = (now_ms, out);
        Ok(())
    }

    /// Begins with what was kept of its operators; what is of others it passes over.
    fn restore(&mut self, parts: &[RestoredPart]) -> Result<(), TaskError> {
        let _ = parts;
        Ok(())
    }

    /// Writes out all that the operators keep, and prepares what sinks are to commit with this checkpoint. It may build on
    /// what was kept for the checkpoint `base`, which stands. What is much may be [written later](Self::write_on).
    fn snapshot(&mut self, checkpoint_id: u64, base: Option<u64>) -> Result<WrittenState, TaskError> {
        let _ = (checkpoint_id, base);
        Ok(WrittenState::default())
    }

    /// Whether some of that has yet to be written.
    fn is_writing(&self) -> bool {
        false
    }

    /// Writes some more of what was kept for this checkpoint, the last that there was a snapshot for, until all is written or
    /// `is_over` says that it is enough for now; gives what is to be added to the snapshot. An error is one of the checkpoint.
    fn write_on(&mut self, checkpoint_id: u64, is_over: IsOver<'_>) -> Result<WrittenState, TaskError> {
        let _ = (checkpoint_id, is_over);
        Ok(WrittenState::default())
    }

    /// What the operators hold and have before them. Asked when they are open, and now and then between two batches.
    fn tally(&self) -> StateStats {
        StateStats::default()
    }

    /// What it takes to read the records that are on their way to the chain or from it, for a checkpoint that overtakes them.
    fn medium(&mut self) -> Result<Vec<Vec<u8>>, TaskError> {
        Ok(Vec::new())
    }

    /// Takes one of what [`medium`](Self::medium) gave, before any record that needs it comes.
    fn learn(&mut self, kept: &[u8]) -> Result<(), TaskError> {
        let _ = kept;
        Ok(())
    }

    /// The checkpoint stands: what was prepared for it, and for those before, is committed.
    fn complete(&mut self, checkpoint_id: u64) -> Result<(), TaskError> {
        let _ = checkpoint_id;
        Ok(())
    }

    /// The checkpoint will never stand: what was prepared for it belongs to the next, and nothing more is written for it.
    fn abort(&mut self, checkpoint_id: u64) -> Result<(), TaskError> {
        let _ = checkpoint_id;
        Ok(())
    }

    /// What is yet to come by the input: a chain that is full on account of records of its own takes input in between.
    fn await_input(&mut self, awaited: AwaitedInput) {
        let _ = awaited;
    }

    /// Whether it takes no more records for now, because of what its operators wait for outside of the exchange: the task
    /// neither reads its input nor polls its source then.
    ///
    /// Asked once a batch, so it must be cheap.
    fn is_full(&self) -> bool {
        false
    }

    /// The source may go so far in event time, because of those it is aligned with.
    fn align(&mut self, limit_ms: i64) {
        let _ = limit_ms;
    }

    /// Whether the source has come further than that: the task does not poll it then.
    ///
    /// Asked once a poll, so it must be cheap.
    fn is_ahead(&self) -> bool {
        false
    }

    /// Somebody has rung the [`TaskWaker`]: hands on what has come, at `now_ms` of the wall clock.
    fn on_arrived(&mut self, now_ms: i64, out: &mut Outputs) -> Result<(), TaskError> {
        let _ = (now_ms, out);
        Ok(())
    }

    /// The last record has come: sinks make what they were given final.
    fn commit(&mut self, out: &mut Outputs) -> Result<(), TaskError> {
        let _ = out;
        Ok(())
    }

    /// Gives back what `open` took; called once, whatever happened before. An error fails a task that has not failed yet:
    /// a sink may write its last bytes here.
    fn close(&mut self) -> Result<(), TaskError> {
        Ok(())
    }
}

/// What is yet to come to a task by its input, and is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AwaitedInput {
    /// Records only.
    Nothing,
    /// The barrier of a checkpoint.
    Barrier,
    /// The end of a job that was told to stop, and not to work off what waits.
    Stop,
}

/// What a source has to say after producing some records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceStatus {
    /// There is more: call again.
    More,
    /// Nothing right now; call again after this time (or earlier).
    Idle {
        /// How long the task may sleep.
        wake_after: Duration,
    },
    /// The end: nothing will ever come again.
    Finished,
}

/// Builds the chain of a task, on the worker where it will run.
pub trait ChainFactory: Send + Sync {
    /// Builds the operators of `task`.
    fn build(&self, task: &TaskSpec) -> Result<Box<dyn Chain>, TaskError>;

    /// What reads the stacks of a task that runs, by its number; none where its functions have none to be read. Called on the
    /// thread that reads them.
    fn stacks(&self, task: u32) -> Option<Box<dyn Stacks>> {
        let _ = task;
        None
    }

    /// What the interpreter of this process took to collect garbage, if its chains have one. A control thread asks, with each
    /// status: it must not wait.
    fn garbage_collections(&self) -> GarbageCollections {
        GarbageCollections::default()
    }
}

/// What an interpreter took to collect garbage, of all generations, since it runs tasks.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct GarbageCollections {
    /// How often.
    pub count: u64,
    /// How long, in all.
    pub time: Duration,
}

/// What operators may know about the task they run in.
#[derive(Clone, Debug)]
pub struct TaskContext {
    /// Name of the vertex.
    pub task_name: String,
    /// Index of this subtask, below `parallelism`.
    pub subtask: u32,
    /// Subtasks of the vertex.
    pub parallelism: u32,
    /// Key groups of the vertex.
    pub max_parallelism: u32,
    /// The key groups this subtask owns.
    pub key_group_range: KeyGroupRange,
    /// The worker it runs on, as shown to users.
    pub worker: String,
    /// No record may be longer, in bytes.
    pub max_record_bytes: usize,
    /// Counters of the task, live.
    pub metrics: Arc<TaskMetrics>,
    /// Set when the task is told to stop; long calls should look at it.
    pub cancel: CancelToken,
    /// Rung by whoever has something for an operator.
    pub bell: TaskWaker,
    /// What it takes for the wall's clock.
    pub clock: WallClock,
    /// Whether checkpoints are taken.
    pub takes_checkpoints: bool,
    /// Where state by key lies.
    pub state: StateBackend,
    /// Channels of its widest output; 0 for a sink.
    pub channels: u32,
}

impl TaskContext {
    /// Of a subtask that runs on `worker`.
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
            // Without keys the groups mean nothing, and may be fewer than subtasks.
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
