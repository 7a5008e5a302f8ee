//! What can be wrong with a place for checkpoints, or with what is found there.

use serde::{Deserialize, Serialize};

use crate::keys::KeyError;

/// Why checkpoints could not be written or read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The place is none that can be used.
    #[error("checkpoint storage {url:?}: {why}")]
    Url {
        /// As it was given.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// The place could not be read or written.
    #[error("checkpoint storage {url}: cannot {what} {path:?}: {reason}")]
    Io {
        /// The place.
        url: String,
        /// What was tried.
        what: String,
        /// On which object.
        path: String,
        /// What the system says.
        reason: String,
    },
    /// Another run of the job has begun.
    #[error(
        "checkpoint storage {url}: another run of the job has begun there, generation {by}; generation {generation} \
         publishes nothing any more. Give each job a folder of its own"
    )]
    Fenced {
        /// The place.
        url: String,
        /// Who was told.
        generation: u64,
        /// Who came after.
        by: u64,
    },
    /// A job was to keep its checkpoints in a savepoint.
    #[error(
        "{url} is a savepoint, which stays as it is: begin from it with restore_from or --from, and keep checkpoints in \
         another folder"
    )]
    Savepoint {
        /// The place.
        url: String,
    },
    /// A savepoint was to be written where there is something.
    #[error("{url} has checkpoints already; give each savepoint a folder of its own")]
    Taken {
        /// The place.
        url: String,
    },
    /// A job was to begin from a place without a checkpoint.
    #[error("{url} has no such checkpoint, or none at all: no job can begin from it")]
    Empty {
        /// The place.
        url: String,
    },
    /// What a published checkpoint is made of is not what was written.
    #[error(
        "checkpoint storage {url}: {path:?} is damaged: {why}. To begin from an older checkpoint, give the job another storage \
         and restore_from={url:?} with restore_checkpoint=NUMBER (--from and --from-checkpoint of flownet run); `flownet \
         checkpoints {url}` lists those that are left. Sinks write again what they wrote since that checkpoint"
    )]
    Damaged {
        /// The place.
        url: String,
        /// The object.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// A checkpoint was to build on state that no checkpoint refers to any more.
    #[error(
        "checkpoint storage {url}: changes of state '{state}' of operator '{uid}' build on what is no longer there; the \
         next checkpoint builds on a newer one"
    )]
    Baseless {
        /// The place.
        url: String,
        /// The operator.
        uid: String,
        /// The state.
        state: String,
    },
    /// It has no signature that this process accepts.
    #[error("checkpoint storage {url}: {path:?} {why}")]
    Signature {
        /// The place.
        url: String,
        /// The object.
        path: String,
        /// What is wrong, and the way out.
        why: String,
    },
    /// The environment has no key that can be used.
    #[error("state key: {why}")]
    Key {
        /// What is wrong with it.
        why: String,
    },
    /// It was written by a flownet that this one does not understand.
    #[error("checkpoint storage {url}: {path:?} is of format {found}, this flownet reads format {known}")]
    Version {
        /// The place.
        url: String,
        /// The object.
        path: String,
        /// Its format.
        found: u32,
        /// The format of this version.
        known: u32,
    },
}

impl From<KeyError> for StoreError {
    fn from(error: KeyError) -> Self {
        Self::Key { why: error.to_string() }
    }
}

impl StoreError {
    /// Whether something that was written cannot be read, however often that is tried.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Version { .. } | Self::Signature { .. })
    }
}
