//! Why a task ended other than by finishing. Every error crosses processes, so all of them serialise.

use flownet_core::ExchangeError;
use flownet_memory::MemoryError;
use serde::{Deserialize, Serialize};

use crate::iteration::IterationFailure;
use crate::snapshot::SnapshotError;
use crate::source::SourceError;
use crate::state::{DiskStateError, StateError};

/// Why a task ended other than by finishing.
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
    /// State that was kept cannot be read back.
    #[error(transparent)]
    Snapshot(Box<SnapshotError>),
    /// An iteration cannot go on.
    #[error(transparent)]
    Iteration(Box<IterationFailure>),
    /// A keyed record reached a subtask that does not own its key.
    #[error(transparent)]
    State(#[from] StateError),
    /// State cannot be kept on disk.
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
        /// Buffers the refused pool needs at least.
        required: usize,
        /// Buffers no pool has a right to.
        available: usize,
        /// Buffers of the worker.
        total: usize,
    },
    /// The system gave the task no thread.
    #[error("no thread for task '{task}': {reason}")]
    NoThread {
        /// The task, with its subtask.
        task: String,
        /// What the system said.
        reason: String,
    },
    /// The code of a chain panicked: a bug, reported with what it said.
    #[error("task '{task}' panicked: {message}")]
    Panic {
        /// The task, with its subtask.
        task: String,
        /// What the panic said.
        message: String,
    },
    /// The task was told to stop.
    #[error("the task was cancelled")]
    Cancelled,
    /// A plan or setting that cannot work.
    #[error("{0}")]
    Config(String),
}

impl TaskError {
    /// What this error says about why a job fails. Less than [`Evidence::Cause`] is the echo of a failure elsewhere (a
    /// lost peer, a failed producer, a cancel): a coordinator should wait a moment for the root before it reports this one.
    pub fn evidence(&self) -> Evidence {
        match self {
            Self::Cancelled => Evidence::Nothing,
            Self::Exchange(failure) => failure.kind.evidence(),
            _ => Evidence::Cause,
        }
    }
}

/// What the error of a task says about why its job fails; the more, the greater.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Evidence {
    /// That somebody else ended, for whatever reason.
    Nothing,
    /// That somebody else failed, who will say so himself.
    Hearsay,
    /// Where the job came apart: a connection was lost. Why, others may know.
    Break,
    /// The cause.
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

/// A user's function failed: where, on what, and how.
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
    /// Its traceback, where the language has one.
    pub traceback: Option<String>,
    /// Whether a retry may help, as with a lost connection or a timeout: such a failure is never judged by how often it
    /// repeats.
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
    /// What a program may want to know.
    pub kind: ExchangeFailureKind,
    /// What a person wants to know.
    pub message: String,
}

impl ExchangeFailure {
    /// A failure that only its text describes.
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

/// The kinds of [`ExchangeFailure`] that callers tell apart.
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
        /// The partition it sent.
        partition: u64,
        /// The channel of the input that read it.
        channel: u32,
    },
    /// The task that produces an input failed.
    ProducerFailed {
        /// The partition it filled.
        partition: u64,
    },
    /// Nobody registered the partition in time.
    PartitionNotFound {
        /// The missing partition.
        partition: u64,
    },
    /// A partition, gate or pool was taken away while in use: the other side, or the job, is ending.
    Released,
    /// A record is longer than the limit.
    RecordTooLarge {
        /// Its length.
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
    /// Anything else: a wrong target, closed memory.
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
