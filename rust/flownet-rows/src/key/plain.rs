//! Decodes keys that are numbers, strings or bytes from their canonical bytes.

use flownet_runtime::canonical;
use flownet_runtime::varint::{take_varint, unzigzag};

use super::number::take_block;
use crate::physical_type::Scalar;

/// Takes the canonical bytes of one value off the front.
pub(super) fn take(bytes: &[u8]) -> Option<(Scalar<'_>, &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    Some(match tag {
        canonical::INT => {
            let (value, rest) = take_varint(rest).ok()?;
            (Scalar::Int(unzigzag(value)), rest)
        }
        canonical::BIG_INT => {
            let (digits, rest) = take_block(rest)?;
            (big_int(digits), rest)
        }
        canonical::FLOAT => {
            let (taken, rest) = rest.split_first_chunk()?;
            (Scalar::Float(f64::from_le_bytes(*taken)), rest)
        }
        canonical::STR | canonical::BYTES => {
            let (taken, rest) = take_block(rest)?;
            (Scalar::Bytes(taken), rest)
        }
        tag if tag & canonical::SMALL_INT == canonical::SMALL_INT => {
            (Scalar::Int((tag & canonical::SMALL_MAX).into()), rest)
        }
        tag if tag & canonical::SMALL_INT == canonical::SHORT_STR => {
            let (taken, rest) = rest.split_at_checked((tag & canonical::SMALL_MAX).into())?;
            (Scalar::Bytes(taken), rest)
        }
        _ => return None,
    })
}

/// Decodes an integer that does not fit `i64`: of a column of unsigned integers, or of floats.
fn big_int(digits: &[u8]) -> Scalar<'static> {
    let is_negative = digits.last().is_some_and(|last| *last >= 0x80);
    if let ([low @ .., 0], false) = (digits, is_negative)
        && let Ok(low) = low.try_into()
    {
        return Scalar::Unsigned(u64::from_le_bytes(low));
    }
    // Floats beyond 64 bits are integers of 53 bits followed by zeros, so each step is exact.
    let float = |digits: &[u8]| digits.iter().rev().fold(0.0, |sum: f64, digit| sum * 256.0 + f64::from(*digit));
    if !is_negative {
        return Scalar::Float(float(digits));
    }
    let mut carry = true;
    let negated = digits.iter().map(|digit| {
        let (sum, overflow) = (!digit).overflowing_add(u8::from(carry));
        carry = overflow;
        sum
    });
    Scalar::Float(-float(&negated.collect::<Vec<_>>()))
}
