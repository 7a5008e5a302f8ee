//! Records as they travel between operators of different tasks.
//!
//! ```text
//! record = stamp? body
//! stamp  = varint of the zigzag of (timestamp - last watermark of the channel, 0 before the first)
//!                                                        on edges whose readers want event time, and on no others
//! body   = value                                         on edges without keys
//!        | varint key bytes | canonical key | rest       on keyed ones
//! rest   = nothing                                       the value is the key
//!        | value
//!        | 7e | varint given bytes | key as given | rest'    the key was given in another form (True for 1)
//! rest'  = nothing (the value is the key as given) | value
//! ```
//!
//! Word count uses the record itself as the key: leaving the value out halves its bytes. Timestamps are close to the
//! watermark, which both ends know, so most take two or three bytes.

use flownet_core::keygroup::hash_key;

use crate::error::TaskError;
use crate::time::NO_TIMESTAMP;
use crate::varint::{VarintError, put_varint, take_varint, unzigzag, zigzag};

/// The byte before a key as it was given. No value begins with it.
pub const KEY_AS_GIVEN: u8 = 0x7e;

/// A record that arrived over a keyed edge.
#[derive(Clone, Copy, Debug)]
pub struct KeyedRecord<'a> {
    /// Canonical bytes, which identify the group and its state.
    pub key: &'a [u8],
    /// Hash of `key`.
    pub hash: u32,
    /// Event time; [`NO_TIMESTAMP`] if there is none.
    pub timestamp_ms: i64,
    /// The input of the operator that it came from.
    pub side: u8,
    given: Option<&'a [u8]>,
    value: &'a [u8],
}

impl<'a> KeyedRecord<'a> {
    /// Splits the bytes of a body without decoding them.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MalformedRecord> {
        let (key, rest) = take_block(bytes)?;
        let (hash, timestamp_ms, side) = (hash_key(key), NO_TIMESTAMP, 0);
        match rest.split_first() {
            Some((&KEY_AS_GIVEN, rest)) => {
                let (given, value) = take_block(rest)?;
                Ok(Self { key, hash, timestamp_ms, side, given: Some(given), value })
            }
            _ => Ok(Self { key, hash, timestamp_ms, side, given: None, value: rest }),
        }
    }

    /// A record that consists of its key only.
    pub(crate) fn of_key(key: &'a [u8], hash: u32, given: Option<&'a [u8]>) -> Self {
        Self { key, hash, timestamp_ms: NO_TIMESTAMP, side: 0, given, value: &[] }
    }

    /// The same record, with this time and input.
    #[inline]
    pub(super) fn at(self, timestamp_ms: i64, side: u8) -> Self {
        Self { timestamp_ms, side, ..self }
    }

    /// One record of a mini-batch: the key is that of the whole batch.
    #[inline]
    pub(super) fn bundled(self, timestamp_ms: i64, value: &'a [u8]) -> Self {
        Self { timestamp_ms, value, ..self }
    }

    /// The key as the user gave it, if its canonical bytes decode to another form.
    #[inline]
    pub fn given(&self) -> Option<&'a [u8]> {
        self.given
    }

    /// Bytes that decode to the key as the user gave it.
    #[inline]
    pub fn key_value(&self) -> &'a [u8] {
        self.given.unwrap_or(self.key)
    }

    /// Bytes that decode to the record.
    #[inline]
    pub fn value(&self) -> &'a [u8] {
        if self.value.is_empty() { self.key_value() } else { self.value }
    }
}

/// Bytes that no flownet sender writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedRecord {
    /// A length or timestamp that is not a valid varint.
    #[error("a record that no flownet sender writes: {0}")]
    Varint(#[from] VarintError),
    /// Fewer bytes than a length states.
    #[error("a record that no flownet sender writes: {missing} bytes are missing at its end")]
    Truncated {
        /// Number of missing bytes.
        missing: usize,
    },
    /// More bytes than a length states.
    #[error("a record that no flownet sender writes: {surplus} bytes follow its last part")]
    Surplus {
        /// Number of surplus bytes.
        surplus: usize,
    },
}

impl From<MalformedRecord> for TaskError {
    fn from(error: MalformedRecord) -> Self {
        Self::Config(error.to_string())
    }
}

/// Writes the stamp of a record: its difference to the last watermark of its channel.
#[inline]
pub fn put_stamp(out: &mut Vec<u8>, difference_ms: i64) {
    put_varint(out, zigzag(difference_ms));
}

/// Returns the stamp of a record at the last watermark of a channel.
#[inline]
pub(super) fn difference(timestamp_ms: i64, watermark_ms: Option<i64>) -> i64 {
    timestamp_ms.wrapping_sub(watermark_ms.unwrap_or(0))
}

/// Reads the stamp. Returns the record's timestamp and its body.
#[inline]
pub(crate) fn take_stamp(bytes: &[u8], watermark_ms: Option<i64>) -> Result<(i64, &[u8]), MalformedRecord> {
    let (zigzag, body) = take_varint(bytes)?;
    Ok((unzigzag(zigzag).wrapping_add(watermark_ms.unwrap_or(0)), body))
}

#[inline]
fn take_block(bytes: &[u8]) -> Result<(&[u8], &[u8]), MalformedRecord> {
    let (len, rest) = match bytes.split_first() {
        Some((&len, rest)) if len < 0x80 => (usize::from(len), rest),
        _ => {
            let (len, rest) = take_varint(bytes)?;
            (usize::try_from(len).unwrap_or(usize::MAX), rest)
        }
    };
    rest.split_at_checked(len).ok_or_else(|| MalformedRecord::Truncated { missing: len - rest.len() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_record_without_value_is_its_key() {
        let record = KeyedRecord::parse(&[2, 0x81, b'a']).unwrap();
        assert_eq!((record.key, record.value(), record.given()), (&[0x81, b'a'][..], &[0x81, b'a'][..], None));
    }

    #[test]
    fn a_key_as_given_goes_before_the_canonical_one() {
        let record = KeyedRecord::parse(&[1, 0xc1, KEY_AS_GIVEN, 1, 0x02]).unwrap();
        assert_eq!((record.key, record.key_value(), record.value()), (&[0xc1][..], &[0x02][..], &[0x02][..]));
        let record = KeyedRecord::parse(&[1, 0xc1, KEY_AS_GIVEN, 1, 0x02, 0xc7]).unwrap();
        assert_eq!((record.key_value(), record.value()), (&[0x02][..], &[0xc7][..]));
    }

    #[test]
    fn a_length_beyond_the_record_is_an_error() {
        for bytes in [&[][..], &[5, 1], &[0xff, 0xff], &[1, 0xc1, KEY_AS_GIVEN, 9, 1], &[0xff; 11]] {
            assert!(KeyedRecord::parse(bytes).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn a_stamp_gives_its_timestamp_back(timestamp_ms in any::<i64>(), watermark_ms in any::<Option<i64>>(), body in any::<Vec<u8>>()) {
            let mut bytes = Vec::new();
            put_stamp(&mut bytes, difference(timestamp_ms, watermark_ms));
            bytes.extend(&body);
            prop_assert_eq!(take_stamp(&bytes, watermark_ms), Ok((timestamp_ms, &body[..])));
        }

        #[test]
        fn any_bytes_are_a_record_or_an_error(bytes in any::<Vec<u8>>()) {
            let _ = (KeyedRecord::parse(&bytes), take_stamp(&bytes, Some(7)));
        }
    }

    #[test]
    fn a_stamp_near_the_watermark_is_short() {
        let mut bytes = Vec::new();
        put_stamp(&mut bytes, difference(1_700_000_004_999, Some(1_700_000_000_000)));
        assert_eq!(bytes.len(), 2);
    }
}
