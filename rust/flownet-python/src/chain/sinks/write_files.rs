//! `write_text`, `write_json`, `write_csv`: lines into files of a folder, which get their names when they are complete: one
//! a subtask, or where checkpoints are taken one a subtask and checkpoint.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use flownet_runtime::operator::Operator;
use flownet_runtime::snapshot::{Restored, Snapshot};
use flownet_runtime::{TaskContext, TaskError};
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};

use super::Written;
use super::lines::Lines;
use super::part_file::PartFile;
use super::prepared::{Prepared, remove_strays};
use crate::chain::failure::OperatorInfo;
use crate::chain::medium::{Flow, PythonMedium};

/// Text gathered before it is written, whatever the batch.
const GATHER_BYTES: usize = 256 * 1024;
/// What its state is called.
const STATE: &str = "files";

/// Writes `part-<subtask>.txt`, or `part-<subtask>-<number>.txt` for each checkpoint; other lines have other endings.
pub(in crate::chain) struct WriteFiles {
    folder: PathBuf,
    lines: Lines,
    info: OperatorInfo,
    part: Option<PartFile>,
    text: Vec<u8>,
    records: usize,
    written: Written,
    transactions: Transactions,
}

/// What is written between checkpoints.
#[derive(Default)]
struct Transactions {
    subtask: u32,
    parallelism: u32,
    /// Some checkpoint was taken, or restored from.
    are_used: bool,
    /// What other jobs and attempts left is gone.
    is_tidy: bool,
    /// Number of the next file.
    next: u64,
    /// The same of subtasks that there are no more, which this one answers for.
    retired: BTreeMap<u32, u64>,
    /// Files that wait, each for its checkpoint or the next one that counts.
    prepared: Vec<(u64, Prepared)>,
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

impl WriteFiles {
    pub(in crate::chain) fn new(folder: PathBuf, lines: Lines, info: OperatorInfo) -> Self {
        let (written, transactions) = (Written::default(), Transactions::default());
        Self { folder, lines, info, part: None, text: Vec::new(), records: 0, written, transactions }
    }

    fn failed(&self, error: &io::Error) -> TaskError {
        let path = PartFile::path_in(&self.folder, self.info.subtask, self.lines.suffix());
        self.info.refused("OSError", format!("{}: {error}", path.display()), None)
    }

    fn create(&mut self) -> io::Result<()> {
        let Transactions { subtask, parallelism, .. } = self.transactions;
        let mut part = PartFile::create(self.folder.clone(), (subtask, parallelism), self.lines.suffix())?;
        if let Some(header) = self.lines.header() {
            part.write_header(header)?;
        }
        self.part = Some(part);
        Ok(())
    }

    /// Writes what was gathered.
    fn flush(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        if self.records == 0 {
            return Ok(());
        }
        self.written.add(std::mem::take(&mut self.records));
        py.detach(|| self.write()).map_err(|error| self.failed(&error))
    }

    fn write(&mut self) -> io::Result<()> {
        if self.part.is_none() {
            self.create()?;
        }
        let Some(part) = &mut self.part else { return Ok(()) };
        part.write_all(&self.text)?;
        self.text.clear();
        Ok(())
    }

    /// Closes the file that was written since the last checkpoint, if anything was.
    fn prepare(&mut self, checkpoint: u64) -> io::Result<()> {
        let transactions = &mut self.transactions;
        transactions.are_used = true;
        let Some(part) = self.part.take_if(|part| part.has_records()) else { return Ok(()) };
        let (subtask, number, token) = (transactions.subtask, transactions.next, transactions.token.clone());
        let prepared = Prepared { subtask, number, token, bytes: part.bytes(), suffix: self.lines.suffix().to_owned() };
        part.seal(&prepared.pending_path(&self.folder))?;
        transactions.next += 1;
        transactions.prepared.push((checkpoint, prepared));
        Ok(())
    }

    /// Gives the files of all checkpoints up to this one their names.
    fn commit_up_to(&mut self, checkpoint: u64) -> io::Result<()> {
        let transactions = &mut self.transactions;
        while let Some((of, prepared)) = transactions.prepared.first()
            && *of <= checkpoint
        {
            prepared.commit(&self.folder)?;
            transactions.prepared.remove(0);
        }
        self.tidy()
    }

    fn tidy(&mut self) -> io::Result<()> {
        let Transactions { subtask, parallelism, next, retired, prepared, is_tidy, .. } = &mut self.transactions;
        if std::mem::replace(is_tidy, true) {
            return Ok(());
        }
        let kept: Vec<Prepared> = prepared.iter().map(|(_, prepared)| prepared.clone()).collect();
        let next_of = |of: u32| if of == *subtask { *next } else { retired.get(&of).copied().unwrap_or(0) };
        remove_strays(&self.folder, (*subtask, *parallelism), self.lines.suffix(), next_of, &kept)
    }
}

impl Operator<PythonMedium> for WriteFiles {
    fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.written.open(cx);
        self.lines.open(py, &self.info)?;
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.transactions.token = format!("{:x}-{:x}", std::process::id(), since_epoch.as_nanos());
        (self.transactions.subtask, self.transactions.parallelism) = (cx.subtask, cx.parallelism);
        py.detach(|| self.create()).map_err(|error| self.failed(&error))
    }

    fn process<'py>(&mut self, record: Bound<'py, PyAny>, flow: &mut Flow<'_, 'py>) -> Result<(), TaskError> {
        self.lines.put(&record, &self.info, &mut self.text)?;
        self.records += 1;
        if self.text.len() < GATHER_BYTES { Ok(()) } else { self.end_batch(flow) }
    }

    fn end_batch(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        self.flush(flow.token)
    }

    fn commit(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        if self.transactions.are_used {
            // The last checkpoint has committed all.
            return Ok(());
        }
        let Some(part) = self.part.take() else { return Ok(()) };
        flow.token.detach(|| part.complete()).map_err(|error| self.failed(&error))
    }

    fn snapshot(&mut self, py: Python<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        self.flush(py)?;
        let checkpoint = to.checkpoint_id();
        py.detach(|| self.prepare(checkpoint)).map_err(|error| self.failed(&error))?;
        let Transactions { subtask, next, retired, prepared, .. } = &self.transactions;
        let prepared = prepared.iter().map(|(_, prepared)| prepared.clone()).collect();
        let of_retired = |(subtask, next): (&u32, &u64)| Kept { subtask: *subtask, next: *next, prepared: Vec::new() };
        let own = Kept { subtask: *subtask, next: *next, prepared };
        let items = std::iter::once(own).chain(retired.iter().map(of_retired)).map(|kept| serde_json::to_vec(&kept));
        let items = items.collect::<Result<Vec<_>, _>>().map_err(|error| self.failed(&error.into()))?;
        to.add_items(STATE, items);
        Ok(())
    }

    fn restore(&mut self, py: Python<'_>, from: &Restored<'_>) -> Result<(), TaskError> {
        self.transactions.are_used = true;
        let Transactions { subtask, parallelism, .. } = self.transactions;
        for (_, mut item) in from.items(STATE)? {
            let kept: Kept = serde_json::from_slice(item.rest()).map_err(|error| item.broken(error))?;
            if kept.subtask % parallelism != subtask {
                continue;
            }
            if kept.subtask == subtask {
                self.transactions.next = kept.next;
            } else {
                self.transactions.retired.insert(kept.subtask, kept.next);
            }
            let folder = &self.folder;
            let committed = py.detach(|| kept.prepared.iter().try_for_each(|prepared| prepared.commit(folder)));
            committed.map_err(|error| self.failed(&error))?;
        }
        py.detach(|| self.tidy()).map_err(|error| self.failed(&error))
    }

    fn complete(&mut self, py: Python<'_>, checkpoint_id: u64) -> Result<(), TaskError> {
        py.detach(|| self.commit_up_to(checkpoint_id)).map_err(|error| self.failed(&error))
    }

    /// A file that is not complete is nothing. One that is prepared may be of a checkpoint that counts.
    fn close(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        let part = self.part.take();
        py.detach(|| drop(part));
        Ok(())
    }
}
