//! Serializes rows at an output edge of a task.

use std::sync::Arc;

use flownet_core::Target;
use flownet_core::record::writer::Emit;
use flownet_runtime::operator::{OutputSerializer, put_stamp};
use flownet_runtime::varint::put_varint;
use flownet_runtime::work::Work;
use flownet_runtime::{Outputs, TaskError};

use crate::batch::{RowBatch, with_times};
use crate::column::Rows;
use crate::layout::Layout;
use crate::partial_aggregate::Parts;
use crate::record_format::{OperatorInfo, RowRecord, RowsFormat, WITH_NANOS, WITH_TIMES, WITHOUT_TIMES};
use crate::row_block::RunWriter;

/// Output serializer of one edge.
pub struct RowsSerializer {
    /// Index among the outputs of the task.
    output: usize,
    /// Kind and layout of the last batch, including its times. None before the first.
    layout: Option<(u8, Arc<Layout>)>,
    info: OperatorInfo,
    /// Buffer of the record being sent. Reused, so that a record costs no allocation.
    bytes: Vec<u8>,
}

/// Limit of a row block in bytes, unless it has only one row. It fits a buffer of default size with its headers.
const RUN_BYTES: usize = (32 << 10) - 64;

impl RowsSerializer {
    /// Creates the serializer of the task's `output`, for records that operator `info` emits.
    pub fn new(output: usize, info: OperatorInfo) -> Self {
        Self { output, layout: None, info, bytes: Vec::new() }
    }

    fn layout_of(&mut self, batch: &RowBatch) -> Result<Arc<Layout>, TaskError> {
        let kind = kind_of(batch);
        if let Some((known, layout)) = &self.layout
            && *known == kind
        {
            return Ok(Arc::clone(layout));
        }
        let schema = batch.columns.schema();
        let has_times = kind != WITHOUT_TIMES;
        let schema = if has_times { Arc::new(with_times(&schema, kind == WITH_NANOS)) } else { schema };
        let layout = Layout::new(schema).map_err(|error| self.info.failed("TypeError", error.to_string(), None))?;
        let layout = Arc::new(layout);
        self.layout = Some((kind, Arc::clone(&layout)));
        Ok(layout)
    }

    fn writer_of(&mut self, batch: &RowBatch) -> Result<RunWriter, TaskError> {
        let layout = self.layout_of(batch)?;
        let columns = batch.with_times_as_column(layout.schema());
        let columns = columns.map_err(|error| TaskError::Config(error.to_string()))?;
        Ok(RunWriter::new(&layout, &columns))
    }

    fn send_rows(&mut self, batch: &RowBatch, stamp: Option<i64>, out: &mut Outputs) -> Result<(), TaskError> {
        let before = out.metrics().begin(Work::Serialising);
        let writer = self.writer_of(batch)?;
        let mut rows = Rows::Range { start: 0, end: batch.len() };
        while !rows.is_empty() {
            let (first, others) = rows.split_at(writer.fitting(rows, RUN_BYTES));
            self.write(&writer, first, (batch, stamp));
            send(self.output, Target::Any, &self.bytes, out)?;
            rows = others;
        }
        out.metrics().resume(before);
        out.metrics().count_rows_out(batch.len() as u64);
        Ok(())
    }

    /// Sends rows that fit one row block. The caller waits if the output is blocked. Returns none if they do not fit.
    pub fn emit_run(
        &mut self,
        batch: &RowBatch,
        stamp: Option<i64>,
        out: &mut Outputs,
    ) -> Result<Option<Emit>, TaskError> {
        let before = out.metrics().begin(Work::Serialising);
        let writer = self.writer_of(batch)?;
        let rows = Rows::Range { start: 0, end: batch.len() };
        if writer.fitting(rows, RUN_BYTES) < batch.len() {
            out.metrics().resume(before);
            return Ok(None);
        }
        self.write(&writer, rows, (batch, stamp));
        out.metrics().resume(before);
        let emitted = out.try_emit(self.output, Target::Any, &self.bytes)?;
        out.metrics().count_rows_out(batch.len() as u64);
        Ok(Some(emitted))
    }

    fn write(&mut self, writer: &RunWriter, rows: Rows<'_>, (batch, stamp): (&RowBatch, Option<i64>)) {
        self.bytes.clear();
        if let Some(stamp) = stamp {
            put_stamp(&mut self.bytes, stamp);
        }
        self.bytes.push(kind_of(batch));
        writer.write(rows, &mut self.bytes);
    }

    /// `stamp` is the stamp of time 0; each record adds its own time.
    fn send_parts(&mut self, parts: &Parts, stamp: Option<i64>, out: &mut Outputs) -> Result<(), TaskError> {
        for part in parts.iter() {
            self.bytes.clear();
            if let Some(stamp) = stamp {
                put_stamp(&mut self.bytes, stamp.wrapping_add(part.timestamp_ms));
            }
            put_varint(&mut self.bytes, part.key.len() as u64);
            self.bytes.extend_from_slice(part.key);
            self.bytes.extend_from_slice(part.value);
            send(self.output, Target::KeyHash(part.hash), &self.bytes, out)?;
        }
        // Sending counted one row per record. This adds the further rows of mini-batches.
        out.metrics().count_rows_out((parts.rows() - parts.len()) as u64 + 1);
        Ok(())
    }
}

/// Returns the first byte of a record of these rows.
fn kind_of(batch: &RowBatch) -> u8 {
    match (&batch.times, &batch.nanos) {
        (None, _) => WITHOUT_TIMES,
        (Some(_), None) => WITH_TIMES,
        (Some(_), Some(_)) => WITH_NANOS,
    }
}

#[inline]
fn send(output: usize, target: Target, bytes: &[u8], out: &mut Outputs) -> Result<(), TaskError> {
    match out.try_emit(output, target, bytes)? {
        Emit::Done => Ok(()),
        Emit::Blocked => out.wait(),
    }
}

impl OutputSerializer<RowsFormat> for RowsSerializer {
    fn emit(&mut self, (): (), record: &RowRecord, stamp: Option<i64>, out: &mut Outputs) -> Result<(), TaskError> {
        match record {
            RowRecord::Batch(batch) => self.send_rows(batch, stamp, out),
            RowRecord::Parts(parts) => self.send_parts(parts, stamp, out),
        }
    }

    fn info(&self) -> &OperatorInfo {
        &self.info
    }
}
