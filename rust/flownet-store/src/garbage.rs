//! Deletes files of checkpoints that can no longer be requested.

use std::collections::BTreeSet;

use object_store::path::Path;

use crate::error::StoreError;
use crate::fencing_token::{FencingToken, place_of};
use crate::log;
use crate::manifest::Manifest;

impl FencingToken {
    /// Runs the last [`sweep`](Self::sweep), when no further checkpoint will be published. Files are then no longer
    /// retained for the next checkpoint to build on.
    ///
    /// # Errors
    /// Returns the same errors as `sweep`.
    pub async fn finish(&mut self, retained: usize) -> Result<usize, StoreError> {
        self.referred = Default::default();
        self.sweep(retained).await
    }

    /// Deletes all checkpoints except the last `retained`, and returns the number of deleted objects.
    ///
    /// It deletes files that none of the retained checkpoints refers to, and files of attempts that were not completed.
    /// Call it after a publication. The last checkpoint is never deleted, nor any file that the next one may build on.
    ///
    /// All files to delete are determined before the first deletion. The log is cut first, so that it never names a
    /// deleted file.
    ///
    /// # Errors
    /// Returns [`StoreError::Io`], or the error of a damaged checkpoint that must be retained. The next call continues.
    pub async fn sweep(&self, retained: usize) -> Result<usize, StoreError> {
        let log = self.store.log().await?;
        let Some(published) = self.published else { return Ok(0) };
        if log.last_generation() > self.generation {
            // A newer generation exists, and it decides what to delete.
            return Ok(0);
        }
        let kept: Vec<_> = log.checkpoints().rev().take(retained.max(1)).collect();
        let Some(&(first_place, _, _)) = kept.last() else { return Ok(0) };
        // Retain files that the next checkpoint may refer to, too.
        let mut in_use: BTreeSet<String> = self.referred.iter().flatten().cloned().collect();
        for &(_, generation, checkpoint) in &kept {
            let path = Manifest::path(generation, checkpoint);
            let Some(manifest) = self.store.manifest(generation, checkpoint).await? else {
                return Err(self.store.damaged(path.as_ref(), "it is gone"));
            };
            in_use.extend(manifest.parts().map(|part| part.file.clone()));
            in_use.insert(path.to_string());
        }
        // Later checkpoints of this generation may still be being written.
        let is_over = |(generation, checkpoint): (u64, u64)| {
            generation < self.generation || (generation == self.generation && checkpoint < published)
        };
        let objects = self.store.list(None).await?;
        let is_cut = |path: &&Path| log::place(path).is_some_and(|place| place < first_place);
        let is_left = |path: &&Path| place_of(path.as_ref()).is_some_and(is_over) && !in_use.contains(path.as_ref());
        // Entries of the log come first, so that it never names a deleted file.
        let garbage = objects.iter().filter(is_cut).chain(objects.iter().filter(is_left));
        let mut deleted = 0;
        for path in garbage {
            self.store.delete(path).await?;
            deleted += 1;
        }
        Ok(deleted)
    }
}
