//! The right of one attempt to publish checkpoints.

use object_store::PutPayload;

use crate::error::StoreError;
use crate::files::CheckpointStore;
use crate::log::{Appended, Entry};
use crate::manifest::Manifest;
use crate::sealed::{self, Kind};

/// The right of one attempt, its generation, to publish checkpoints, until another attempt begins.
#[derive(Debug)]
pub struct Claim {
    pub(crate) store: CheckpointStore,
    pub(crate) generation: u64,
    /// Where the next entry goes.
    end: u64,
    /// The last checkpoint that it published itself.
    pub(crate) published: Option<u64>,
    next_checkpoint: u64,
}

/// Why a checkpoint was not published, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishError {
    /// It was not, and never will be.
    NotPublished(StoreError),
    /// It may have been: the log has to be read anew, by another [`claim`](CheckpointStore::claim).
    Unknown(StoreError),
}

impl CheckpointStore {
    /// Begins a generation. Whoever had the right before publishes nothing any more; the last checkpoint that was
    /// published, if any, is what to go on from.
    ///
    /// # Errors
    /// [`StoreError::Io`]; [`StoreError::Damaged`] or [`StoreError::Version`] if that checkpoint cannot be used.
    pub async fn claim(&self) -> Result<(Claim, Option<Manifest>), StoreError> {
        loop {
            let log = self.log().await?;
            let generation = log.last_generation() + 1;
            if self.append(log.end, Entry { generation, checkpoint: None }).await? == Appended::Taken {
                continue;
            }
            let resumed = match log.last_checkpoint() {
                None => None,
                Some((of, checkpoint)) => {
                    let found = self.manifest(of, checkpoint).await?;
                    Some(found.ok_or_else(|| self.damaged(Manifest::path(of, checkpoint).as_ref(), "it is gone"))?)
                }
            };
            let published = log.checkpoints().map(|(_, _, checkpoint)| checkpoint).max();
            let written = self.list(None).await?.iter().filter_map(|path| Some(place_of(path.as_ref())?.1)).max();
            let next_checkpoint = published.max(written).unwrap_or(0) + 1;
            let claim = Claim { store: self.clone(), generation, end: log.end + 1, published: None, next_checkpoint };
            return Ok((claim, resumed));
        }
    }
}

impl Claim {
    /// The attempt that has it; it is higher than that of any attempt before.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The first number that no checkpoint of the job has had.
    #[must_use]
    pub fn next_checkpoint(&self) -> u64 {
        self.next_checkpoint
    }

    /// Where it is.
    #[must_use]
    pub fn store(&self) -> &CheckpointStore {
        &self.store
    }

    /// Publishes a checkpoint of this generation, whose files are all written. When this answers well it counts, and no
    /// checkpoint before it does any more.
    ///
    /// # Errors
    /// Whether it counts or not; [`StoreError::Fenced`] if another attempt has begun.
    pub async fn publish(&mut self, manifest: &Manifest) -> Result<(), PublishError> {
        let not_published = PublishError::NotPublished;
        let (generation, checkpoint) = (self.generation, manifest.checkpoint);
        let path = Manifest::path(generation, checkpoint);
        let body = serde_json::to_vec(manifest)
            .map_err(|error| not_published(self.store.damaged(path.as_ref(), &error.to_string())))?;
        let payload = PutPayload::from(sealed::seal(Kind::Manifest, &body));
        self.store.create(&path, payload).await.map_err(not_published)?;
        let entry = Entry { generation, checkpoint: Some(checkpoint) };
        match self.store.append(self.end, entry).await.map_err(PublishError::Unknown)? {
            Appended::Done => {
                self.end += 1;
                self.published = Some(checkpoint);
                Ok(())
            }
            Appended::Taken => {
                let by = self.store.log().await.map_err(not_published)?.last_generation();
                let url = self.store.url.to_string();
                Err(not_published(StoreError::Fenced { url, generation, by }))
            }
        }
    }
}

/// The (generation, checkpoint) that an object belongs to.
pub(crate) fn place_of(path: &str) -> Option<(u64, u64)> {
    let mut names = path.split('/');
    let generation = names.next()?.strip_prefix("gen-")?.parse().ok()?;
    let checkpoint = names.next()?.strip_prefix("chk-")?.parse().ok()?;
    Some((generation, checkpoint))
}
