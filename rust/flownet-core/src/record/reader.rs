//! Reads records out of the buffers of one channel.
//!
//! A record that is whole in the current buffer is borrowed from it: no copy, one length read and two comparisons. A
//! record cut by the end of a buffer is gathered, including its length prefix, in a vector of the reader.
//!
//! # Invariants
//! - R1: a length beyond the limit is an error before any memory is allocated for it.
//! - R2: gathering allocates no more than has arrived, up to the growth of a vector, whatever length a prefix claims.
//! - R3: a buffer is released once its last record was returned and the next one was requested.

use flownet_memory::Buffer;

use super::LENGTH_PREFIX_BYTES;
use crate::error::RecordError;

/// Capacity above which a gathering vector is not reused for the next cut record.
const KEPT_BYTES: usize = 1 << 20;

/// Reads the buffers of one channel in order and returns their records one by one.
#[derive(Debug)]
pub struct RecordReader {
    /// Buffer with the next record at `at`. `None` while a cut record is being gathered.
    current: Option<Buffer>,
    at: usize,
    /// A cut record, length prefix first.
    gathered: Vec<u8>,
    /// The record in `gathered` was returned and can be cleared.
    is_given_out: bool,
    /// Next piece of a cut record.
    next_piece: Option<Buffer>,
    failure: Option<RecordError>,
    max_record_bytes: usize,
}

impl RecordReader {
    /// Creates a reader that accepts no record longer than `max_record_bytes`.
    #[must_use]
    pub fn new(max_record_bytes: usize) -> Self {
        Self {
            current: None,
            at: 0,
            gathered: Vec::new(),
            is_given_out: false,
            next_piece: None,
            failure: None,
            max_record_bytes,
        }
    }

    /// Adds the channel's next buffer.
    ///
    /// # Panics
    /// If the last [`next_record`](Self::next_record) did not return `Ok(None)`: records would be lost.
    pub fn push(&mut self, buffer: Buffer) {
        assert!(self.current.is_none() && self.next_piece.is_none(), "records of the last buffer are still unread");
        if self.is_mid_record() {
            self.next_piece = Some(buffer);
        } else {
            self.at = 0;
            self.current = Some(buffer);
        }
    }

    /// Returns the next record, or `None` if it needs the next buffer. An error is permanent: the channel must be
    /// abandoned.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<&[u8]>, RecordError> {
        if let Some(buffer) = &self.current
            && let Some(end) = end_of_whole_record(buffer, self.at, self.max_record_bytes)
        {
            let start = self.at + LENGTH_PREFIX_BYTES;
            self.at = end;
            return Ok(self.current.as_ref().and_then(|buffer| buffer.get(start..end)));
        }
        self.next_gathered()
    }

    /// Passes all records that end in the pushed buffers to `each`; then the next buffer may be pushed. Faster than
    /// [`next_record`](Self::next_record) for small records, because the position in the buffer stays in a register.
    #[inline]
    pub fn read_all(&mut self, mut each: impl FnMut(&[u8])) -> Result<(), RecordError> {
        loop {
            if let Some(buffer) = &self.current {
                self.at = read_whole_records(buffer, self.at, self.max_record_bytes, &mut each);
            }
            match self.next_gathered()? {
                Some(record) => each(record),
                None => return Ok(()),
            }
        }
    }

    /// Returns the bytes that were pushed and not returned, in order: the part of a cut record, and all bytes after it.
    pub fn unread(&self) -> impl Iterator<Item = &[u8]> {
        let gathered = if self.is_mid_record() { &self.gathered[..] } else { &[] };
        let next_piece = self.next_piece.as_deref().unwrap_or_default();
        let current = self.current.as_deref().and_then(|buffer| buffer.get(self.at..)).unwrap_or_default();
        [gathered, next_piece, current].into_iter().filter(|bytes| !bytes.is_empty())
    }

    /// Returns true if part of a record has arrived and the rest has not.
    #[must_use]
    pub fn is_mid_record(&self) -> bool {
        !self.gathered.is_empty() && !self.is_given_out
    }

    /// Checks that no record is cut. Call it when an event arrives or the channel ends: both must be between two
    /// records.
    pub fn check_boundary(&self) -> Result<(), RecordError> {
        if self.is_mid_record() { Err(RecordError::Cut { have_bytes: self.gathered.len() }) } else { Ok(()) }
    }

    /// Handles all cases except a whole record in the current buffer: its end, a cut record, a length beyond the limit.
    #[inline(never)]
    fn next_gathered(&mut self) -> Result<Option<&[u8]>, RecordError> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        if self.is_given_out {
            self.forget_gathered();
        }
        let (buffer, mut at) = match (self.current.take(), self.next_piece.take()) {
            (Some(buffer), _) => (buffer, self.at),
            (None, Some(buffer)) => (buffer, 0),
            (None, None) => return Ok(None),
        };
        at += self.gather(&buffer[at..], LENGTH_PREFIX_BYTES);
        let Some(prefix) = self.gathered.first_chunk::<LENGTH_PREFIX_BYTES>() else {
            return Ok(None);
        };
        let len = u32::from_le_bytes(*prefix) as usize;
        if len > self.max_record_bytes {
            let failure = RecordError::TooLarge { bytes: len, max_bytes: self.max_record_bytes };
            self.failure = Some(failure);
            return Err(failure);
        }
        at += self.gather(&buffer[at..], LENGTH_PREFIX_BYTES + len);
        if self.gathered.len() < LENGTH_PREFIX_BYTES + len {
            return Ok(None);
        }
        self.is_given_out = true;
        self.at = at;
        self.current = Some(buffer);
        Ok(Some(&self.gathered[LENGTH_PREFIX_BYTES..]))
    }

    /// Gathers up to `target_bytes` bytes out of `piece`. Returns how many bytes it took.
    fn gather(&mut self, piece: &[u8], target_bytes: usize) -> usize {
        let taken = target_bytes.saturating_sub(self.gathered.len()).min(piece.len());
        self.gathered.extend_from_slice(&piece[..taken]);
        taken
    }

    fn forget_gathered(&mut self) {
        self.is_given_out = false;
        if self.gathered.capacity() > KEPT_BYTES {
            self.gathered = Vec::new();
        } else {
            self.gathered.clear();
        }
    }
}

/// Passes the records from `at` onwards to `each`, up to the first that is not whole in `bytes` or exceeds the limit.
/// Returns the position of that record.
#[inline]
pub fn read_whole_records(bytes: &[u8], mut at: usize, max_record_bytes: usize, each: &mut impl FnMut(&[u8])) -> usize {
    while let Some(end) = end_of_whole_record(bytes, at, max_record_bytes) {
        let (prefix, first) = bytes[at..end].split_at(LENGTH_PREFIX_BYTES);
        each(first);
        // Records of equal length often follow each other. With equal steps, the processor can locate each record
        // without waiting for the length of the previous one.
        let step = end - at;
        at = end;
        for record in bytes[end..].chunks_exact(step) {
            let (next_prefix, record) = record.split_at(LENGTH_PREFIX_BYTES);
            if next_prefix != prefix {
                break;
            }
            each(record);
            at += step;
        }
    }
    at
}

/// Returns the end of the record at `at`, if it is whole in `bytes` and within the limit.
#[inline]
fn end_of_whole_record(bytes: &[u8], at: usize, max_record_bytes: usize) -> Option<usize> {
    let (prefix, rest) = bytes.get(at..)?.split_first_chunk::<LENGTH_PREFIX_BYTES>()?;
    let len = u32::from_le_bytes(*prefix) as usize;
    (len <= rest.len() && len <= max_record_bytes).then_some(at + LENGTH_PREFIX_BYTES + len)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::sync::Arc;

    use flownet_memory::{BufferPool, BufferPoolSettings, SegmentPool};
    use proptest::prelude::*;

    use super::*;

    const SEGMENTS: usize = 4;

    /// Cuts a stream of record bytes into buffers of a real pool and reads it back.
    struct Rig {
        segments: Arc<SegmentPool>,
        pool: Arc<BufferPool>,
        reader: RecordReader,
    }

    impl Rig {
        fn new(segment_bytes: usize, max_record_bytes: usize) -> Self {
            let segments = SegmentPool::new(SEGMENTS, segment_bytes).unwrap();
            let settings =
                BufferPoolSettings { min: SEGMENTS, max: None, lanes: 1, max_per_lane: usize::MAX, max_overdraft: 0 };
            let pool = segments.create_buffer_pool(settings).unwrap();
            Self { segments, pool, reader: RecordReader::new(max_record_bytes) }
        }

        fn push(&mut self, bytes: &[u8]) {
            let mut segment = self.pool.try_take(0).expect("a reader holds two buffers at most");
            segment.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
            self.reader.push(Buffer::from_segment(segment, bytes.len()));
        }

        fn drain(&mut self) -> Result<Vec<Vec<u8>>, RecordError> {
            let mut records = Vec::new();
            while let Some(record) = self.reader.next_record()? {
                records.push(record.to_vec());
            }
            Ok(records)
        }

        fn finish_and_assert_all_segments_home(self) {
            drop(self.reader);
            assert_eq!(self.pool.in_use(), 0);
            self.pool.destroy();
            assert_eq!(self.segments.available(), SEGMENTS);
        }
    }

    fn stream_of(records: &[Vec<u8>]) -> Vec<u8> {
        records.iter().flat_map(|record| [&(record.len() as u32).to_le_bytes()[..], record].concat()).collect()
    }

    proptest! {
        #[test]
        fn records_of_any_size_survive_any_cut_of_their_stream(
            records in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 0..20),
            cuts in proptest::collection::vec(1usize..24, 1..10),
        ) {
            let mut rig = Rig::new(24, 64);
            let stream = stream_of(&records);
            let mut rest = &stream[..];
            let mut read = Vec::new();
            for (turn, cut) in cuts.iter().cycle().enumerate() {
                let (piece, tail) = rest.split_at((*cut).min(rest.len()));
                rig.push(piece);
                // Alternate between both ways to read, on the same stream.
                if turn % 2 == 0 {
                    read.extend(rig.drain().unwrap());
                } else {
                    rig.reader.read_all(|record| read.push(record.to_vec())).unwrap();
                }
                rest = tail;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(read, records);
            prop_assert_eq!(rig.reader.check_boundary(), Ok(()));
            rig.finish_and_assert_all_segments_home();
        }

        #[test]
        fn any_bytes_are_records_or_an_error_and_never_a_large_allocation(
            pieces in proptest::collection::vec(proptest::collection::vec(0u8..3, 0..24), 0..10),
        ) {
            let mut rig = Rig::new(24, 40);
            for piece in pieces {
                rig.push(&piece);
                if rig.drain().is_err() {
                    break;
                }
                prop_assert!(rig.reader.gathered.capacity() < 256);
            }
            rig.finish_and_assert_all_segments_home();
        }
    }

    proptest! {
        #[test]
        fn records_read_all_at_once_are_those_read_one_by_one_whatever_the_bytes(
            bytes in proptest::collection::vec(prop_oneof![8 => 0u8..4, 1 => any::<u8>()], 1..200),
            max_record_bytes in 0usize..12,
        ) {
            let read = [false, true].map(|at_once| {
                let mut rig = Rig::new(200, max_record_bytes);
                rig.push(&bytes);
                let mut records = Vec::new();
                let ended = if at_once {
                    rig.reader.read_all(|record| records.push(record.to_vec()))
                } else {
                    loop {
                        match rig.reader.next_record() {
                            Ok(Some(record)) => records.push(record.to_vec()),
                            Ok(None) => break Ok(()),
                            Err(error) => break Err(error),
                        }
                    }
                };
                (records, ended, rig.reader.check_boundary())
            });
            prop_assert_eq!(&read[0], &read[1]);
        }
    }

    #[test]
    fn a_length_prefix_cut_byte_by_byte_is_put_together() {
        let mut rig = Rig::new(16, 100);
        let stream = stream_of(&[vec![1, 2, 3]]);
        for byte in &stream[..6] {
            rig.push(&[*byte]);
            assert_eq!(rig.drain(), Ok(vec![]));
            assert!(rig.reader.is_mid_record());
        }
        rig.push(&stream[6..]);
        assert_eq!(rig.drain(), Ok(vec![vec![1, 2, 3]]));
        assert!(!rig.reader.is_mid_record());
        rig.finish_and_assert_all_segments_home();
    }

    #[test]
    fn a_giant_length_is_refused_before_anything_is_allocated_for_it() {
        for cut in 0..4 {
            let mut rig = Rig::new(16, 100);
            let prefix = u32::MAX.to_le_bytes();
            rig.push(&prefix[..cut]);
            assert_eq!(rig.drain(), Ok(vec![]));
            rig.push(&prefix[cut..]);
            let refused = Err(RecordError::TooLarge { bytes: u32::MAX as usize, max_bytes: 100 });
            assert_eq!(rig.drain(), refused);
            assert_eq!(rig.drain(), refused, "an error stays");
            assert!(rig.reader.read_all(|_| panic!("no record was sent")).is_err());
            assert!(rig.reader.gathered.capacity() < 100);
            rig.finish_and_assert_all_segments_home();
        }
    }

    #[test]
    fn a_record_beyond_the_limit_is_refused_even_when_it_is_all_there() {
        let mut rig = Rig::new(64, 10);
        rig.push(&stream_of(&[vec![0; 10], vec![0; 11]]));
        assert_eq!(rig.reader.next_record().unwrap().map(<[u8]>::len), Some(10));
        assert_eq!(rig.drain(), Err(RecordError::TooLarge { bytes: 11, max_bytes: 10 }));
        rig.finish_and_assert_all_segments_home();
    }

    #[test]
    fn a_claimed_length_within_the_limit_allocates_only_what_arrives() {
        let mut rig = Rig::new(16, usize::MAX / 2);
        rig.push(&(1u32 << 31).to_le_bytes());
        assert_eq!(rig.drain(), Ok(vec![]));
        rig.push(&[0; 16]);
        assert_eq!(rig.drain(), Ok(vec![]));
        assert!(rig.reader.gathered.capacity() < 256);
        assert_eq!(rig.reader.check_boundary(), Err(RecordError::Cut { have_bytes: 20 }));
        rig.finish_and_assert_all_segments_home();
    }

    #[test]
    fn the_buffer_of_a_borrowed_record_goes_home_when_the_next_one_is_asked_for() {
        let mut rig = Rig::new(16, 100);
        rig.push(&stream_of(&[vec![7; 4], vec![8; 4]]));
        assert_eq!(rig.reader.next_record(), Ok(Some(&[7; 4][..])));
        assert_eq!(rig.reader.next_record(), Ok(Some(&[8; 4][..])));
        assert_eq!(rig.pool.in_use(), 1);
        assert_eq!(rig.reader.next_record(), Ok(None));
        assert_eq!(rig.pool.in_use(), 0);
        rig.finish_and_assert_all_segments_home();
    }

    #[test]
    fn a_large_gathering_vector_is_not_kept_and_one_of_usual_size_is() {
        for (bytes, is_kept) in [(200_000, true), (2 << 20, false)] {
            let mut rig = Rig::new(1 << 20, 4 << 20);
            let stream = stream_of(&[vec![1; bytes]]);
            for piece in stream.chunks(bytes / 2) {
                rig.push(piece);
                rig.drain().unwrap();
            }
            assert_eq!((rig.reader.gathered.len(), rig.reader.gathered.capacity() > 0), (0, is_kept), "{bytes} bytes");
            rig.finish_and_assert_all_segments_home();
        }
    }

    #[test]
    fn records_of_one_length_in_a_row_are_read_as_others_up_to_what_is_cut() {
        let records =
            ["first", "one", "two", "six", "four", "five", "", "", "x"].map(|record| record.as_bytes().to_vec());
        let mut bytes = stream_of(&records);
        let whole = bytes.len();
        bytes.extend_from_slice(&stream_of(&[b"and cut".to_vec()])[..9]);
        let mut read = Vec::new();
        let end = read_whole_records(&bytes, 0, 64, &mut |record| read.push(record.to_vec()));
        assert_eq!((end, &read[..]), (whole, &records[..]));
        read.clear();
        let end = read_whole_records(&bytes, whole, 64, &mut |record| read.push(record.to_vec()));
        assert_eq!((end, read.len()), (whole, 0), "nothing of what is cut");
    }

    #[test]
    fn what_was_not_given_out_is_there_to_be_kept() {
        let stream = stream_of(&[b"one".to_vec(), b"two".to_vec()]);
        let mut rig = Rig::new(24, 64);
        rig.push(&stream[..5]);
        assert_eq!(rig.drain().unwrap().len(), 0);
        rig.push(&stream[5..]);
        assert_eq!(rig.reader.unread().collect::<Vec<_>>().concat(), stream);
        assert_eq!(rig.reader.next_record().unwrap(), Some(&b"one"[..]));
        assert_eq!(rig.reader.unread().collect::<Vec<_>>(), [&stream[7..]], "of one piece, and no empty ones");
        rig.finish_and_assert_all_segments_home();
    }
}
