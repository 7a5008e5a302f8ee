//! Queue of encoded frames that wait for a socket.

use std::collections::VecDeque;
use std::io::IoSlice;

use flownet_memory::Buffer;

use crate::wire::DataHeader;

/// Byte queue for vectored writes. It copies headers, control frames and small payloads into contiguous runs, and
/// references larger payloads in their segments. A payload's segment is released once its last byte was written. The
/// segment of a copied payload is released at once.
#[derive(Debug, Default)]
pub struct Outbox {
    chunks: VecDeque<Chunk>,
    /// Bytes of the first chunk that are written already.
    written: usize,
    len: usize,
    /// An emptied run, reused so that a steady stream allocates nothing.
    spare: Vec<u8>,
}

#[derive(Debug)]
enum Chunk {
    Run(Vec<u8>),
    Payload(Buffer),
}

impl Outbox {
    /// Creates an empty outbox.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Queues a DATA frame.
    pub fn push_data(&mut self, header: &DataHeader, payload: Buffer) {
        self.append(|run| run.extend_from_slice(&header.encode()));
        if payload.len() <= COPIED_PAYLOAD_BYTES {
            self.append(|run| run.extend_from_slice(&payload));
        } else {
            self.len += payload.len();
            self.chunks.push_back(Chunk::Payload(payload));
        }
    }

    /// Queues whole frames that `encode` appends.
    pub fn push_control(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        self.append(encode);
    }

    /// Fills `slices` with the next bytes to write. Returns the number of filled slices.
    pub fn io_slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut skip = self.written;
        let mut filled = 0;
        for (slice, chunk) in slices.iter_mut().zip(&self.chunks) {
            *slice = IoSlice::new(&chunk.bytes()[skip..]);
            skip = 0;
            filled += 1;
        }
        filled
    }

    /// Removes the next `bytes` bytes, which were written.
    pub fn advance(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.len, "a socket cannot write more than it was given");
        self.len = self.len.saturating_sub(bytes);
        self.written += bytes;
        while let Some(chunk) = self.chunks.front()
            && self.written >= chunk.bytes().len()
        {
            self.written -= chunk.bytes().len();
            if let Some(Chunk::Run(mut run)) = self.chunks.pop_front() {
                run.clear();
                self.spare = run;
            }
        }
    }

    /// Returns true if no bytes wait to be written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of bytes that wait to be written.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.len
    }

    /// Drops all queued bytes and releases their segments.
    pub fn clear(&mut self) {
        self.chunks.clear();
        self.written = 0;
        self.len = 0;
    }

    fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if !matches!(self.chunks.back(), Some(Chunk::Run(run)) if run.len() < RUN_BYTES) {
            self.chunks.push_back(Chunk::Run(std::mem::take(&mut self.spare)));
        }
        if let Some(Chunk::Run(run)) = self.chunks.back_mut() {
            let before = run.len();
            write(run);
            self.len += run.len() - before;
        }
    }
}

impl Chunk {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Run(run) => run,
            Self::Payload(payload) => payload,
        }
    }
}

/// Payloads of at most this size are copied: cheaper than two more entries of a vectored write.
const COPIED_PAYLOAD_BYTES: usize = 512;

/// Size from which a run takes no further frame, so that its memory stays small.
const RUN_BYTES: usize = 16 * flownet_memory::KIB;

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use flownet_memory::{BufferPoolSettings, SegmentPool};
    use proptest::prelude::*;

    use super::*;
    use crate::credit::Backlog;
    use crate::ids::ChannelId;

    proptest! {
        /// However many bytes the socket takes at a time, it gets all frames in order. Every segment is released as
        /// soon as its payload is written.
        #[test]
        fn bytes_leave_in_order_and_segments_with_their_last_byte(
            frames in proptest::collection::vec((1usize..3000, any::<bool>()), 1..20),
            writes in proptest::collection::vec(1usize..5000, 1..10),
        ) {
            let segments = SegmentPool::new(20, 3000).unwrap();
            let settings =
                BufferPoolSettings { min: 0, max: None, lanes: 1, max_per_lane: usize::MAX, max_overdraft: 0 };
            let pool = segments.create_buffer_pool(settings).unwrap();
            let (mut outbox, mut expected, mut ends) = (Outbox::new(), Vec::new(), Vec::new());
            for (sequence, (len, is_control)) in (0..).zip(frames) {
                if is_control {
                    let bytes = vec![sequence as u8; len];
                    outbox.push_control(|run| run.extend_from_slice(&bytes));
                    expected.extend_from_slice(&bytes);
                    continue;
                }
                let mut segment = pool.try_take(0).unwrap();
                segment.as_mut_slice()[..len].fill(sequence as u8);
                let payload = Buffer::from_segment(segment, len);
                let (channel, backlog) = (ChannelId::new(1), Backlog::ZERO);
                let header = DataHeader { channel, sequence, backlog, payload_bytes: len as u32, checksum: None };
                expected.extend_from_slice(&header.encode());
                expected.extend_from_slice(&payload);
                if len > COPIED_PAYLOAD_BYTES {
                    ends.push(expected.len());
                }
                outbox.push_data(&header, payload);
            }
            let mut written = Vec::new();
            for limit in writes.into_iter().cycle() {
                prop_assert_eq!(outbox.queued_bytes(), expected.len() - written.len());
                prop_assert_eq!(pool.in_use(), ends.iter().filter(|end| **end > written.len()).count());
                if outbox.is_empty() {
                    break;
                }
                let mut slices = [IoSlice::new(&[]); 3];
                let filled = outbox.io_slices(&mut slices);
                let mut bytes: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.iter().copied()).collect();
                bytes.truncate(limit);
                outbox.advance(bytes.len());
                written.extend_from_slice(&bytes);
            }
            prop_assert_eq!(written, expected);
        }
    }

    #[test]
    fn many_small_frames_go_out_in_one_write_from_runs_that_stay_small() {
        let mut outbox = Outbox::new();
        for _ in 0..4096 {
            outbox.push_control(|run| run.extend_from_slice(&[7; 64]));
        }
        let mut slices = [IoSlice::new(&[]); 64];
        let filled = outbox.io_slices(&mut slices);
        let lens = slices[..filled].iter().map(|slice| slice.len());
        assert_eq!(lens.clone().sum::<usize>(), outbox.queued_bytes(), "all in {filled} slices");
        assert!(lens.max() < Some(32 * flownet_memory::KIB), "no run grows with what waits");
    }

    #[test]
    fn a_cleared_outbox_is_empty_and_takes_new_frames() {
        let mut outbox = Outbox::new();
        outbox.push_control(|run| run.extend_from_slice(b"old"));
        outbox.advance(1);
        outbox.clear();
        assert!(outbox.is_empty());
        outbox.push_control(|run| run.extend_from_slice(b"new"));
        let mut slices = [IoSlice::new(&[])];
        assert_eq!((outbox.io_slices(&mut slices), &*slices[0]), (1, &b"new"[..]));
    }
}
