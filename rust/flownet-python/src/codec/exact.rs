//! Casts that cost nothing where they fail.

use pyo3::PyTypeInfo;
use pyo3::prelude::*;

/// `value` as a `T`, if that is its type and no subclass of it.
///
/// Where PyO3's `cast_exact` fails, it makes an error that owns the type: two calls into the interpreter for each type that a
/// value is not, a tenth of all the time that small tuples took.
#[inline]
pub(crate) fn exact<'a, 'py, T: PyTypeInfo>(value: &'a Bound<'py, PyAny>) -> Option<&'a Bound<'py, T>> {
    // SAFETY: an object whose exact type is `T`'s is a `T`.
    value.is_exact_instance_of::<T>().then(|| unsafe { value.cast_unchecked::<T>() })
}
