//! Log of generations and published checkpoints. Entries are numbered from 0 and created once. The last one counts.
//!
//! # Invariants
//! - I1: a job begins only if the log is complete from its last checkpoint to its end. A later entry that is unreadable
//!   or missing may be a newer checkpoint, so no job begins then. Damage before the last checkpoint has no effect.
//! - I2: there are checkpoints only if there is a log, because an attempt begins with an entry.

use object_store::path::Path;
use object_store::{Error, ObjectStoreExt};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::fencing_token::place_of;
use crate::files::CheckpointStore;
use crate::sealed::{self, Kind};

/// Entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Generation that wrote it.
    pub(crate) generation: u64,
    /// Random identity of the writer, which distinguishes attempts that try the same generation. A writer that finds
    /// its own entry in the log thus knows that it wrote it.
    pub(crate) owner: u64,
    /// Checkpoint that the entry publishes. `None` begins the generation.
    pub(crate) checkpoint: Option<u64>,
}

/// Contents of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Log {
    /// Readable entries by place.
    pub(crate) entries: Vec<(u64, Entry)>,
    /// First free place after all entries, including unreadable ones.
    pub(crate) end: u64,
    /// First unreadable or missing entry after the last checkpoint.
    pub(crate) damage: Option<StoreError>,
}

/// Contents of one place of the log.
enum LogSlot {
    Entry(Entry),
    Unreadable(StoreError),
    Gone,
}

/// Outcome of appending an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppendOutcome {
    /// The entry is in the log, at its end.
    Done,
    /// The place was taken, or other entries follow it.
    Taken,
}

const FOLDER: &str = "epochs";
/// Limit of repeated listings of the log because a listed entry is missing.
const LISTINGS: usize = 10;

fn path(place: u64) -> Path {
    Path::from(format!("{FOLDER}/{place:010}"))
}

impl Log {
    /// Returns the last published checkpoint, as (generation, checkpoint).
    pub(crate) fn last_checkpoint(&self) -> Option<(u64, u64)> {
        self.checkpoints().last().map(|(_, generation, checkpoint)| (generation, checkpoint))
    }

    /// Returns all checkpoints, as (place, generation, checkpoint).
    pub(crate) fn checkpoints(&self) -> impl DoubleEndedIterator<Item = (u64, u64, u64)> {
        self.entries.iter().filter_map(|(place, entry)| Some((*place, entry.generation, entry.checkpoint?)))
    }

    pub(crate) fn last_generation(&self) -> u64 {
        self.entries.iter().map(|(_, entry)| entry.generation).max().unwrap_or(0)
    }
}

impl CheckpointStore {
    /// Reads the log, including its damage.
    pub(crate) async fn log(&self) -> Result<Log, StoreError> {
        // A running job may cut entries from the front between the listing and the reads.
        for _ in 0..LISTINGS {
            if let Some(log) = self.log_as_listed().await? {
                return Ok(log);
            }
        }
        Err(self.damaged(FOLDER, "entries of the log go while it is read"))
    }

    /// Reads the log to begin a generation from it.
    ///
    /// # Errors
    /// Returns an error if I1 or I2 does not hold.
    pub(crate) async fn whole_log(&self) -> Result<Log, StoreError> {
        let mut log = self.log().await?;
        log.damage.take().map_or(Ok(log), Err)
    }

    async fn log_as_listed(&self) -> Result<Option<Log>, StoreError> {
        let mut log = Log::default();
        let mut places: Vec<u64> = self.list(Some(FOLDER)).await?.iter().filter_map(place).collect();
        places.sort_unstable();
        for place in places {
            if place > log.end && log.end > 0 {
                let gone = self.damaged(path(log.end).as_ref(), "it is gone");
                log.damage.get_or_insert(gone);
            }
            log.end = place + 1;
            match self.entry(place).await? {
                LogSlot::Entry(entry) => {
                    log.entries.push((place, entry));
                    // I1: damage before a checkpoint has no effect.
                    log.damage.take_if(|_| entry.checkpoint.is_some());
                }
                LogSlot::Unreadable(error) => {
                    tracing::debug!(place, %error, "an entry of the log is unreadable");
                    log.damage.get_or_insert(error);
                }
                LogSlot::Gone => return Ok(None),
            }
        }
        if log.end == 0 && self.list(None).await?.iter().any(|path| place_of(path.as_ref()).is_some()) {
            // I2: there are checkpoints, so a log must have existed.
            log.damage = Some(self.damaged(FOLDER, "the log is gone, and there are checkpoints"));
        }
        Ok(Some(log))
    }

    async fn entry(&self, place: u64) -> Result<LogSlot, StoreError> {
        let at = path(place);
        Ok(match self.read(Kind::Entry, &at).await? {
            Some(Ok(body)) => match serde_json::from_slice(&body) {
                Ok(entry) => LogSlot::Entry(entry),
                Err(error) => LogSlot::Unreadable(self.damaged(at.as_ref(), &error.to_string())),
            },
            Some(Err(broken)) => LogSlot::Unreadable(self.broken(&at, broken)),
            None => LogSlot::Gone,
        })
    }

    /// Appends an entry at `place`, which was the end of the log when it was last read.
    pub(crate) async fn append(&self, place: u64, entry: Entry) -> Result<AppendOutcome, StoreError> {
        let at = path(place);
        let body = serde_json::to_vec(&entry).map_err(|error| self.damaged(at.as_ref(), &error.to_string()))?;
        let put = self.put_new(&at, sealed::seal(Kind::Entry, at.as_ref(), &body, &self.keys).into()).await;
        match put {
            Ok(_) => {}
            // It may be our own entry: the request was repeated because its first answer was lost.
            Err(Error::AlreadyExists { .. }) => match self.entry(place).await? {
                LogSlot::Entry(found) if found == entry => {}
                _ => return Ok(AppendOutcome::Taken),
            },
            Err(error) => {
                // The entry may have been written despite the error. Check, because the caller must not take it for
                // failed.
                let found = self.entry(place).await;
                return match found {
                    Ok(LogSlot::Entry(found)) if found == entry => Ok(AppendOutcome::Done),
                    Ok(_) | Err(_) => Err(self.io("write", &at, &error)),
                };
            }
        }
        // Entries are cut from the front, so a free place may precede entries of other generations.
        let last = self.list(Some(FOLDER)).await?.iter().filter_map(self::place).max();
        if last.is_some_and(|last| last > place) {
            self.store.delete(&at).await.map_err(|error| self.io("delete", &at, &error))?;
            return Ok(AppendOutcome::Taken);
        }
        Ok(AppendOutcome::Done)
    }
}

/// Returns the place in the log that an object has.
pub(crate) fn place(path: &Path) -> Option<u64> {
    let name = path.as_ref().strip_prefix(FOLDER)?.strip_prefix('/')?;
    (name.len() == 10).then(|| name.parse().ok()).flatten()
}
