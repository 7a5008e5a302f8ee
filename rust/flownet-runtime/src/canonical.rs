//! Encodes keys as canonical bytes: numbers, strings, bytes, times and tuples of these. Objects and rows share this
//! encoding.
//!
//! Values that are the same key in a Python `dict` have the same bytes. The bytes choose the key group and index keyed
//! state, so they are part of every checkpoint and never change. They are also values of the codec for objects, whose
//! other forms flownet-python defines.

use crate::varint::{put_varint, short_varint, zigzag};

/// The null value.
pub const NONE: u8 = 0x00;
/// An integer of 64 bits: zigzag varint.
pub const INT: u8 = 0x03;
/// Any other integer: varint of its length, two's complement, low byte first.
pub const BIG_INT: u8 = 0x04;
/// A non-integral number: its 8 bytes.
pub const FLOAT: u8 = 0x05;
/// A string of 64 bytes and more: varint of its length, UTF-8.
pub const STR: u8 = 0x07;
/// Bytes: varint of their length, and the bytes.
pub const BYTES: u8 = 0x09;
/// A tuple: varint of its length, and its items.
pub const TUPLE: u8 = 0x10;
/// A date: year in two bytes, month, day.
pub const DATE: u8 = 0x20;
/// A time of the day: hour, minute, second, fold, microsecond in four bytes, zone.
pub const TIME: u8 = 0x21;
/// The zone of a time without a zone.
pub const ZONE_NONE: u8 = 0;
/// UTC.
pub const ZONE_UTC: u8 = 1;
/// A date, and a time of that day.
pub const DATETIME: u8 = 0x22;
/// A duration: days, seconds and microseconds, in four bytes each.
pub const TIMEDELTA: u8 = 0x23;
/// A decimal that is neither an integer nor equal to a float: varint of its length, `<sign><digits>E<exponent>`.
pub const DECIMAL: u8 = 0x24;
/// Not a value: in keys it precedes the name of a class and the data that its instances are compared by.
pub const CLASS_KEY: u8 = 0x7d;
/// A string of up to 63 bytes: its length is in the lower bits.
pub const SHORT_STR: u8 = 0x80;
/// An integer from 0 to 63: it is in the lower bits.
pub const SMALL_INT: u8 = 0xc0;
/// Largest length of a short string, and largest small integer.
pub const SMALL_MAX: u8 = 0x3f;

/// Appends an integer.
#[inline]
pub fn put_int(out: &mut Vec<u8>, value: i64) {
    match u8::try_from(value) {
        Ok(small) if small <= SMALL_MAX => out.push(SMALL_INT | small),
        _ => {
            out.push(INT);
            put_varint(out, zigzag(value));
        }
    }
}

/// Returns the bytes and the length that [`put_int`] appends, for hashing. They are assembled in a register: if bytes
/// are written one by one and then read as a word, the processor stalls.
#[inline]
pub fn int(value: i64) -> ([u8; 16], usize) {
    let zigzag = zigzag(value);
    let (word, len) = if (0..=i64::from(SMALL_MAX)).contains(&value) {
        (u128::from(SMALL_INT | value as u8), 1)
    } else if zigzag < 1 << 56 {
        let (varint, len) = short_varint(zigzag);
        (u128::from(INT) | u128::from(varint) << 8, 1 + len)
    } else {
        let (low, _) = short_varint(zigzag & ((1 << 56) - 1));
        // None of the first eight bytes is the last one.
        let (low, (high, len)) = (low | 0x8080_8080_8080_8080, short_varint(zigzag >> 56));
        (u128::from(INT) | u128::from(low) << 8 | u128::from(high) << 72, 9 + len)
    };
    (word.to_le_bytes(), len)
}

/// Appends an integer that may be large.
#[inline]
pub fn put_wide_int(out: &mut Vec<u8>, value: i128) {
    match i64::try_from(value) {
        Ok(value) => put_int(out, value),
        Err(_) => {
            // One more bit for the sign.
            let bits = i128::BITS - value.unsigned_abs().leading_zeros();
            let mut bytes = [if value < 0 { 0xff } else { 0 }; size_of::<i128>() + 1];
            bytes[..size_of::<i128>()].copy_from_slice(&value.to_le_bytes());
            put_big_int(out, &bytes[..bits as usize / 8 + 1]);
        }
    }
}

/// Appends a float as a key: as the integer that it equals, if there is one. All NaNs are one key.
pub fn put_float_key(out: &mut Vec<u8>, value: f64) {
    if value.is_nan() {
        put_float(out, f64::NAN);
    } else if value.is_infinite() || value.fract() != 0.0 {
        put_float(out, value);
    } else if (-TWO_TO_63..TWO_TO_63).contains(&value) {
        put_int(out, value as i64);
    } else {
        put_integral(out, value);
    }
}

const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

/// Appends a float unchanged.
#[inline]
pub fn put_float(out: &mut Vec<u8>, value: f64) {
    out.push(FLOAT);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a string.
#[inline]
pub fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    match u8::try_from(text.len()) {
        Ok(len) if len <= SMALL_MAX => out.push(SHORT_STR | len),
        _ => {
            out.push(STR);
            put_varint(out, text.len() as u64);
        }
    }
    out.extend_from_slice(text);
}

/// Appends bytes.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(BYTES);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends the header of a tuple, before its items.
#[inline]
pub fn put_tuple(out: &mut Vec<u8>, items: usize) {
    out.push(TUPLE);
    put_varint(out, items as u64);
}

/// Appends an integer that does not fit in an `i64`: two's complement, low byte first.
fn put_big_int(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(BIG_INT);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends the integer that a float beyond 64 bits equals: 53 bits, followed by zeros.
fn put_integral(out: &mut Vec<u8>, value: f64) {
    let bits = value.abs().to_bits();
    let exponent = (bits >> 52) as usize - 1023;
    let mantissa = u128::from((bits & ((1 << 52) - 1)) | 1 << 52);
    let shift = exponent - 52;
    let len = (exponent + 1) / 8 + 1;
    let mut bytes = vec![0; len];
    let shifted = (mantissa << (shift % 8)).to_le_bytes();
    for (place, byte) in bytes[shift / 8..].iter_mut().zip(shifted) {
        *place = byte;
    }
    if value < 0.0 {
        negate(&mut bytes);
    }
    put_big_int(out, &bytes);
}

/// Negates a two's-complement number whose low byte is first.
fn negate(bytes: &mut [u8]) {
    let mut carry = true;
    for byte in bytes {
        let (sum, overflow) = (!*byte).overflowing_add(u8::from(carry));
        (*byte, carry) = (sum, overflow);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(put: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out);
        out
    }

    #[test]
    fn an_integer_is_the_same_bytes_appended_or_not() {
        for shift in 0..64 {
            for value in [i64::MIN >> shift, i64::MAX >> shift, (i64::MIN >> shift).wrapping_add(1), 1 << (shift % 63)]
            {
                let (given, len) = int(value);
                assert_eq!(given[..len], bytes(|out| put_int(out, value)), "{value}");
            }
        }
    }

    #[test]
    fn a_float_that_is_integral_is_the_integer_it_equals() {
        for value in [0i64, 1, -1, 63, 64, 1 << 53, i64::MIN] {
            assert_eq!(bytes(|out| put_float_key(out, value as f64)), bytes(|out| put_int(out, value)));
        }
        assert_eq!(bytes(|out| put_float_key(out, -0.0)), bytes(|out| put_int(out, 0)));
        assert_eq!(bytes(|out| put_float_key(out, TWO_TO_63)), bytes(|out| put_wide_int(out, 1 << 63)));
        // The bytes that int.to_bytes(9, "little", signed=True) returns for -2**64 + 2**12, and 11 bytes for 2**80.
        let below = -(2f64.powi(64) - 4096.0);
        assert_eq!(bytes(|out| put_float_key(out, below)), [4, 9, 0, 16, 0, 0, 0, 0, 0, 0, 0xff]);
        assert_eq!(bytes(|out| put_float_key(out, 2f64.powi(80))), [4, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(bytes(|out| put_float_key(out, 0.5))[0], FLOAT);
    }
}
