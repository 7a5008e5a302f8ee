//! Errors of a checkpoint storage and of its contents.

use serde::{Deserialize, Serialize};

use crate::keys::KeyError;

/// Reason why checkpoints could not be written or read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The URL names no usable storage.
    #[error("checkpoint storage {url:?}: {why}")]
    Url {
        /// URL as given.
        url: String,
        /// Reason why it cannot be used.
        why: String,
    },
    /// The storage could not be read or written.
    #[error("checkpoint storage {url}: cannot {what} {path:?}: {reason}")]
    Io {
        /// URL of the storage.
        url: String,
        /// Operation that failed.
        what: String,
        /// Path of the object.
        path: String,
        /// The system's error text.
        reason: String,
    },
    /// Another run of the job has begun.
    #[error(
        "checkpoint storage {url}: another run of the job has begun there, generation {by}; generation {generation} \
         publishes nothing any more. Give each job a folder of its own"
    )]
    Fenced {
        /// URL of the storage.
        url: String,
        /// Generation that is fenced.
        generation: u64,
        /// Generation that followed.
        by: u64,
    },
    /// A job was configured to store its checkpoints in a savepoint.
    #[error(
        "{url} is a savepoint, which stays as it is: begin from it with restore_from or --from, and keep checkpoints in \
         another folder"
    )]
    Savepoint {
        /// URL of the savepoint.
        url: String,
    },
    /// The target of a savepoint is not empty.
    #[error("{url} has checkpoints already; give each savepoint a folder of its own")]
    Taken {
        /// URL of the target.
        url: String,
    },
    /// A job was configured to begin from a storage that has no such checkpoint.
    #[error("{url} has no such checkpoint, or none at all: no job can begin from it")]
    Empty {
        /// URL of the storage.
        url: String,
    },
    /// An object of a published checkpoint differs from the written one.
    #[error(
        "checkpoint storage {url}: {path:?} is damaged: {why}. To begin from an older checkpoint, give the job another storage \
         and restore_from={url:?} with restore_checkpoint=NUMBER (--from and --from-checkpoint of flownet run); `flownet \
         checkpoints {url}` lists those that are left. Sinks write again what they wrote since that checkpoint"
    )]
    Damaged {
        /// URL of the storage.
        url: String,
        /// Path of the object.
        path: String,
        /// Kind of damage.
        why: String,
    },
    /// A checkpoint builds on state that no checkpoint refers to any more.
    #[error(
        "checkpoint storage {url}: changes of state '{state}' of operator '{uid}' build on what is no longer there; the \
         next checkpoint builds on a newer one"
    )]
    Baseless {
        /// URL of the storage.
        url: String,
        /// uid of the operator.
        uid: String,
        /// Name of the state.
        state: String,
    },
    /// An object has no signature that this process accepts.
    #[error("checkpoint storage {url}: {path:?} {why}")]
    Signature {
        /// URL of the storage.
        url: String,
        /// Path of the object.
        path: String,
        /// Problem, and its solution.
        why: String,
    },
    /// The environment has no usable key.
    #[error("state key: {why}")]
    Key {
        /// Reason why the key cannot be used.
        why: String,
    },
    /// An object was written by an incompatible version of flownet.
    #[error("checkpoint storage {url}: {path:?} is of format {found}, this flownet reads format {known}")]
    Version {
        /// URL of the storage.
        url: String,
        /// Path of the object.
        path: String,
        /// Format of the object.
        found: u32,
        /// Format of this version.
        known: u32,
    },
}

impl From<KeyError> for StoreError {
    fn from(error: KeyError) -> Self {
        Self::Key { why: error.to_string() }
    }
}

impl StoreError {
    /// Returns true if a written object cannot be read, regardless of retries.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Version { .. } | Self::Signature { .. })
    }
}
