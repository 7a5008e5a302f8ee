//! Deleting what nobody can ask for any more.

use std::collections::BTreeSet;

use object_store::path::Path;

use crate::error::StoreError;
use crate::fencing_token::{FencingToken, place_of};
use crate::log;
use crate::manifest::Manifest;

impl FencingToken {
    /// The last [`sweep`](Self::sweep): nothing is published any more, so nothing is kept for a next checkpoint to build on.
    ///
    /// # Errors
    /// As of `sweep`.
    pub async fn finish(&mut self, retained: usize) -> Result<usize, StoreError> {
        self.referred = Default::default();
        self.sweep(retained).await
    }

    /// Deletes all checkpoints but the last `retained`, with the files that none of these refers to, and what attempts
    /// left that came to nothing. For after a publication: the last checkpoint is never deleted, nor what the next may build
    /// on.
    ///
    /// What is to go is known before anything goes; the log is cut first, so that it names nothing that is gone.
    ///
    /// # Errors
    /// [`StoreError::Io`], and what is wrong with a checkpoint that is to stay. The next call goes on.
    pub async fn sweep(&self, retained: usize) -> Result<usize, StoreError> {
        let log = self.store.log().await?;
        let Some(published) = self.published else { return Ok(0) };
        if log.last_generation() > self.generation {
            // It is for the other to judge.
            return Ok(0);
        }
        let kept: Vec<_> = log.checkpoints().rev().take(retained.max(1)).collect();
        let Some(&(first_place, _, _)) = kept.last() else { return Ok(0) };
        // Those that the next may refer to, too.
        let mut in_use: BTreeSet<String> = self.referred.iter().flatten().cloned().collect();
        for &(_, generation, checkpoint) in &kept {
            let path = Manifest::path(generation, checkpoint);
            let Some(manifest) = self.store.manifest(generation, checkpoint).await? else {
                return Err(self.store.damaged(path.as_ref(), "it is gone"));
            };
            in_use.extend(manifest.parts().map(|part| part.file.clone()));
            in_use.insert(path.to_string());
        }
        // Checkpoints of this attempt that come after the last one may still be written.
        let is_over = |(generation, checkpoint): (u64, u64)| {
            generation < self.generation || (generation == self.generation && checkpoint < published)
        };
        let objects = self.store.list(None).await?;
        let is_cut = |path: &&Path| log::place(path).is_some_and(|place| place < first_place);
        let is_left = |path: &&Path| place_of(path.as_ref()).is_some_and(is_over) && !in_use.contains(path.as_ref());
        let garbage = objects.iter().filter(is_cut).chain(objects.iter().filter(is_left));
        let mut deleted = 0;
        for path in garbage {
            self.store.delete(path).await?;
            deleted += 1;
        }
        Ok(deleted)
    }
}
