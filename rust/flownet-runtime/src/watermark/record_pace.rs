//! Decides by the number of records when a source emits its next watermark.
//!
//! A watermark closes the open buffer of every channel, and makes joins and windows visit their keys. So a
//! source emits one for about each buffer of records of each channel. For rows the interval is longer, since
//! their operators are faster with many rows at once.

/// Records of one channel between two watermarks, at least: about one buffer of 32 KiB.
const RECORDS_PER_CHANNEL: u32 = 1024;

/// Counts the records of one source subtask since its last watermark.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordPace {
    /// Records between two watermarks.
    interval: u32,
    /// Records left until the next.
    left: u32,
    /// True if a watermark was due in this period.
    was_due: bool,
}

impl RecordPace {
    /// Emits a watermark after `records` records, or more if the source sends to many channels.
    pub(super) fn new(records: u32, channels: u32) -> Self {
        let interval = records.max(RECORDS_PER_CHANNEL.saturating_mul(channels));
        Self { interval, left: interval, was_due: false }
    }

    #[inline]
    pub(super) fn count(&mut self, records: usize) {
        self.left = self.left.saturating_sub(u32::try_from(records).unwrap_or(u32::MAX));
    }

    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.left == 0
    }

    /// Returns true if the next record makes a watermark due.
    #[inline]
    pub(super) fn is_almost_due(&self) -> bool {
        self.left <= 1
    }

    /// Starts to count anew: the watermark is emitted.
    pub(super) fn settle(&mut self) {
        (self.left, self.was_due) = (self.interval, true);
    }

    /// Ends a period of the clock. Returns true if a watermark was due in it.
    pub(super) fn end_period(&mut self) -> bool {
        std::mem::take(&mut self.was_due)
    }
}
