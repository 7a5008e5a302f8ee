//! What the benches of parts share: pools, partitions and readers without a network.

use std::sync::Arc;
use std::task::Waker;

use flownet_core::partition::ResultPartition;
use flownet_core::subpartition::Element;
use flownet_core::{PartitionId, SubpartitionCell};
use flownet_memory::{Buffer, BufferPool, BufferPoolSettings, KIB, SegmentPool};

/// Bytes of every segment.
pub const SEGMENT_BYTES: usize = 32 * KIB;

/// Bytes of the length in front of each record.
pub const LENGTH_BYTES: usize = 4;

/// The partition of all benches.
pub const PARTITION: PartitionId = PartitionId::new(1);

/// A pool of `segments` segments, all of them its own, and not short of any it wants.
///
/// # Panics
/// If the machine has no memory for them.
#[must_use]
pub fn new_pool(segments: usize, lanes: usize) -> Arc<BufferPool> {
    let settings =
        BufferPoolSettings { min: segments, max: Some(segments), lanes, max_per_lane: usize::MAX, max_overdraft: 0 };
    SegmentPool::new(segments, SEGMENT_BYTES)
        .and_then(|pool| pool.create_buffer_pool(settings))
        .expect("a bench takes a few hundred MiB at most")
}

/// A partition with room for `segments` segments in all.
#[must_use]
pub fn new_partition(subpartitions: u32, segments: usize) -> ResultPartition {
    ResultPartition::new(PARTITION, new_pool(segments, subpartitions as usize), subpartitions)
}

/// The subpartitions of a partition, read by hand: nobody is woken.
///
/// # Panics
/// If they have a reader already.
#[must_use]
pub fn attach_all(partition: &ResultPartition) -> Vec<Arc<SubpartitionCell>> {
    let cells = partition.subpartitions().to_vec();
    for cell in &cells {
        cell.attach_reader(Waker::noop().clone()).expect("nobody reads a new partition");
    }
    cells
}

/// Takes every buffer that is to be had, subpartition by subpartition.
pub fn poll_buffers(cells: &[Arc<SubpartitionCell>], mut each: impl FnMut(Buffer)) {
    for cell in cells {
        while let Some(polled) = cell.poll() {
            if let Element::Data(buffer) = polled.element {
                each(buffer);
            }
        }
    }
}
