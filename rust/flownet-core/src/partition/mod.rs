//! Producer side of an exchange: one [`ResultPartition`] per task output, one [`SubpartitionCell`] per reader.
//!
//! The task owns the partition and writes without a lock into the open buffer of a subpartition. It takes a lock once
//! per buffer, event or flush. Readers (a connection or a local gate) hold the cells. The flusher and the task's
//! supervisor hold a [`PartitionHandle`].
//!
//! # Invariants
//! - P1: builders are open in at most one form: one per subpartition, or one that all subpartitions share.
//! - P2: when a write returns short, the readers can see all bytes written before, so that they can return segments.
//! - P3: a poll after a flush sees the bytes that were committed before the flush (see [`SubpartitionCell`]).
//! - P4: a write never waits for segments that only open buffers hold. It finishes these buffers, so that their
//!   segments come back.
//! - P5: the pool books open buffers as standing. The size of the pool bounds them, not the number of subpartitions.
//!   Beyond the bound, the partition finishes the buffer that has been open longest, full or not, before it opens
//!   another. A busy subpartition fills its buffer and opens the next. The oldest buffer thus belongs to an idle
//!   subpartition, whose bytes were flushed and read long ago. So an idle subpartition retains no segment that a busy
//!   one needs, and at least one segment is always on its way to a reader and back. If all subpartitions with open
//!   buffers are busy, the segments are split into smaller buffers. The bound then applies to segments: to finish one
//!   is to finish all its open parts.

mod cell;
mod counts;
pub(crate) mod dirty;
mod handle;
mod open;
mod open_buffers;
mod result;

pub use cell::SubpartitionCell;
pub use handle::{PartitionHandle, SubpartitionStats};
pub(crate) use open_buffers::OpenBuffer;
pub use result::ResultPartition;
