//! Memory segments, buffer pools and reference-counted buffers of flownet.
//!
//! This crate holds every byte of the data plane. One [`SegmentPool`] per process owns all segments and never grows. A
//! [`BufferPool`] takes a guaranteed minimum of them and a fair share of the spare ones. One [`BufferBuilder`] writes a
//! [`MemorySegment`], a [`BufferConsumer`] reads it, and [`Buffer`]s share it. When the last of them is dropped, the
//! segment returns to its pool by itself.
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
//! Pools are thread-safe and never block. If a segment is not available now, the pool notifies a
//! [`Waker`](std::task::Waker) or a [`SegmentListener`] later.
//!
//! # Lock order
//! Registry of a [`SegmentPool`] → state of one [`BufferPool`] → free list of the [`SegmentPool`]. No thread locks the
//! states of two pools at a time. Wakers, listeners and recyclers are called without any of these locks.
//!
//! # Safety rules
//! The project's unsafe code is in `region.rs`, `buffer.rs` and `builder.rs`. It relies on these rules, and each block
//! names the ones it needs.
//! - S1: a `Slot` is the only owner of its bytes. A region makes each slot once; slots cannot be cloned and do not
//!   overlap. Exclusive access to a segment is exclusive access to its slot. A segment that is split passes its bytes
//!   to parts that are made once and do not overlap either. A part or its lease holds the segment, and so the slot.
//! - S2: a slot keeps its region allocated. A lease holds its segment, and with it the slot, until its last builder,
//!   consumer and buffer is dropped.
//! - S3: within a lease the bytes from `committed` on belong to its one builder, and the bytes before it are never
//!   written again. Only the builder stores `committed`, with Release, and never lowers it. The builder counts the
//!   bytes written after `committed`; they are never beyond the segment's length.
//! - S4: readers touch only ranges that end at or before a `committed` they loaded with Acquire.
//! - S5: a segment leaves its lease only when the lease is dropped. The lease's reference count orders every access
//!   before that drop, and the pools' locks order it before the next owner's first access.
//! - S6: every byte is initialised: zeroed at allocation, and only `u8`s are stored.

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

// Under loom, compile only the models: compiling all other tests too would take longer than running the models.
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

/// 1024 bytes, the usual unit of segment sizes.
pub const KIB: usize = 1024;

/// Default size of a segment in bytes.
pub const DEFAULT_SEGMENT_BYTES: usize = 32 * KIB;
