//! LEB128 and zigzag: integers inside of records.

/// Bytes that are no such integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VarintError {
    /// The bytes end before the number does.
    #[error("a number that goes on behind the last byte")]
    Truncated,
    /// The number has more than 64 bits.
    #[error("a varint of more than 64 bits")]
    TooLong,
}

/// Appends `value` in groups of seven bits, low group first.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Splits a varint off the front of `bytes`.
#[inline]
pub fn take_varint(bytes: &[u8]) -> Result<(u64, &[u8]), VarintError> {
    // Lengths and counts are one byte as a rule.
    match bytes.split_first() {
        Some((&byte, rest)) if byte < 0x80 => Ok((u64::from(byte), rest)),
        _ => take_long_varint(bytes),
    }
}

fn take_long_varint(bytes: &[u8]) -> Result<(u64, &[u8]), VarintError> {
    let mut value = 0u64;
    for (index, &byte) in bytes.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        if index == 9 && bits > 1 {
            break;
        }
        value |= bits << (7 * index);
        if byte < 0x80 {
            return Ok((value, &bytes[index + 1..]));
        }
    }
    if bytes.len() < 10 {
        return Err(VarintError::Truncated);
    }
    Err(VarintError::TooLong)
}

/// Maps small magnitudes of either sign to small unsigned numbers.
#[inline]
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

#[inline]
/// Takes `zigzag` back.
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_come_back_and_leave_the_rest() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            bytes.push(0xee);
            assert_eq!(take_varint(&bytes).unwrap(), (value, &[0xee][..]));
        }
    }

    #[test]
    fn a_varint_cut_short_or_too_long_is_an_error() {
        assert!(matches!(take_varint(&[0x80]), Err(VarintError::Truncated)));
        assert!(matches!(take_varint(&[0xff; 10]), Err(VarintError::TooLong)));
    }

    #[test]
    fn zigzag_keeps_every_integer() {
        for value in [0, -1, 1, i64::MIN, i64::MAX] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
    }
}
