//! Buffers bytes read from a socket that are not decoded yet.

use flownet_core::wire::frame::{HEADER_BYTES, MAX_CONTROL_BYTES};

/// One buffer for a connection's lifetime. One read brings many small frames, which are decoded in place.
///
/// # Invariants
/// - I1: `start <= end <= bytes.len()`; the bytes in between have arrived and were not consumed.
/// - I2: after [`Staging::spare`] there is room for the largest frame that must be complete to be decoded.
#[derive(Debug)]
pub(crate) struct Staging {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Staging {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; STAGING_BYTES].into_boxed_slice(), start: 0, end: 0 }
    }

    /// Bytes that wait to be decoded.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Drops the first `count` bytes of [`unread`](Self::unread).
    pub(crate) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start, "I1: only what is there can be consumed");
        self.start += count;
    }

    /// Returns room to read into.
    pub(crate) fn spare(&mut self) -> &mut [u8] {
        // Move the rest to the front once it is empty, or before a frame could fail to fit. It is usually a few bytes.
        if self.start == self.end || self.bytes.len() - self.start < LARGEST_WHOLE_FRAME {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        &mut self.bytes[self.end..]
    }

    /// Marks the first `count` bytes of [`spare`](Self::spare) as read.
    pub(crate) fn filled(&mut self, count: usize) {
        debug_assert!(count <= self.bytes.len() - self.end, "I1: only spare room can be filled");
        self.end += count;
    }
}

const STAGING_BYTES: usize = 64 * 1024;
const LARGEST_WHOLE_FRAME: usize = HEADER_BYTES + MAX_CONTROL_BYTES as usize;
const _: () = assert!(LARGEST_WHOLE_FRAME * 2 <= STAGING_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in_and_room_never_ends() {
        let mut staging = Staging::new();
        let (mut written, mut read) = (0_u8, 0_u8);
        for step in 0..10_000_usize {
            let unread = staging.unread().len();
            let spare = staging.spare();
            assert!(unread + spare.len() >= LARGEST_WHOLE_FRAME, "I2");
            let count = (step * 37 % 900).min(spare.len());
            for byte in &mut spare[..count] {
                *byte = written;
                written = written.wrapping_add(1);
            }
            staging.filled(count);
            // Always leave a rest, so that the buffer never resets to its front by becoming empty.
            let take = staging.unread().len().saturating_sub(step % 7 + 1);
            for byte in &staging.unread()[..take] {
                assert_eq!(*byte, read);
                read = read.wrapping_add(1);
            }
            staging.consume(take);
        }
    }

    #[test]
    fn all_room_is_there_again_once_everything_is_consumed() {
        let mut staging = Staging::new();
        staging.filled(1_000);
        staging.consume(1_000);
        assert_eq!(staging.spare().len(), STAGING_BYTES);
    }

    #[test]
    fn a_frame_that_began_at_the_very_end_has_room() {
        let mut staging = Staging::new();
        staging.filled(STAGING_BYTES);
        staging.consume(STAGING_BYTES - 3);
        assert_eq!(3 + staging.spare().len(), STAGING_BYTES, "I2");
        assert_eq!(staging.unread().len(), 3);
    }
}
