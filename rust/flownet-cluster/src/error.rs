//! Errors of jobs that did not finish, with their cause.

use std::{fmt, net::SocketAddr, os::unix::process::ExitStatusExt, process::ExitStatus, sync::Arc, time::Duration};

use flownet_runtime::{OperatorFailure, TaskError, source::SourceError};

use flownet_store::StoreError;

use crate::checkpoint::RestoreMismatch;
use crate::plan::PlanError;

/// Reason why a job did not finish.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The job was refused before anything started.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The inputs of a source could not be listed; nothing started.
    #[error(transparent)]
    Input(#[from] SourceError),
    /// The user's code failed.
    #[error("operator '{}' (subtask {} of {}, {worker}) failed{}: {}: {}", .failure.operator, .failure.subtask + 1,
        .failure.parallelism, on_record(.failure), .failure.error_type, .failure.message)]
    Operator {
        /// Place and record of the failure.
        failure: Box<OperatorFailure>,
        /// Worker that ran the operator.
        worker: WorkerIdentity,
    },
    /// A task failed, but not in the user's code.
    #[error("task '{task}' (subtask {} of {parallelism}, {worker}) failed: {error}", .subtask + 1)]
    Task {
        /// Name of the task.
        task: String,
        /// Index of the subtask, from 0.
        subtask: u32,
        /// Number of subtasks of the task.
        parallelism: u32,
        /// Worker that ran the task.
        worker: WorkerIdentity,
        /// Error of the task.
        error: Box<TaskError>,
    },
    /// The process of a worker or its connection ended while its tasks ran.
    #[error("{worker} was lost: {how}")]
    WorkerLost {
        /// Lost worker.
        worker: WorkerIdentity,
        /// How the worker ended.
        how: WorkerExit,
    },
    /// A worker was silent for too long.
    #[error("{worker} was silent for {silent_for:.1?}; if it was only slow, raise heartbeat_timeout")]
    HeartbeatTimeout {
        /// Silent worker.
        worker: WorkerIdentity,
        /// Duration of the silence.
        silent_for: Duration,
    },
    /// A worker failed to carry out a request.
    #[error("{worker} failed: {message}")]
    WorkerFailed {
        /// Worker that failed.
        worker: WorkerIdentity,
        /// Message of the worker.
        message: String,
    },
    /// A worker ended before it had registered.
    #[error("worker {worker} could not be launched: {how}")]
    LaunchFailed {
        /// Number of the worker.
        worker: u32,
        /// How the worker ended.
        how: WorkerExit,
    },
    /// Workers took too long to start.
    #[error("workers {workers:?} were not ready within {limit:?}; raise launch_timeout if they are only slow")]
    LaunchTimeout {
        /// Numbers of the missing workers.
        workers: Vec<u32>,
        /// Time limit.
        limit: Duration,
    },
    /// The submitting process could not set up the job.
    #[error("the job could not be set up: {message}")]
    Setup {
        /// Description of the failure.
        message: String,
    },
    /// The user stopped the job, and it took too long.
    #[error(
        "the job did not stop within {limit:?} and was cancelled: {} had not ended; \
        raise stop_timeout if they are only slow",
        listed(tasks)
    )]
    StopTimeout {
        /// Time limit.
        limit: Duration,
        /// Subtasks that had not ended.
        tasks: Vec<String>,
    },
    /// More checkpoints in a row failed than are tolerated.
    #[error(
        "checkpoint {checkpoint} failed: {reason}; {failed} in a row, more than tolerable_failed_checkpoints allows"
    )]
    Checkpoint {
        /// Number of the last one.
        checkpoint: u64,
        /// Number of consecutive failures.
        failed: u32,
        /// Reason for the last failure.
        reason: String,
    },
    /// Checkpoints could not be written or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The last checkpoint does not fit the current job.
    #[error("the job cannot go on from checkpoint {checkpoint} in {storage}: {why}")]
    Restore {
        /// Number of the checkpoint.
        checkpoint: u64,
        /// Storage of the checkpoint.
        storage: String,
        /// Mismatch and its solution.
        why: RestoreMismatch,
    },
    /// A savepoint was requested although operators with state have no uid, so it could not be matched later.
    #[error(
        "no savepoint without uids: operators {} keep state; give each a name that stays, with .uid(\"...\")",
        listed(operators)
    )]
    MissingUid {
        /// Names of the operators.
        operators: Vec<String>,
    },
    /// A requested checkpoint cannot be taken.
    #[error("no checkpoint was triggered: {reason}")]
    NotTriggered {
        /// Reason for the refusal.
        reason: String,
    },
    /// A savepoint could not be taken. The job continues.
    #[error("no savepoint was taken: {reason}")]
    Savepoint {
        /// Reason for the failure.
        reason: String,
    },
    /// The storage has checkpoints that did not begin from the checkpoint to restore from.
    #[error(
        "{storage} has checkpoints that did not begin from {restore_from}; keep those of this job in another folder, or go \
         on from them without restore_from"
    )]
    OtherOrigin {
        /// Storage of the checkpoints.
        storage: String,
        /// Checkpoint or folder that the job should begin from.
        restore_from: String,
    },
    /// An error of the program or its data repeated in each attempt, without progress in between.
    #[error("{error}\n{}", way_out(*.attempts, *.checkpoint))]
    Repeated {
        /// The error of the last attempt.
        error: Box<Self>,
        /// Number of attempts that ended with it.
        attempts: u32,
        /// Last published checkpoint at each of these attempts; none if there was none yet.
        checkpoint: Option<u64>,
    },
    /// The user cancelled the job.
    #[error("the job was cancelled")]
    Cancelled,
}

impl ClusterError {
    /// Returns Python's traceback, if the user's code failed.
    #[must_use]
    pub fn traceback(&self) -> Option<&str> {
        let failure = match self {
            Self::Operator { failure, .. } => Some(failure),
            Self::Task { error, .. } => match &**error {
                TaskError::Operator(failure) => Some(failure),
                _ => None,
            },
            Self::Repeated { error, .. } => return error.traceback(),
            _ => None,
        };
        failure?.traceback.as_deref().map(str::trim_end)
    }
}

/// Worker with its identity for users.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WorkerIdentity {
    /// Number of the worker; 0 is the submitting process.
    pub worker: u32,
    /// Address of its data plane, once it listens.
    pub address: Option<SocketAddr>,
    /// Process id, once it has registered.
    pub pid: Option<u32>,
    /// Place where it runs, as the worker describes it, if it was started elsewhere.
    pub place: Option<Arc<str>>,
}

impl WorkerIdentity {
    pub(crate) fn unknown(worker: u32) -> Self {
        Self { worker, address: None, pid: None, place: None }
    }
}

impl fmt::Display for WorkerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.worker == 0 {
            return f.write_str("the submitting process");
        }
        write!(f, "worker {}", self.worker)?;
        if let Some(address) = self.address {
            write!(f, " at {address}")?;
        }
        if let Some(place) = &self.place {
            write!(f, " on {place}")?;
        }
        if let Some(pid) = self.pid {
            write!(f, " with pid {pid}")?;
        }
        Ok(())
    }
}

/// How a worker ended.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerExit {
    /// Its process could not be started.
    #[error("its process could not be started: {reason}")]
    NotStarted {
        /// Error of the system.
        reason: String,
    },
    /// Its process exited by itself.
    #[error("its process exited with code {code}")]
    Exited {
        /// Exit code.
        code: i32,
    },
    /// Its process was killed.
    #[error("its process was killed by signal {signal}")]
    Signalled {
        /// Number of the signal.
        signal: i32,
    },
    /// Its connection ended before its process did.
    #[error("it lost its connection to the driver: {reason}")]
    Disconnected {
        /// Error of the connection.
        reason: String,
    },
    /// The driver killed its process.
    #[error("it was killed, because a task in it did not end or it did not answer")]
    Killed,
}

impl From<ExitStatus> for WorkerExit {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Exited { code },
            (None, Some(signal)) => Self::Signalled { signal },
            (None, None) => Self::Disconnected { reason: status.to_string() },
        }
    }
}

/// Quotes and joins all names.
pub(crate) fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}

/// Quotes the first three names, and counts the rest.
fn listed(names: &[String]) -> String {
    let (shown, rest) = names.split_at(names.len().min(3));
    let shown = quoted(shown);
    if rest.is_empty() { shown } else { format!("{shown} and {} more", rest.len()) }
}

/// Describes a failure that repeated in each attempt, and its solution.
#[must_use]
pub fn way_out(attempts: u32, checkpoint: Option<u64>) -> String {
    let (since, from) = match checkpoint {
        Some(number) => (format!("with no checkpoint after checkpoint {number}"), "that checkpoint"),
        None => ("before the first checkpoint".to_owned(), "the beginning"),
    };
    format!(
        "The job was tried {attempts} times and failed like this each time, {since}, so restart='auto' gave up. Correct the \
         function, the sink or the input and run the job again: it resumes from {from}. If the cause lies elsewhere and may \
         pass, set restart='exponential', which never gives up"
    )
}

fn on_record(failure: &OperatorFailure) -> String {
    failure.record.as_ref().map(|record| format!(" on record {record}")).unwrap_or_default()
}
