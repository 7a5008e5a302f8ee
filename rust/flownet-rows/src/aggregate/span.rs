//! Parts of several rows that one session has, which say over how long a time these are.
//!
//! ```text
//! value = 00 | varint milliseconds | value as of a part         no part begins so, nor a key in another form
//! ```
//!
//! The part's own time is that of the earliest of its rows.

use flownet_runtime::varint::put_varint;

use super::cell::varint;

/// Appends how much later the last row is than the first; what they come to follows. Nothing, if it is no later.
pub(super) fn put_span(out: &mut Vec<u8>, span_ms: u64) {
    if span_ms > 0 {
        out.push(OF_A_SPAN);
        put_varint(out, span_ms);
    }
}

/// How much later the last row of a part is than the first, and what they come to; none: the bytes are no part.
#[inline]
pub(super) fn split(value: &[u8]) -> Option<(i64, &[u8])> {
    let Some((&OF_A_SPAN, mut rest)) = value.split_first() else { return Some((0, value)) };
    let span_ms = varint(&mut rest)?;
    Some((i64::try_from(span_ms).ok()?, rest))
}

const OF_A_SPAN: u8 = 0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::cell::put_rows;
    use super::*;

    proptest! {
        #[test]
        fn a_part_says_by_itself_over_how_long_a_time_its_rows_are(span_ms in 0..i64::MAX, rows in 1u64..1 << 62, rest: Vec<u8>) {
            let (mut plain, mut spanned) = (Vec::new(), Vec::new());
            put_rows(&mut plain, rows);
            plain.extend_from_slice(&rest);
            put_span(&mut spanned, span_ms.cast_unsigned());
            spanned.extend_from_slice(&plain);
            prop_assert_eq!(split(&plain), Some((0, &plain[..])));
            prop_assert_eq!(split(&spanned), Some((span_ms, &plain[..])));
        }

        #[test]
        fn any_bytes_are_a_part_or_none(bytes: Vec<u8>) {
            let _ = split(&bytes);
            let _ = split(&[&[OF_A_SPAN][..], &bytes].concat());
        }
    }
}
