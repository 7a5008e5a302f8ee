//! Encodes large integers and decimals as keys: the canonical bytes of the Python number that is equal to the value.

use flownet_runtime::canonical::{self, BIG_INT, DECIMAL, FLOAT, INT, SMALL_INT, SMALL_MAX};
use flownet_runtime::varint::{put_varint, take_varint, unzigzag};

/// Appends a decimal with `scale` fraction digits. It is encoded as an integer if it is one, and as a float if a float
/// represents it exactly.
pub(super) fn put_decimal(digits: i128, scale: u32, out: &mut Vec<u8>) {
    let (mut digits, mut scale) = (digits, scale);
    while scale > 0 && digits % 10 == 0 {
        (digits, scale) = (digits / 10, scale - 1);
    }
    if scale == 0 {
        return canonical::put_wide_int(out, digits);
    }
    // No factor of ten is left. So a binary fraction has one factor of five per fraction digit, times an odd number.
    match 5i128.checked_pow(scale).filter(|fives| digits % fives == 0).map(|fives| digits / fives) {
        Some(odd) if odd.unsigned_abs() < 1 << f64::MANTISSA_DIGITS => {
            canonical::put_float(out, odd as f64 / 2f64.powi(scale as i32));
        }
        _ => {
            let text = format!("{digits}E-{scale}");
            out.push(DECIMAL);
            put_varint(out, text.len() as u64);
            out.extend_from_slice(text.as_bytes());
        }
    }
}

/// Takes a decimal with `scale` fraction digits off the front. Returns none if the bytes are not such a decimal.
pub(super) fn take_decimal(bytes: &[u8], scale: u32) -> Option<(i128, &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    match tag {
        FLOAT => {
            let (float, rest) = rest.split_first_chunk()?;
            Some((digits_of(f64::from_le_bytes(*float), scale)?, rest))
        }
        DECIMAL => {
            let (text, rest) = take_block(rest)?;
            let (digits, behind) = std::str::from_utf8(text).ok()?.split_once("E-")?;
            let zeros = scale.checked_sub(behind.parse().ok()?)?;
            Some((digits.parse::<i128>().ok()?.checked_mul(10i128.checked_pow(zeros)?)?, rest))
        }
        _ => {
            let (number, rest) = take_wide_int(bytes)?;
            Some((number.checked_mul(10i128.checked_pow(scale)?)?, rest))
        }
    }
}

/// Returns the digits of a float with a fraction, if it has at most `scale` fraction digits.
fn digits_of(float: f64, scale: u32) -> Option<i128> {
    let (mut odd, mut halves) = (float, 0);
    while odd.is_finite() && odd.fract() != 0.0 {
        (odd, halves) = (odd * 2.0, halves + 1);
    }
    if !odd.is_finite() || halves == 0 {
        return None;
    }
    let twos = 2i128.checked_pow(scale.checked_sub(halves)?)?;
    (odd as i128).checked_mul(5i128.checked_pow(scale)?)?.checked_mul(twos)
}

/// Takes an integer of up to 128 bits off the front.
pub(super) fn take_wide_int(bytes: &[u8]) -> Option<(i128, &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    match tag {
        INT => {
            let (value, rest) = take_varint(rest).ok()?;
            Some((unzigzag(value).into(), rest))
        }
        BIG_INT => {
            let (digits, rest) = take_block(rest)?;
            Some((wide_int(digits)?, rest))
        }
        tag if tag & SMALL_INT == SMALL_INT => Some(((tag & SMALL_MAX).into(), rest)),
        _ => None,
    }
}

/// Decodes two's complement, low byte first. Returns none if the number has more than 128 bits.
fn wide_int(digits: &[u8]) -> Option<i128> {
    let sign = if *digits.last()? < 0x80 { 0 } else { 0xff };
    let (low, high) = digits.split_at(digits.len().min(size_of::<i128>()));
    let mut bytes = [sign; size_of::<i128>()];
    bytes[..low.len()].copy_from_slice(low);
    let is_all = high.iter().all(|byte| *byte == sign) && (bytes[size_of::<i128>() - 1] < 0x80) == (sign == 0);
    is_all.then(|| i128::from_le_bytes(bytes))
}

/// Takes length-prefixed bytes off the front.
pub(super) fn take_block(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = take_varint(bytes).ok()?;
    rest.split_at_checked(usize::try_from(len).ok()?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decimal(digits: i128, scale: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_decimal(digits, scale, &mut bytes);
        bytes
    }

    const MOST: i128 = 10i128.pow(38) - 1;

    fn any_digits() -> impl Strategy<Value = i128> {
        (-MOST..=MOST, 0u32..38).prop_map(|(digits, fewer)| digits / 10i128.pow(fewer))
    }

    proptest! {
        #[test]
        fn each_decimal_comes_back_and_leaves_what_is_behind_it(digits in any_digits(), scale in 0u32..=38, behind: u8) {
            let mut key = decimal(digits, scale);
            key.push(behind);
            prop_assert_eq!(take_decimal(&key, scale), Some((digits, &[behind][..])));
        }

        /// Decimals with few binary fraction digits are encoded as floats.
        #[test]
        fn so_does_one_that_a_float_is(odd in -(1i64 << 40)..1 << 40, halves in 0u32..20, zeros in 0u32..6) {
            let scale = halves + zeros;
            let digits = i128::from(odd) * 5i128.pow(halves) * 10i128.pow(zeros);
            let key = decimal(digits, scale);
            let mut float = Vec::new();
            canonical::put_float_key(&mut float, odd as f64 / 2f64.powi(halves as i32));
            prop_assert_eq!(&key, &float);
            prop_assert_eq!(take_decimal(&key, scale), Some((digits, &[][..])));
        }

        #[test]
        fn digits_behind_the_point_that_are_zero_change_nothing(digits in -MOST / 1000..=MOST / 1000, scale in 0u32..35) {
            prop_assert_eq!(decimal(digits, scale), decimal(digits * 1000, scale + 3));
        }

        #[test]
        fn integers_come_back_however_large(value: i128, shift in 0u32..128) {
            let value = value >> shift;
            let mut key = Vec::new();
            canonical::put_wide_int(&mut key, value);
            prop_assert_eq!(take_wide_int(&key), Some((value, &[][..])));
        }

        #[test]
        fn other_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40), tag: u8, scale in 0u32..=38) {
            let _ = take_decimal(&bytes, scale);
            let tagged: Vec<_> = std::iter::once(tag).chain(bytes).collect();
            let _ = take_decimal(&tagged, scale);
            let _ = take_wide_int(&tagged);
        }
    }

    #[test]
    fn they_are_the_bytes_of_the_codec_for_objects() {
        assert_eq!(decimal(1_200, 2), [0xcc], "Decimal('12.00') is 12");
        assert_eq!(decimal(10, 2), [&[0x24, 4][..], b"1E-1"].concat());
        assert_eq!(decimal(-1_234, 2), [&[0x24, 8][..], b"-1234E-2"].concat());
        assert_eq!(decimal(-25, 2), [&[0x05][..], &(-0.25f64).to_le_bytes()].concat());
    }

    #[test]
    fn what_has_more_behind_the_point_than_there_is_room_for_is_none() {
        assert_eq!(take_decimal(&decimal(1, 3), 2), None);
        assert_eq!(take_decimal(&decimal(125, 3), 2), None, "one that a float is");
        assert_eq!(take_decimal(&decimal(MOST, 0), 1), None, "too many digits");
        for float in [f64::NAN, f64::INFINITY, f64::MIN_POSITIVE, f64::MAX] {
            let key = [&[0x05][..], &float.to_le_bytes()].concat();
            assert_eq!(take_decimal(&key, 38), None, "{float}");
        }
    }
}
