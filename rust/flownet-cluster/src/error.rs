//! Why a job did not finish, and who was to blame.

use std::{fmt, net::SocketAddr, os::unix::process::ExitStatusExt, process::ExitStatus, sync::Arc, time::Duration};

use flownet_runtime::{OperatorFailure, TaskError, source::SourceError};

use flownet_store::StoreError;

use crate::checkpoint::RestoreMismatch;
use crate::plan::PlanError;

/// Why a job did not finish.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// Refused before anything started.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// What a source reads could not be listed; nothing started.
    #[error(transparent)]
    Input(#[from] SourceError),
    /// The user's code failed.
    #[error("operator '{}' (subtask {} of {}, {worker}) failed{}: {}: {}", .failure.operator, .failure.subtask + 1,
        .failure.parallelism, on_record(.failure), .failure.error_type, .failure.message)]
    Operator {
        /// Where and on what.
        failure: Box<OperatorFailure>,
        /// The worker it ran on.
        worker: WorkerIdentity,
    },
    /// A task failed, but not in the user's code.
    #[error("task '{task}' (subtask {} of {parallelism}, {worker}) failed: {error}", .subtask + 1)]
    Task {
        /// Name of the task.
        task: String,
        /// Index of the subtask, from 0.
        subtask: u32,
        /// Subtasks of the task.
        parallelism: u32,
        /// The worker it ran on.
        worker: WorkerIdentity,
        /// What happened.
        error: Box<TaskError>,
    },
    /// A worker's process or its connection ended while its tasks ran.
    #[error("{worker} was lost: {how}")]
    WorkerLost {
        /// The worker.
        worker: WorkerIdentity,
        /// What was seen of its end.
        how: WorkerExit,
    },
    /// A worker said nothing for too long.
    #[error("{worker} was silent for {silent_for:.1?}; if it was only slow, raise heartbeat_timeout")]
    HeartbeatTimeout {
        /// The worker.
        worker: WorkerIdentity,
        /// How long nothing was heard of it.
        silent_for: Duration,
    },
    /// A worker could not do what it was asked.
    #[error("{worker} failed: {message}")]
    WorkerFailed {
        /// The worker.
        worker: WorkerIdentity,
        /// What it said.
        message: String,
    },
    /// A worker ended before it had registered.
    #[error("worker {worker} could not be launched: {how}")]
    LaunchFailed {
        /// Number of the worker.
        worker: u32,
        /// What was seen of its end.
        how: WorkerExit,
    },
    /// Workers took too long to start.
    #[error("workers {workers:?} were not ready within {limit:?}; raise launch_timeout if they are only slow")]
    LaunchTimeout {
        /// Numbers of the workers missing.
        workers: Vec<u32>,
        /// The time they had.
        limit: Duration,
    },
    /// The submitting process could not set up the job.
    #[error("the job could not be set up: {message}")]
    Setup {
        /// What failed.
        message: String,
    },
    /// The job was told to stop, and took too long.
    #[error(
        "the job did not stop within {limit:?} and was cancelled: {} had not ended; \
        raise stop_timeout if they are only slow",
        listed(tasks)
    )]
    StopTimeout {
        /// The time it had.
        limit: Duration,
        /// Subtasks that had not ended.
        tasks: Vec<String>,
    },
    /// A checkpoint failed, and more in a row than are tolerated.
    #[error(
        "checkpoint {checkpoint} failed: {reason}; {failed} in a row, more than tolerable_failed_checkpoints allows"
    )]
    Checkpoint {
        /// Its number.
        checkpoint: u64,
        /// Failed ones in a row.
        failed: u32,
        /// Why this one did.
        reason: String,
    },
    /// Checkpoints could not be written, or not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The last checkpoint is not one of this job, as it is now.
    #[error("the job cannot go on from checkpoint {checkpoint} in {storage}: {why}")]
    Restore {
        /// Its number.
        checkpoint: u64,
        /// Where it is.
        storage: String,
        /// What does not fit, and what to do.
        why: RestoreMismatch,
    },
    /// A savepoint was asked for, and nobody could tell later whose state is whose.
    #[error(
        "no savepoint without uids: operators {} keep state; give each a name that stays, with .uid(\"...\")",
        listed(operators)
    )]
    MissingUid {
        /// Names of the operators.
        operators: Vec<String>,
    },
    /// A checkpoint was asked for that cannot be taken.
    #[error("no checkpoint was triggered: {reason}")]
    NotTriggered {
        /// Why.
        reason: String,
    },
    /// A savepoint could not be taken. The job goes on.
    #[error("no savepoint was taken: {reason}")]
    Savepoint {
        /// Why.
        reason: String,
    },
    /// The place for checkpoints has some that did not begin from what the job is to begin from.
    #[error(
        "{storage} has checkpoints that did not begin from {restore_from}; keep those of this job in another folder, or go \
         on from them without restore_from"
    )]
    OtherOrigin {
        /// Where checkpoints are kept.
        storage: String,
        /// What the job was to begin from.
        restore_from: String,
    },
    /// An error of the program or its data came again in each attempt, without progress in between.
    #[error("{error}\n{}", way_out(*.attempts, *.checkpoint))]
    Repeated {
        /// The error of the last attempt.
        error: Box<Self>,
        /// Attempts that ended with it.
        attempts: u32,
        /// The checkpoint that counted last at each of them; none if there was none yet.
        checkpoint: Option<u64>,
    },
    /// The user cancelled the job.
    #[error("the job was cancelled")]
    Cancelled,
}

impl ClusterError {
    /// Python's traceback, where the user's code failed.
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

/// A worker as people can find it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WorkerIdentity {
    /// Its number; 0 is the submitting process.
    pub worker: u32,
    /// Where its data plane listens, once it does.
    pub address: Option<SocketAddr>,
    /// Its process, once it has registered.
    pub pid: Option<u32>,
    /// Where it runs, in its own words, if somebody else started it there.
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

/// What was seen of a worker's end.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerExit {
    /// Its process could not be started.
    #[error("its process could not be started: {reason}")]
    NotStarted {
        /// What the system said.
        reason: String,
    },
    /// Its process ended by itself.
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
        /// What was seen of the connection.
        reason: String,
    },
    /// The driver ended its process by force.
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

/// The first few of a list, and how many more there are.
/// All of them.
pub(crate) fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}

/// The first of them.
fn listed(names: &[String]) -> String {
    let (shown, rest) = names.split_at(names.len().min(3));
    let shown = quoted(shown);
    if rest.is_empty() { shown } else { format!("{shown} and {} more", rest.len()) }
}

/// How often a job was tried that failed the same way each time, and what to do.
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
