//! Cuts whole records out of a stream of buffers, even if buffers split the records.
//!
//! # Invariants
//! - C1: the output is the stream of the admitted records, each with its length prefix, byte for byte.
//! - C2: a record is admitted or dropped once, when its length is known. Until then at most three of its bytes are
//!   stored.
//! - C3: no memory is allocated, whatever length a prefix claims.

use super::LENGTH_PREFIX_BYTES;

/// See the [module docs](self). One per channel.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RecordCutter {
    prefix: [u8; LENGTH_PREFIX_BYTES],
    /// Bytes of `prefix` that have arrived. Reset to zero once all are there.
    prefix_len: usize,
    /// Bytes of the current record that have not arrived yet.
    left: usize,
    is_kept: bool,
}

/// Admitted part of a buffer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cut {
    /// Admitted bytes, at the front of the buffer.
    pub kept: usize,
    carried: [u8; LENGTH_PREFIX_BYTES],
    carried_len: usize,
}

impl RecordCutter {
    /// Moves the admitted parts of `bytes` to its front. Calls `admit` once per record, with its size including the
    /// prefix.
    pub fn cut(&mut self, bytes: &mut [u8], mut admit: impl FnMut(usize) -> bool) -> Cut {
        let mut cut = Cut { kept: 0, carried: self.prefix, carried_len: 0 };
        let held = self.prefix_len;
        let mut at = 0;
        while at < bytes.len() {
            let take = self.wanted().min(bytes.len() - at);
            let piece = at..at + take;
            at += take;
            if self.left > 0 {
                self.left -= take;
                if self.is_kept {
                    cut.keep(bytes, piece);
                }
                continue;
            }
            self.prefix[self.prefix_len..][..take].copy_from_slice(&bytes[piece]);
            self.prefix_len += take;
            if self.prefix_len < LENGTH_PREFIX_BYTES {
                break;
            }
            self.prefix_len = 0;
            self.left = u32::from_le_bytes(self.prefix) as usize;
            self.is_kept = admit(LENGTH_PREFIX_BYTES + self.left);
            if self.is_kept {
                if take < LENGTH_PREFIX_BYTES {
                    // Only the first record of a buffer can have begun in an earlier one.
                    cut.carried_len = held;
                }
                cut.keep(bytes, at - take..at);
            }
        }
        cut
    }

    fn wanted(&self) -> usize {
        if self.left > 0 { self.left } else { LENGTH_PREFIX_BYTES - self.prefix_len }
    }
}

impl Cut {
    /// Returns the prefix bytes of an admitted record that came with an earlier buffer. They precede the admitted
    /// bytes.
    #[must_use]
    pub fn carried(&self) -> Option<&[u8]> {
        Some(&self.carried[..self.carried_len]).filter(|carried| !carried.is_empty())
    }

    fn keep(&mut self, bytes: &mut [u8], piece: std::ops::Range<usize>) {
        let len = piece.len();
        if piece.start != self.kept {
            bytes.copy_within(piece, self.kept);
        }
        self.kept += len;
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn framed(record: &[u8]) -> Vec<u8> {
        [&(record.len() as u32).to_le_bytes()[..], record].concat()
    }

    proptest! {
        #[test]
        fn what_is_kept_is_the_admitted_records_whole_and_in_order(
            records in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..20), any::<bool>()), 0..20),
            cuts in proptest::collection::vec(1usize..12, 1..10),
        ) {
            let stream: Vec<u8> = records.iter().flat_map(|(record, _)| framed(record)).collect();
            let expected: Vec<u8> =
                records.iter().filter(|(_, is_kept)| *is_kept).flat_map(|(record, _)| framed(record)).collect();
            let mut verdicts = records.iter();
            let (mut cutter, mut rest, mut kept) = (RecordCutter::default(), &stream[..], Vec::new());
            for len in cuts.iter().cycle() {
                let (piece, tail) = rest.split_at((*len).min(rest.len()));
                let mut piece = piece.to_vec();
                let cut = cutter.cut(&mut piece, |bytes| {
                    let (record, is_kept) = verdicts.next().unwrap();
                    assert_eq!(bytes, LENGTH_PREFIX_BYTES + record.len());
                    *is_kept
                });
                kept.extend_from_slice(cut.carried().unwrap_or_default());
                kept.extend_from_slice(&piece[..cut.kept]);
                rest = tail;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert!(verdicts.next().is_none(), "every record was decided on");
            prop_assert_eq!(kept, expected);
            prop_assert_eq!((cutter.prefix_len, cutter.left), (0, 0));
        }
    }

    #[test]
    fn a_giant_length_is_skipped_without_being_believed() {
        let mut cutter = RecordCutter::default();
        let mut bytes = u32::MAX.to_le_bytes().to_vec();
        bytes.push(7);
        assert_eq!(cutter.cut(&mut bytes, |_| false).kept, 0);
        assert_eq!(cutter.left, u32::MAX as usize - 1);
    }
}
