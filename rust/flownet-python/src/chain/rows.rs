//! Counts the rows of records. A numpy array has as many rows as its first dimension is long; any other
//! record is one row.
//!
//! Frames and tables of other libraries count as one, too: they travel by pickle, and only the library knows
//! their content.

use pyo3::prelude::*;

use super::isolate::is_array;

/// Number of rows of a record; `None` for a record that is one row.
#[inline]
pub(super) fn rows(record: &Bound<'_, PyAny>) -> Option<u64> {
    // An array without dimensions has no length.
    if is_array(record) { record.len().ok().map(|rows| rows as u64) } else { None }
}
