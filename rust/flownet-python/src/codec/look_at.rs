//! Objects that are encoded next, on their way from memory.

use std::hint::black_box;

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::exact;

/// Looks at values that are encoded next, one after the other, and at what lies in the tuples among them.
///
/// Of millions of objects that a task keeps, each lies anywhere in memory, so that the encoder waits for every one of them. The
/// looks depend on nothing but each other: the processor makes many at once, and finds the objects at hand when it encodes
/// them. It may be said of any values; those of other kinds than these just come as they are needed.
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

/// Of one tuple.
const MOST_ITEMS: usize = 4;
