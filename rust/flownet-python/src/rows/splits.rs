//! `read_parquet`, `read_csv`, `read_json`: reads splits of files of rows.
//!
//! `flownet.rows.splits` lists the splits of a subtask, in order, with the lower bounds of their times. All
//! of them are announced downstream before the first row, so that event time never passes a split that is
//! unread. If the operators downstream ask for the split that lags most, it is read next. At most
//! [`OPEN_AT_ONCE`] splits are open.
//!
//! For each split, a checkpoint contains whether it has ended. If it has not, the checkpoint also contains
//! the number of emitted rows, which another reading skips. So splits can be redistributed to other subtasks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use flownet_rows::{Collector, RowsFormat};
use flownet_runtime::operator::Source;
use flownet_runtime::snapshot::{Input, RestoredState, Snapshot, put_block};
use flownet_runtime::varint::put_varint;
use flownet_runtime::watermark::SplitSignal;
use flownet_runtime::work::Work;
use flownet_runtime::{SourceStatus, TaskContext, TaskError, TaskMetrics};
use pyo3::exceptions::PyLookupError;
use pyo3::intern;
use pyo3::prelude::*;

use super::arrow::stream_of;
use super::reader::{Reader, emit};
use crate::chain::OperatorInfo;

/// Reads the splits that are assigned to this subtask.
pub(super) struct FileSplits {
    /// A `flownet.rows.splits.FileAssignment`.
    assignment: Py<PyAny>,
    schema: SchemaRef,
    info: OperatorInfo,
    /// Splits by the numbers that are announced downstream.
    splits: Vec<Split>,
    /// The splits that have not ended.
    left: BTreeSet<u32>,
    /// Readers of the splits that are open.
    open: BTreeMap<u32, Reader>,
    /// True if the split that lags most in event time is read next; otherwise they are read in their order.
    follows_time: bool,
    /// The split whose rows were announced last; none before the splits are announced.
    told: Option<u32>,
    /// Splits that had ended in a run before, which checkpoints remember.
    ended: Vec<Name>,
    /// Splits are distributed at the first poll, or by the restore before it.
    has_splits: bool,
    metrics: Option<Arc<TaskMetrics>>,
}

/// Name of a split.
#[derive(FromPyObject)]
struct Name {
    path: String,
    /// Size of the file when it was listed.
    bytes: u64,
    /// Part of the file; none for all of it.
    part: Option<u64>,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            Some(group) => write!(f, "{}, row group {group}", self.path),
            None => f.write_str(&self.path),
        }
    }
}

struct Split {
    name: Name,
    /// Number of rows emitted so far, including those of earlier runs.
    position: u64,
    /// No row has an earlier time, in milliseconds since 1970-01-01 UTC.
    lower_bound_ms: Option<i64>,
}

/// Most splits that are open at once. Each holds what its reader has decoded ahead, up to some MiB.
const OPEN_AT_ONCE: usize = 8;

/// Name of its state. The first item of a subtask is whether it has read all of its splits, 01 or 00, and a
/// varint: the number of subtasks. Each other item is a split: whether it has ended, 01 or 00; its name; and
/// the number of emitted rows. The name is a block and two varints, the second of them 0 for a whole file and
/// else one more than its part.
const STATE: &str = "files";

/// State of a split: the subtask that read it, its name, whether it has ended, and the number of emitted
/// rows.
type SplitState = (u32, (String, u64, Option<u64>), bool, u64);

impl FileSplits {
    pub(super) fn new(assignment: Py<PyAny>, schema: SchemaRef, info: OperatorInfo) -> Self {
        Self {
            assignment,
            schema,
            info,
            splits: Vec::new(),
            left: BTreeSet::new(),
            open: BTreeMap::new(),
            follows_time: false,
            told: None,
            ended: Vec::new(),
            has_splits: false,
            metrics: None,
        }
    }

    fn failed(&self, py: Python<'_>, error: &PyErr) -> TaskError {
        self.info.failed(py, error, None)
    }

    /// Begins the splits of this subtask in a new job.
    fn begin(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        let place = (self.info.subtask(), self.info.parallelism());
        let mine = self.assignment.bind(py).call_method1(intern!(py, "mine"), place);
        let mine = mine.and_then(|mine| mine.extract::<Vec<(Name, Option<i64>)>>());
        let mine = mine.map_err(|error| self.failed(py, &error))?;
        self.take(mine.into_iter().map(|(name, lower_bound_ms)| Split { name, position: 0, lower_bound_ms }).collect());
        Ok(())
    }

    fn take(&mut self, splits: Vec<Split>) {
        self.left = (0..u32::try_from(splits.len()).unwrap_or(u32::MAX)).collect();
        (self.splits, self.has_splits) = (splits, true);
    }

    fn opened(&self, py: Python<'_>, split: &Split) -> Result<Reader, TaskError> {
        let Name { path, part, .. } = &split.name;
        let opened = self.assignment.bind(py).call_method1(intern!(py, "read"), (path, part));
        let stream = opened.and_then(|opened| stream_of(&opened)).map_err(|error| self.failed(py, &error))?;
        let mut reader = Reader::new(stream);
        reader.pass_over(split.position);
        Ok(reader)
    }

    /// Announces all splits, read or not, and the known bounds of their times.
    fn announce(&self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        collector.tell_split(SplitSignal::Among(u32::try_from(self.splits.len()).unwrap_or(u32::MAX)))?;
        (0..).zip(&self.splits).try_for_each(|(split, Split { lower_bound_ms, .. })| match *lower_bound_ms {
            Some(time_ms) => collector.tell_split(SplitSignal::NotBefore { split, time_ms }),
            None => Ok(()),
        })
    }

    /// The split to read next: the one that downstream wants, if it is open or may be opened. Otherwise the
    /// first open one, or the first of all. None after all have ended.
    fn next_split(&self, collector: &Collector<'_, '_>) -> Option<u32> {
        let wanted = if self.follows_time { collector.wanted_split() } else { None };
        let may_read = |split: &u32| self.open.contains_key(split) || self.open.len() < OPEN_AT_ONCE;
        let wanted = wanted.filter(|split| self.left.contains(split)).filter(may_read);
        wanted.or_else(|| self.open.keys().next().copied()).or_else(|| self.left.first().copied())
    }
}

impl Source<RowsFormat> for FileSplits {
    fn work(&self) -> Work {
        Work::Python
    }

    fn open(&mut self, (): (), cx: &TaskContext) -> Result<(), TaskError> {
        self.metrics = Some(Arc::clone(&cx.metrics));
        Python::attach(|py| {
            let follows_time = self.assignment.bind(py).getattr(intern!(py, "follows_time"));
            let follows_time = follows_time.and_then(|follows_time| follows_time.extract());
            self.follows_time = follows_time.map_err(|error| self.failed(py, &error))?;
            Ok(())
        })
    }

    fn emit<'m>(&mut self, collector: &mut Collector<'_, 'm>) -> Result<SourceStatus, TaskError> {
        if !self.has_splits {
            Python::attach(|py| self.begin(py))?;
        }
        let Some(current) = self.next_split(collector) else { return Ok(SourceStatus::Finished) };
        if self.told.is_none() {
            let names = self.splits.iter().map(|split| split.name.to_string());
            self.metrics.iter().for_each(|metrics| metrics.late_splits().name(0, names.clone()));
            self.announce(collector)?;
        }
        if self.told.replace(current) != Some(current) {
            collector.tell_split(SplitSignal::Of(current))?;
        }
        let mut reader = match self.open.remove(&current) {
            Some(reader) => reader,
            None => Python::attach(|py| self.opened(py, &self.splits[current as usize]))?,
        };
        let split = &self.splits[current as usize];
        let refused = |message: String| {
            let said = sentence_of(&message);
            let message = format!("batch behind row {} of {}: {said}", split.position, split.name.path);
            self.info.refused("ValueError", message, None)
        };
        if let Some(batch) = reader.next(&self.schema, collector, refused)? {
            self.open.insert(current, reader);
            self.splits[current as usize].position += batch.num_rows() as u64;
            emit(batch, self.metrics.as_deref(), collector)?;
        } else {
            self.left.remove(&current);
            collector.tell_split(SplitSignal::Ended(current))?;
        }
        Ok(if self.left.is_empty() { SourceStatus::Finished } else { SourceStatus::More })
    }

    fn snapshot(&mut self, (): (), to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        let mut header = vec![u8::from(self.has_splits && self.left.is_empty())];
        put_varint(&mut header, self.info.parallelism().into());
        let ended = self.ended.iter().map(|name| put_split(name, true, 0));
        let splits = (0..).zip(&self.splits).map(|(number, split)| match self.left.contains(&number) {
            true => put_split(&split.name, false, split.position),
            false => put_split(&split.name, true, 0),
        });
        to.add_items(STATE, [header].into_iter().chain(ended).chain(splits));
        Ok(())
    }

    fn restore(&mut self, (): (), from: &RestoredState<'_>) -> Result<(), TaskError> {
        let (mut before, mut reading, mut kept, mut last) = (0, Vec::new(), Vec::<SplitState>::new(), None);
        for (subtask, mut item) in from.items(STATE)? {
            if last.replace(subtask) == Some(subtask) {
                kept.push(take_split(subtask, &mut item)?);
                continue;
            }
            if item.byte()? == 0 {
                reading.push(subtask);
            }
            before = item.varint()?;
        }
        Python::attach(|py| {
            let place = (self.info.subtask(), self.info.parallelism(), before, reading, kept);
            let resumed = self.assignment.bind(py).call_method1(intern!(py, "resume"), place);
            let resumed = resumed.and_then(|resumed| resumed.extract::<(Vec<(Name, u64, Option<i64>)>, Vec<Name>)>());
            let (splits, ended) = resumed.map_err(|error| {
                if error.is_instance_of::<PyLookupError>(py) {
                    from.refused(self.info.name(), error.value(py))
                } else {
                    self.failed(py, &error)
                }
            })?;
            let splits = splits.into_iter();
            self.take(
                splits.map(|(name, position, lower_bound_ms)| Split { name, position, lower_bound_ms }).collect(),
            );
            self.ended = ended;
            Ok(())
        })
    }

    fn close(&mut self, (): ()) -> Result<(), TaskError> {
        self.open.clear();
        Ok(())
    }
}

fn put_split(name: &Name, has_ended: bool, position: u64) -> Vec<u8> {
    let mut item = vec![u8::from(has_ended)];
    put_block(&mut item, name.path.as_bytes());
    put_varint(&mut item, name.bytes);
    put_varint(&mut item, name.part.map_or(0, |part| part + 1));
    put_varint(&mut item, position);
    item
}

fn take_split(subtask: u32, item: &mut Input<'_>) -> Result<SplitState, TaskError> {
    let has_ended = item.byte()? != 0;
    let path = String::from_utf8_lossy(item.block()?).into_owned();
    let (bytes, part) = (item.varint()?, item.varint()?.checked_sub(1));
    Ok((subtask, (path, bytes, part), has_ended, item.varint()?))
}

/// The message of a file's reader: strips the prefix of Arrow's interface, and the suffix of pyarrow with our
/// lines in which the error was raised.
fn sentence_of(message: &str) -> &str {
    let said = message.split_once("Producer error: IOError: ").map_or(message, |(_, said)| said);
    said.rsplit_once(". Detail: Python exception:").map_or(said, |(sentence, _)| sentence)
}
