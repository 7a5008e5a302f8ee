//! Errors of iterations.

use serde::{Deserialize, Serialize};

/// An error of an iteration, with the operator that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("iteration '{operator}' (subtask {} of {parallelism}): {fault}", .subtask + 1)]
pub struct IterationFailure {
    /// Name of the operator at the end of its step.
    pub operator: String,
    /// Index of the subtask, from 0.
    pub subtask: u32,
    /// Subtasks of the operator.
    pub parallelism: u32,
    /// The cause.
    pub fault: IterationFault,
}

/// Cause of an error in an iteration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum IterationFault {
    /// More records circulate than there is room for.
    #[error(
        "{records} records of {bytes} bytes wait to go round again, more than the {memory_bytes} bytes of memory and \
         {disk_bytes} of disk that each subtask may take for them: let records leave sooner or make fewer of each, or \
         raise memory or disk of iterate()"
    )]
    Full {
        /// Records that wait, including the one that has no room.
        records: u64,
        /// Their bytes.
        bytes: u64,
        /// Limit in memory.
        memory_bytes: u64,
        /// Limit on disk.
        disk_bytes: u64,
    },
    /// Records that do not fit into memory cannot be written to disk, or read back.
    #[error(
        "what waits to go round again cannot be kept in a temporary file, where {disk_bytes} bytes are already: {reason}"
    )]
    Disk {
        /// Bytes on disk.
        disk_bytes: u64,
        /// The error of the system.
        reason: String,
    },
    /// The step emitted records after the loop had ended.
    #[error(
        "its step emitted a record at the end of time, when nothing goes round any more: what windows, timers and finish() \
         emit when the input has ended has to leave, so `until` must be true for it"
    )]
    Over,
    /// A bug: the tail reaches a checkpoint before its head.
    #[error("checkpoint {checkpoint_id} came to its end before its beginning")]
    Checkpoint {
        /// Its number.
        checkpoint_id: u64,
    },
    /// The two ends do not belong together.
    #[error("a round came back that was not sent: {0}")]
    Round(String),
}
