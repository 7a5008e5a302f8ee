//! What everyone but the writing task holds of a partition.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use super::cell::SubpartitionCell;
use super::dirty::DirtyMarks;
use crate::error::ExchangeError;
use crate::ids::{PartitionId, SubpartitionIndex};

/// A shared view of a [`ResultPartition`](super::ResultPartition): its subpartitions for readers, its flush for the
/// flusher, its counters, and the means to end it. Outlives the task as long as readers need it.
#[derive(Clone, Debug)]
pub struct PartitionHandle(pub(super) Arc<Shared>);

/// What left a partition. Counted when a buffer is finished, so it lags by the open buffers. A broadcast buffer
/// counts once for each subpartition.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PartitionCounters {
    /// Bytes of records, length prefixes included.
    pub bytes_out: u64,
    /// Buffers.
    pub buffers_out: u64,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) id: PartitionId,
    pub(super) cells: Box<[Arc<SubpartitionCell>]>,
    pub(super) dirty: DirtyMarks,
    bytes_out: AtomicU64,
    buffers_out: AtomicU64,
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

    /// What left the partition.
    #[must_use]
    pub fn counters(&self) -> PartitionCounters {
        PartitionCounters {
            bytes_out: self.0.bytes_out.load(Ordering::Relaxed),
            buffers_out: self.0.buffers_out.load(Ordering::Relaxed),
        }
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

impl Shared {
    pub(super) fn new(id: PartitionId, subpartitions: u32, dirty: DirtyMarks) -> Self {
        let cells = (0..subpartitions).map(|index| Arc::new(SubpartitionCell::new(SubpartitionIndex::new(index))));
        Self { id, cells: cells.collect(), dirty, bytes_out: AtomicU64::new(0), buffers_out: AtomicU64::new(0) }
    }

    pub(super) fn count(&self, bytes: usize, copies: usize) {
        self.bytes_out.fetch_add((bytes * copies) as u64, Ordering::Relaxed);
        self.buffers_out.fetch_add(copies as u64, Ordering::Relaxed);
    }

    pub(super) fn fail_all(&self, failure: &ExchangeError) {
        for cell in &self.cells {
            cell.fail(failure.clone());
        }
    }
}
