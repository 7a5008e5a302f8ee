//! Contents of a checkpoint.

use std::collections::BTreeSet;

use object_store::path::Path;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::fencing_token::place_of;
use crate::files::{CheckpointStore, PartRef, folder};
use crate::sealed::{Kind, SealError};

/// Checkpoint: everything that a job needs to resume from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Generation of the attempt that took it.
    pub generation: u64,
    /// Number of the checkpoint. Numbers increase over all attempts.
    pub checkpoint: u64,
    /// Name of the job.
    pub job: String,
    /// [`identity`](Self::identity) of the checkpoint that the job began from, if it was in another storage, such as a
    /// savepoint.
    pub origin: Option<String>,
    /// Trigger time in milliseconds since the epoch.
    pub triggered_ms: i64,
    /// Milliseconds from the trigger to the publication.
    pub duration_ms: u64,
    /// Number of key groups of the job.
    pub max_parallelism: u32,
    /// Operators of the job, in the order of its plan.
    pub operators: Vec<OperatorEntry>,
    /// State of its tasks.
    pub tasks: Vec<TaskEntry>,
}

/// Operator of a checkpointed job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorEntry {
    /// uid under which its state is stored.
    pub uid: String,
    /// Name shown to users.
    pub name: String,
    /// Kind of the operator.
    pub kind: String,
    /// Number of its subtasks.
    pub parallelism: u32,
    /// Whether its kind has state that a resumed job would miss.
    pub keeps_state: bool,
    /// Target to which it writes data prepared for checkpoints, if it declares one.
    #[serde(default)]
    pub target: Option<String>,
}

/// State of one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEntry {
    /// uids of its operators, the head of the chain first.
    pub uids: Vec<String>,
    /// Index of the subtask.
    pub subtask: u32,
    /// Whether the task had processed the end of its input. It then never runs again.
    pub has_finished: bool,
    /// Parts of its state.
    pub parts: Vec<PartRef>,
}

impl Manifest {
    /// Returns the bytes of state in all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts().map(|part| part.bytes).sum()
    }

    /// Returns a text that distinguishes it from every other checkpoint.
    #[must_use]
    pub fn identity(&self) -> String {
        let Self { job, generation, checkpoint, triggered_ms, .. } = self;
        format!("{job}/{generation}/{checkpoint}/{triggered_ms}")
    }

    /// Returns the bytes of state that were written for this checkpoint. The others belong to earlier ones.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        let own = Some((self.generation, self.checkpoint));
        self.parts().filter(|part| place_of(&part.file) == own).map(|part| part.bytes).sum()
    }

    /// Returns true if every task had finished, so that no work is left.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.tasks.iter().all(|task| task.has_finished)
    }

    /// Returns the files that it refers to.
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
    /// Reads the manifest of a published checkpoint. Returns `None` if it has been deleted since.
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

    /// Checks that a signed manifest has digests of all parts, because its signature covers them only through these.
    pub(crate) fn check_digests(&self, manifest: &Manifest) -> Result<(), StoreError> {
        let bare = manifest.parts().find(|part| self.signs() && part.digest.is_none());
        bare.map_or(Ok(()), |part| Err(self.broken(&Path::from(part.file.as_str()), SealError::Unsigned)))
    }
}
