//! Loads objects into the processor's cache before they are encoded.

use std::hint::black_box;

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::exact;

/// Reads the headers of values that are encoded next, and of the items of tuples among them.
///
/// Objects of a large state are scattered in memory, so the encoder would wait for each of them. These reads
/// depend only on each other, so the processor issues many at once. Then the encoder finds the objects in the
/// cache. Any values may be passed; the parts of other kinds are loaded when they are needed.
pub(crate) fn look_at<'a, 'py: 'a>(values: impl Iterator<Item = Borrowed<'a, 'py, PyAny>> + Clone) {
    for value in values.clone() {
        black_box(value.get_type_ptr());
    }
    for value in values {
        if let Some(tuple) = exact::<PyTuple>(&value) {
            for item in tuple.iter_borrowed().take(MOST_ITEMS) {
                black_box(item.get_type_ptr());
            }
        }
    }
}

/// Number of items that are read of one tuple.
const MOST_ITEMS: usize = 4;
