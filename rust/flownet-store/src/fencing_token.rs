//! Fencing tokens: the right of one attempt to publish checkpoints.

use std::collections::BTreeSet;

use object_store::PutPayload;

use crate::error::StoreError;
use crate::files::CheckpointStore;
use crate::log::{AppendOutcome, Entry};
use crate::manifest::Manifest;
use crate::sealed::{self, Kind};

/// Right of one attempt, its generation, to publish checkpoints. It ends when another attempt begins.
#[derive(Debug)]
pub struct FencingToken {
    pub(crate) store: CheckpointStore,
    pub(crate) generation: u64,
    /// Random identity of the attempt in its log entries.
    owner: u64,
    /// Place of the next log entry.
    end: u64,
    /// Last checkpoint that this generation has published.
    pub(crate) published: Option<u64>,
    next_checkpoint: u64,
    /// Files of the checkpoint before the last one, and of the last one. The next checkpoint may refer to them.
    pub(crate) referred: [BTreeSet<String>; 2],
}

/// Reason why publishing failed, and whether the checkpoint may still count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishError {
    /// The checkpoint was not published, and never will be.
    NotPublished(StoreError),
    /// The checkpoint may have been published. Read the log anew, with another [`claim`](CheckpointStore::claim).
    Unknown(StoreError),
}

impl PublishError {
    /// Returns the underlying error, for callers that treat both cases alike.
    #[must_use]
    pub fn into_error(self) -> StoreError {
        match self {
            Self::NotPublished(error) | Self::Unknown(error) => error,
        }
    }
}

impl CheckpointStore {
    /// Begins a generation, and returns its token and the last published checkpoint to resume from, if any. Earlier
    /// generations can no longer publish.
    ///
    /// # Errors
    /// Returns [`StoreError::Savepoint`] if the storage is a savepoint, because no job continues in one. Also returns
    /// [`StoreError::Io`], and [`StoreError::Damaged`] or [`StoreError::Version`] if the log or that checkpoint cannot
    /// be used.
    pub async fn claim(&self) -> Result<(FencingToken, Option<Manifest>), StoreError> {
        if self.is_savepoint().await? {
            return Err(StoreError::Savepoint { url: self.url.to_string() });
        }
        self.begin().await
    }

    pub(crate) async fn begin(&self) -> Result<(FencingToken, Option<Manifest>), StoreError> {
        let owner = fastrand::u64(..);
        loop {
            let log = self.whole_log().await?;
            let generation = log.last_generation() + 1;
            // Read the checkpoint first, so that a job that cannot begin fences no other. If another generation
            // publishes meanwhile, it takes the place and the loop repeats.
            let resumed = self.last_of(&log).await?;
            if self.append(log.end, Entry { generation, owner, checkpoint: None }).await? == AppendOutcome::Taken {
                continue;
            }
            let published = log.checkpoints().map(|(_, _, checkpoint)| checkpoint).max();
            let written = self.list(None).await?.iter().filter_map(|path| Some(place_of(path.as_ref())?.1)).max();
            let next_checkpoint = published.max(written).unwrap_or(0) + 1;
            let referred = [BTreeSet::new(), resumed.as_ref().map(Manifest::files).unwrap_or_default()];
            let (store, end) = (self.clone(), log.end + 1);
            return Ok((
                FencingToken { store, generation, owner, end, published: None, next_checkpoint, referred },
                resumed,
            ));
        }
    }
}

impl FencingToken {
    /// Returns the generation of the attempt. It is higher than that of any earlier attempt.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the first number that no checkpoint of the job has had.
    #[must_use]
    pub fn next_checkpoint(&self) -> u64 {
        self.next_checkpoint
    }

    pub(crate) fn go_on_behind(&mut self, checkpoint: u64) {
        self.next_checkpoint = checkpoint + 1;
    }

    /// Returns the storage.
    #[must_use]
    pub fn store(&self) -> &CheckpointStore {
        &self.store
    }

    /// Publishes a checkpoint of this generation, whose files are all written. On success it counts, and replaces all
    /// earlier checkpoints.
    ///
    /// # Errors
    /// Returns whether the checkpoint may count. The error is [`StoreError::Fenced`] if another attempt has begun, or
    /// [`StoreError::Baseless`] if the checkpoint builds on files that may be deleted.
    pub async fn publish(&mut self, manifest: &Manifest) -> Result<(), PublishError> {
        let not_published = PublishError::NotPublished;
        let (generation, checkpoint) = (self.generation, manifest.checkpoint);
        let path = Manifest::path(generation, checkpoint);
        let files = manifest.files();
        let is_there = |file: &str| place_of(file) == Some((generation, checkpoint)) || self.refers_to(file);
        if let Some(gone) = manifest.parts().find(|part| !is_there(&part.file)) {
            // I5: it builds on files that may be deleted.
            return Err(not_published(self.store.baseless(gone)));
        }
        self.store.check_digests(manifest).map_err(not_published)?;
        let body = serde_json::to_vec(manifest)
            .map_err(|error| not_published(self.store.damaged(path.as_ref(), &error.to_string())))?;
        let payload = PutPayload::from(sealed::seal(Kind::Manifest, path.as_ref(), &body, &self.store.keys));
        // I1: the manifest is durable before its entry is in the log.
        self.store.create(&path, payload).await.map_err(not_published)?;
        let entry = Entry { generation, owner: self.owner, checkpoint: Some(checkpoint) };
        match self.store.append(self.end, entry).await.map_err(PublishError::Unknown)? {
            AppendOutcome::Done => {
                self.end += 1;
                // After the first checkpoint of an attempt, drop the files of the one that it resumed from: no task
                // builds on parts stored before this attempt.
                let before = self.published.map(|_| std::mem::take(&mut self.referred[1]));
                self.published = Some(checkpoint);
                self.referred = [before.unwrap_or_default(), files];
                Ok(())
            }
            AppendOutcome::Taken => {
                let by = self.store.log().await.map_err(not_published)?.last_generation();
                let url = self.store.url.to_string();
                Err(not_published(StoreError::Fenced { url, generation, by }))
            }
        }
    }
}

impl FencingToken {
    /// Returns true if one of the last two checkpoints refers to the file.
    fn refers_to(&self, file: &str) -> bool {
        self.referred.iter().any(|files| files.contains(file))
    }
}

/// Returns the (generation, checkpoint) that an object belongs to.
pub(crate) fn place_of(path: &str) -> Option<(u64, u64)> {
    let mut names = path.split('/');
    let generation = names.next()?.strip_prefix("gen-")?.parse().ok()?;
    let checkpoint = names.next()?.strip_prefix("chk-")?.parse().ok()?;
    Some((generation, checkpoint))
}
