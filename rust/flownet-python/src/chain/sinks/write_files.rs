//! `write_text`, `write_json`, `write_csv`: write lines into files of a folder. Files get their final names
//! when they are complete. There is one file per subtask, or with checkpoints one per subtask and checkpoint.

use std::path::PathBuf;

use flownet_runtime::operator::Operator;
use flownet_runtime::snapshot::{RestoredState, Snapshot};
use flownet_runtime::{TaskContext, TaskError};
use pyo3::prelude::*;

use super::lines::Lines;
use super::{NO_PARTITION, PartFiles, WriteCounter};
use crate::chain::failure::OperatorInfo;
use crate::chain::record_format::{Collector, PythonFormat};

/// Text gathered before it is written, even within a batch.
const GATHER_BYTES: usize = 256 * 1024;

/// Writes `part-<subtask>.txt`, or `part-<subtask>-<number>.txt` for each checkpoint. Other line formats have
/// other suffixes.
pub(in crate::chain) struct WriteFiles {
    lines: Lines,
    info: OperatorInfo,
    files: PartFiles,
    text: Vec<u8>,
    records: usize,
    written: WriteCounter,
}

impl WriteFiles {
    pub(in crate::chain) fn new(folder: PathBuf, lines: Lines, info: OperatorInfo) -> Self {
        let header = lines.header().map(str::to_owned);
        let files = PartFiles::new((folder, Vec::new()), lines.suffix(), header, info.clone());
        Self { lines, info, files, text: Vec::new(), records: 0, written: WriteCounter::default() }
    }

    /// Writes the gathered text.
    fn flush(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        if self.records == 0 {
            return Ok(());
        }
        self.written.add(std::mem::take(&mut self.records));
        py.detach(|| self.files.write(NO_PARTITION, &self.text))?;
        self.text.clear();
        Ok(())
    }
}

impl Operator<PythonFormat> for WriteFiles {
    fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.written.open(cx);
        self.lines.open(py, &self.info)?;
        py.detach(|| self.files.open(cx))
    }

    fn process<'py>(&mut self, record: Bound<'py, PyAny>, collector: &mut Collector<'_, 'py>) -> Result<(), TaskError> {
        self.lines.put(&record, &self.info, &mut self.text)?;
        self.records += 1;
        if self.text.len() < GATHER_BYTES { Ok(()) } else { self.end_batch(collector) }
    }

    fn end_batch(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        self.flush(collector.token)
    }

    fn commit(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        collector.token.detach(|| self.files.finish())
    }

    fn snapshot(&mut self, py: Python<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        self.flush(py)?;
        py.detach(|| self.files.snapshot(to))
    }

    fn restore(&mut self, py: Python<'_>, from: &RestoredState<'_>) -> Result<(), TaskError> {
        py.detach(|| self.files.restore(from))
    }

    fn complete(&mut self, py: Python<'_>, checkpoint_id: u64) -> Result<(), TaskError> {
        py.detach(|| self.files.complete(checkpoint_id))
    }

    fn close(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        py.detach(|| self.files.close());
        Ok(())
    }
}
