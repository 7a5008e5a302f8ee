//! Counts the data of one channel. The task's thread writes the counts as it reads, any thread may read them.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::metrics::bump;

/// Counts since the start of the task.
#[derive(Debug, Default)]
pub(crate) struct ChannelCounts {
    records: AtomicU64,
    bytes: AtomicU64,
}

impl ChannelCounts {
    /// Counts a record, in whichever buffer it began.
    #[inline]
    pub(super) fn add_record(&self) {
        bump(&self.records, 1);
    }

    /// Counts a buffer that is about to be read.
    pub(super) fn add_bytes(&self, bytes: u64) {
        bump(&self.bytes, bytes);
    }

    /// Number of records read.
    pub(crate) fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// Bytes of the buffers that were read or are being read, including length prefixes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}
