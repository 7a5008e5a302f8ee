//! The files of one subtask of a sink: one for all it writes, or where checkpoints are taken one for each, which get their
//! names when they are complete and count.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use flownet_runtime::snapshot::{Restored, Snapshot};
use flownet_runtime::{TaskContext, TaskError};
use serde::{Deserialize, Serialize};

use super::part_file::PartFile;
use super::prepared::{Prepared, remove_strays};
use crate::chain::failure::OperatorInfo;

/// What their state is called.
const STATE: &str = "files";

/// Writes `part-<subtask>.<suffix>`, or `part-<subtask>-<number>.<suffix>` for each checkpoint.
pub(crate) struct PartFiles {
    folder: PathBuf,
    suffix: &'static str,
    /// The line that each file begins with.
    header: Option<String>,
    info: OperatorInfo,
    part: Option<PartFile>,
    subtask: u32,
    parallelism: u32,
    /// Some checkpoint was taken, or restored from.
    has_checkpoints: bool,
    /// What other jobs and attempts left is gone.
    is_tidy: bool,
    /// Number of the next file.
    next: u64,
    /// The same of subtasks that there are no more, which this one answers for.
    retired: BTreeMap<u32, u64>,
    /// Files that wait, each for its checkpoint or the next one that counts.
    prepared: Vec<(u64, Prepared)>,
    /// Of this attempt.
    token: String,
}

/// State of one subtask, or of one that there is no more: whoever answers for it, which is that of its number modulo the
/// parallelism, commits its files and lets those stay that count.
#[derive(Serialize, Deserialize)]
struct Kept {
    subtask: u32,
    next: u64,
    prepared: Vec<Prepared>,
}

impl PartFiles {
    /// Files in this folder whose names end so.
    pub(crate) fn new(folder: PathBuf, suffix: &'static str, header: Option<String>, info: OperatorInfo) -> Self {
        Self {
            folder,
            suffix,
            header,
            info,
            part: None,
            subtask: 0,
            parallelism: 1,
            has_checkpoints: false,
            is_tidy: false,
            next: 0,
            retired: BTreeMap::new(),
            prepared: Vec::new(),
            token: String::new(),
        }
    }

    /// Makes the first file: what stands in the way is told before anything is written.
    pub(crate) fn open(&mut self, cx: &TaskContext) -> Result<(), TaskError> {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.token = format!("{:x}-{:x}", std::process::id(), since_epoch.as_nanos());
        (self.subtask, self.parallelism) = (cx.subtask, cx.parallelism);
        let made = self.part().map(drop);
        self.told(made)
    }

    /// Adds to the file that is written.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), TaskError> {
        let written = self.part().and_then(|part| part.write_all(bytes));
        self.told(written)
    }

    /// Where the file is that is written, for who writes it by its name, and says so by [`measure`](Self::measure).
    pub(crate) fn path(&mut self) -> Result<PathBuf, TaskError> {
        let path = self.part().map(|part| part.path());
        self.told(path)
    }

    /// Somebody has written the file by its name, and closed it.
    pub(crate) fn measure(&mut self) -> Result<(), TaskError> {
        let measured = self.part().and_then(PartFile::measure);
        self.told(measured)
    }

    fn part(&mut self) -> io::Result<&mut PartFile> {
        let part = match self.part.take() {
            Some(part) => part,
            None => {
                let places = (self.subtask, self.parallelism);
                let mut part = PartFile::create(self.folder.clone(), places, self.suffix)?;
                if let Some(header) = &self.header {
                    part.write_header(header)?;
                }
                part
            }
        };
        Ok(self.part.insert(part))
    }

    /// Takes a checkpoint: the file that was written since the last one, if anything was, waits for this one.
    pub(crate) fn snapshot(&mut self, to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        let items = self.prepare(to.checkpoint_id()).and_then(|()| Ok(self.kept()?));
        to.add_items(STATE, self.told(items)?);
        Ok(())
    }

    fn kept(&self) -> serde_json::Result<Vec<Vec<u8>>> {
        let prepared = self.prepared.iter().map(|(_, prepared)| prepared.clone()).collect();
        let of_retired = |(subtask, next): (&u32, &u64)| Kept { subtask: *subtask, next: *next, prepared: Vec::new() };
        let own = Kept { subtask: self.subtask, next: self.next, prepared };
        let all = std::iter::once(own).chain(self.retired.iter().map(of_retired));
        all.map(|kept| serde_json::to_vec(&kept)).collect()
    }

    fn prepare(&mut self, checkpoint: u64) -> io::Result<()> {
        self.has_checkpoints = true;
        let Some(part) = self.part.take_if(|part| part.has_records()) else { return Ok(()) };
        let (subtask, number, token) = (self.subtask, self.next, self.token.clone());
        let prepared = Prepared { subtask, number, token, bytes: part.bytes(), suffix: self.suffix.to_owned() };
        part.seal(&prepared.pending_path(&self.folder))?;
        self.next += 1;
        self.prepared.push((checkpoint, prepared));
        Ok(())
    }

    /// Goes on from a checkpoint: what had been prepared for it gets its name, and what it does not know of goes.
    pub(crate) fn restore(&mut self, from: &Restored<'_>) -> Result<(), TaskError> {
        self.has_checkpoints = true;
        for (_, mut item) in from.items(STATE)? {
            let kept: Kept = serde_json::from_slice(item.rest()).map_err(|error| item.broken(error))?;
            if kept.subtask % self.parallelism != self.subtask {
                continue;
            }
            if kept.subtask == self.subtask {
                self.next = kept.next;
            } else {
                self.retired.insert(kept.subtask, kept.next);
            }
            self.told(kept.prepared.iter().try_for_each(|prepared| prepared.commit(&self.folder)))?;
        }
        let tidied = self.tidy();
        self.told(tidied)
    }

    /// Gives the files of all checkpoints up to this one their names.
    pub(crate) fn complete(&mut self, checkpoint: u64) -> Result<(), TaskError> {
        let committed = self.commit_up_to(checkpoint);
        self.told(committed)
    }

    fn commit_up_to(&mut self, checkpoint: u64) -> io::Result<()> {
        while let Some((of, prepared)) = self.prepared.first()
            && *of <= checkpoint
        {
            prepared.commit(&self.folder)?;
            self.prepared.remove(0);
        }
        self.tidy()
    }

    fn tidy(&mut self) -> io::Result<()> {
        let Self { folder, suffix, subtask, parallelism, next, retired, prepared, is_tidy, .. } = self;
        if std::mem::replace(is_tidy, true) {
            return Ok(());
        }
        let kept: Vec<Prepared> = prepared.iter().map(|(_, prepared)| prepared.clone()).collect();
        let next_of = |of: u32| if of == *subtask { *next } else { retired.get(&of).copied().unwrap_or(0) };
        remove_strays(folder, (*subtask, *parallelism), suffix, next_of, &kept)
    }

    /// Whether checkpoints commit what is written.
    pub(crate) fn has_checkpoints(&self) -> bool {
        self.has_checkpoints
    }

    /// The job has come to its end: what was written gets its name, where no checkpoint has committed all.
    pub(crate) fn finish(&mut self) -> Result<(), TaskError> {
        let part = self.part.take().filter(|_| !self.has_checkpoints);
        self.told(part.map_or(Ok(()), PartFile::complete))
    }

    /// A file that is not complete is nothing. One that is prepared may be of a checkpoint that counts.
    pub(crate) fn close(&mut self) {
        self.part = None;
    }

    fn told<T>(&self, result: io::Result<T>) -> Result<T, TaskError> {
        result.map_err(|error| {
            let path = PartFile::path_in(&self.folder, self.subtask, self.suffix);
            self.info.refused("OSError", format!("{}: {error}", path.display()), None)
        })
    }
}
