//! Write-buffer water mark: pauses a connection without credit while many bytes wait for its socket.
//!
//! # Invariants
//! - B1: once any channel without credit was opened, the connection takes no data between passing the high watermark
//!   and reaching the low one.

use crate::credit::Credit;

/// Bytes at which the sending side of a connection without credit pauses and resumes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Watermarks {
    /// The sender pauses above this many bytes.
    pub high_bytes: usize,
    /// The sender resumes below this many bytes.
    pub low_bytes: usize,
}

impl Watermarks {
    /// Returns the watermarks of Flink before 1.5.
    #[must_use]
    pub const fn for_segments(segment_bytes: usize) -> Self {
        Self { high_bytes: 2 * segment_bytes, low_bytes: segment_bytes + 1 }
    }
}

/// See the [module docs](self). Inactive until a channel without credit is opened.
#[derive(Debug)]
pub(crate) struct WriteBufferWaterMark {
    watermarks: Watermarks,
    is_on: bool,
    /// The queue passed the high watermark and has not reached the low one since.
    is_stopped: bool,
}

impl WriteBufferWaterMark {
    pub(crate) fn new(watermarks: Watermarks) -> Self {
        Self { watermarks, is_on: false, is_stopped: false }
    }

    pub(crate) fn on_open(&mut self, credit: Credit) {
        self.is_on |= credit.is_unlimited();
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Returns whether the connection may queue more data (B1). When the socket has written some of the queued bytes,
    /// it wakes the driver, which asks again.
    pub(crate) fn may_queue(&mut self, queued_bytes: usize) -> bool {
        let Watermarks { high_bytes, low_bytes } = self.watermarks;
        self.is_stopped = self.is_on && queued_bytes > if self.is_stopped { low_bytes - 1 } else { high_bytes };
        !self.is_stopped
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn nothing_stops_a_connection_all_of_whose_channels_have_credit() {
        let mut water_mark = WriteBufferWaterMark::new(Watermarks::for_segments(10));
        water_mark.on_open(Credit::new(3));
        assert!(!water_mark.is_on() && water_mark.may_queue(usize::MAX));
    }

    #[test]
    fn it_stops_above_the_high_watermark_until_it_is_below_the_low_one() {
        let watermarks = Watermarks::for_segments(10);
        assert_eq!(watermarks, Watermarks { high_bytes: 20, low_bytes: 11 }, "as Flink had them");
        let mut water_mark = WriteBufferWaterMark::new(watermarks);
        // Further channels, with or without credit, change nothing.
        [Credit::UNLIMITED, Credit::UNLIMITED, Credit::new(1)]
            .into_iter()
            .for_each(|credit| water_mark.on_open(credit));
        assert!(water_mark.is_on());
        let may_queue = [20, 21, 12, 11, 10, 20].map(|queued_bytes| water_mark.may_queue(queued_bytes));
        assert_eq!(may_queue, [true, false, false, false, true, true]);
    }
}
