//! What a checkpoint is made of.

use std::collections::BTreeSet;

use object_store::path::Path;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::fencing_token::place_of;
use crate::files::{CheckpointStore, PartRef, folder};
use crate::sealed::{Kind, SealError};

/// A checkpoint: everything that is needed to go on from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The attempt that took it.
    pub generation: u64,
    /// Its number: they grow from one to the next, over all attempts.
    pub checkpoint: u64,
    /// Name of the job.
    pub job: String,
    /// The [`identity`](Self::identity) of what the job began from, if it was kept elsewhere: a savepoint.
    pub origin: Option<String>,
    /// When it was triggered, in milliseconds since the epoch.
    pub triggered_ms: i64,
    /// From then until it was published.
    pub duration_ms: u64,
    /// Key groups of the job.
    pub max_parallelism: u32,
    /// The operators of the job, in the order of its plan.
    pub operators: Vec<OperatorEntry>,
    /// What its tasks kept.
    pub tasks: Vec<TaskEntry>,
}

/// An operator of the job that a checkpoint is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorEntry {
    /// What its state is called.
    pub uid: String,
    /// Name shown to people.
    pub name: String,
    /// What it does.
    pub kind: String,
    /// Its subtasks.
    pub parallelism: u32,
    /// Whether its kind keeps what a job that goes on would miss.
    pub keeps_state: bool,
    /// Where it writes what it has prepared for checkpoints, if it says so.
    #[serde(default)]
    pub target: Option<String>,
}

/// What one task kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEntry {
    /// What its operators are called, the head first.
    pub uids: Vec<String>,
    /// Index of the subtask.
    pub subtask: u32,
    /// Whether its input had come to its end, and it had done what comes then: it never runs again.
    pub has_finished: bool,
    /// What it kept.
    pub parts: Vec<PartRef>,
}

impl Manifest {
    /// Bytes of state, in all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts().map(|part| part.bytes).sum()
    }

    /// What sets it apart from every other.
    #[must_use]
    pub fn identity(&self) -> String {
        let Self { job, generation, checkpoint, triggered_ms, .. } = self;
        format!("{job}/{generation}/{checkpoint}/{triggered_ms}")
    }

    /// Of these, those that were written for it; the others are of checkpoints before it.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        let own = Some((self.generation, self.checkpoint));
        self.parts().filter(|part| place_of(&part.file) == own).map(|part| part.bytes).sum()
    }

    /// Whether every task had finished: there is nothing left to do.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.tasks.iter().all(|task| task.has_finished)
    }

    /// The files that it refers to.
    pub(crate) fn files(&self) -> BTreeSet<String> {
        self.parts().map(|part| part.file.clone()).collect()
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = &PartRef> {
        self.tasks.iter().flat_map(|task| &task.parts)
    }

    pub(crate) fn path(generation: u64, checkpoint: u64) -> Path {
        Path::from(format!("{}/manifest", folder(generation, checkpoint)))
    }
}

impl CheckpointStore {
    /// The manifest of a checkpoint that was published; none if it has been deleted since.
    pub(crate) async fn manifest(&self, generation: u64, checkpoint: u64) -> Result<Option<Manifest>, StoreError> {
        let path = Manifest::path(generation, checkpoint);
        let Some(body) = self.read(Kind::Manifest, &path).await? else { return Ok(None) };
        let body = body.map_err(|broken| self.broken(&path, broken))?;
        let manifest: Manifest =
            serde_json::from_slice(&body).map_err(|error| self.damaged(path.as_ref(), &error.to_string()))?;
        if (manifest.generation, manifest.checkpoint) != (generation, checkpoint) {
            return Err(self.damaged(path.as_ref(), "it is of another checkpoint"));
        }
        self.check_digests(&manifest)?;
        Ok(Some(manifest))
    }

    /// A signed manifest vouches for its parts, so it has digests of all of them.
    pub(crate) fn check_digests(&self, manifest: &Manifest) -> Result<(), StoreError> {
        let bare = manifest.parts().find(|part| self.signs() && part.digest.is_none());
        bare.map_or(Ok(()), |part| Err(self.broken(&Path::from(part.file.as_str()), SealError::Unsigned)))
    }
}
