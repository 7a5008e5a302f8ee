//! Opens the records that arrive, into where their content belongs.
//!
//! # Invariants
//! - R3: what was not authenticated is not given out.
//! - R4: what is held is bounded: one read of the socket, opened or not.
//! - R5: who failed once fails again: a record that cannot be opened stays.

use std::ops::Range;

use aws_lc_rs::aead::Aad;
use rustls::{Error, PeerMisbehaved};

use super::keys::Keys;
use super::record::{
    self, APPLICATION_DATA, CONTENT_BYTES, ControlMessage, HEADER_BYTES, LARGEST_BYTES, OVERHEAD_BYTES, TAG_BYTES,
    TRAILER_BYTES,
};

/// See the [module docs](self).
pub(crate) struct IncomingRecords {
    keys: Keys,
    bytes: Box<[u8]>,
    /// Records lie from here
    start: usize,
    /// to here.
    end: usize,
    /// Opened where it lay, before `start`, and not taken.
    opened: Range<usize>,
    /// In a row, without data.
    idle_records: usize,
    is_next_key_asked_for: bool,
    is_closed: bool,
}

impl IncomingRecords {
    /// Goes on behind `opened`, which was not taken, and nothing follows if it `is_closed`.
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

    /// Moves content to the targets, the first before the second, until there is none, they are full, or what comes next
    /// is better read with others: says how many bytes that were, which is 0 only if all records were taken.
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

    /// Whether there is something to [`take`](Self::take), or to be told that is wrong.
    pub(crate) fn has_some(&self) -> bool {
        !self.opened.is_empty() || !matches!(self.next_record(), Ok(None))
    }

    /// The peer has said that nothing follows.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether the stream may end here.
    pub(crate) fn is_between_records(&self) -> bool {
        self.is_closed || self.start == self.end
    }

    /// Whether the peer asked for a new key of ours since this was last called.
    pub(crate) fn take_key_request(&mut self) -> bool {
        std::mem::take(&mut self.is_next_key_asked_for)
    }

    /// Room for more bytes. To be called when all was taken.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        debug_assert!(self.opened.is_empty(), "nothing is moved that was opened");
        // Less than a record, as a rule much less than was read.
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        (self.start, self.opened) = (0, 0..0);
        if self.is_closed {
            self.end = 0;
        }
        &mut self.bytes[self.end..]
    }

    /// Counts `count` bytes at the front of the [`room`](Self::room) as arrived.
    pub(crate) fn filled(&mut self, count: usize) {
        debug_assert!(count <= self.bytes.len() - self.end, "only room can be filled");
        self.end += count;
    }

    /// How many sealed bytes the next record has, if it is whole and to be opened.
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

    /// What costs us and brings nothing.
    fn count_idle(&mut self, has_data: bool) -> Result<(), Error> {
        self.idle_records = if has_data { 0 } else { self.idle_records + 1 };
        if self.idle_records > MOST_IDLE_RECORDS {
            return Err(PeerMisbehaved::TooManyEmptyFragments.into());
        }
        Ok(())
    }
}

/// Where content goes.
struct Targets<'a> {
    first: &'a mut [u8],
    second: &'a mut [u8],
    filled: usize,
}

impl Targets<'_> {
    /// What is left of the first, or of the second if the first is full.
    fn rest(&mut self) -> &mut [u8] {
        let of_first = self.first.len();
        if self.filled < of_first { &mut self.first[self.filled..] } else { &mut self.second[self.filled - of_first..] }
    }

    /// Where so many bytes can lie in a row that come next, of which the last may be overwritten.
    fn room_for(&mut self, sealed_bytes: usize) -> Option<&mut [u8]> {
        self.rest().get_mut(..sealed_bytes)
    }

    /// Whether a record is to be opened along with those before it. One that is large and does not belong in the first
    /// target as a whole is likely to belong in one that is known only when what is before it was read.
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

/// What one read of the socket brings at most: so many full records.
const BUFFER_BYTES: usize = 4 * (CONTENT_BYTES + OVERHEAD_BYTES);
const _: () = assert!(BUFFER_BYTES >= LARGEST_BYTES + TRAILER_BYTES);
/// What is worth being opened where it belongs.
const LARGE_BYTES: usize = 2 * flownet_memory::KIB;
/// As much patience as rustls has.
const MOST_IDLE_RECORDS: usize = 32;
