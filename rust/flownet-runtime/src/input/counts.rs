//! What has come by one channel: counted by the task's thread as it reads, read by anyone.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::metrics::bump;

/// Since the task began.
#[derive(Debug, Default)]
pub(crate) struct ChannelCounts {
    records: AtomicU64,
    bytes: AtomicU64,
}

impl ChannelCounts {
    /// One more record, wherever it began.
    #[inline]
    pub(super) fn add_record(&self) {
        bump(&self.records, 1);
    }

    /// Another buffer is being read.
    pub(super) fn add_bytes(&self, bytes: u64) {
        bump(&self.bytes, bytes);
    }

    /// Records that were read.
    pub(crate) fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// Bytes of the buffers that were read, or are being read, length prefixes included.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}
