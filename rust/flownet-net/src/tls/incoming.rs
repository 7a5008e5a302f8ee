//! Opens arriving records, if possible directly into the destination of their content.
//!
//! # Invariants
//! - R3: unauthenticated content is never passed on.
//! - R4: buffered data is bounded by one read of the socket, whether opened or not.
//! - R5: failures are permanent: a record that cannot be opened remains first, so each later call fails too.

use std::ops::Range;

use aws_lc_rs::aead::Aad;
use rustls::{Error, PeerMisbehaved};

use super::keys::Keys;
use super::record::{
    self, APPLICATION_DATA, CONTENT_BYTES, ControlMessage, HEADER_BYTES, LARGEST_BYTES, OVERHEAD_BYTES, TAG_BYTES,
    TRAILER_BYTES,
};

/// Opening side of a session's records. See the [module docs](self).
pub(crate) struct IncomingRecords {
    keys: Keys,
    bytes: Box<[u8]>,
    /// Start of the sealed records in `bytes`.
    start: usize,
    /// End of the sealed records in `bytes`.
    end: usize,
    /// Content that was opened in place, before `start`, and not taken yet.
    opened: Range<usize>,
    /// Consecutive records without data.
    idle_records: usize,
    is_next_key_asked_for: bool,
    is_closed: bool,
}

impl IncomingRecords {
    /// Continues after `opened`, which was not taken yet. If `is_closed`, nothing follows it.
    pub(super) fn new(keys: Keys, opened: &[u8], is_closed: bool) -> Self {
        let mut bytes = vec![0; BUFFER_BYTES.max(opened.len())].into_boxed_slice();
        bytes[..opened.len()].copy_from_slice(opened);
        Self {
            keys,
            bytes,
            start: opened.len(),
            end: opened.len(),
            opened: 0..opened.len(),
            idle_records: 0,
            is_next_key_asked_for: false,
            is_closed,
        }
    }

    /// Moves content to the targets, the first before the second, and returns the number of bytes moved. Stops when
    /// there is no more content, when the targets are full, or when the next record should be opened into other
    /// targets. Returns 0 only if all records were taken.
    pub(crate) fn take(&mut self, first: &mut [u8], second: &mut [u8]) -> Result<usize, Error> {
        let mut targets = Targets { first, second, filled: 0 };
        self.take_opened(&mut targets);
        while let Some(sealed) = self.next_record()? {
            if targets.filled > 0 && !targets.suit(sealed) {
                break;
            }
            self.open(sealed, &mut targets)?;
        }
        Ok(targets.filled)
    }

    /// Returns true if [`take`](Self::take) has content to move or an error to report.
    pub(crate) fn has_some(&self) -> bool {
        !self.opened.is_empty() || !matches!(self.next_record(), Ok(None))
    }

    /// Returns true if the peer has announced the end.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Returns true if the stream may end here.
    pub(crate) fn is_between_records(&self) -> bool {
        self.is_closed || self.start == self.end
    }

    /// Returns true if the peer requested a new key of ours since the last call.
    pub(crate) fn take_key_request(&mut self) -> bool {
        std::mem::take(&mut self.is_next_key_asked_for)
    }

    /// Returns room for more bytes. Call it when all content was taken.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        debug_assert!(self.opened.is_empty(), "nothing is moved that was opened");
        // Moves less than a record, which is usually much less than one read.
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        (self.start, self.opened) = (0, 0..0);
        if self.is_closed {
            self.end = 0;
        }
        &mut self.bytes[self.end..]
    }

    /// Marks the first `count` bytes of [`room`](Self::room) as arrived.
    pub(crate) fn filled(&mut self, count: usize) {
        debug_assert!(count <= self.bytes.len() - self.end, "only room can be filled");
        self.end += count;
    }

    /// Returns the number of sealed bytes of the next record, if it is complete and may be opened now.
    fn next_record(&self) -> Result<Option<usize>, Error> {
        let Some((header, rest)) = self.bytes[self.start..self.end].split_first_chunk() else { return Ok(None) };
        if self.is_closed || !self.opened.is_empty() {
            return Ok(None);
        }
        let length = record::length_behind(header)?;
        Ok((rest.len() >= length).then_some(length - TAG_BYTES))
    }

    fn take_opened(&mut self, targets: &mut Targets<'_>) {
        self.opened.start += targets.copy(&self.bytes[self.opened.clone()]);
    }

    fn open(&mut self, sealed_bytes: usize, targets: &mut Targets<'_>) -> Result<(), Error> {
        let content_at = self.start + HEADER_BYTES;
        let (front, record) = self.bytes[..self.end].split_at_mut(content_at);
        let aad = Aad::from(&front[self.start..]);
        let (sealed, tag) = record[..sealed_bytes + TAG_BYTES].split_at_mut(sealed_bytes);
        let nonce = self.keys.next_nonce()?;
        let cipher = self.keys.cipher();
        // Open directly into the destination if it has contiguous room, else in place.
        let direct = targets.room_for(sealed_bytes);
        let is_direct = direct.is_some();
        let opened = match direct {
            Some(target) => {
                cipher.open_separate_gather(nonce, aad, sealed, tag, target).map_err(|_| Error::DecryptError)?;
                target
            }
            None => cipher.open_in_place_separate_tag(nonce, aad, tag, sealed).map_err(|_| Error::DecryptError)?,
        };
        let (kind, content_bytes) = record::inner(opened)?;
        let said = if kind == APPLICATION_DATA { None } else { Some(record::said(kind, &opened[..content_bytes])?) };
        // R5: advance only after success, so that a record that cannot be opened remains first.
        self.start = content_at + sealed_bytes + TAG_BYTES;
        match said {
            None if is_direct => targets.filled += content_bytes,
            None => {
                self.opened = content_at..content_at + content_bytes;
                self.take_opened(targets);
            }
            Some(ControlMessage::Nothing) => {}
            Some(ControlMessage::Closed) => self.is_closed = true,
            Some(ControlMessage::NextKey { is_ours_asked_for }) => {
                self.keys.renew()?;
                self.is_next_key_asked_for |= is_ours_asked_for;
            }
        }
        self.count_idle(said.is_none() && content_bytes > 0)
    }

    /// Counts records that cost work but bring no data, and fails after too many of them.
    fn count_idle(&mut self, has_data: bool) -> Result<(), Error> {
        self.idle_records = if has_data { 0 } else { self.idle_records + 1 };
        if self.idle_records > MOST_IDLE_RECORDS {
            return Err(PeerMisbehaved::TooManyEmptyFragments.into());
        }
        Ok(())
    }
}

/// Destinations of content.
struct Targets<'a> {
    first: &'a mut [u8],
    second: &'a mut [u8],
    filled: usize,
}

impl Targets<'_> {
    /// Returns the rest of the first target, or of the second if the first is full.
    fn rest(&mut self) -> &mut [u8] {
        let of_first = self.first.len();
        if self.filled < of_first { &mut self.first[self.filled..] } else { &mut self.second[self.filled - of_first..] }
    }

    /// Returns contiguous room for the next `sealed_bytes` bytes, if there is any. The last of them may be overwritten.
    fn room_for(&mut self, sealed_bytes: usize) -> Option<&mut [u8]> {
        self.rest().get_mut(..sealed_bytes)
    }

    /// Returns true if a record should be opened together with those before it. A large record that does not fit
    /// completely into the first target probably belongs to a target that is known only after the earlier content was
    /// processed.
    fn suit(&self, sealed_bytes: usize) -> bool {
        if self.filled + sealed_bytes <= self.first.len() {
            return true;
        }
        sealed_bytes < LARGE_BYTES && self.filled + sealed_bytes <= self.first.len() + self.second.len()
    }

    fn copy(&mut self, mut bytes: &[u8]) -> usize {
        let total = bytes.len();
        while !bytes.is_empty() {
            let target = self.rest();
            let count = bytes.len().min(target.len());
            if count == 0 {
                break;
            }
            target[..count].copy_from_slice(&bytes[..count]);
            self.filled += count;
            bytes = &bytes[count..];
        }
        total - bytes.len()
    }
}

/// Largest size of one read of the socket: this many full records.
const BUFFER_BYTES: usize = 4 * (CONTENT_BYTES + OVERHEAD_BYTES);
const _: () = assert!(BUFFER_BYTES >= LARGEST_BYTES + TRAILER_BYTES);
/// Records of at least this size are worth opening directly into their destination.
const LARGE_BYTES: usize = 2 * flownet_memory::KIB;
/// The same limit as in rustls.
const MOST_IDLE_RECORDS: usize = 32;
