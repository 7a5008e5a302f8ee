//! Writes records for keyed edges, in the format that [`flownet_runtime::operator::KeyedRecord`] reads.

use flownet_core::keygroup::hash_key;
use flownet_runtime::operator::KEY_AS_GIVEN;
use flownet_runtime::varint::put_varint;
use pyo3::prelude::*;

use crate::codec::{CodecError, KeyForm, SentClasses, encode, encode_key};

/// Appends a keyed record to `out` and returns the hash of its key.
#[inline]
pub(super) fn write_keyed(
    key: &Bound<'_, PyAny>,
    value: &Bound<'_, PyAny>,
    classes: &mut SentClasses,
    out: &mut Vec<u8>,
) -> Result<u32, KeyedError> {
    let start = out.len();
    // Nearly all keys are shorter than 128 bytes, so this one byte holds their length.
    out.push(0);
    let form = encode_key(key, classes, out).map_err(KeyedError::Key)?;
    let key_start = finish_length(out, start);
    let key_end = out.len();
    let hash = hash_key(&out[key_start..]);
    if form == KeyForm::Changed {
        put_given(key, classes, out).map_err(KeyedError::Key)?;
        if !key.is(value) {
            encode(value, classes, out).map_err(KeyedError::Value)?;
        }
    } else if !key.is(value) {
        encode(value, classes, out).map_err(KeyedError::Value)?;
        // Equal bytes are equal values of one type: a copy of the key would add nothing.
        if out[key_end..] == out[key_start..key_end] {
            out.truncate(key_end);
        }
    }
    Ok(hash)
}

/// The half of a keyed record that could not be encoded.
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

/// Fills in the length byte at this place, or inserts more bytes for it. Returns the start of the key.
#[inline]
fn finish_length(out: &mut Vec<u8>, at: usize) -> usize {
    let len = out.len() - at - 1;
    if len < 0x80 {
        out[at] = len as u8;
        return at + 1;
    }
    let mut prefix = Vec::with_capacity(10);
    put_varint(&mut prefix, len as u64);
    let start = at + prefix.len();
    out.splice(at..=at, prefix);
    start
}

#[cfg(test)]
mod tests {
    use flownet_runtime::varint::take_varint;

    use super::*;

    #[test]
    fn a_long_key_gets_a_longer_length() {
        let mut out = vec![7; 3];
        out.resize(304, 0);
        assert_eq!((finish_length(&mut out, 3), out.len()), (5, 305));
        assert_eq!((&out[..3], take_varint(&out[3..]).map(|(len, _)| len)), (&[7; 3][..], Ok(300)));
    }
}
