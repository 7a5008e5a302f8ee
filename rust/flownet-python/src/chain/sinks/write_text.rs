//! `write_text`: `str(record)` into one file a subtask, which gets its name when it is complete.

use std::io;
use std::path::PathBuf;

use flownet_runtime::operator::Operator;
use flownet_runtime::{TaskContext, TaskError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::Written;
use super::part_file::PartFile;
use crate::chain::failure::OperatorInfo;
use crate::chain::medium::{Flow, PythonMedium};

/// Text gathered before it is written, whatever the batch.
const GATHER_BYTES: usize = 256 * 1024;

/// Writes `part-<subtask>.txt`.
pub(in crate::chain) struct WriteText {
    folder: PathBuf,
    info: OperatorInfo,
    part: Option<PartFile>,
    text: Vec<u8>,
    records: usize,
    written: Written,
}

impl WriteText {
    pub(in crate::chain) fn new(folder: PathBuf, info: OperatorInfo) -> Self {
        Self { folder, info, part: None, text: Vec::new(), records: 0, written: Written::default() }
    }

    fn failed(&self, error: &io::Error) -> TaskError {
        let path = PartFile::path_in(&self.folder, self.info.subtask);
        self.info.refused("OSError", format!("{}: {error}", path.display()), None)
    }
}

impl Operator<PythonMedium> for WriteText {
    fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.written.open(cx);
        let create = || PartFile::create(self.folder.clone(), cx.subtask, cx.parallelism);
        self.part = Some(py.detach(create).map_err(|error| self.failed(&error))?);
        Ok(())
    }

    fn process<'py>(&mut self, record: Bound<'py, PyAny>, flow: &mut Flow<'_, 'py>) -> Result<(), TaskError> {
        let line = record.str().map_err(|error| self.info.failed(flow.token, &error, Some(&record)))?;
        match line.to_str() {
            Ok(text) => self.text.extend_from_slice(text.as_bytes()),
            // Lone surrogates: written as the codec of the file system writes them, so that file names survive.
            Err(_) => {
                let bytes = line.call_method1("encode", ("utf-8", "surrogateescape"));
                let bytes = bytes.and_then(|bytes| Ok(bytes.cast_into::<PyBytes>()?));
                let bytes = bytes.map_err(|error| self.info.failed(flow.token, &error, Some(&record)))?;
                self.text.extend_from_slice(bytes.as_bytes());
            }
        }
        self.text.push(b'\n');
        self.records += 1;
        if self.text.len() < GATHER_BYTES { Ok(()) } else { self.end_batch(flow) }
    }

    fn end_batch(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        if self.records == 0 {
            return Ok(());
        }
        self.written.add(std::mem::take(&mut self.records));
        let Some(part) = &mut self.part else { return Ok(()) };
        let text = &self.text;
        let written = flow.token.detach(|| part.write_all(text));
        self.text.clear();
        written.map_err(|error| self.failed(&error))
    }

    fn commit(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let Some(part) = self.part.take() else { return Ok(()) };
        flow.token.detach(|| part.complete()).map_err(|error| self.failed(&error))
    }

    /// A file that is not complete is nothing.
    fn close(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        let part = self.part.take();
        py.detach(|| drop(part));
        Ok(())
    }
}
