//! Manages the files of one subtask of a sink. Without checkpoints there is one file; with them there is one
//! for each checkpoint. Files get their final names when they are complete and committed. If the sink writes
//! into folders of partitions, each folder has files of its own.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use flownet_runtime::snapshot::{RestoredState, Snapshot};
use flownet_runtime::{TaskContext, TaskError};
use serde::{Deserialize, Serialize};

use super::part_file::PartFile;
use super::prepared::{PreparedFile, remove_strays};
use crate::chain::failure::OperatorInfo;

/// Name of their state.
const STATE: &str = "files";

/// Place of files in the folder of the sink itself; other places are folders of partitions.
pub(crate) const NO_PARTITION: &str = "";

/// Writes `part-<subtask>.<suffix>`, or `part-<subtask>-<number>.<suffix>` for each checkpoint and each file
/// of a partition.
pub(crate) struct PartFiles {
    folder: PathBuf,
    /// Prefixes of names of partition folders, outermost first.
    levels: Vec<String>,
    suffix: &'static str,
    /// First line of each file.
    header: Option<String>,
    info: OperatorInfo,
    /// Files that are being written, by their places.
    parts: BTreeMap<String, PartFile>,
    subtask: u32,
    parallelism: u32,
    /// True after a checkpoint or a restore.
    has_checkpoints: bool,
    /// True after files of other jobs and attempts were removed.
    is_tidy: bool,
    /// Number of the next file.
    next: u64,
    /// Next file numbers of former subtasks for which this one is responsible.
    retired: BTreeMap<u32, u64>,
    /// Files that are complete, but in no checkpoint yet.
    sealed: Vec<PreparedFile>,
    /// Files that wait, each for its checkpoint or the next one that completes.
    prepared: VecDeque<(u64, PreparedFile)>,
    /// Token of this attempt.
    token: String,
}

/// State of one subtask, which may no longer exist. The subtask with its number modulo the parallelism is
/// responsible for it: it commits its files and retains the committed ones.
#[derive(Serialize, Deserialize)]
struct PartFilesState {
    subtask: u32,
    next: u64,
    prepared: Vec<PreparedFile>,
}

impl PartFiles {
    /// Files with this suffix in this folder, or in folders of partitions below it.
    pub(crate) fn new(
        (folder, levels): (PathBuf, Vec<String>),
        suffix: &'static str,
        header: Option<String>,
        info: OperatorInfo,
    ) -> Self {
        Self {
            folder,
            levels,
            suffix,
            header,
            info,
            parts: BTreeMap::new(),
            subtask: 0,
            parallelism: 1,
            has_checkpoints: false,
            is_tidy: false,
            next: 0,
            retired: BTreeMap::new(),
            sealed: Vec::new(),
            prepared: VecDeque::new(),
            token: String::new(),
        }
    }

    /// Creates the first file, or the parent folder of partitions. So obstacles are reported before anything
    /// is written.
    pub(crate) fn open(&mut self, cx: &TaskContext) -> Result<(), TaskError> {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.token = format!("{:x}-{:x}", std::process::id(), since_epoch.as_nanos());
        (self.subtask, self.parallelism) = (cx.subtask, cx.parallelism);
        let made =
            if self.levels.is_empty() { self.part(NO_PARTITION).map(drop) } else { fs::create_dir_all(&self.folder) };
        self.told(NO_PARTITION, made)
    }

    /// Appends to the file of this place.
    pub(crate) fn write(&mut self, place: &str, bytes: &[u8]) -> Result<(), TaskError> {
        let written = self.part(place).and_then(|part| part.write_all(bytes));
        self.told(place, written)
    }

    /// Path of the current file of this place, for code that writes it by its name and then calls
    /// [`measure`](Self::measure).
    pub(crate) fn path(&mut self, place: &str) -> Result<PathBuf, TaskError> {
        let path = self.part(place).map(|part| part.path());
        self.told(place, path)
    }

    /// Counts the bytes of the file of this place, which the caller has written by its name and closed.
    pub(crate) fn measure(&mut self, place: &str) -> Result<(), TaskError> {
        let measured = self.part(place).and_then(PartFile::measure);
        self.told(place, measured)
    }

    fn part(&mut self, place: &str) -> io::Result<&mut PartFile> {
        Ok(match self.parts.entry(place.to_owned()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let places = (self.subtask, self.parallelism);
                let mut part = PartFile::create(self.folder.join(place), places, self.suffix)?;
                if let Some(header) = &self.header {
                    part.write_header(header)?;
                }
                entry.insert(part)
            }
        })
    }

    /// Completes the file of this place before a checkpoint. Later writes to the place go to another file.
    pub(crate) fn seal(&mut self, place: &str) -> Result<(), TaskError> {
        let Some(part) = self.parts.remove(place) else { return Ok(()) };
        let sealed = self.seal_part(place, part);
        self.told(place, sealed)
    }

    fn seal_part(&mut self, place: &str, part: PartFile) -> io::Result<()> {
        let prepared = PreparedFile {
            subtask: self.subtask,
            number: self.next,
            token: self.token.clone(),
            bytes: part.bytes(),
            suffix: self.suffix.to_owned(),
            place: place.to_owned(),
        };
        let path = prepared.pending_path(&self.folder);
        part.seal(&path)?;
        // The folder of a partition may be new, as may the folders above it.
        for parent in path.ancestors().skip(2).take(self.levels.len()) {
            File::open(parent)?.sync_all()?;
        }
        self.next += 1;
        self.sealed.push(prepared);
        Ok(())
    }

    /// Takes a checkpoint. Files written since the last one wait for this one, if there are any.
    pub(crate) fn snapshot(&mut self, to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        self.has_checkpoints = true;
        self.prepare(to.checkpoint_id())?;
        let items = self.kept().map_err(io::Error::from);
        to.add_items(STATE, self.told(NO_PARTITION, items)?);
        Ok(())
    }

    fn kept(&self) -> serde_json::Result<Vec<Vec<u8>>> {
        let prepared = self.prepared.iter().map(|(_, prepared)| prepared.clone()).collect();
        let of_retired =
            |(subtask, next): (&u32, &u64)| PartFilesState { subtask: *subtask, next: *next, prepared: Vec::new() };
        let own = PartFilesState { subtask: self.subtask, next: self.next, prepared };
        let all = std::iter::once(own).chain(self.retired.iter().map(of_retired));
        all.map(|kept| serde_json::to_vec(&kept)).collect()
    }

    fn prepare(&mut self, checkpoint: u64) -> Result<(), TaskError> {
        let written = self.parts.iter().filter(|(_, part)| part.has_records());
        let places: Vec<String> = written.map(|(place, _)| place.clone()).collect();
        places.iter().try_for_each(|place| self.seal(place))?;
        self.prepared.extend(self.sealed.drain(..).map(|sealed| (checkpoint, sealed)));
        Ok(())
    }

    /// Restores a checkpoint: gives the files that were prepared for it their final names, and removes files
    /// that it does not know.
    pub(crate) fn restore(&mut self, from: &RestoredState<'_>) -> Result<(), TaskError> {
        self.has_checkpoints = true;
        for (_, mut item) in from.items(STATE)? {
            let kept: PartFilesState = serde_json::from_slice(item.rest()).map_err(|error| item.broken(error))?;
            if kept.subtask % self.parallelism != self.subtask {
                continue;
            }
            if kept.subtask == self.subtask {
                self.next = kept.next;
            } else {
                self.retired.insert(kept.subtask, kept.next);
            }
            self.prepared.extend(kept.prepared.into_iter().map(|prepared| (0, prepared)));
        }
        self.complete(0)
    }

    /// Gives the files of all checkpoints up to this one their final names.
    pub(crate) fn complete(&mut self, checkpoint: u64) -> Result<(), TaskError> {
        let committed = self.tidy().and_then(|()| self.commit_up_to(checkpoint));
        self.told(NO_PARTITION, committed)
    }

    fn commit_up_to(&mut self, checkpoint: u64) -> io::Result<()> {
        while let Some((of, prepared)) = self.prepared.front()
            && *of <= checkpoint
        {
            prepared.commit(&self.folder)?;
            self.prepared.pop_front();
        }
        Ok(())
    }

    fn tidy(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.is_tidy, true) {
            return Ok(());
        }
        let mut counted: HashMap<u32, u64> = self.retired.iter().map(|(of, next)| (*of, *next)).collect();
        counted.insert(self.subtask, self.next);
        let mut kept: HashSet<PathBuf> = self.parts.values().map(PartFile::path).collect();
        for file in self.prepared.iter().map(|(_, prepared)| prepared).chain(&self.sealed) {
            let first = counted.entry(file.subtask).or_insert(file.number);
            *first = file.number.min(*first);
            // It has its final name already if a checkpoint before this attempt was committed.
            kept.extend([file.pending_path(&self.folder), file.path(&self.folder)]);
        }
        let Self { folder, levels, suffix, subtask, parallelism, .. } = self;
        let counted_of = |of| counted.get(&of).copied().unwrap_or(0);
        remove_strays(folder, levels, *subtask, *parallelism, suffix, counted_of, &kept)
    }

    /// Returns true if checkpoints commit the files.
    pub(crate) fn has_checkpoints(&self) -> bool {
        self.has_checkpoints
    }

    /// Gives files their final names at the end of the job, unless a checkpoint has committed all of them.
    pub(crate) fn finish(&mut self) -> Result<(), TaskError> {
        if self.has_checkpoints {
            self.parts.clear();
            return Ok(());
        }
        if self.levels.is_empty() {
            let completed = self.parts.remove(NO_PARTITION).map_or(Ok(()), PartFile::complete);
            return self.told(NO_PARTITION, completed);
        }
        self.prepare(0)?;
        self.complete(0)
    }

    /// Removes files that are incomplete, and files that no checkpoint knows. A prepared file may belong to a
    /// completed checkpoint, so it remains.
    pub(crate) fn close(&mut self) {
        self.parts.clear();
        for sealed in self.sealed.drain(..) {
            // A later attempt removes the files that are left.
            let _ = fs::remove_file(sealed.pending_path(&self.folder));
        }
    }

    fn told<T>(&self, place: &str, result: io::Result<T>) -> Result<T, TaskError> {
        result.map_err(|error| {
            let path = PartFile::path_in(&self.folder.join(place), self.subtask, self.suffix);
            self.info.refused("OSError", format!("{}: {error}", path.display()), None)
        })
    }
}
