//! LEB128 and zigzag encoding of integers inside records.

/// Bytes that are no valid varint.
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

/// Returns the encoding of a value below 2^56 by [`put_varint`], as a word whose low byte is the first, and its length.
/// It does not branch on the length.
#[inline]
pub fn short_varint(value: u64) -> (u64, usize) {
    let fours = (value & 0x0fff_ffff) | (value & 0x00ff_ffff_f000_0000) << 4;
    let pairs = (fours & 0x0000_3fff_0000_3fff) | (fours & 0x0fff_c000_0fff_c000) << 2;
    let sevens = (pairs & 0x007f_007f_007f_007f) | (pairs & 0x3f80_3f80_3f80_3f80) << 1;
    let bits = 64 - (value | 1).leading_zeros() as usize;
    let len = bits.div_ceil(7);
    let not_last = (1 << (8 * (len - 1))) - 1;
    (sevens | (0x8080_8080_8080_8080 & not_last), len)
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

/// Decodes two bytes and more. Reads eight bytes at once, if there are as many. Numbers of two and of seven bytes cost
/// the same then, and no branch depends on their length.
#[inline]
fn take_long_varint(bytes: &[u8]) -> Result<(u64, &[u8]), VarintError> {
    if let Some((head, _)) = bytes.split_first_chunk() {
        let word = u64::from_le_bytes(*head);
        let last = !word & 0x8080_8080_8080_8080;
        if last != 0 {
            // The bit that marks the last byte, and all bits below it.
            let value = join_sevens(word & (last ^ (last - 1)));
            return Ok((value, &bytes[(last.trailing_zeros() / 8 + 1) as usize..]));
        }
    }
    take_varint_by_byte(bytes)
}

/// Removes the gaps that the top bit of each byte leaves.
#[inline]
fn join_sevens(word: u64) -> u64 {
    let pairs = (word & 0x007f_007f_007f_007f) | (word & 0x7f00_7f00_7f00_7f00) >> 1;
    let fours = (pairs & 0x0000_3fff_0000_3fff) | (pairs & 0x3fff_0000_3fff_0000) >> 2;
    (fours & 0x0000_0000_0fff_ffff) | (fours & 0x0fff_ffff_0000_0000) >> 4
}

#[inline(never)]
fn take_varint_by_byte(bytes: &[u8]) -> Result<(u64, &[u8]), VarintError> {
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

/// The inverse of `zigzag`.
#[inline]
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
    fn eight_bytes_at_once_say_what_byte_by_byte_they_do() {
        for bits in 0..=64 {
            for value in [0, 1].map(|less| (u64::MAX.checked_shr(64 - bits).unwrap_or(0)).saturating_sub(less)) {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, value);
                for behind in 0..10 {
                    bytes.extend([0xff, 0x80, 0x00][behind % 3..][..1].iter());
                    assert_eq!(take_varint(&bytes), take_varint_by_byte(&bytes));
                    assert_eq!(take_varint(&bytes).unwrap().0, value);
                }
            }
        }
    }

    #[test]
    fn a_short_varint_is_what_is_appended() {
        for bits in 0..56 {
            for value in [0, 1, 0x005a_5a5a_5a5a_5a5a].map(|low: u64| 1 << bits | low & ((1 << bits) - 1)) {
                let mut appended = Vec::new();
                put_varint(&mut appended, value);
                let (word, len) = short_varint(value);
                assert_eq!(word.to_le_bytes()[..len], appended, "{value:#x}");
            }
        }
        assert_eq!(short_varint(0), (0, 1));
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
