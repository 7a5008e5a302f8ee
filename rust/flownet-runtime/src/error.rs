//! Errors that end a task. Every error crosses processes, so all of them serialise.

use flownet_core::ExchangeError;
use flownet_memory::MemoryError;
use serde::{Deserialize, Serialize};

use crate::iteration::IterationFailure;
use crate::snapshot::SnapshotError;
use crate::source::SourceError;
use crate::state::{DiskStateError, StateError};

/// The reason why a task ended without finishing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum TaskError {
    /// A user's function failed.
    #[error(transparent)]
    Operator(Box<OperatorFailure>),
    /// A source could not read its input.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Records could not be sent or received.
    #[error(transparent)]
    Exchange(#[from] ExchangeFailure),
    /// Saved state cannot be restored.
    #[error(transparent)]
    Snapshot(Box<SnapshotError>),
    /// An iteration cannot continue.
    #[error(transparent)]
    Iteration(Box<IterationFailure>),
    /// A keyed record reached a subtask that does not own its key.
    #[error(transparent)]
    State(#[from] StateError),
    /// State cannot be stored on disk.
    #[error(transparent)]
    DiskState(Box<DiskStateError>),
    /// The task's buffers do not fit into the worker's memory.
    #[error(
        "task '{task}' needs {required} buffers, {available} of the worker's {total} are left; \
         raise network_memory, or lower segment_size or the parallelism"
    )]
    InsufficientBuffers {
        /// The task, with its subtask.
        task: String,
        /// The least number of buffers that the refused pool needs.
        required: usize,
        /// Buffers that are not guaranteed to any pool.
        available: usize,
        /// Total buffers of the worker.
        total: usize,
    },
    /// The system could not start a thread for the task.
    #[error("no thread for task '{task}': {reason}")]
    NoThread {
        /// The task, with its subtask.
        task: String,
        /// The error of the system.
        reason: String,
    },
    /// The code of a chain panicked: a bug, reported with its message.
    #[error("task '{task}' panicked: {message}")]
    Panic {
        /// The task, with its subtask.
        task: String,
        /// The message of the panic.
        message: String,
    },
    /// The task was cancelled.
    #[error("the task was cancelled")]
    Cancelled,
    /// An invalid plan or setting.
    #[error("{0}")]
    Config(String),
}

impl TaskError {
    /// Returns how well this error explains the failure of a job. An error below [`Evidence::Cause`] is a consequence
    /// of a failure elsewhere (a lost peer, a failed producer, a cancel). A coordinator should wait a moment for the
    /// root cause before it reports such an error.
    pub fn evidence(&self) -> Evidence {
        match self {
            Self::Cancelled => Evidence::Nothing,
            Self::Exchange(failure) => failure.kind.evidence(),
            _ => Evidence::Cause,
        }
    }
}

/// How well a task's error explains the failure of its job; greater explains more.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Evidence {
    /// Another task or process ended, for any reason.
    Nothing,
    /// Another task failed, and will report its own error.
    Hearsay,
    /// A connection was lost, which is where the job broke. Another task may know the reason.
    Break,
    /// The cause of the failure.
    Cause,
}

impl From<SnapshotError> for TaskError {
    fn from(error: SnapshotError) -> Self {
        Self::Snapshot(Box::new(error))
    }
}

impl From<DiskStateError> for TaskError {
    fn from(error: DiskStateError) -> Self {
        Self::DiskState(Box::new(error))
    }
}

impl From<IterationFailure> for TaskError {
    fn from(failure: IterationFailure) -> Self {
        Self::Iteration(Box::new(failure))
    }
}

impl From<OperatorFailure> for TaskError {
    fn from(failure: OperatorFailure) -> Self {
        Self::Operator(Box::new(failure))
    }
}

impl From<ExchangeError> for TaskError {
    fn from(error: ExchangeError) -> Self {
        match error {
            ExchangeError::Cancelled => Self::Cancelled,
            other => Self::Exchange(other.into()),
        }
    }
}

/// A failure of a user's function, with its place, its record and its exception.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorFailure {
    /// Name of the operator.
    pub operator: String,
    /// Index of the failing subtask, from 0.
    pub subtask: u32,
    /// Subtasks of the operator.
    pub parallelism: u32,
    /// The record it failed on, shortened for reading; `None` outside records (open, timers, finish).
    pub record: Option<String>,
    /// Type of the user's exception.
    pub error_type: String,
    /// Text of the user's exception.
    pub message: String,
    /// Its traceback, if the language has one.
    pub traceback: Option<String>,
    /// True if a retry may help, as after a lost connection or a timeout. Repetitions of such a failure do not count
    /// against the job.
    pub is_transient: bool,
}

impl std::fmt::Display for OperatorFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { operator, subtask, parallelism, record, error_type, message, .. } = self;
        write!(f, "operator '{operator}' (subtask {} of {parallelism}) failed", subtask + 1)?;
        if let Some(record) = record {
            write!(f, " on record {record}")?;
        }
        write!(f, ": {error_type}: {message}")
    }
}

impl std::error::Error for OperatorFailure {}

/// Records could not be sent or received.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct ExchangeFailure {
    /// The kind, for programs.
    pub kind: ExchangeFailureKind,
    /// The message, for people.
    pub message: String,
}

impl ExchangeFailure {
    /// A failure with a message only.
    pub fn other(message: impl Into<String>) -> Self {
        Self { kind: ExchangeFailureKind::Other, message: message.into() }
    }
}

impl From<ExchangeError> for ExchangeFailure {
    fn from(error: ExchangeError) -> Self {
        let kind = match &error {
            ExchangeError::ConnectionLost { peer, .. } => {
                ExchangeFailureKind::ConnectionLost { peer: peer.as_ref().to_owned() }
            }
            ExchangeError::ProtocolViolation { peer, partition, channel, .. } => {
                ExchangeFailureKind::ProtocolViolation {
                    peer: peer.as_ref().to_owned(),
                    partition: partition.get(),
                    channel: channel.get(),
                }
            }
            ExchangeError::ProducerFailed { partition, .. } => {
                ExchangeFailureKind::ProducerFailed { partition: partition.get() }
            }
            ExchangeError::PartitionNotFound { partition } => {
                ExchangeFailureKind::PartitionNotFound { partition: partition.get() }
            }
            ExchangeError::Released | ExchangeError::Closed => ExchangeFailureKind::Released,
            ExchangeError::Memory(MemoryError::Closed) => ExchangeFailureKind::Released,
            ExchangeError::RecordTooLarge { bytes, max_bytes } => {
                ExchangeFailureKind::RecordTooLarge { bytes: *bytes, max_bytes: *max_bytes }
            }
            ExchangeError::ReceiveLimit { queued_bytes, limit_bytes, .. } => {
                ExchangeFailureKind::ReceiveLimit { queued_bytes: *queued_bytes, limit_bytes: *limit_bytes }
            }
            _ => ExchangeFailureKind::Other,
        };
        Self { kind, message: error.to_string() }
    }
}

/// The kinds of [`ExchangeFailure`] that callers distinguish.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ExchangeFailureKind {
    /// The connection to a worker ended.
    ConnectionLost {
        /// Address of that worker.
        peer: String,
    },
    /// A worker broke the protocol.
    ProtocolViolation {
        /// Address of that worker.
        peer: String,
        /// The partition that it sent.
        partition: u64,
        /// The channel of the input that read the partition.
        channel: u32,
    },
    /// The task that produces an input failed.
    ProducerFailed {
        /// The partition that it wrote.
        partition: u64,
    },
    /// No producer registered the partition in time.
    PartitionNotFound {
        /// The missing partition.
        partition: u64,
    },
    /// A partition, gate or pool was released while in use: the other side, or the job, is ending.
    Released,
    /// A record is longer than the limit.
    RecordTooLarge {
        /// Length of the record.
        bytes: usize,
        /// The limit.
        max_bytes: usize,
    },
    /// An input without flow control queued more than its limit.
    ReceiveLimit {
        /// Bytes queued.
        queued_bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// Any other failure: a wrong target, closed memory.
    Other,
}

impl ExchangeFailureKind {
    fn evidence(&self) -> Evidence {
        match self {
            Self::Released => Evidence::Nothing,
            Self::ProducerFailed { .. } | Self::PartitionNotFound { .. } => Evidence::Hearsay,
            Self::ConnectionLost { .. } => Evidence::Break,
            _ => Evidence::Cause,
        }
    }
}

#[cfg(test)]
mod tests {
    use flownet_core::PartitionId;

    use super::*;

    #[test]
    fn an_operator_failure_says_where_on_what_and_how() {
        let mut failure = OperatorFailure {
            operator: "parse".into(),
            subtask: 0,
            parallelism: 2,
            record: Some("'2026-11-20;;oops'".into()),
            error_type: "ValueError".into(),
            message: "could not convert string to float: ''".into(),
            traceback: None,
            is_transient: false,
        };
        assert_eq!(
            TaskError::from(failure.clone()).to_string(),
            "operator 'parse' (subtask 1 of 2) failed on record '2026-11-20;;oops': \
             ValueError: could not convert string to float: ''"
        );
        failure.record = None;
        assert!(failure.to_string().starts_with("operator 'parse' (subtask 1 of 2) failed: ValueError"));
    }

    #[test]
    fn echoes_of_failures_elsewhere_are_told_from_roots() {
        let lost = TaskError::from(ExchangeError::connection_lost("127.0.0.1:9", "reset"));
        let failed = TaskError::from(ExchangeError::producer_failed(PartitionId::new(7), "boom"));
        let released = TaskError::from(ExchangeError::Released);
        let cancelled = TaskError::from(ExchangeError::Cancelled);
        for echo in [&lost, &failed, &released, &cancelled] {
            assert!(echo.evidence() < Evidence::Cause, "{echo}");
        }
        assert_eq!(cancelled, TaskError::Cancelled);
        assert!(lost.evidence() > failed.evidence() && failed.evidence() > released.evidence());
        let too_large = TaskError::from(ExchangeError::RecordTooLarge { bytes: 10, max_bytes: 5 });
        for root in [too_large, TaskError::Config("x".into())] {
            assert_eq!(root.evidence(), Evidence::Cause, "{root}");
        }
    }
}
