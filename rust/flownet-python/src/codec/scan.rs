//! Reads encoded values without the interpreter.
//!
//! Native aggregates read plain numbers here. For all other values the functions return `None`, and the
//! caller decodes.

use super::tag;
use flownet_runtime::varint::{take_varint, unzigzag};

/// A plain number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An `int` of 64 bits.
    Int(i64),
    /// A `float`.
    Float(f64),
}

/// The number that `bytes` encode, if they encode exactly one `int` of 64 bits or `float`.
#[inline]
pub fn number(bytes: &[u8]) -> Option<Number> {
    let (&first, rest) = bytes.split_first()?;
    match first {
        tag::SMALL_INT.. if rest.is_empty() => Some(Number::Int(i64::from(first & tag::SMALL_MAX))),
        tag::INT => match take_varint(rest) {
            Ok((value, [])) => Some(Number::Int(unzigzag(value))),
            _ => None,
        },
        tag::FLOAT => rest.try_into().ok().map(|bytes| Number::Float(f64::from_le_bytes(bytes))),
        _ => None,
    }
}

/// The encoding of item `index` of a tuple or list whose items up to there are `None`, bools, numbers, strings
/// or bytes.
pub fn item_bytes(bytes: &[u8], index: usize) -> Option<&[u8]> {
    let (&(tag::TUPLE | tag::LIST), rest) = bytes.split_first()? else { return None };
    let (count, mut rest) = take_varint(rest).ok()?;
    if u64::try_from(index).ok()? >= count {
        return None;
    }
    for _ in 0..index {
        rest = rest.get(scalar_len(rest)?..)?;
    }
    rest.get(..scalar_len(rest)?)
}

/// Length of the encoding at the front of `bytes`.
fn scalar_len(bytes: &[u8]) -> Option<usize> {
    let (&first, rest) = bytes.split_first()?;
    let body = match first {
        tag::SMALL_INT.. | tag::NONE | tag::FALSE | tag::TRUE => 0,
        tag::SHORT_STR..tag::SMALL_INT => usize::from(first & tag::SMALL_MAX),
        tag::FLOAT => 8,
        tag::COMPLEX => 16,
        tag::INT => rest.len() - take_varint(rest).ok()?.1.len(),
        tag::STR | tag::BYTES | tag::BIG_INT => {
            let (len, after) = take_varint(rest).ok()?;
            usize::try_from(len).ok()?.checked_add(rest.len() - after.len())?
        }
        _ => return None,
    };
    body.checked_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_numbers_are_read() {
        assert_eq!(number(&[0xc5]), Some(Number::Int(5)));
        assert_eq!(number(&[tag::INT, 0x01]), Some(Number::Int(-1)));
        let float = [&[tag::FLOAT][..], &1.5f64.to_le_bytes()].concat();
        assert_eq!(number(&float), Some(Number::Float(1.5)));
        for other in [&[][..], &[tag::TRUE], &[tag::INT], &[0xc5, 0xc5], &[tag::FLOAT, 0]] {
            assert_eq!(number(other), None, "{other:?}");
        }
    }

    #[test]
    fn items_are_found_behind_scalars_only() {
        let pair = [tag::TUPLE, 2, 0x82, b'h', b'i', 0xc7];
        assert_eq!(item_bytes(&pair, 0), Some(&[0x82, b'h', b'i'][..]));
        assert_eq!(item_bytes(&pair, 1), Some(&[0xc7][..]));
        assert_eq!(item_bytes(&pair, 2), None);
        assert_eq!(item_bytes(&[tag::TUPLE, 2, tag::LIST, 0, 0xc1], 1), None);
        assert_eq!(item_bytes(&[tag::TUPLE, 2, 0xbf], 1), None, "cut short");
        assert_eq!(item_bytes(&[0xc1], 0), None);
    }
}
