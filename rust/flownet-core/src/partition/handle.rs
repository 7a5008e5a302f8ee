//! Shared handle to a partition, for all threads except the writing task.

use std::sync::Arc;
use std::task::Waker;

use super::cell::SubpartitionCell;
use super::counts::RecordCounts;
use super::dirty::DirtyMarks;
use crate::error::ExchangeError;
use crate::ids::{PartitionId, SubpartitionIndex};
use crate::subpartition::QueuedData;

/// A shared view of a [`ResultPartition`](super::ResultPartition): its subpartitions for readers, its flush for the
/// flusher, its statistics, and the means to end it. It outlives the task as long as readers need it.
#[derive(Clone, Debug)]
pub struct PartitionHandle(pub(super) Arc<PartitionShared>);

/// Statistics of one subpartition: the written records and bytes, and the queued buffers. Broadcast records count in
/// each subpartition.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SubpartitionStats {
    /// Records so far; a record counts once its last byte is written.
    pub records: u64,
    /// Bytes of records so far, including length prefixes. Bytes written after the reader left do not count.
    pub bytes: u64,
    /// Buffers that wait for their reader, including the one being filled.
    pub queued_buffers: u64,
    /// Bytes in these buffers.
    pub queued_bytes: u64,
}

#[derive(Debug)]
pub(super) struct PartitionShared {
    pub(super) id: PartitionId,
    pub(super) cells: Box<[Arc<SubpartitionCell>]>,
    pub(super) dirty: DirtyMarks,
    pub(super) records: RecordCounts,
}

impl PartitionHandle {
    /// Shows the readers all bytes written since the last call. Visits only the subpartitions written since then, and
    /// once more those of the previous call (see the module `dirty`).
    pub fn flush_dirty(&self) {
        self.0.dirty.take(|index| self.0.cells[index].flush());
    }

    /// Returns false if [`Self::flush_dirty`] has nothing to flush.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.0.dirty.any()
    }

    /// Makes the next record of each of `partitions` wake `waker`, once, so that an idle flusher need not poll. Has no
    /// effect on partitions that [`Self::flush_dirty`] must flush first: see [`Self::is_dozing`].
    pub fn doze(partitions: &[Self], waker: &Waker) {
        DirtyMarks::doze(partitions.iter().map(|partition| &partition.0.dirty), waker);
    }

    /// Returns true if no record was written since [`Self::doze`] and none had to be flushed then.
    #[must_use]
    pub fn is_dozing(&self) -> bool {
        self.0.dirty.is_dozing()
    }

    /// Returns the id of the partition.
    #[must_use]
    pub fn id(&self) -> PartitionId {
        self.0.id
    }

    /// Returns all subpartitions.
    #[must_use]
    pub fn subpartitions(&self) -> &[Arc<SubpartitionCell>] {
        &self.0.cells
    }

    /// Returns one subpartition, if the index exists.
    #[must_use]
    pub fn subpartition(&self, index: SubpartitionIndex) -> Option<&Arc<SubpartitionCell>> {
        self.0.cells.get(index.index())
    }

    /// Returns the statistics of each subpartition. Takes every lock and visits the queued elements, so do not call it
    /// often.
    pub fn outgoing(&self) -> impl Iterator<Item = SubpartitionStats> {
        self.0.records.read().zip(&self.0.cells).map(|(records, cell)| {
            let QueuedData { buffers: queued_buffers, bytes: queued_bytes, bytes_so_far: bytes } = cell.queued();
            SubpartitionStats { records, bytes, queued_buffers, queued_bytes }
        })
    }

    /// Fails the partition: its readers get `cause` at once, and queued elements are dropped. Subpartitions that were
    /// read to their end are not affected.
    pub fn fail(&self, cause: impl Into<Arc<str>>) {
        self.0.fail_all(&ExchangeError::producer_failed(self.0.id, cause));
    }

    /// Ends the partition without a failure. Readers that have not reached the end get [`ExchangeError::Released`].
    pub fn release(&self) {
        self.0.fail_all(&ExchangeError::Released);
    }

    /// Returns true if every subpartition was read to its end or released.
    #[must_use]
    pub fn is_consumed(&self) -> bool {
        self.0.cells.iter().all(|cell| cell.is_consumed())
    }
}

impl PartitionShared {
    pub(super) fn new(id: PartitionId, subpartitions: u32, dirty: DirtyMarks, records: RecordCounts) -> Self {
        let cells = (0..subpartitions).map(|index| Arc::new(SubpartitionCell::new(SubpartitionIndex::new(index))));
        Self { id, cells: cells.collect(), dirty, records }
    }

    pub(super) fn fail_all(&self, failure: &ExchangeError) {
        for cell in &self.cells {
            cell.fail(failure.clone());
        }
    }
}
