//! A task that runs, or has ended.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use super::Registered;
use crate::error::TaskError;
use crate::mailbox::{Mail, Mailbox};
use crate::metrics::{MetricsSnapshot, TaskMetrics};
use crate::spec::TaskSpec;

/// A running task. Drop it when the job is over: that takes its partitions away from whoever still reads them, and
/// cancels it if it still runs.
#[derive(Debug)]
pub struct TaskHandle {
    spec: TaskSpec,
    name: String,
    mailbox: Mailbox,
    metrics: Arc<TaskMetrics>,
    outcome: Arc<OnceLock<Result<(), TaskError>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    registered: Registered,
}

impl TaskHandle {
    pub(super) fn new(
        spec: TaskSpec,
        name: String,
        mailbox: Mailbox,
        metrics: Arc<TaskMetrics>,
        outcome: Arc<OnceLock<Result<(), TaskError>>>,
        thread: JoinHandle<()>,
        registered: Registered,
    ) -> Self {
        Self { spec, name, mailbox, metrics, outcome, thread: Mutex::new(Some(thread)), registered }
    }

    /// Tells the task to stop; it does so as soon as its operator returns or waits. Harmless when it has ended.
    pub fn cancel(&self) {
        self.mailbox.post(Mail::Cancel);
    }

    /// Waits until the task has ended and everything but its unread partitions is given back.
    pub fn join(&self) -> Result<(), TaskError> {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            // Operators' panics are caught: this is the callback's, or a bug of ours.
            tracing::error!(task = self.name, "the task's thread panicked outside of its chain");
            let message = "outside of its chain".to_owned();
            let _ = self.outcome.set(Err(TaskError::Panic { task: self.name.clone(), message }));
        }
        self.outcome.wait().clone()
    }

    /// How the task ended; `None` while it runs.
    pub fn outcome(&self) -> Option<Result<(), TaskError>> {
        self.outcome.get().cloned()
    }

    /// Counters so far.
    pub fn metrics(&self) -> MetricsSnapshot {
        let bytes_out = self.registered.partitions.iter().map(|partition| partition.counters().bytes_out).sum();
        MetricsSnapshot { bytes_out, ..self.metrics.snapshot() }
    }

    /// What the task is.
    pub fn spec(&self) -> &TaskSpec {
        &self.spec
    }

    /// Name and subtask, as in errors.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for TaskHandle {
    fn drop(&mut self) {
        self.cancel();
    }
}
