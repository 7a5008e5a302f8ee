//! Seals what leaves in records.
//!
//! Large slices are sealed from where they lie into the records; small ones are gathered in one, where they are sealed.
//!
//! # Invariants
//! - R1: a record is sealed once and sent as it is: what is sealed is taken, and nothing more is until it is sent.
//! - R2: a key seals no more records than its cipher allows: the last one says that the next key follows.

use std::io::IoSlice;

use aws_lc_rs::aead::Aad;
use rustls::{AlertDescription, Error};

use super::keys::Keys;
use super::record::{self, APPLICATION_DATA, CONTENT_BYTES, HEADER_BYTES, OVERHEAD_BYTES, TRAILER_BYTES};

/// See the [module docs](self).
pub(crate) struct OutgoingRecords {
    keys: Keys,
    /// R2.
    records_per_key: u64,
    bytes: Box<[u8]>,
    /// Records lie from here
    sent: usize,
    /// to here.
    end: usize,
}

impl OutgoingRecords {
    pub(super) fn new(keys: Keys) -> Self {
        let records_per_key = keys.limit();
        Self { keys, records_per_key, bytes: vec![0; BUFFER_BYTES].into_boxed_slice(), sent: 0, end: 0 }
    }

    /// Records that are not sent.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..self.end]
    }

    /// The first `count` bytes of what was [unsent](Self::unsent) are sent.
    pub(crate) fn advance(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.sent, "only what is there can be sent");
        self.sent += count;
        if self.sent == self.end {
            (self.sent, self.end) = (0, 0);
        }
    }

    /// Seals what there is room for. To be called when all is sent.
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
            // Who opens them where they belong finds room there for what stands behind the content if it is not the last
            // byte of its slice.
            let wanted = (next.len() - 1).min(CONTENT_BYTES);
            if room < wanted {
                break;
            }
            self.seal_from(&next[..wanted])?;
            rest.skip(wanted);
        }
        Ok(())
    }

    /// From the next record on it is the next key.
    pub(crate) fn renew_keys(&mut self) -> Result<(), Error> {
        let (kind, message) = record::key_update();
        self.say(kind, &message)?;
        self.keys.renew()
    }

    /// Tells the peer why nothing follows, if there is room.
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

    /// As a peer may that has had enough of our key.
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

    /// For the content of one more record.
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

    /// Seals content that lies in its place.
    fn finish_record(&mut self, kind: u8, content_bytes: usize) -> Result<(), Error> {
        let (keys, header, content, trailer) = self.next_record(content_bytes)?;
        let nonce = keys.next_nonce()?;
        keys.cipher()
            .seal_in_place_scatter(nonce, Aad::from(header), content, &[kind], trailer)
            .map_err(|_| Error::EncryptError)?;
        self.end += content_bytes + OVERHEAD_BYTES;
        Ok(())
    }

    /// Seals data that lies elsewhere.
    fn seal_from(&mut self, data: &[u8]) -> Result<(), Error> {
        let (keys, header, content, trailer) = self.next_record(data.len())?;
        let nonce = keys.next_nonce()?;
        keys.cipher()
            .seal_out_of_place_scatter(nonce, Aad::from(header), data, content, &[APPLICATION_DATA], trailer)
            .map_err(|_| Error::EncryptError)?;
        self.end += data.len() + OVERHEAD_BYTES;
        Ok(())
    }

    /// The parts of the next record, whose header is written.
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

/// What is left of slices.
pub(crate) struct RemainingSlices<'a> {
    slices: &'a [IoSlice<'a>],
    /// Taken of the first.
    of_first: usize,
    taken: usize,
}

impl<'a> RemainingSlices<'a> {
    pub(crate) fn new(slices: &'a [IoSlice<'a>]) -> Self {
        Self { slices, of_first: 0, taken: 0 }
    }

    /// How many bytes were taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    pub(crate) fn is_empty(&mut self) -> bool {
        self.peek().is_none()
    }

    /// What is left of the first slice that has something.
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

    /// Copies small slices one after the other.
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

/// From here on a record of its own costs less than a copy.
const LARGE_BYTES: usize = 4 * flownet_memory::KIB;
/// What is sealed at a time: so many full records, and the small ones between them.
const BUFFER_BYTES: usize = FULL_RECORDS * (CONTENT_BYTES + OVERHEAD_BYTES) + SPARE_BYTES;
const FULL_RECORDS: usize = 4;
const SPARE_BYTES: usize = flownet_memory::KIB;
