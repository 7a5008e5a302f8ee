//! `write_parquet`, `write_csv`, `write_json` of rows: write into files of a folder, which get their final
//! names when they are complete, as those of objects do. With partitions, the files are in folders below that
//! one.

use arrow_array::RecordBatch;
use flownet_rows::{Collector, PartitionError, Partitions, RowRecord, RowsFormat};
use flownet_runtime::operator::Operator;
use flownet_runtime::snapshot::{RestoredState, Snapshot};
use flownet_runtime::{TaskContext, TaskError};

use super::encoding::Encoding;
use crate::chain::{NO_PARTITION, OperatorInfo, PartFiles, WriteCounter};

/// Most files that are written at once: a worker with eight subtasks stays below the usual system limit of a
/// thousand.
const MOST_OPEN: usize = 48;

/// Writes batches.
pub(super) struct WriteFiles {
    files: PartFiles,
    encoding: Encoding,
    partitions: Option<Partitions>,
    /// Places of files that were begun and are not complete, ordered by their last write.
    open: Vec<String>,
    info: OperatorInfo,
    written: WriteCounter,
}

impl WriteFiles {
    pub(super) fn new(
        files: PartFiles,
        encoding: Encoding,
        partitions: Option<Partitions>,
        info: OperatorInfo,
    ) -> Self {
        Self { files, encoding, partitions, open: Vec::new(), info, written: WriteCounter::default() }
    }

    fn write(&mut self, place: &str, batch: &RecordBatch) -> Result<(), TaskError> {
        self.turn_to(place)?;
        self.encoding.write((&mut self.files, place), batch, &self.info)
    }

    /// Moves this place to the end, and completes files beyond the limit of open ones.
    fn turn_to(&mut self, place: &str) -> Result<(), TaskError> {
        if let Some(found) = self.open.iter().position(|open| open == place) {
            self.open[found..].rotate_left(1);
            return Ok(());
        }
        if self.open.len() == MOST_OPEN {
            let longest_ago = self.open.remove(0);
            self.complete_file(&longest_ago)?;
        }
        self.open.push(place.to_owned());
        Ok(())
    }

    fn complete_file(&mut self, place: &str) -> Result<(), TaskError> {
        self.encoding.finish((&mut self.files, place), &self.info)?;
        self.files.seal(place)
    }

    /// Writes the gathered rows, one file after the other, and completes all files.
    fn finish_files(&mut self) -> Result<(), TaskError> {
        while let Some((place, batch)) = self.gathered(Partitions::take_first)? {
            self.write(&place, &batch)?;
            self.open.pop();
            self.complete_file(&place)?;
        }
        for place in std::mem::take(&mut self.open) {
            self.encoding.finish((&mut self.files, &place), &self.info)?;
        }
        Ok(())
    }

    fn gathered<T>(
        &mut self,
        take: impl FnOnce(&mut Partitions) -> Result<Option<T>, PartitionError>,
    ) -> Result<Option<T>, TaskError> {
        let taken = self.partitions.as_mut().map_or(Ok(None), take);
        taken.map_err(|error| self.info.refused("ValueError", error.to_string(), None))
    }
}

impl Operator<RowsFormat> for WriteFiles {
    fn open(&mut self, (): (), cx: &TaskContext) -> Result<(), TaskError> {
        self.written.open(cx);
        self.files.open(cx)
    }

    fn process<'m>(&mut self, record: RowRecord, _: &mut Collector<'_, 'm>) -> Result<(), TaskError> {
        let batch = record.into_batch()?.columns;
        self.written.add(batch.num_rows());
        if batch.num_rows() == 0 {
            return Ok(());
        }
        if self.partitions.is_none() {
            return self.write(NO_PARTITION, &batch);
        }
        self.gathered(|partitions| partitions.add(&batch).map(Some))?;
        while let Some((place, batch)) = self.gathered(Partitions::take_surplus)? {
            self.write(&place, &batch)?;
        }
        Ok(())
    }

    fn commit(&mut self, _: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        if !self.files.has_checkpoints() && self.partitions.is_none() {
            // A file without rows still names its columns.
            self.turn_to(NO_PARTITION)?;
            self.encoding.begin((&mut self.files, NO_PARTITION), &self.info)?;
        }
        self.finish_files()?;
        self.files.finish()
    }

    fn snapshot(&mut self, (): (), to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        self.finish_files()?;
        self.files.snapshot(to)
    }

    fn restore(&mut self, (): (), from: &RestoredState<'_>) -> Result<(), TaskError> {
        self.files.restore(from)
    }

    fn complete(&mut self, (): (), checkpoint_id: u64) -> Result<(), TaskError> {
        self.files.complete(checkpoint_id)
    }

    fn close(&mut self, (): ()) -> Result<(), TaskError> {
        self.encoding.give_up();
        self.files.close();
        Ok(())
    }
}
