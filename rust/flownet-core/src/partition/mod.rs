//! Producer side of an exchange: one [`ResultPartition`] per task output, one [`SubpartitionCell`] per reader.
//!
//! The task owns the partition and writes without a lock into the open buffer of a subpartition; a lock is taken once
//! a buffer, an event or a flush. Readers (a connection or a local gate) hold the cells, the flusher and whoever
//! answers for the task hold a [`PartitionHandle`].
//!
//! # Invariants
//! - P1: a builder is open in at most one form: one per subpartition, or one that all subpartitions share.
//! - P2: when a write returns short, everything written before is visible to the readers, so that they can give
//!   segments back.
//! - P3: bytes committed before a flush are seen by the poll that follows it (see [`SubpartitionCell`]).
//! - P4: a write never waits for segments that only open buffers hold: those are finished, so that they come back.
//! - P5: open buffers are booked as standing with the pool, which bounds them by what it has and not by the number of
//!   subpartitions. Beyond the bound the buffer that has been open for longest is finished, full or not, before
//!   another is opened: a busy subpartition fills its buffer and opens the next, so the oldest one is that of an idle
//!   subpartition, whose bytes were flushed and read long ago. So an idle subpartition keeps no segment that a busy one
//!   wants, and at least one segment is always on its way to a reader and back. Where all that are open are busy, the
//!   segments are split into smaller buffers: what is bounded and finished is then all open parts of a segment.

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
