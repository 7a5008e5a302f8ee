//! Memory segments, buffer pools and ref-counted buffers of flownet.
//!
//! Every byte of the data plane lives here. One [`SegmentPool`] a process owns
//! all segments and never grows; a [`BufferPool`] takes a guaranteed minimum of
//! them and a fair part of what is spare. A [`MemorySegment`] is written by one
//! [`BufferBuilder`], read through a [`BufferConsumer`] and shared as [`Buffer`]s;
//! when the last of these is gone it goes home by itself.
//!
//! ```text
//!            take                 new                  poll
//! BufferPool ----> MemorySegment ----> BufferBuilder ~~~~> Buffer, Buffer ...
//!     ^ |                              BufferConsumer           |
//!     | | below size, overdraft                                 | last drop
//!     | v                                                       v
//! SegmentPool <--- over size, destroyed --- BufferPool <--- MemorySegment
//! ```
//!
//! Pools are thread-safe and never block: what is not there now is announced to
//! a [`Waker`](std::task::Waker) or a [`SegmentListener`].
//!
//! # Lock order
//! registry of a [`SegmentPool`] → state of one [`BufferPool`] → free list of
//! the [`SegmentPool`]. No two pools' states are held together. Wakers, listeners
//! and recyclers are called with none of them held.
//!
//! # Safety rules
//! The project's unsafe code is in `region.rs`, `buffer.rs` and `builder.rs`; it
//! rests on these rules and each block names the ones it needs.
//! - S1: a `Slot` is the only owner of its bytes. A region makes each slot once,
//!   slots cannot be cloned and do not overlap. Exclusive access to a segment is
//!   exclusive access to its slot.
//!   A segment that is split hands its bytes on to parts that are made once and do
//!   not overlap either; a part or its lease keeps the segment, and so the slot.
//! - S2: a slot keeps its region allocated. A lease holds its segment, and with
//!   it the slot, until the last builder, consumer and buffer of it is dropped.
//! - S3: within a lease the bytes from `committed` on belong to its one builder,
//!   and those before it are never written again. Only the builder stores
//!   `committed`, with Release, and never lowers it; bytes written behind it are
//!   the builder's to count, and never lie beyond the segment's length.
//! - S4: readers touch only ranges that end at or before a `committed` they
//!   loaded with Acquire.
//! - S5: a segment leaves its lease only when the lease is dropped. The lease's
//!   reference count orders every access before that drop, and the pools' locks
//!   order it before the next owner's first access.
//! - S6: every byte is initialised: zeroed at allocation, only `u8`s are stored.

#![deny(unsafe_code)]

#[macro_use]
mod planting;

mod buffer;
mod buffer_pool;
mod builder;
mod consumer;
mod error;
mod free_list;
mod part;
mod pool_core;
mod pool_state;
mod region;
mod segment;
mod segment_pool;
mod share;
mod sync;

// For loom, its models alone: compiling all other tests too would take longer than to run these.
#[cfg(all(test, loom))]
#[path = "tests/loom.rs"]
mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

pub use buffer::Buffer;
pub use buffer_pool::{BufferPool, BufferPoolSettings};
pub use builder::{BufferBuilder, RecordAppender};
pub use consumer::BufferConsumer;
pub use error::MemoryError;
pub use part::SegmentPart;
pub use segment::{MemorySegment, Recycler, SegmentListener};
pub use segment_pool::SegmentPool;

#[cfg(feature = "planted-bugs")]
pub use planting::{Bug, is_planted, plant};

/// 1024 bytes, the unit segment sizes are usually given in.
pub const KIB: usize = 1024;

/// Bytes of a segment where nobody asks for others.
pub const DEFAULT_SEGMENT_BYTES: usize = 32 * KIB;
