//! What can be wrong with a place for checkpoints, or with what is found there.

use serde::{Deserialize, Serialize};

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
    /// What a published checkpoint is made of is not what was written.
    #[error("checkpoint storage {url}: {path:?} is damaged: {why}")]
    Damaged {
        /// The place.
        url: String,
        /// The object.
        path: String,
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
