//! Casts that cost nothing if they fail.

use pyo3::PyTypeInfo;
use pyo3::prelude::*;

/// Returns `value` as a `T`, if `T` is its exact type.
///
/// If PyO3's `cast_exact` fails, it creates an error that owns the type. That costs two calls into the
/// interpreter for each mismatch: a tenth of the total time for small tuples.
#[inline]
pub(crate) fn exact<'a, 'py, T: PyTypeInfo>(value: &'a Bound<'py, PyAny>) -> Option<&'a Bound<'py, T>> {
    // SAFETY: an object whose exact type is `T`'s is a `T`.
    value.is_exact_instance_of::<T>().then(|| unsafe { value.cast_unchecked::<T>() })
}
