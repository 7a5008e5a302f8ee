//! Records on keyed edges: the canonical key in front of the value.
//!
//! ```text
//! varint key bytes | canonical key | rest
//! rest = nothing                                        the value is the key
//!      | value                                          a codec value
//!      | 7e | varint given bytes | key as given | rest' the key was given in another form (True for 1)
//! rest' = nothing (the value is the key as given) | value
//! ```
//!
//! Word count keys by the record itself: leaving the value out halves its bytes.

use flownet_core::keygroup::hash_key;
use flownet_runtime::TaskError;
use pyo3::prelude::*;

use crate::codec::{CodecError, KEY_AS_GIVEN, KeyForm, SentClasses, encode, encode_key, put_varint, take_varint};

/// A record that arrived over a keyed edge.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyedRecord<'a> {
    /// Canonical bytes: what groups and state go by.
    pub(super) key: &'a [u8],
    /// Hash of `key`.
    pub(super) hash: u32,
    given: Option<&'a [u8]>,
    value: &'a [u8],
}

impl<'a> KeyedRecord<'a> {
    /// Splits the bytes; nothing is decoded.
    #[inline]
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, TaskError> {
        let (key, rest) = take_block(bytes)?;
        let hash = hash_key(key);
        match rest.split_first() {
            Some((&KEY_AS_GIVEN, rest)) => {
                let (given, value) = take_block(rest)?;
                Ok(Self { key, hash, given: Some(given), value })
            }
            _ => Ok(Self { key, hash, given: None, value: rest }),
        }
    }

    /// A record that stands for its key alone.
    pub(super) fn of_key(key: &'a [u8], hash: u32) -> Self {
        Self { key, hash, given: None, value: &[] }
    }

    /// The key as the user gave it, where that is not what its canonical bytes decode to.
    #[inline]
    pub(super) fn given(&self) -> Option<Box<[u8]>> {
        self.given.map(Into::into)
    }

    /// Bytes that decode to the key as the user gave it.
    #[inline]
    pub(super) fn key_value(&self) -> &'a [u8] {
        self.given.unwrap_or(self.key)
    }

    /// Bytes that decode to the record.
    #[inline]
    pub(super) fn value(&self) -> &'a [u8] {
        if self.value.is_empty() { self.key_value() } else { self.value }
    }
}

/// Writes a keyed record over what `out` holds and returns the hash of its key.
#[inline]
pub(super) fn write_keyed(
    key: &Bound<'_, PyAny>,
    value: &Bound<'_, PyAny>,
    classes: &mut SentClasses,
    out: &mut Vec<u8>,
) -> Result<u32, KeyedError> {
    out.clear();
    // Nearly all keys are shorter than 128 bytes: their length is this one byte.
    out.push(0);
    let form = encode_key(key, classes, out).map_err(KeyedError::Key)?;
    let key_start = finish_length(out);
    let key_end = out.len();
    let hash = hash_key(&out[key_start..]);
    if form == KeyForm::Changed {
        put_given(key, classes, out).map_err(KeyedError::Key)?;
        if !key.is(value) {
            encode(value, classes, out).map_err(KeyedError::Value)?;
        }
    } else if !key.is(value) {
        encode(value, classes, out).map_err(KeyedError::Value)?;
        // Equal bytes are equal values of one type: a copy of the key says nothing new.
        if out[key_end..] == out[key_start..key_end] {
            out.truncate(key_end);
        }
    }
    Ok(hash)
}

/// Which half of a keyed record could not be encoded.
pub(super) enum KeyedError {
    Key(CodecError),
    Value(CodecError),
}

fn put_given(key: &Bound<'_, PyAny>, classes: &mut SentClasses, out: &mut Vec<u8>) -> Result<(), CodecError> {
    let mut given = Vec::new();
    encode(key, classes, &mut given)?;
    out.push(KEY_AS_GIVEN);
    put_varint(out, given.len() as u64);
    out.extend_from_slice(&given);
    Ok(())
}

/// Fills in the length byte at the front, or makes room for more of them; returns where the key begins.
#[inline]
fn finish_length(out: &mut Vec<u8>) -> usize {
    let len = out.len() - 1;
    if len < 0x80 {
        out[0] = len as u8;
        return 1;
    }
    let mut prefix = Vec::with_capacity(10);
    put_varint(&mut prefix, len as u64);
    let start = prefix.len();
    out.splice(..1, prefix);
    start
}

#[inline]
fn take_block(bytes: &[u8]) -> Result<(&[u8], &[u8]), TaskError> {
    let (len, rest) = match bytes.split_first() {
        Some((&len, rest)) if len < 0x80 => (usize::from(len), rest),
        _ => {
            let (len, rest) = take_varint(bytes).map_err(malformed)?;
            (usize::try_from(len).unwrap_or(usize::MAX), rest)
        }
    };
    rest.split_at_checked(len).ok_or_else(|| malformed(CodecError::Truncated { needed: len, left: rest.len() }))
}

#[cold]
fn malformed(error: CodecError) -> TaskError {
    TaskError::Config(format!("a keyed record that no flownet sender writes: {error}"))
}

#[cfg(test)]
mod tests {
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
        for bytes in [&[][..], &[5, 1], &[0xff, 0xff], &[1, 0xc1, KEY_AS_GIVEN, 9, 1]] {
            assert!(matches!(KeyedRecord::parse(bytes), Err(TaskError::Config(_))), "{bytes:?}");
        }
    }

    #[test]
    fn a_long_key_gets_a_longer_length() {
        let mut out = vec![0; 301];
        assert_eq!(finish_length(&mut out), 2);
        assert_eq!((take_block(&out).unwrap().0.len(), out.len()), (300, 302));
    }
}
