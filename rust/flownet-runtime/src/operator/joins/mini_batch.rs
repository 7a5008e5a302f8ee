//! Sends several records of one key as one record, if the sender has several at once. The key is then sent only once,
//! and looked up only once downstream.
//!
//! ```text
//! value  = record                                                        one by itself
//!        | 00 | varint records | each: varint of zigzag(later) | u32 bytes | as many     no record begins with 00
//! ```
//!
//! `later` is the time from the previous record to this one, and for the first record, from the record that carries
//! them all. The sender had all of them at one event time, between two watermarks. Those of one key arrive in the
//! sender's order.

use crate::operator::record::MalformedRecord;
use crate::varint::{put_varint, take_varint, unzigzag, zigzag};

/// Gathers records of one key.
#[derive(Debug, Default)]
pub struct MiniBatch {
    bytes: Vec<u8>,
    records: usize,
    first_ms: i64,
    last_ms: i64,
}

impl MiniBatch {
    /// Adds a record of this time, which must not be empty.
    #[inline]
    pub fn add(&mut self, timestamp_ms: i64, record: impl FnOnce(&mut Vec<u8>)) {
        if self.records == 0 {
            (self.first_ms, self.last_ms) = (timestamp_ms, timestamp_ms);
        }
        put_varint(&mut self.bytes, zigzag(timestamp_ms.wrapping_sub(self.last_ms)));
        let place = self.bytes.len();
        self.bytes.extend_from_slice(&[0; LENGTH_BYTES]);
        record(&mut self.bytes);
        let length = (self.bytes.len() - place - LENGTH_BYTES) as u32;
        self.bytes[place..place + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        self.records += 1;
        self.last_ms = timestamp_ms;
    }

    /// The number of records.
    pub fn records(&self) -> usize {
        self.records
    }

    /// The time of the record that carries them all.
    pub fn timestamp_ms(&self) -> i64 {
        self.first_ms
    }

    /// Returns true if further records should start a new mini-batch. One that is sent has to fit in a record.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= FULL_BYTES
    }

    /// Appends the value that carries all records, and clears the mini-batch.
    #[inline]
    pub fn take(&mut self, out: &mut Vec<u8>) {
        if self.records == 1 {
            out.extend_from_slice(&self.bytes[FIRST_BYTES..]);
        } else {
            out.push(BUNDLED);
            put_varint(out, self.records as u64);
            out.extend_from_slice(&self.bytes);
        }
        self.bytes.clear();
        self.records = 0;
    }
}

/// The records of one mini-batch: their times and bytes.
#[derive(Clone, Copy, Debug)]
pub struct BatchRecords<'a> {
    records: u64,
    last_ms: i64,
    rest: &'a [u8],
}

impl<'a> BatchRecords<'a> {
    /// Parses the value of a record of this time. Returns `None` if it is a single record.
    #[inline]
    pub fn of(value: &'a [u8], timestamp_ms: i64) -> Result<Option<Self>, MalformedRecord> {
        let Some((&BUNDLED, rest)) = value.split_first() else { return Ok(None) };
        let (records, rest) = take_varint(rest)?;
        Ok(Some(Self { records, last_ms: timestamp_ms, rest }))
    }

    /// Returns true if a value is a mini-batch.
    #[inline]
    pub fn is(value: &[u8]) -> bool {
        value.first() == Some(&BUNDLED)
    }

    /// The number of records left.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Returns the next record, if there is one.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "whoever takes them says what an error is to him")]
    pub fn next(&mut self) -> Result<Option<(i64, &'a [u8])>, MalformedRecord> {
        if self.records == 0 {
            return match self.rest.len() {
                0 => Ok(None),
                surplus => Err(MalformedRecord::Surplus { surplus }),
            };
        }
        let (later, rest) = take_varint(self.rest)?;
        let truncated = |wanted: usize, is: usize| MalformedRecord::Truncated { missing: wanted - is };
        let (length, rest) = rest.split_first_chunk().ok_or_else(|| truncated(LENGTH_BYTES, rest.len()))?;
        let length = u32::from_le_bytes(*length) as usize;
        let (record, rest) = rest.split_at_checked(length).ok_or_else(|| truncated(length, rest.len()))?;
        self.last_ms = self.last_ms.wrapping_add(unzigzag(later));
        (self.records, self.rest) = (self.records - 1, rest);
        Ok(Some((self.last_ms, record)))
    }

    /// Returns the latest time of all records. An error if the bytes are no mini-batch.
    pub(super) fn latest_ms(mut self) -> Result<Option<i64>, MalformedRecord> {
        let mut latest_ms = None;
        while let Some((timestamp_ms, _)) = self.next()? {
            latest_ms = latest_ms.max(Some(timestamp_ms));
        }
        Ok(latest_ms)
    }
}

/// The first byte of a mini-batch.
const BUNDLED: u8 = 0;
/// Bytes of a record's length.
const LENGTH_BYTES: usize = size_of::<u32>();
/// Bytes before the first record: its time difference is 0, one byte, and its length follows.
const FIRST_BYTES: usize = 1 + LENGTH_BYTES;
/// The least number of bytes in a full mini-batch: a fraction of a buffer, and so many that the bytes of the key do not
/// count.
const FULL_BYTES: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(value: &[u8], timestamp_ms: i64) -> Result<Vec<(i64, Vec<u8>)>, MalformedRecord> {
        let Some(mut bundled) = BatchRecords::of(value, timestamp_ms)? else {
            return Ok(vec![(timestamp_ms, value.to_vec())]);
        };
        let mut records = Vec::new();
        while let Some((timestamp_ms, record)) = bundled.next()? {
            records.push((timestamp_ms, record.to_vec()));
        }
        Ok(records)
    }

    fn record() -> impl Strategy<Value = Vec<u8>> {
        (1u8.., any::<Vec<u8>>()).prop_map(|(first, rest)| [vec![first], rest].concat())
    }

    proptest! {
        #[test]
        fn what_is_put_together_comes_apart_again(
            several in proptest::collection::vec(proptest::collection::vec((any::<i64>(), record()), 1..20), 1..4),
        ) {
            let mut bundle = MiniBatch::default();
            // One after the other, to show that no bytes of the first one remain.
            for records in several {
                for (timestamp_ms, record) in &records {
                    bundle.add(*timestamp_ms, |out| out.extend_from_slice(record));
                }
                prop_assert_eq!(bundle.records(), records.len());
                let (timestamp_ms, mut value) = (bundle.timestamp_ms(), Vec::new());
                bundle.take(&mut value);
                prop_assert_eq!(bundle.records(), 0);
                let latest_ms = records.iter().map(|record| record.0).max();
                match BatchRecords::of(&value, timestamp_ms).unwrap() {
                    Some(bundled) => {
                        prop_assert_eq!(bundled.records(), records.len() as u64);
                        prop_assert_eq!(bundled.latest_ms().unwrap(), latest_ms);
                    }
                    None => prop_assert_eq!(Some(timestamp_ms), latest_ms),
                }
                prop_assert_eq!(read(&value, timestamp_ms).unwrap(), records);
            }
        }

        #[test]
        fn any_bytes_are_records_or_an_error(bytes: Vec<u8>, at: usize, to: u8) {
            let _ = read(&bytes, 7);
            let _ = read(&[&[BUNDLED][..], &bytes].concat(), 7);
            let mut bundle = MiniBatch::default();
            (0..3).for_each(|number| bundle.add(number, |out| out.push(1)));
            let mut value = Vec::new();
            bundle.take(&mut value);
            let at = at % value.len();
            value[at] = to;
            let _ = read(&value, 7);
            prop_assert!(read(&[&value[..], &[1]].concat(), 7).is_err() || at < FIRST_BYTES + 2);
        }
    }

    #[test]
    fn a_record_by_itself_has_nothing_before_it() {
        let (mut bundle, mut value) = (MiniBatch::default(), Vec::new());
        bundle.add(-5, |out| out.extend_from_slice(b"one"));
        assert_eq!(bundle.timestamp_ms(), -5);
        bundle.take(&mut value);
        assert_eq!(value, b"one");
    }

    #[test]
    fn what_says_too_many_records_is_an_error() {
        let value = [BUNDLED, 2, 0, 1, 0, 0, 0, 9];
        assert_eq!(read(&value, 0), Err(MalformedRecord::Varint(crate::varint::VarintError::Truncated)));
        assert_eq!(read(&[BUNDLED, 1, 0, 4, 0, 0, 0, 9], 0), Err(MalformedRecord::Truncated { missing: 3 }));
        assert_eq!(read(&[BUNDLED, 0, 9], 0), Err(MalformedRecord::Surplus { surplus: 1 }));
    }
}
