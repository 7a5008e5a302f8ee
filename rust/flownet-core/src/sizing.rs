//! Pool sizing: how many segments the pools of an exchange need, and how many they may take.
//!
//! The need depends on the number of tasks and not of channels, so that a job fits whatever its parallelism. It is
//! enough for every task to make progress, because each pool reserves it (I10 of `SegmentPool`). Take a task whose
//! consumers all make progress:
//!
//! - At most one of its partition's two segments is held open (P5 of [`crate::partition`]). The other is idle, or on
//!   its way to a consumer that reads it eventually: the task can write. Records that span buffers, and many output
//!   records per input record, only need more segments one after the other.
//! - So the task finishes the element that it reads, which returns the segment of its gate, or of its producer. The
//!   gate's one segment does not stand (I12 of the pool), so it serves the channels that have data in turn (*Progress*
//!   in [`crate::channel`]). Every producer of the task finds room for its data.
//!
//! Tasks without consumers make progress, and a dataflow has no rings, so all tasks do. This holds for tasks in a row,
//! side by side, or with branches that split and join, in any number of processes. Segments beyond a pool's need (its
//! share of the spare segments, overdraft) make it faster. Progress never depends on them.

use flownet_memory::BufferPoolSettings;

/// Parameters that determine the pool sizes. The defaults are those of the product.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PoolSizing {
    /// Buffers that each remote channel retains if there are enough. Default: 2.
    pub exclusive_buffers: u32,
    /// Buffers that the remote channels of one gate share. Default: 8.
    pub floating_buffers: u32,
    /// Buffers that all remote channels of one gate may hold together. Default: none, that is, the exclusive and
    /// floating ones.
    pub receive_buffers: Option<u32>,
    /// Buffers that one subpartition may hold before its partition counts as unavailable. Default: 10. With less than
    /// 2, a buffer that is still being written would block its own task.
    pub max_buffers_per_subpartition: u32,
    /// Buffers that a partition may take beyond its size to finish a record. Default: 5.
    pub max_overdraft_buffers: u32,
}

impl Default for PoolSizing {
    fn default() -> Self {
        Self {
            exclusive_buffers: 2,
            floating_buffers: 8,
            receive_buffers: None,
            max_buffers_per_subpartition: 10,
            max_overdraft_buffers: 5,
        }
    }
}

impl PoolSizing {
    /// Returns the pool size of a partition with `subpartitions` subpartitions.
    ///
    /// The pool needs one buffer to write to and one on its way, however many subpartitions there are. With so few, a
    /// buffer is sent as soon as the next record goes to another subpartition. The pool may take at least one per
    /// subpartition and one more, so that each buffer can be filled without hurry.
    #[must_use]
    pub fn partition(&self, subpartitions: u32) -> BufferPoolSettings {
        let lanes = to_usize(subpartitions);
        let wanted = lanes.saturating_mul(to_usize(self.exclusive_buffers)) + to_usize(self.floating_buffers);
        BufferPoolSettings {
            min: PARTITION_MIN,
            max: Some(wanted.max(lanes + 1).max(PARTITION_MIN)),
            lanes,
            max_per_lane: to_usize(self.max_buffers_per_subpartition),
            max_overdraft: to_usize(self.max_overdraft_buffers),
        }
    }

    /// Returns the pool size of a gate with `remote_channels` remote channels. One buffer serves all channels in turn.
    /// The gate uses no more than the exclusive and the floating ones. Channels within the process need none.
    #[must_use]
    pub fn gate(&self, remote_channels: u32) -> BufferPoolSettings {
        let exclusive = to_usize(remote_channels).saturating_mul(to_usize(self.exclusive_buffers));
        BufferPoolSettings {
            min: GATE_MIN,
            max: Some(
                self.receive_buffers.map_or(exclusive + to_usize(self.floating_buffers), |buffers| {
                    to_usize(buffers).max(exclusive + 1)
                }),
            ),
            lanes: 1,
            max_per_lane: usize::MAX,
            max_overdraft: 0,
        }
    }
}

/// One buffer is written while one is on its way.
const PARTITION_MIN: usize = 2;
/// One buffer is received or read; then the next channel gets it.
const GATE_MIN: usize = 1;

fn to_usize(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_partition_needs_two_buffers_and_wants_one_more_than_subpartitions() {
        let settings = PoolSizing::default().partition(100);
        assert_eq!((settings.min, settings.max, settings.lanes), (2, Some(208), 100));
        assert_eq!((settings.max_per_lane, settings.max_overdraft), (10, 5));

        let frugal = PoolSizing { exclusive_buffers: 0, floating_buffers: 1, ..PoolSizing::default() };
        let settings = frugal.partition(100);
        assert_eq!((settings.min, settings.max), (2, Some(101)));
    }

    #[test]
    fn a_gate_needs_one_buffer_however_many_channels() {
        let frugal = PoolSizing { exclusive_buffers: 0, ..PoolSizing::default() };
        let settings = frugal.gate(1000);
        assert_eq!((settings.min, settings.max), (1, Some(8)));
        let settings = PoolSizing { receive_buffers: Some(153), ..PoolSizing::default() };
        assert_eq!((settings.gate(1).max, settings.gate(1000).max), (Some(153), Some(2001)));
        let settings = PoolSizing::default().gate(1000);
        assert_eq!((settings.min, settings.max), (1, Some(2008)));
    }
}
