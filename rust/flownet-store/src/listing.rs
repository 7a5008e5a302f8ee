//! What there is, for people.

use std::collections::BTreeSet;

use crate::error::StoreError;
use crate::fencing_token::place_of;
use crate::files::CheckpointStore;
use crate::manifest::Manifest;

/// The checkpoints in a storage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Those that can be read, the oldest first.
    pub checkpoints: Vec<ListedCheckpoint>,
    /// What is damaged of the log, and of checkpoints.
    pub damage: Vec<StoreError>,
}

/// A checkpoint that was published, and whether it is the one to go on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedCheckpoint {
    /// What it is made of.
    pub manifest: Manifest,
    /// Whether the next attempt goes on from it.
    pub is_last: bool,
}

impl CheckpointStore {
    /// All checkpoints that are there. If the log is damaged, also those that it does not name: some of these may never have
    /// counted. Changes nothing.
    ///
    /// # Errors
    /// [`StoreError::Io`].
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
                // A job that runs may delete one meanwhile; one that was never finished has no manifest.
                Ok(None) => {}
                Err(error) if error.is_damage() => listing.damage.push(error),
                Err(error) => return Err(error),
            }
        }
        Ok(listing)
    }
}
