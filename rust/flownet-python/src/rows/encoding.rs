//! Encodes rows for files: as text of some format, or as Parquet by a Python writer for each file.

use std::collections::HashMap;

use arrow_array::RecordBatch;
use arrow_json::writer::{LineDelimited, WriterBuilder as JsonBuilder};
use arrow_schema::{ArrowError, SchemaRef};
use flownet_rows::{BATCH_ROWS, RowBatch, not_finite, write_csv};
use flownet_runtime::TaskError;
use pyo3::intern;
use pyo3::prelude::*;

use super::arrow::{PyRowBatch, PyRowSchema};
use crate::chain::{OperatorInfo, PartFiles};

/// Format of the files.
pub(super) enum Encoding {
    /// Values with this delimiter between them.
    Csv { delimiter: u8 },
    /// Lines of JSON.
    Json,
    /// Parquet, by a Python writer.
    Parquet(ParquetWriters),
}

/// Writers that write files by their names, each from its first batch on.
pub(super) struct ParquetWriters {
    /// Creates a writer from a path and a schema.
    opens: Py<PyAny>,
    schema: SchemaRef,
    /// Writers by the places of their files.
    writers: HashMap<String, Py<PyAny>>,
}

/// A file: the one of this place, among those of a subtask.
type FilePosition<'a> = (&'a mut PartFiles, &'a str);

impl Encoding {
    /// Appends rows to a file.
    pub(super) fn write(
        &mut self,
        to: FilePosition<'_>,
        batch: &RecordBatch,
        info: &OperatorInfo,
    ) -> Result<(), TaskError> {
        match self {
            Self::Csv { delimiter } => write_lines(to, batch, info, |rows| csv(rows, *delimiter)),
            Self::Json => write_lines(to, batch, info, json),
            Self::Parquet(writers) => writers.write(to, batch, info),
        }
    }

    /// Begins a file without rows, so that it contains the schema.
    pub(super) fn begin(&mut self, to: FilePosition<'_>, info: &OperatorInfo) -> Result<(), TaskError> {
        let Self::Parquet(writers) = self else { return Ok(()) };
        Python::attach(|py| writers.writer(py, to, info).map(drop))
    }

    /// Completes files that Python writes.
    pub(super) fn finish(&mut self, (files, place): FilePosition<'_>, info: &OperatorInfo) -> Result<(), TaskError> {
        let Self::Parquet(ParquetWriters { writers, .. }) = self else { return Ok(()) };
        let Some(writer) = writers.remove(place) else { return Ok(()) };
        Python::attach(|py| {
            let closed = writer.bind(py).call_method0(intern!(py, "close"));
            closed.map(drop).map_err(|error| info.failed(py, &error, None))
        })?;
        files.measure(place)
    }

    /// Drops writers of incomplete files.
    pub(super) fn give_up(&mut self) {
        if let Self::Parquet(ParquetWriters { writers, .. }) = self {
            Python::attach(|_| writers.clear());
        }
    }
}

impl ParquetWriters {
    pub(super) fn new(opens: Py<PyAny>, schema: SchemaRef) -> Self {
        Self { opens, schema, writers: HashMap::new() }
    }

    fn write(&mut self, to: FilePosition<'_>, batch: &RecordBatch, info: &OperatorInfo) -> Result<(), TaskError> {
        Python::attach(|py| {
            let batch = PyRowBatch(RowBatch::new(batch.clone()));
            let written = self.writer(py, to, info)?.call_method1(intern!(py, "write"), (batch,));
            written.map(drop).map_err(|error| info.failed(py, &error, None))
        })
    }

    /// The writer of a file.
    fn writer<'py>(
        &mut self,
        py: Python<'py>,
        (files, place): FilePosition<'_>,
        info: &OperatorInfo,
    ) -> Result<Bound<'py, PyAny>, TaskError> {
        if let Some(writer) = self.writers.get(place) {
            return Ok(writer.bind(py).clone());
        }
        let path = files.path(place)?;
        let made = self.opens.bind(py).call1((path.as_os_str(), PyRowSchema(self.schema.clone())));
        let made = made.map_err(|error| info.failed(py, &error, None))?;
        self.writers.insert(place.to_owned(), made.clone().unbind());
        Ok(made)
    }
}

fn write_lines(
    (files, place): FilePosition<'_>,
    batch: &RecordBatch,
    info: &OperatorInfo,
    lines_of: impl Fn(&RecordBatch) -> Result<Vec<u8>, ArrowError>,
) -> Result<(), TaskError> {
    // A file may have gathered many rows, and their text is even larger. So encode it in steps.
    for start in (0..batch.num_rows()).step_by(BATCH_ROWS) {
        let lines = lines_of(&batch.slice(start, BATCH_ROWS.min(batch.num_rows() - start)));
        files.write(place, &lines.map_err(|error| info.refused("ValueError", error.to_string(), None))?)?;
    }
    Ok(())
}

fn csv(batch: &RecordBatch, delimiter: u8) -> Result<Vec<u8>, ArrowError> {
    let mut lines = Vec::new();
    write_csv(batch, delimiter, &mut lines)?;
    Ok(lines)
}

fn json(batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    if let Some((name, value)) = not_finite(batch) {
        return Err(ArrowError::InvalidArgumentError(format!(
            "write_json: column '{name}' has {value}, which JSON has no number for: make such values null before, or write \
             their texts, by .cast(\"utf8\"); write_csv and write_parquet have them"
        )));
    }
    let mut lines = Vec::new();
    let mut writer = JsonBuilder::new().with_explicit_nulls(true).build::<_, LineDelimited>(&mut lines);
    writer.write(batch)?;
    writer.finish()?;
    drop(writer);
    Ok(lines)
}
