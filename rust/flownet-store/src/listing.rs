//! Lists checkpoints for users.

use std::collections::BTreeSet;

use crate::error::StoreError;
use crate::fencing_token::place_of;
use crate::files::CheckpointStore;
use crate::manifest::Manifest;

/// Checkpoints in a storage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Readable checkpoints, the oldest first.
    pub checkpoints: Vec<ListedCheckpoint>,
    /// Damage of the log and of checkpoints.
    pub damage: Vec<StoreError>,
}

/// A published checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedCheckpoint {
    /// Contents of the checkpoint.
    pub manifest: Manifest,
    /// Whether the next attempt resumes from it.
    pub is_last: bool,
}

impl CheckpointStore {
    /// Lists all checkpoints. If the log is damaged, also lists those that it does not name; some of them may never
    /// have been published. Changes nothing.
    ///
    /// # Errors
    /// Returns [`StoreError::Io`].
    pub async fn checkpoints(&self) -> Result<Listing, StoreError> {
        let mut log = self.log().await?;
        let mut listing = Listing::default();
        let mut wanted: BTreeSet<(u64, u64)> =
            log.checkpoints().map(|(_, generation, checkpoint)| (generation, checkpoint)).collect();
        let last = log.last_checkpoint().filter(|_| log.damage.is_none());
        if let Some(damage) = log.damage.take() {
            listing.damage.push(damage);
            wanted.extend(self.list(None).await?.iter().filter_map(|path| place_of(path.as_ref())));
        }
        for (generation, checkpoint) in wanted {
            match self.manifest(generation, checkpoint).await {
                Ok(Some(manifest)) => {
                    let is_last = last == Some((generation, checkpoint));
                    listing.checkpoints.push(ListedCheckpoint { manifest, is_last });
                }
                // A running job may delete a checkpoint meanwhile. An unfinished checkpoint has no manifest.
                Ok(None) => {}
                Err(error) if error.is_damage() => listing.damage.push(error),
                Err(error) => return Err(error),
            }
        }
        Ok(listing)
    }
}
