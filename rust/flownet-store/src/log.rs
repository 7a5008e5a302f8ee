//! The log: who may publish, and what was published. Entries are numbered from 0 and created once; the last one counts.

use object_store::path::Path;
use object_store::{Error, ObjectStoreExt};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::files::CheckpointStore;
use crate::sealed::{self, Kind};

/// One line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Who wrote it.
    pub(crate) generation: u64,
    /// The same, told apart from others that would have had this generation: whoever finds his entry there has written it.
    pub(crate) owner: u64,
    /// The checkpoint that is published by it; none: the generation begins.
    pub(crate) checkpoint: Option<u64>,
}

/// What the log says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Log {
    /// What can be read, by place.
    pub(crate) entries: Vec<(u64, Entry)>,
    /// The first place that nobody has taken, torn entries included.
    pub(crate) end: u64,
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Appended {
    /// It is in the log, at the end.
    Done,
    /// The place was taken, or others have gone on beyond it.
    Taken,
}

const FOLDER: &str = "epochs";

fn path(place: u64) -> Path {
    Path::from(format!("{FOLDER}/{place:010}"))
}

impl Log {
    /// The last checkpoint that was published, as (generation, checkpoint).
    pub(crate) fn last_checkpoint(&self) -> Option<(u64, u64)> {
        self.checkpoints().last().map(|(_, generation, checkpoint)| (generation, checkpoint))
    }

    /// All of them, as (place, generation, checkpoint).
    pub(crate) fn checkpoints(&self) -> impl DoubleEndedIterator<Item = (u64, u64, u64)> {
        self.entries.iter().filter_map(|(place, entry)| Some((*place, entry.generation, entry.checkpoint?)))
    }

    pub(crate) fn last_generation(&self) -> u64 {
        self.entries.iter().map(|(_, entry)| entry.generation).max().unwrap_or(0)
    }
}

impl CheckpointStore {
    /// Reads the log. What is torn or foreign takes its place and says nothing.
    pub(crate) async fn log(&self) -> Result<Log, StoreError> {
        let mut log = Log::default();
        let mut places: Vec<u64> = self.list(Some(FOLDER)).await?.iter().filter_map(place).collect();
        places.sort_unstable();
        for place in places {
            log.end = place + 1;
            if let Some(entry) = self.entry(place).await? {
                log.entries.push((place, entry));
            }
        }
        Ok(log)
    }

    async fn entry(&self, place: u64) -> Result<Option<Entry>, StoreError> {
        match self.read(Kind::Entry, &path(place)).await? {
            Some(Ok(body)) => Ok(serde_json::from_slice(&body).ok()),
            Some(Err(sealed::Broken::Version(found))) => Err(self.broken(&path(place), sealed::Broken::Version(found))),
            Some(Err(sealed::Broken::Damaged(why))) => {
                tracing::warn!(storage = %self.url, place, why, "an entry of the log is passed over");
                Ok(None)
            }
            None => Ok(None),
        }
    }

    /// Appends an entry at `place`, which was the end of the log when it was read last.
    pub(crate) async fn append(&self, place: u64, entry: Entry) -> Result<Appended, StoreError> {
        let at = path(place);
        let body = serde_json::to_vec(&entry).map_err(|error| self.damaged(at.as_ref(), &error.to_string()))?;
        let put = self.put_new(&at, sealed::seal(Kind::Entry, &body).into()).await;
        match put {
            Ok(_) => {}
            // By an entry of its own, where the store was asked twice because its first answer was lost.
            Err(Error::AlreadyExists { .. }) => match self.entry(place).await? {
                Some(found) if found == entry => {}
                _ => return Ok(Appended::Taken),
            },
            Err(error) => {
                // It may be there all the same: whoever would take it for failed must know.
                let found = self.entry(place).await;
                return match found {
                    Ok(Some(found)) if found == entry => Ok(Appended::Done),
                    Ok(_) | Err(_) => Err(self.io("write", &at, &error)),
                };
            }
        }
        // Places are given up from the front: one that was free may lie before entries of others.
        let last = self.list(Some(FOLDER)).await?.iter().filter_map(self::place).max();
        if last.is_some_and(|last| last > place) {
            self.store.delete(&at).await.map_err(|error| self.io("delete", &at, &error))?;
            return Ok(Appended::Taken);
        }
        Ok(Appended::Done)
    }
}

/// Which place of the log an object is.
pub(crate) fn place(path: &Path) -> Option<u64> {
    let name = path.as_ref().strip_prefix(FOLDER)?.strip_prefix('/')?;
    (name.len() == 10).then(|| name.parse().ok()).flatten()
}
