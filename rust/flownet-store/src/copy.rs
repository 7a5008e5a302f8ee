//! Copies complete checkpoints from one storage to another: savepoints, and jobs that begin from one.
//!
//! ```text
//! savepoint                          empty; says that the place is one: nobody goes on in it, so nothing in it is deleted
//! epochs/0000000001, gen-1/...       as of any job, with a single checkpoint
//! ```
//!
//! # Invariants
//! - I1: a copy refers only to copied files.
//! - I2: it counts once all of it is durable, like any other checkpoint. An unfinished copy is started anew.

use std::collections::BTreeMap;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error, ObjectStoreExt, PutPayload};

use crate::error::StoreError;
use crate::fencing_token::{FencingToken, PublishError};
use crate::files::{CheckpointStore, folder};
use crate::log::Log;
use crate::manifest::Manifest;
use crate::sealed;

const MARK: &str = "savepoint";

impl CheckpointStore {
    /// Returns the last checkpoint, if there is one.
    ///
    /// # Errors
    /// Returns [`StoreError::Io`], or the error of a damaged log or checkpoint.
    pub async fn last_checkpoint(&self) -> Result<Option<Manifest>, StoreError> {
        self.last_of(&self.whole_log().await?).await
    }

    /// Returns the last checkpoint of a log.
    pub(crate) async fn last_of(&self, log: &Log) -> Result<Option<Manifest>, StoreError> {
        let Some((generation, checkpoint)) = log.last_checkpoint() else { return Ok(None) };
        let gone = || self.damaged(Manifest::path(generation, checkpoint).as_ref(), "it is gone");
        self.manifest(generation, checkpoint).await?.ok_or_else(gone).map(Some)
    }

    /// Copies a checkpoint to a separate, empty storage, which becomes a savepoint. Returns the manifest of the copy.
    ///
    /// # Errors
    /// Returns [`StoreError::Taken`] if the storage is not empty, or the error of a failed read or write.
    pub async fn save(&self, manifest: &Manifest, to: &Self) -> Result<Manifest, StoreError> {
        let log = to.log().await?;
        if log.last_checkpoint().is_some() || (log.end > 0 && !to.is_savepoint().await?) {
            return Err(StoreError::Taken { url: to.url.to_string() });
        }
        match to.create(&Path::from(MARK), PutPayload::from_static(b"flownet")).await {
            Ok(()) => {}
            // The mark belongs to an unfinished savepoint.
            Err(_) if to.is_savepoint().await? => {}
            Err(error) => return Err(error),
        }
        let (mut claim, _) = to.begin().await?;
        claim.adopt(self, manifest).await.map_err(PublishError::into_error)
    }

    /// Returns true if the storage is a savepoint, even an unfinished one.
    pub(crate) async fn is_savepoint(&self) -> Result<bool, StoreError> {
        let path = Path::from(MARK);
        match self.store.head(&path).await {
            Ok(_) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(self.io("read", &path, &error)),
        }
    }
}

impl FencingToken {
    /// Copies a checkpoint of another storage and publishes it as the first of this generation.
    ///
    /// # Errors
    /// Returns the error of a failed read or write, and whether the checkpoint may count.
    pub async fn adopt(&mut self, from: &CheckpointStore, manifest: &Manifest) -> Result<Manifest, PublishError> {
        let checkpoint = self.next_checkpoint().max(manifest.checkpoint);
        let copied = self.copy(from, manifest, checkpoint).await.map_err(PublishError::NotPublished)?;
        self.publish(&copied).await?;
        self.go_on_behind(checkpoint);
        Ok(copied)
    }

    async fn copy(&self, from: &CheckpointStore, manifest: &Manifest, checkpoint: u64) -> Result<Manifest, StoreError> {
        let folder = folder(self.generation(), checkpoint);
        let mut names: BTreeMap<&str, String> = BTreeMap::new();
        for part in manifest.parts() {
            let number = names.len();
            names.entry(&part.file).or_insert_with(|| format!("{folder}/{number:04}.snap"));
        }
        let mut copied = Manifest {
            generation: self.generation(),
            checkpoint,
            origin: Some(manifest.identity()),
            ..manifest.clone()
        };
        for (old, new) in &names {
            let old = Path::from(*old);
            let bytes = match from.store.get(&old).await {
                Ok(got) => got.bytes().await,
                Err(Error::NotFound { .. }) => return Err(from.damaged(old.as_ref(), "it is gone")),
                Err(error) => Err(error),
            };
            let bytes: Bytes = bytes.map_err(|error| from.io("read", &old, &error))?;
            sealed::unseal_snapshot(&bytes).map_err(|broken| from.broken(&old, broken))?;
            for part in
                copied.tasks.iter_mut().flat_map(|task| &mut task.parts).filter(|part| part.file == old.as_ref())
            {
                from.check_part(part, &bytes, self.store().signs())?;
            }
            self.store().create(&Path::from(new.as_str()), bytes.into()).await?;
        }
        for part in copied.tasks.iter_mut().flat_map(|task| &mut task.parts) {
            if let Some(new) = names.get(part.file.as_str()) {
                part.file.clone_from(new);
            }
        }
        Ok(copied)
    }
}
