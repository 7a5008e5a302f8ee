//! The contract between a task and the operators that it runs.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::TaskError;
use crate::flame::Stacks;
use crate::mailbox::{CancelToken, Mailbox, TaskWaker};
use crate::metrics::TaskMetrics;
use crate::operator::{OperatorChain, RecordFormat};
use crate::spec::{StateBackend, TaskSpec};
use crate::state::KeyGroupRange;
use crate::task::{ManualTask, Task, TaskSetup};
use crate::time::WallClock;

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

/// The operators of one task, of any record format.
pub struct TaskChain(Box<dyn AnyChain>);

impl TaskChain {
    /// Runs the operators as a task, on this thread. See [`Task::run`].
    pub(crate) fn run(
        self,
        setup: TaskSetup,
        name: &str,
        on_failure: impl FnOnce(&TaskError, bool),
    ) -> Result<(), TaskError> {
        let mut on_failure = Some(on_failure);
        self.0.run(setup, name, &mut |error, has_run| {
            if let Some(on_failure) = on_failure.take() {
                on_failure(error, has_run);
            }
        })
    }

    /// Returns a task that its owner runs step by step.
    pub(crate) fn into_manual(self, setup: TaskSetup) -> Box<dyn ManualTask> {
        self.0.into_manual(setup)
    }
}

impl<M: RecordFormat> From<OperatorChain<M>> for TaskChain {
    fn from(chain: OperatorChain<M>) -> Self {
        Self(Box::new(chain))
    }
}

/// A chain whose record format is not known: one process runs tasks of several.
trait AnyChain: Send {
    fn run(
        self: Box<Self>,
        setup: TaskSetup,
        name: &str,
        on_failure: &mut dyn FnMut(&TaskError, bool),
    ) -> Result<(), TaskError>;

    fn into_manual(self: Box<Self>, setup: TaskSetup) -> Box<dyn ManualTask>;
}

impl<M: RecordFormat> AnyChain for OperatorChain<M> {
    fn run(
        self: Box<Self>,
        setup: TaskSetup,
        name: &str,
        on_failure: &mut dyn FnMut(&TaskError, bool),
    ) -> Result<(), TaskError> {
        Task::new(*self, setup).run(name, on_failure)
    }

    fn into_manual(self: Box<Self>, setup: TaskSetup) -> Box<dyn ManualTask> {
        Box::new(Task::new(*self, setup))
    }
}

/// Builds the chain of a task, on the worker that runs it.
pub trait ChainFactory: Send + Sync {
    /// Builds the operators of `task`.
    fn build(&self, task: &TaskSpec) -> Result<TaskChain, TaskError>;

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
