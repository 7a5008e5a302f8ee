//! Seals outgoing bytes in records.
//!
//! Large slices are sealed directly from their place into the records. Small ones are gathered in one record and sealed
//! in place.
//!
//! # Invariants
//! - R1: a record is sealed once and sent unchanged. Sealed bytes count as taken, and no more are taken until they are
//!   sent.
//! - R2: a key seals no more records than its cipher allows. Its last record announces the next key.

use std::io::IoSlice;

use aws_lc_rs::aead::Aad;
use rustls::{AlertDescription, Error};

use super::keys::Keys;
use super::record::{self, APPLICATION_DATA, CONTENT_BYTES, HEADER_BYTES, OVERHEAD_BYTES, TRAILER_BYTES};

/// Sealing side of a session's records. See the [module docs](self).
pub(crate) struct OutgoingRecords {
    keys: Keys,
    /// Limit of records per key (R2).
    records_per_key: u64,
    bytes: Box<[u8]>,
    /// Start of the unsent records in `bytes`.
    sent: usize,
    /// End of the unsent records in `bytes`.
    end: usize,
}

impl OutgoingRecords {
    pub(super) fn new(keys: Keys) -> Self {
        let records_per_key = keys.limit();
        Self { keys, records_per_key, bytes: vec![0; BUFFER_BYTES].into_boxed_slice(), sent: 0, end: 0 }
    }

    /// Returns the records that are not sent yet.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..self.end]
    }

    /// Marks the first `count` bytes of [`unsent`](Self::unsent) as sent.
    pub(crate) fn advance(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.sent, "only what is there can be sent");
        self.sent += count;
        if self.sent == self.end {
            (self.sent, self.end) = (0, 0);
        }
    }

    /// Seals as many bytes as there is room for. Call it when all records are sent.
    pub(crate) fn seal(&mut self, rest: &mut RemainingSlices<'_>) -> Result<(), Error> {
        while let Some(next) = rest.peek() {
            if self.keys.records() + 1 >= self.records_per_key {
                if self.room() < SPARE_BYTES {
                    break;
                }
                self.renew_keys()?;
            }
            let room = self.room().min(CONTENT_BYTES);
            if room == 0 {
                break;
            }
            if next.len() < LARGE_BYTES {
                let start = self.end + HEADER_BYTES;
                let gathered = rest.gather(&mut self.bytes[start..start + room]);
                self.finish_record(APPLICATION_DATA, gathered)?;
                continue;
            }
            // A receiver that opens a record directly into its destination needs room there for the record's type and
            // padding. It has that room unless the content ends at the last byte of its slice, so leave one byte for
            // the next record.
            let wanted = (next.len() - 1).min(CONTENT_BYTES);
            if room < wanted {
                break;
            }
            self.seal_from(&next[..wanted])?;
            rest.skip(wanted);
        }
        Ok(())
    }

    /// Announces the next key, and uses it from the next record on.
    pub(crate) fn renew_keys(&mut self) -> Result<(), Error> {
        let (kind, message) = record::key_update();
        self.say(kind, &message)?;
        self.keys.renew()
    }

    /// Sends the peer an alert with the reason for the end, if there is room.
    pub(crate) fn say_goodbye(&mut self, description: AlertDescription) -> Result<(), Error> {
        let (kind, message) = record::alert(description);
        self.say(kind, &message)
    }

    #[cfg(test)]
    pub(crate) fn allow_records_per_key(&mut self, records: u64) {
        self.records_per_key = records;
    }

    #[cfg(test)]
    pub(super) fn records_of_key(&self) -> u64 {
        self.keys.records()
    }

    /// Requests a new key of the peer, as a peer may do after many records.
    #[cfg(test)]
    pub(crate) fn ask_for_next_key(&mut self) {
        let (kind, mut message) = record::key_update();
        message[4] = 1;
        self.say(kind, &message).unwrap();
        self.skip_to_next_key();
    }

    #[cfg(test)]
    pub(super) fn skip_to_next_key(&mut self) {
        self.keys.renew().unwrap();
    }

    /// Returns the room for the content of one more record.
    fn room(&self) -> usize {
        (self.bytes.len() - self.end).saturating_sub(OVERHEAD_BYTES)
    }

    pub(super) fn say(&mut self, kind: u8, message: &[u8]) -> Result<(), Error> {
        if self.room() < message.len() {
            return Err(Error::EncryptError);
        }
        let start = self.end + HEADER_BYTES;
        self.bytes[start..start + message.len()].copy_from_slice(message);
        self.finish_record(kind, message.len())
    }

    /// Seals content that is already in its place.
    fn finish_record(&mut self, kind: u8, content_bytes: usize) -> Result<(), Error> {
        let (keys, header, content, trailer) = self.next_record(content_bytes)?;
        let nonce = keys.next_nonce()?;
        keys.cipher()
            .seal_in_place_scatter(nonce, Aad::from(header), content, &[kind], trailer)
            .map_err(|_| Error::EncryptError)?;
        self.end += content_bytes + OVERHEAD_BYTES;
        Ok(())
    }

    /// Seals data from another place.
    fn seal_from(&mut self, data: &[u8]) -> Result<(), Error> {
        let (keys, header, content, trailer) = self.next_record(data.len())?;
        let nonce = keys.next_nonce()?;
        keys.cipher()
            .seal_out_of_place_scatter(nonce, Aad::from(header), data, content, &[APPLICATION_DATA], trailer)
            .map_err(|_| Error::EncryptError)?;
        self.end += data.len() + OVERHEAD_BYTES;
        Ok(())
    }

    /// Returns the parts of the next record, and writes its header.
    fn next_record(&mut self, content_bytes: usize) -> Result<RecordParts<'_>, Error> {
        let record = self.bytes[self.end..].split_at_mut_checked(content_bytes + OVERHEAD_BYTES);
        let (record, _) = record.ok_or(Error::EncryptError)?;
        let (header_bytes, sealed) = record.split_at_mut(HEADER_BYTES);
        let header = record::header(sealed.len());
        header_bytes.copy_from_slice(&header);
        let (content, trailer) = sealed.split_at_mut(content_bytes);
        debug_assert_eq!(trailer.len(), TRAILER_BYTES);
        Ok((&mut self.keys, header, content, trailer))
    }
}

type RecordParts<'a> = (&'a mut Keys, [u8; HEADER_BYTES], &'a mut [u8], &'a mut [u8]);

/// Bytes of slices that are not sealed yet.
pub(crate) struct RemainingSlices<'a> {
    slices: &'a [IoSlice<'a>],
    /// Bytes taken of the first slice.
    of_first: usize,
    taken: usize,
}

impl<'a> RemainingSlices<'a> {
    pub(crate) fn new(slices: &'a [IoSlice<'a>]) -> Self {
        Self { slices, of_first: 0, taken: 0 }
    }

    /// Returns the number of bytes taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    pub(crate) fn is_empty(&mut self) -> bool {
        self.peek().is_none()
    }

    /// Returns the rest of the first slice that is not empty.
    fn peek(&mut self) -> Option<&'a [u8]> {
        loop {
            let first: &'a [u8] = self.slices.first()?;
            if self.of_first < first.len() {
                return Some(&first[self.of_first..]);
            }
            self.slices = &self.slices[1..];
            self.of_first = 0;
        }
    }

    fn skip(&mut self, count: usize) {
        self.of_first += count;
        self.taken += count;
    }

    /// Copies consecutive small slices to `target`.
    fn gather(&mut self, target: &mut [u8]) -> usize {
        let mut filled = 0;
        while filled < target.len()
            && let Some(next) = self.peek()
            && next.len() < LARGE_BYTES
        {
            let count = next.len().min(target.len() - filled);
            target[filled..filled + count].copy_from_slice(&next[..count]);
            filled += count;
            self.skip(count);
        }
        filled
    }
}

/// Slices of at least this size get their own record, which costs less than a copy.
const LARGE_BYTES: usize = 4 * flownet_memory::KIB;
/// Bytes sealed at a time: full records, and the small ones between them.
const BUFFER_BYTES: usize = FULL_RECORDS * (CONTENT_BYTES + OVERHEAD_BYTES) + SPARE_BYTES;
const FULL_RECORDS: usize = 4;
const SPARE_BYTES: usize = flownet_memory::KIB;
