//! Writers of whole records into open buffers, made to stay in registers in a loop over many records.

use std::sync::Arc;

use flownet_memory::{BufferBuilder, RecordAppender};

use super::cell::SubpartitionCell;
use super::counts::RecordCount;
use super::dirty::{DirtyMark, Flusher};
use crate::ids::SubpartitionIndex;

/// The open buffers of a partition. By P1 there are none while all subpartitions share one.
pub(crate) struct Runs<'a> {
    pub(super) builders: &'a mut [Option<BufferBuilder>],
    pub(super) marks: &'a [DirtyMark],
    pub(super) records: &'a [RecordCount],
    pub(super) flusher: &'a Flusher,
    pub(super) cells: &'a [Arc<SubpartitionCell>],
}

/// The open buffer of one subpartition.
pub(crate) struct OpenBuffer<'a> {
    appender: RecordAppender<'a>,
    mark: &'a DirtyMark,
    records: &'a RecordCount,
    flusher: &'a Flusher,
    cells: &'a [Arc<SubpartitionCell>],
    index: usize,
}

impl Runs<'_> {
    /// Returns the open buffer of one subpartition, if it has one.
    #[inline(always)] // as `write_whole`
    pub(crate) fn run(&mut self, subpartition: SubpartitionIndex) -> Option<OpenBuffer<'_>> {
        let index = subpartition.index();
        let appender = self.builders.get_mut(index)?.as_mut()?.records();
        let (mark, records) = (self.marks.get(index)?, self.records.get(index)?);
        Some(OpenBuffer { appender, mark, records, flusher: self.flusher, cells: self.cells, index })
    }
}

impl OpenBuffer<'_> {
    /// Writes a record if the buffer has room for it and more. Returns `false` if nothing was written: then call
    /// [`try_write`](super::ResultPartition::try_write) and [`end_record`](super::ResultPartition::end_record).
    #[inline(always)] // as `write_whole`
    pub(crate) fn try_write(&mut self, prefix: &[u8], record: &[u8]) -> bool {
        let is_written = self.appender.try_append_both(prefix, record);
        if is_written {
            self.mark.set(self.flusher);
        }
        is_written
    }

    /// Counts records that were written.
    #[inline(always)] // as `write_whole`
    pub(crate) fn count(&self, records: u64) {
        self.records.add(records);
    }

    /// Flushes the subpartition like [`flush`](super::ResultPartition::flush).
    #[inline]
    pub(crate) fn flush(&self) {
        self.cells[self.index].flush_record();
    }
}
