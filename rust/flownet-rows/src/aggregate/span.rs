//! Partial aggregates of several rows of one session, with the time span of their rows.
//!
//! ```text
//! value = 00 | varint milliseconds | value as of a part         no part begins so, nor a key in another form
//! ```
//!
//! The time of the partial aggregate is that of its earliest row.

use flownet_runtime::varint::put_varint;

use super::cell::varint;

/// Appends the span between the first and the last row. The partial aggregate follows. Appends nothing if the span is
/// zero.
pub(super) fn put_span(out: &mut Vec<u8>, span_ms: u64) {
    if span_ms > 0 {
        out.push(OF_A_SPAN);
        put_varint(out, span_ms);
    }
}

/// Splits off the span. Returns the span and the partial aggregate, or none if the bytes are malformed.
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
