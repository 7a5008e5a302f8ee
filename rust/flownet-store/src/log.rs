//! The log: who may publish, and what was published. Entries are numbered from 0 and created once; the last one counts.
//!
//! # Invariants
//! - I1: the log is whole from the last checkpoint in it to its end. An entry behind it that is unreadable or gone may be a newer
//!   checkpoint, so nobody begins from the log then. Damage before it changes nothing.
//! - I2: there are checkpoints only where there is a log: an attempt begins with an entry.

use object_store::path::Path;
use object_store::{Error, ObjectStoreExt};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::fencing_token::place_of;
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
    /// The first place that nobody has taken, unreadable entries included.
    pub(crate) end: u64,
    /// The first entry behind the last checkpoint that is unreadable or gone.
    pub(crate) damage: Option<StoreError>,
}

/// What is at a place of the log.
enum LogSlot {
    Entry(Entry),
    Unreadable(StoreError),
    Gone,
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppendOutcome {
    /// It is in the log, at the end.
    Done,
    /// The place was taken, or others have gone on beyond it.
    Taken,
}

const FOLDER: &str = "epochs";
/// How often the log is listed anew because an entry of the listing is gone.
const LISTINGS: usize = 10;

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
    /// Reads the log, and what is damaged in it.
    pub(crate) async fn log(&self) -> Result<Log, StoreError> {
        // A job that runs may cut entries from the front between the listing and the reading.
        for _ in 0..LISTINGS {
            if let Some(log) = self.log_as_listed().await? {
                return Ok(log);
            }
        }
        Err(self.damaged(FOLDER, "entries of the log go while it is read"))
    }

    /// Reads the log to begin from it.
    ///
    /// # Errors
    /// I1 or I2 does not hold.
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
                    // I1.
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
            // I2.
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

    /// Appends an entry at `place`, which was the end of the log when it was read last.
    pub(crate) async fn append(&self, place: u64, entry: Entry) -> Result<AppendOutcome, StoreError> {
        let at = path(place);
        let body = serde_json::to_vec(&entry).map_err(|error| self.damaged(at.as_ref(), &error.to_string()))?;
        let put = self.put_new(&at, sealed::seal(Kind::Entry, at.as_ref(), &body, &self.keys).into()).await;
        match put {
            Ok(_) => {}
            // By an entry of its own, where the store was asked twice because its first answer was lost.
            Err(Error::AlreadyExists { .. }) => match self.entry(place).await? {
                LogSlot::Entry(found) if found == entry => {}
                _ => return Ok(AppendOutcome::Taken),
            },
            Err(error) => {
                // It may be there all the same: whoever would take it for failed must know.
                let found = self.entry(place).await;
                return match found {
                    Ok(LogSlot::Entry(found)) if found == entry => Ok(AppendOutcome::Done),
                    Ok(_) | Err(_) => Err(self.io("write", &at, &error)),
                };
            }
        }
        // Places are given up from the front: one that was free may lie before entries of others.
        let last = self.list(Some(FOLDER)).await?.iter().filter_map(self::place).max();
        if last.is_some_and(|last| last > place) {
            self.store.delete(&at).await.map_err(|error| self.io("delete", &at, &error))?;
            return Ok(AppendOutcome::Taken);
        }
        Ok(AppendOutcome::Done)
    }
}

/// Which place of the log an object is.
pub(crate) fn place(path: &Path) -> Option<u64> {
    let name = path.as_ref().strip_prefix(FOLDER)?.strip_prefix('/')?;
    (name.len() == 10).then(|| name.parse().ok()).flatten()
}
