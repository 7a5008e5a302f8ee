//! Rows of records: an array of numpy has as many as its first dimension, anything else is one.
//!
//! Frames and tables of other libraries are one, too: they travel by pickle, and what they hold is theirs to know.

use pyo3::prelude::*;

use super::isolate::is_array;

/// How many rows a record has; `None` for what is one row.
#[inline]
pub(super) fn rows(record: &Bound<'_, PyAny>) -> Option<u64> {
    // An array without dimensions has no length.
    if is_array(record) { record.len().ok().map(|rows| rows as u64) } else { None }
}
