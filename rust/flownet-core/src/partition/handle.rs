//! What everyone but the writing task holds of a partition.

use std::sync::Arc;
use std::task::Waker;

use super::cell::SubpartitionCell;
use super::counts::RecordCounts;
use super::dirty::DirtyMarks;
use crate::error::ExchangeError;
use crate::ids::{PartitionId, SubpartitionIndex};
use crate::subpartition::QueuedData;

/// A shared view of a [`ResultPartition`](super::ResultPartition): its subpartitions for readers, its flush for the
/// flusher, what was written to it, and the means to end it. Outlives the task as long as readers need it.
#[derive(Clone, Debug)]
pub struct PartitionHandle(pub(super) Arc<PartitionShared>);

/// What was written to one subpartition, and what of it waits there. What is broadcast counts in each.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SubpartitionStats {
    /// Records so far, each once its last byte found room.
    pub records: u64,
    /// Bytes of records so far, length prefixes included; none of those written after the reader has left.
    pub bytes: u64,
    /// Buffers that wait for their reader, the one being filled included.
    pub queued_buffers: u64,
    /// Bytes in these.
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
    /// Shows the readers what was written since the last call. Touches only subpartitions written since then (and
    /// once more those of the call before, see the module `dirty`).
    pub fn flush_dirty(&self) {
        self.0.dirty.take(|index| self.0.cells[index].flush());
    }

    /// False when [`Self::flush_dirty`] has nothing to do.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.0.dirty.any()
    }

    /// Has the next record of each of `partitions` wake `waker`, once, so that a flusher with nothing to do need not come
    /// by. Not where [`Self::flush_dirty`] has something to do first: see [`Self::is_dozing`].
    pub fn doze(partitions: &[Self], waker: &Waker) {
        DirtyMarks::doze(partitions.iter().map(|partition| &partition.0.dirty), waker);
    }

    /// Nothing was written since [`Self::doze`], nor had to be flushed then.
    #[must_use]
    pub fn is_dozing(&self) -> bool {
        self.0.dirty.is_dozing()
    }

    /// The partition's name.
    #[must_use]
    pub fn id(&self) -> PartitionId {
        self.0.id
    }

    /// All subpartitions.
    #[must_use]
    pub fn subpartitions(&self) -> &[Arc<SubpartitionCell>] {
        &self.0.cells
    }

    /// One subpartition, if the index exists.
    #[must_use]
    pub fn subpartition(&self, index: SubpartitionIndex) -> Option<&Arc<SubpartitionCell>> {
        self.0.cells.get(index.index())
    }

    /// What was written to each subpartition. Takes the lock of each and looks at what is queued: for who looks now and then.
    pub fn outgoing(&self) -> impl Iterator<Item = SubpartitionStats> {
        self.0.records.read().zip(&self.0.cells).map(|(records, cell)| {
            let QueuedData { buffers: queued_buffers, bytes: queued_bytes, bytes_so_far: bytes } = cell.queued();
            SubpartitionStats { records, bytes, queued_buffers, queued_bytes }
        })
    }

    /// Ends the partition: its readers get `cause` at once, what is queued goes home. Subpartitions that were read to
    /// their end are not touched.
    pub fn fail(&self, cause: impl Into<Arc<str>>) {
        self.0.fail_all(&ExchangeError::producer_failed(self.0.id, cause));
    }

    /// Ends the partition without blame: readers that have not come to the end get [`ExchangeError::Released`].
    pub fn release(&self) {
        self.0.fail_all(&ExchangeError::Released);
    }

    /// Every subpartition was read to its end or released.
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
