//! `write_parquet`, `write_csv`, `write_json` of rows: into files of a folder, which get their names when they are complete,
//! as those of objects do.

use arrow_array::RecordBatch;
use arrow_json::writer::{LineDelimited, WriterBuilder as JsonBuilder};
use arrow_schema::{ArrowError, SchemaRef};
use flownet_rows::{Flow, RowBatch, RowRecord, RowsMedium};
use flownet_runtime::operator::Operator;
use flownet_runtime::snapshot::{Restored, Snapshot};
use flownet_runtime::{TaskContext, TaskError};
use pyo3::intern;
use pyo3::prelude::*;

use super::arrow::{PyRowBatch, PyRowSchema};
use crate::chain::{OperatorInfo, PartFiles, Written};

/// Writes batches.
pub(super) struct WriteFiles {
    files: PartFiles,
    encoding: Encoding,
    schema: SchemaRef,
    info: OperatorInfo,
    written: Written,
}

/// As what they are written.
pub(super) enum Encoding {
    /// Values with this between them.
    Csv { delimiter: u8 },
    /// Lines of JSON.
    Json,
    /// Parquet, by a writer in Python.
    Parquet(ParquetWriter),
}

/// Writes a file by its name, from its first batch on.
pub(super) struct ParquetWriter {
    /// Makes one, of a path and a schema.
    pub(super) opens: Py<PyAny>,
    pub(super) writer: Option<Py<PyAny>>,
}

impl WriteFiles {
    pub(super) fn new(files: PartFiles, encoding: Encoding, schema: SchemaRef, info: OperatorInfo) -> Self {
        Self { files, encoding, schema, info, written: Written::default() }
    }

    fn write(&mut self, batch: RecordBatch) -> Result<(), TaskError> {
        let lines = match &mut self.encoding {
            Encoding::Csv { delimiter } => csv(&batch, *delimiter),
            Encoding::Json => json(&batch),
            Encoding::Parquet(_) => return self.write_parquet(batch),
        };
        let lines = lines.map_err(|error| self.info.refused("ValueError", error.to_string(), None))?;
        self.files.write(&lines)
    }

    fn write_parquet(&mut self, batch: RecordBatch) -> Result<(), TaskError> {
        Python::attach(|py| {
            let Some(writer) = self.writer(py)? else { return Ok(()) };
            let written = writer.call_method1(intern!(py, "write"), (PyRowBatch(RowBatch::new(batch)),));
            written.map(drop).map_err(|error| self.info.failed(py, &error, None))
        })
    }

    /// What writes the file; none if that is not Python.
    fn writer<'py>(&mut self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>, TaskError> {
        let Self { files, encoding, schema, info, .. } = self;
        let Encoding::Parquet(ParquetWriter { opens, writer }) = encoding else { return Ok(None) };
        if let Some(writer) = writer {
            return Ok(Some(writer.bind(py).clone()));
        }
        let path = files.path()?;
        let made = opens.bind(py).call1((path.as_os_str(), PyRowSchema(schema.clone())));
        let made = made.map_err(|error| info.failed(py, &error, None))?;
        *writer = Some(made.clone().unbind());
        Ok(Some(made))
    }

    /// Has what is written in Python be whole.
    fn finish_file(&mut self) -> Result<(), TaskError> {
        let Encoding::Parquet(ParquetWriter { writer, .. }) = &mut self.encoding else { return Ok(()) };
        let Some(writer) = writer.take() else { return Ok(()) };
        Python::attach(|py| {
            let closed = writer.bind(py).call_method0(intern!(py, "close"));
            closed.map(drop).map_err(|error| self.info.failed(py, &error, None))
        })?;
        self.files.measure()
    }
}

impl Operator<RowsMedium> for WriteFiles {
    fn open(&mut self, (): (), cx: &TaskContext) -> Result<(), TaskError> {
        self.written.open(cx);
        self.files.open(cx)
    }

    fn process<'m>(&mut self, record: RowRecord, _: &mut Flow<'_, 'm>) -> Result<(), TaskError> {
        let batch = record.into_batch()?.columns;
        self.written.add(batch.num_rows());
        if batch.num_rows() == 0 { Ok(()) } else { self.write(batch) }
    }

    fn commit(&mut self, _: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        if !self.files.has_checkpoints() {
            // A file of no rows says which columns there would have been.
            Python::attach(|py| self.writer(py).map(drop))?;
        }
        self.finish_file()?;
        self.files.finish()
    }

    fn snapshot(&mut self, (): (), to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        self.finish_file()?;
        self.files.snapshot(to)
    }

    fn restore(&mut self, (): (), from: &Restored<'_>) -> Result<(), TaskError> {
        self.files.restore(from)
    }

    fn complete(&mut self, (): (), checkpoint_id: u64) -> Result<(), TaskError> {
        self.files.complete(checkpoint_id)
    }

    fn close(&mut self, (): ()) -> Result<(), TaskError> {
        if let Encoding::Parquet(ParquetWriter { writer, .. }) = &mut self.encoding {
            let writer = writer.take();
            Python::attach(|_| drop(writer));
        }
        self.files.close();
        Ok(())
    }
}

fn csv(batch: &RecordBatch, delimiter: u8) -> Result<Vec<u8>, ArrowError> {
    let mut lines = Vec::new();
    let builder = arrow_csv::WriterBuilder::new().with_header(false).with_delimiter(delimiter);
    builder.build(&mut lines).write(batch)?;
    Ok(lines)
}

fn json(batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    let mut lines = Vec::new();
    let mut writer = JsonBuilder::new().with_explicit_nulls(true).build::<_, LineDelimited>(&mut lines);
    writer.write(batch)?;
    writer.finish()?;
    drop(writer);
    Ok(lines)
}
