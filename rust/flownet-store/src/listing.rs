//! What there is, for people.

use crate::error::StoreError;
use crate::files::CheckpointStore;
use crate::manifest::Manifest;

/// A checkpoint that was published, and whether it is the one to go on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// What it is made of.
    pub manifest: Manifest,
    /// Whether the next attempt goes on from it.
    pub is_last: bool,
}

impl CheckpointStore {
    /// All checkpoints that are there, the oldest first. Changes nothing.
    ///
    /// # Errors
    /// [`StoreError::Io`], and what is wrong with one of them.
    pub async fn checkpoints(&self) -> Result<Vec<Listed>, StoreError> {
        let log = self.log().await?;
        let last = log.last_checkpoint();
        let mut listed = Vec::new();
        for (_, generation, checkpoint) in log.checkpoints() {
            // A job that runs may delete one meanwhile.
            if let Some(manifest) = self.manifest(generation, checkpoint).await? {
                listed.push(Listed { manifest, is_last: last == Some((generation, checkpoint)) });
            }
        }
        Ok(listed)
    }
}
