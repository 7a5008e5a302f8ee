//! Partial aggregates of one row that carry the row itself, for the late output.
//!
//! ```text
//! value = 01 | varint run bytes | run | value as of a part      01 is that of no rows, as which no part begins
//! ```

use std::sync::Arc;

use flownet_runtime::operator::KeyedRecord;
use flownet_runtime::snapshot::put_block;

use super::cell::put_rows;
use crate::gathered_rows::late_row;
use crate::layout::Layout;
use crate::partial_aggregate::take_block;
use crate::record_format::RowRecord;
use crate::row_block::MalformedRun;

/// Appends a row. Its partial aggregate follows.
pub(super) fn put_whole(out: &mut Vec<u8>, run: &[u8]) {
    put_rows(out, 0);
    put_block(out, run);
}

/// Splits off the row, if present. Returns the row and the partial aggregate, or none if the bytes are malformed.
fn apart(value: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let Some((&OF_NO_ROWS, mut rest)) = value.split_first() else { return Some((None, value)) };
    let run = take_block(&mut rest)?;
    Some((Some(run), rest))
}

/// Returns the partial aggregate of a value, or none if the bytes are malformed.
#[inline]
pub(super) fn part(value: &[u8]) -> Option<&[u8]> {
    apart(value).map(|(_, part)| part)
}

/// Returns true if the row is present. Partial aggregates written before a late output was requested have none.
pub(super) fn has_row(value: &[u8]) -> bool {
    !matches!(apart(value), Some((None, _)))
}

/// Decodes the row.
pub(super) fn row(layout: &Arc<Layout>, record: &KeyedRecord<'_>) -> Result<RowRecord, MalformedRun> {
    let run = apart(record.value()).and_then(|(run, _)| run).ok_or(MalformedRun::NotOneRow)?;
    late_row(layout, run, record.timestamp_ms)
}

const OF_NO_ROWS: u8 = 1;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_part_says_by_itself_whether_its_row_is_with_it(run: Vec<u8>, rows in 1u64..1 << 62, rest: Vec<u8>) {
            let (mut plain, mut whole) = (Vec::new(), Vec::new());
            put_rows(&mut plain, rows);
            plain.extend_from_slice(&rest);
            put_whole(&mut whole, &run);
            whole.extend_from_slice(&plain);
            prop_assert_eq!((part(&plain), has_row(&plain)), (Some(&plain[..]), false));
            prop_assert_eq!((part(&whole), has_row(&whole)), (Some(&plain[..]), true));
        }

        #[test]
        fn any_bytes_are_a_part_or_none(bytes: Vec<u8>) {
            let _ = (part(&bytes), has_row(&bytes));
            let whole = [&[OF_NO_ROWS][..], &bytes].concat();
            let _ = (part(&whole), has_row(&whole));
        }
    }
}
