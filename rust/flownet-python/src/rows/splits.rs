//! `read_parquet`, `read_csv`, `read_json`: splits of files of rows, those of a subtask one after the other.
//!
//! Which splits there are and which of them a subtask reads says `flownet.rows.splits`. A checkpoint has for each split
//! whether it has ended, and else how many of its rows were emitted, which are passed over when it is read again. So splits
//! may be dealt out anew, to other subtasks.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use flownet_rows::{Flow, RowsMedium};
use flownet_runtime::operator::Source;
use flownet_runtime::snapshot::{Input, Restored, Snapshot, put_block};
use flownet_runtime::varint::put_varint;
use flownet_runtime::work::Work;
use flownet_runtime::{SourceStatus, TaskContext, TaskError, TaskMetrics};
use pyo3::exceptions::PyLookupError;
use pyo3::intern;
use pyo3::prelude::*;

use super::arrow::stream_of;
use super::reader::{Reader, emit};
use crate::chain::OperatorInfo;

/// Reads the splits that fall to this subtask.
pub(super) struct FileSplits {
    /// A `flownet.rows.splits.FileAssignment`.
    assignment: Py<PyAny>,
    schema: SchemaRef,
    info: OperatorInfo,
    /// Those that have not ended, in their order; the first one is being read.
    reading: VecDeque<Split>,
    ended: Vec<Name>,
    /// Of the first one.
    reader: Option<Reader>,
    /// Splits are dealt out at the first poll: a job that is restored has been told of them by then.
    has_splits: bool,
    metrics: Option<Arc<TaskMetrics>>,
}

/// What a split is called.
#[derive(FromPyObject)]
struct Name {
    path: String,
    /// Of the file, when it was listed.
    bytes: u64,
    /// Which part of it; none for all of it.
    part: Option<u64>,
}

struct Split {
    name: Name,
    /// Rows emitted so far, of a run before too.
    position: u64,
}

/// What its state is called. The first item of a subtask is whether it has read all of its splits, 01 or 00, and a varint:
/// how many subtasks there are. Each other is a split: whether it has ended, 01 or 00; its name, which is a block and two
/// varints, the second of them 0 for a whole file and else one more than its part; and how many rows were emitted.
const STATE: &str = "files";

/// Of a split who read it, what it is called, whether it has ended, and how many of its rows were emitted.
type Kept = (u32, (String, u64, Option<u64>), bool, u64);

impl FileSplits {
    pub(super) fn new(assignment: Py<PyAny>, schema: SchemaRef, info: OperatorInfo) -> Self {
        Self {
            assignment,
            schema,
            info,
            reading: VecDeque::new(),
            ended: Vec::new(),
            reader: None,
            has_splits: false,
            metrics: None,
        }
    }

    fn failed(&self, py: Python<'_>, error: &PyErr) -> TaskError {
        self.info.failed(py, error, None)
    }

    /// Takes what falls to this subtask of a job that begins.
    fn begin(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        let place = (self.info.subtask(), self.info.parallelism());
        let mine = self.assignment.bind(py).call_method1(intern!(py, "mine"), place);
        let mine: Vec<Name> = mine.and_then(|mine| mine.extract()).map_err(|error| self.failed(py, &error))?;
        self.reading = mine.into_iter().map(|name| Split { name, position: 0 }).collect();
        self.has_splits = true;
        Ok(())
    }

    fn opened(&self, py: Python<'_>, split: &Split) -> Result<Reader, TaskError> {
        let Name { path, part, .. } = &split.name;
        let opened = self.assignment.bind(py).call_method1(intern!(py, "read"), (path, part));
        let stream = opened.and_then(|opened| stream_of(&opened)).map_err(|error| self.failed(py, &error))?;
        let mut reader = Reader::new(stream);
        reader.pass_over(split.position);
        Ok(reader)
    }
}

impl Source<RowsMedium> for FileSplits {
    fn work(&self) -> Work {
        Work::Python
    }

    fn open(&mut self, (): (), cx: &TaskContext) -> Result<(), TaskError> {
        self.metrics = Some(Arc::clone(&cx.metrics));
        Ok(())
    }

    fn emit<'m>(&mut self, flow: &mut Flow<'_, 'm>) -> Result<SourceStatus, TaskError> {
        if !self.has_splits {
            Python::attach(|py| self.begin(py))?;
        }
        let Some(split) = self.reading.front() else { return Ok(SourceStatus::Finished) };
        let mut reader = match self.reader.take() {
            Some(reader) => reader,
            None => Python::attach(|py| self.opened(py, split))?,
        };
        let refused = |message: String| {
            let said = sentence_of(&message);
            let message = format!("batch behind row {} of {}: {said}", split.position, split.name.path);
            self.info.refused("ValueError", message, None)
        };
        if let Some(batch) = reader.next(&self.schema, flow, refused)? {
            self.reader = Some(reader);
            self.reading.front_mut().into_iter().for_each(|split| split.position += batch.num_rows() as u64);
            emit(batch, self.metrics.as_deref(), flow)?;
        } else {
            self.ended.extend(self.reading.pop_front().map(|split| split.name));
        }
        Ok(if self.reading.is_empty() { SourceStatus::Finished } else { SourceStatus::More })
    }

    fn snapshot(&mut self, (): (), to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        let mut header = vec![u8::from(self.has_splits && self.reading.is_empty())];
        put_varint(&mut header, self.info.parallelism().into());
        let ended = self.ended.iter().map(|name| put_split(name, true, 0));
        let reading = self.reading.iter().map(|split| put_split(&split.name, false, split.position));
        to.add_items(STATE, [header].into_iter().chain(ended).chain(reading));
        Ok(())
    }

    fn restore(&mut self, (): (), from: &Restored<'_>) -> Result<(), TaskError> {
        let (mut before, mut reading, mut kept, mut last) = (0, Vec::new(), Vec::<Kept>::new(), None);
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
            let resumed = resumed.and_then(|resumed| resumed.extract::<(Vec<(Name, u64)>, Vec<Name>)>());
            let (splits, ended) = resumed.map_err(|error| {
                if error.is_instance_of::<PyLookupError>(py) {
                    from.refused(self.info.name(), error.value(py))
                } else {
                    self.failed(py, &error)
                }
            })?;
            self.reading = splits.into_iter().map(|(name, position)| Split { name, position }).collect();
            (self.ended, self.has_splits) = (ended, true);
            Ok(())
        })
    }

    fn close(&mut self, (): ()) -> Result<(), TaskError> {
        self.reader = None;
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

fn take_split(subtask: u32, item: &mut Input<'_>) -> Result<Kept, TaskError> {
    let has_ended = item.byte()? != 0;
    let path = String::from_utf8_lossy(item.block()?).into_owned();
    let (bytes, part) = (item.varint()?, item.varint()?.checked_sub(1));
    Ok((subtask, (path, bytes, part), has_ended, item.varint()?))
}

/// What the reader of a file said, out of what Arrow's interface puts before it, and pyarrow behind it: the lines of ours
/// where it was said.
fn sentence_of(message: &str) -> &str {
    let said = message.split_once("Producer error: IOError: ").map_or(message, |(_, said)| said);
    said.rsplit_once(". Detail: Python exception:").map_or(said, |(sentence, _)| sentence)
}
